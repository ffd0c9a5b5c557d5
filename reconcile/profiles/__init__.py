"""Where can a profile run? Status of AIMProfile and AIMClusterProfile.

Leaves to others: what a service makes of a profile (`reconcile.service`).
"""
