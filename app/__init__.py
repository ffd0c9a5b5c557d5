"""How is the server put together? Settings, the FastAPI application, listeners, lifecycle of the process.

Not here: everything that can be tested without a process. Only `app` and `cli` import the other rooms.
"""
