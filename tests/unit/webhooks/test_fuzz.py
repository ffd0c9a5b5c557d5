"""A short run of the fuzzer; `make fuzz` runs the long one."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from rules.examples import surroundings
from webhooks.admission import Admission
from webhooks.fast.admission import make_admission

from .fuzz import run

COUNT = int(os.environ.get("AIM_FUZZ_CASES", "2000"))


@pytest.mark.parametrize("make", [Admission, make_admission], ids=["plain", "fast"])
async def test_spoilt_bodies_get_well_formed_answers(make: Callable[..., Admission]) -> None:
    admission = make(surroundings())
    seen = await run(admission, COUNT, seed=1)
    assert {"allowed", "400", "422"} <= set(seen)
    assert admission.in_flight == 0
