"""Tests of `reconcile.artifact`."""
