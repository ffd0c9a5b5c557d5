"""AIMArtifact: base models (cache claim, adapter disk, download, sweeps of the disk) and adapters (validity, ownership).

Leaves to others: which service stages which adapter (`reconcile.service`), and what a Job does on a disk (`disk`).
"""
