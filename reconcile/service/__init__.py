"""AIMService: from declared adapters to staged directories, and from a profile or template to an InferenceService.

Leaves to others: base models and their disks (`reconcile.artifact`), which artifact a cache holds (`reconcile.caches`).
"""
