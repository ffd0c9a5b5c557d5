"""What an InferenceService becomes, and what it is refused for, as KServe's raw deployment mode does it.

Leaves to others: running the pods (the process node), binding them (the real scheduler), judging the Deployment (the
API server). `docs/kserve-stand-in.md` lists where it deviates from the real controller.
"""
