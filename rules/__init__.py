"""Is it valid, and what follows from it? Pure functions over an object, its old self and the world as it is known.

Leaves to others: where the world comes from (informers, files, live reads) and how a verdict is spoken.
"""
