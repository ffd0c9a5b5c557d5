"""A short run of the fuzzer; `make fuzz` runs the long one."""

from __future__ import annotations

import os

from rules.examples import surroundings
from webhooks.routes import create_app

from .fuzz import run

COUNT = int(os.environ.get("AIM_FUZZ_CASES", "2000"))


async def test_spoilt_bodies_get_well_formed_answers() -> None:
    app = create_app(surroundings())
    seen = await run(app, COUNT, seed=1)
    assert {"allowed", "400", "422"} <= set(seen)
    assert app._slots.taken == 0
