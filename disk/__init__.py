"""What happens on an adapter disk and in a model cache: the commands inside the Jobs, the only writers of a disk.

Leaves to others when a Job runs, with which specification, and what its result means for a status (`reconcile`).
"""
