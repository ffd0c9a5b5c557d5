"""Which certificate does the server use, until when, and who trusts it? Mounted and self-managed pairs, hot reload.

Not here: the sockets and the process (`app`), the Kubernetes client (passed in), the answers (`webhooks`).
"""
