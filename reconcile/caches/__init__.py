"""AIMProfileCache and AIMTemplateCache: which artifacts hold the weights of a profile or a template.

Leaves to others: the artifacts' own downloads and disks (`reconcile.artifact`).
"""
