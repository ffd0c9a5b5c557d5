"""Measures the reconciler on a real control plane: calls, CPU, memory, delays; beside a bare client's floor.

Leaves correctness to the tests, and admission to `bench/admission`.
"""
