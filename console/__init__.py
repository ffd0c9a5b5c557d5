"""The console: a live, read-only page that shows which services and adapters run where.

Not here: what the objects mean (`rules`), reading the cluster and checking tokens (`app` passes both in).
"""
