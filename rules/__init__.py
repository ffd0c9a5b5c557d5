"""Whether an object is valid, and what follows from it: pure functions over it, its old version and other objects.

Leaves to others: where the objects come from (informers, files, live reads), and how a verdict is shown.
"""
