"""The console: a read-only page that shows what serves where, live.

It leaves to others what the objects mean (`rules`), reading the cluster and letting people in (`app` hands both in).
"""
