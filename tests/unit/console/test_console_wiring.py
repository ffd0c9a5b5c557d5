"""The console in the process: off unless asked for, over the same caches and the ring that admission fills."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from app.settings import Settings
from app.tokens import MAX_ASKING, TokenGate
from app.wiring import Parts, wire
from console.query import Query
from tests.console.scene import NoClient
from tests.unit.webhooks.reviews import answer
from webhooks.admission import Admission


def parts(**settings: Any) -> Parts:
    client: Any = NoClient()
    recorder: Any = None
    return Parts(Settings(**settings), client, client, recorder, lambda controller, key: None)


def test_it_is_off_unless_asked_for() -> None:
    plain, with_it = wire(parts()), wire(parts(console=True))
    assert plain.console is None
    assert with_it.console is not None
    assert len(with_it.jobs) == len(plain.jobs) + 1


async def test_what_admission_refuses_is_shown_with_its_reason_and_dry_runs_are_not() -> None:
    wiring = wire(parts(console=True))
    assert wiring.console is not None
    assert wiring.admission is not None
    for name, dry in (("real", False), ("rehearsed", True)):
        await review(wiring.admission, name, dry_run=dry)
    page = await wiring.console.board.page(Query())
    assert page.refusals is not None
    (refusal,) = page.refusals
    assert (refusal.kind, refusal.namespace, refusal.name, refusal.operation) == (
        "AIMArtifact",
        "team-a",
        "real",
        "CREATE",
    )
    assert all(note.reason.isalpha() and note.message.startswith("spec.") for note in refusal.errors)


async def review(admission: Admission, name: str, *, dry_run: bool) -> None:
    artifact = {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMArtifact",
        "metadata": {"namespace": "team-a", "name": name},
        "spec": {"type": "adapter", "sourceUri": "s3://b/a/"},
    }
    request = {
        "uid": name,
        "kind": {"group": "aim.eai.amd.com", "version": "v1alpha1", "kind": "AIMArtifact"},
        "operation": "CREATE",
        "namespace": "team-a",
        "name": name,
        "dryRun": dry_run,
        "object": artifact,
    }
    body = orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    assert (await answer(admission, body))["allowed"] is False


async def test_invented_tokens_do_not_keep_the_api_server_busy() -> None:
    class Slow(NoClient):
        async def create(self, kind: Any, body: Any) -> Any:
            await asyncio.sleep(0.05)
            return await super().create(kind, body)

    client: Any = Slow()
    gate = TokenGate(client, "/console")
    answers = await asyncio.gather(*(gate.status(f"invented-{number}") for number in range(100)))
    assert (answers.count(401), answers.count(503), client.reviews) == (MAX_ASKING, 100 - MAX_ASKING, MAX_ASKING)


@pytest.mark.parametrize("settings", [{"admission": False}, {"reconciler": False}], ids=["reconciler", "admission"])
async def test_half_a_process_has_a_console_too(settings: dict[str, bool]) -> None:
    wiring = wire(parts(console=True, **settings))
    assert wiring.console is not None
    page = await wiring.console.board.page(Query())
    assert (page.refusals is None) == (not settings.get("admission", True))
