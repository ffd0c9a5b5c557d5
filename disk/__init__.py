"""The commands inside the Jobs, which are the only writers of an adapter disk or a model cache.

It leaves to `reconcile` when a Job runs, with which specification, and what its result means for a status.
"""
