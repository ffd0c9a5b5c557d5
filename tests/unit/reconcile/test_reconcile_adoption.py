"""Objects of another operator: seen when its name is adopted, reported when it is not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from api.kinds import INFERENCE_SERVICE, PERSISTENT_VOLUME_CLAIM, POD
from api.names import LABEL_MANAGED_BY
from reconcile.shell import ApplyRefusedError
from reconcile.world import make_informers
from tests.unit.reconcile.test_reconcile_calls import Scene, apply, isvc


def test_what_is_adopted_is_selected_beside_our_own() -> None:
    ours, both = make_informers(cast("Any", None)), make_informers(cast("Any", None), adopted=("another",))
    for kind in (INFERENCE_SERVICE, POD, PERSISTENT_VOLUME_CLAIM):
        assert [ours[kind].selects(name) for name in ("aim-adapters", "another", "third")] == [True, False, False]
        assert [both[kind].selects(name) for name in ("aim-adapters", "another", "third")] == [True, True, False]


async def test_an_object_of_an_operator_that_is_not_adopted_is_left_alone_and_reported() -> None:
    scene = Scene(projected=False)
    theirs = isvc(1)
    theirs["metadata"]["labels"] = {LABEL_MANAGED_BY: "another"}
    scene.server.behind[INFERENCE_SERVICE, "chat"] = scene.server.stored(INFERENCE_SERVICE, theirs)
    with pytest.raises(ApplyRefusedError, match='is "another": stop that operator and add it to'):
        await apply(scene, isvc(2))
    assert not any(call.startswith("apply") for call in scene.server.calls[1:])
