"""Which certificate do we serve, until when, and who trusts it? Mounted pairs, self-managed ones, hot reload.

Leaves to others: the sockets and the process (`app`), the Kubernetes client (handed in), what is answered (`webhooks`).
"""
