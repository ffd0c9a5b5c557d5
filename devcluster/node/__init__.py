"""The process node: a Node of the development cluster that runs each container as a local process, as a kubelet would.
It leaves to others: the control plane, binding claims, InferenceServices, and what the processes themselves do."""
