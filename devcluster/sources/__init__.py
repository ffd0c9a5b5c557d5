"""Adapter sources on one machine: a hub and an S3 server that check what the real client libraries send.

They leave to others who starts and stops them (`devcluster`) and what is downloaded with them (`disk`).
"""
