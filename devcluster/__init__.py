"""A whole cluster on one machine: real Kubernetes programs, stand-ins for what a laptop lacks (kubelet, KServe, GPUs).

Not here: what the product does. This package installs the chart as a user does, and imports none of its rooms.
"""
