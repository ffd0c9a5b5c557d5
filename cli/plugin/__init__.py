"""`kubectl aim-adapters`: what serves, why something does not, what a change would do; for people and programs.

Leaves to others: what is valid (`rules`), what should exist (`reconcile`), what is on a disk (`disk`).
"""
