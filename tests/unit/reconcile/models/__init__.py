"""Tests of `reconcile.models`."""
