"""What is the status of AIMModel and templates, of both scopes, in the template pipeline?

Leaves to others: what a service makes of them (`reconcile.service`).
"""
