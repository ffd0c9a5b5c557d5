"""Hypothesis: the same examples on every run of the suite, more on request (HYPOTHESIS_PROFILE=long)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]
settings.register_profile("rules", max_examples=150, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "rules"))
