"""The machinery of a Kubernetes controller: client, informers, work queue, engine, lease, events, polls.

Not here: any kind of aim-adapters, any rule, any decision.
"""
