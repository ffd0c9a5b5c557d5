"""Preflight and the real engine: the same adapters are judged by both. `make test-engine` asks the engine again.

`recipes` makes the adapters, `ask` runs in the environment of an engine and asks it, `run` does so for each version and
writes the record, `record` compares the record with preflight. The record is a fixture of the unit tests.
"""
