"""Is a manifest good, before it reaches a cluster? Files in, findings with file, line and column out.

Leaves to others: what is valid (`rules`), which shape an object has (`api.models`).
"""
