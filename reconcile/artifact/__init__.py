"""AIMArtifact: base models (claims, download, sweeps of the adapter disk) and adapters (validity, ownership).

Leaves to others: which service stages which adapter (`reconcile.service`), and what a Job does on a disk (`disk`).
"""
