"""Tests of `reconcile.caches`."""
