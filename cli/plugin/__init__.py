"""`kubectl aim-adapters`: shows services, explains why an adapter is not served, and what a change does.

Not here: what is valid (`rules`), what should exist (`reconcile`), what is on a disk (`disk`).
"""
