"""What the admission server answers at once is what it answers the usual way."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from api.kinds import AIM_ARTIFACT
from api.view import Json
from rules.examples import manifest, scene, surroundings
from rules.references import Ref
from rules.registry import Rule, all_rules
from rules.world import KIND_BY_NAME
from tests.unit.webhooks.reviews import UID, application, post, review
from webhooks.admission import Admission, AdmissionSettings
from webhooks.fast.admission import FastAdmission, make_admission
from webhooks.fast.protocol import DIRECT, Direct

GOOD = orjson.dumps(review(manifest("AIMService", {})))
SCALE_ONLY = {"kind": "AIMClusterProfile", "metadata": {"name": "qwen3-8b-mi300x"}, "spec": {"features": []}}
RESTS_ON_ANOTHER = orjson.dumps(review(manifest("AIMService", {"spec": {"adapterMode": "dynamic"}})))


def now(app: Admission, body: bytes, path: str = "/validate") -> Any:
    """Return what is answered at once."""
    return FastAdmission(app, application(app)).answer_now(f"{path}?timeout=5s".encode("latin-1"), bytearray(body))


@pytest.mark.parametrize("entry", all_rules(), ids=lambda entry: entry.name)
async def test_every_example_is_answered_alike(entry: Rule) -> None:
    kind = KIND_BY_NAME[entry.kinds[0]]
    for example in (entry.refused, entry.passes):
        spelt = scene(kind, example)
        app = make_admission(spelt.world)
        body = orjson.dumps(review(spelt.new, spelt.old, kind=kind, version=spelt.version))
        for path in ("/validate", "/mutate"):
            assert now(app, body, path) == (await post(app, body, path)).content


@pytest.mark.parametrize("path", ["/healthz", "/", "/validate/", "/%76alidate", "/valid\xff"])
def test_other_paths_are_asked_the_usual_way(path: str) -> None:
    assert now(make_admission(surroundings()), GOOD, path) is None


def test_bad_bodies_and_large_ones_are_asked_the_usual_way() -> None:
    app = make_admission(surroundings(), settings=AdmissionSettings(max_body_bytes=len(GOOD)))
    assert isinstance(now(app, GOOD), bytes)
    for body in (b"", b"{", b"\xff", GOOD + b" "):
        assert now(app, body) is None
    assert app.in_flight == 0


def test_without_a_free_slot_nothing_is_answered_at_once() -> None:
    app = make_admission(surroundings(), settings=AdmissionSettings(max_in_flight=1))
    assert app.enter()
    assert now(app, GOOD) is None
    app.leave()
    assert isinstance(now(app, GOOD), bytes)


def test_what_breaks_is_a_500_with_the_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_admission(surroundings())
    monkeypatch.setattr(app, "_judge", lambda *_: 1 / 0)
    response = orjson.loads(now(app, GOOD))["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == (UID, False, 500)
    assert app.in_flight == 0


class Reader:
    """Knows one object, and counts."""

    def __init__(self, found: Json | None) -> None:
        self.found, self.asked = found, 0

    async def read(self, ref: Ref) -> Json | None:
        self.asked += 1
        return self.found if self.found is not None and ref.kind.kind == self.found["kind"] else None


class Given(Direct):
    """The short path of a server that has asked already."""

    def __init__(self, begun: object) -> None:
        self.begun = begun
        self.sent: list[bytes] = []

    def answer_json(self, body: bytes) -> bool:
        self.sent.append(body)
        return True


@pytest.mark.parametrize("withdrawn", [False, True])
async def test_a_refusal_that_rests_on_another_object_is_finished_the_usual_way(withdrawn: bool) -> None:
    world = surroundings([SCALE_ONLY])
    fresh = manifest("AIMClusterProfile", {} if withdrawn else SCALE_ONLY)
    reader = Reader(fresh)
    app = make_admission(world, reader)
    begun = now(app, RESTS_ON_ANOTHER)
    assert begun is not None
    assert not isinstance(begun, bytes)
    assert (reader.asked, app.in_flight) == (0, 0)
    given = Given(begun)
    scope = {"type": "http", "method": "POST", "path": "/validate", "headers": [], "query_string": b"timeout=5s"}
    await FastAdmission(app, _nothing)({**scope, "extensions": {DIRECT: given}}, _nothing, _nothing)
    assert reader.asked > 0
    assert app.in_flight == 0
    (sent,) = given.sent
    assert sent == (await post(app, RESTS_ON_ANOTHER)).content
    assert orjson.loads(sent)["response"]["allowed"] is withdrawn


async def _nothing(*_: Any) -> Any:
    raise AssertionError("the body is here and the answer goes the short way")


def test_artifacts_are_mutated_at_once() -> None:
    artifact = manifest("AIMArtifact", {"spec": {"type": "model", "modelId": None, "compatibleWith": None}})
    reply = now(make_admission(surroundings()), orjson.dumps(review(artifact, kind=AIM_ARTIFACT)), "/mutate")
    assert b'"patchType":"JSONPatch"' in reply
