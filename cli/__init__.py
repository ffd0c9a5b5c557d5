"""The command line that people use: the kubectl plugin, lint, inspect, check, render, the development cluster.

Not here: the server (`app`) and the rules themselves.
"""
