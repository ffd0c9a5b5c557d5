"""How do models and templates of the template pipeline stand? Status of AIMModel and templates, of both scopes.

Leaves to others: what a service makes of them (`reconcile.service`).
"""
