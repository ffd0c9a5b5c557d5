"""What all tests share: properties have no deadline, for a busy machine is no failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("aim-adapters", deadline=None, print_blob=True)
settings.load_profile("aim-adapters")
