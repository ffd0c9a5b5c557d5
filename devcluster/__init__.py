"""A whole cluster on one machine: real Kubernetes programs, stand-ins for what a laptop lacks (kubelet, KServe, GPUs).

What the product does is no business of this package: it installs the chart as any user would, and imports no room.
"""
