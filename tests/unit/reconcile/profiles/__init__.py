"""Tests of `reconcile.profiles`."""
