"""Checks manifests before they reach a cluster: files in, findings with file, line and column out.

Not here: what is valid (`rules`), and the schema of an object (`api.models`).
"""
