"""Tests of `reconcile.service`."""
