"""How fast admission is: our server process over TLS, beside a bare answer from the same server.

Leaves to others: reconcile scale and memory of the whole process.
"""
