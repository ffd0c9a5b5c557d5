"""Two replicas of the server are killed in turn during edits: everything converges, and nothing is done twice.

Before that, two processes with complementary controllers, each with its own user and lease, converge services of both
pipelines. The audit log shows the writes of each.

No node, no KServe and no webhook run: the test binds claims and ends Jobs. Only the reconciler writes
InferenceServices, so the audit log and the versions in the watch must match exactly.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api import view
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, INFERENCE_SERVICE, JOB
from api.names import LABEL_ROLE, ROLE_FETCH, inference_service_name
from api.view import Json
from bench.reconcile.stand_ins import NAMESPACE, Outside, adapter, base_and_profile, install_kinds, service
from bench.reconcile.stand_ins import namespace as namespace_object
from kube.client import Client
from kube.errors import Transient
from tests.cluster.engine_plane import Plane, started_plane
from tests.cluster.replica_world import Account, Replica, audited, leader
from tests.cluster.selected_world import (
    MAY_WRITE,
    MODEL,
    REPORTING,
    SELECTED,
    as_user,
    model_and_template,
    reported,
    served,
    waiting,
    world,
)

PLACE = "edits"
SERVED, BEYOND = "served", "beyond"  # namespaces that the processes watch, and that they do not watch
EDITS = 2000 if os.environ.get("AIM_TEST_LONG") == "1" else 200
SERVICES = 12
ADAPTERS = ("red", "green", "blue", "grey")
BETWEEN_EDITS = 0.08  # seconds, on average
EDITS_PER_KILL = 40

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane with an audit log and the CRDs."""
    with started_plane(tmp_path_factory.mktemp("killed") / "plane", audit="true") as plane:
        asyncio.run(_install(plane))
        yield plane


async def _install(plane: Plane) -> None:
    async with await Client.connect(str(plane.kubeconfig), within=30) as client:
        await install_kinds(client)


@pytest.fixture
async def client(plane: Plane) -> AsyncIterator[Client]:
    async with await Client.connect(str(plane.kubeconfig), within=30) as client:
        yield client


async def _at_rest(plane: Plane) -> None:
    """Wait until nothing is written in the served namespace."""
    before = audited(plane.audit_log, SERVED)
    for _ in range(60):
        await asyncio.sleep(1)
        now = audited(plane.audit_log, SERVED)
        if now == before:
            return
        before = now
    pytest.fail(f"something is written again and again: {before}")


async def _both(client: Client, look: Callable[[Client, str], Awaitable[list[Json]]]) -> None:
    async with asyncio.timeout(60):
        for _ in range(200):
            if len(await look(client, SERVED)) == 2:
                return
            await asyncio.sleep(0.25)
    services, _ = await client.list_all(AIM_SERVICE, SERVED)
    pytest.fail(f"not within 50 s: {[one.get('status') for one in services]}")


async def test_selected_controllers_write_their_kinds_only_and_complete_each_other(
    plane: Plane, client: Client, tmp_path: Path
) -> None:
    processes = {
        user: Replica(
            user,
            as_user(plane, tmp_path, user),
            tmp_path / f"{user}.log",
            options=(f"--controllers={','.join(chosen)}", f"--namespaces={SERVED}", f"--lease-name={user}"),
        )
        for user, chosen in SELECTED.items()
    }
    for place in (SERVED, BEYOND):
        await client.create(NAMESPACE, namespace_object(place))
        for kind, obj in world(place):
            await client.create(kind, obj)
    outside = Outside(client)
    try:
        async with outside.at_work():
            processes["services"].start()
            await _both(client, waiting)
            await _at_rest(plane)
            assert await reported(client, SERVED) == set(), "what others report is left to them"
            jobs, _ = await client.list_all(JOB, SERVED)
            assert not [job for job in jobs if view.text(job, "metadata", "labels", LABEL_ROLE) == ROLE_FETCH]

            processes["others"].start()
            await _both(client, served)
            await _at_rest(plane)
    finally:
        for process in processes.values():
            process.stop()
    wrote = {user: {what for _, what, _ in audited(plane.audit_log, SERVED, user)} for user in SELECTED}
    assert {user: what - MAY_WRITE[user] for user, what in wrote.items()} == {"services": set(), "others": set()}
    assert wrote["services"] >= {"aimservices/status", "inferenceservices", "aimprofilecaches", "aimtemplatecaches"}
    assert wrote["others"] >= {"aimartifacts/status", "aimprofilecaches/status", "aimtemplatecaches/status"}
    assert await reported(client, SERVED) == {kind.kind for kind in REPORTING}
    assert not any(audited(plane.audit_log, BEYOND, user) for user in SELECTED), "another namespace is let alone"
    assert await reported(client, BEYOND) == set()


class Editor:
    """Edits services of both pipelines at random, and records the last requested spec."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self.client, self.rng = client, rng
        self.wanted: dict[str, Json] = {}

    async def make(self, index: int) -> None:
        made = service(PLACE, index, 0)
        if index % 2:
            made["spec"] = {"model": {"name": MODEL}}
        made["spec"] |= {"adapterMode": "dynamic", "adapters": [_ref("red")]}
        self.wanted[view.name_of(made)] = dict(made["spec"])
        await self.client.create(AIM_SERVICE, made)

    async def edit(self) -> None:
        name = self.rng.choice(sorted(self.wanted))
        what = self.rng.choice(("adapters", "adapters", "adapters", "replicas", "env"))
        change: dict[str, Any] = {"replicas": self.rng.randint(1, 3)}
        if what == "adapters":
            chosen = self.rng.sample(ADAPTERS, self.rng.randint(0, len(ADAPTERS)))
            change = {"adapters": [_ref(adapter_name) for adapter_name in chosen]}
        elif what == "env":
            change = {"env": [{"name": "X", "value": str(self.rng.randint(1, 9))}]}
        self.wanted[name] = {**self.wanted[name], **change}
        for _ in range(20):
            try:
                await self.client.patch_merge(AIM_SERVICE, PLACE, name, {"spec": change})
            except Transient:  # a busy API server, a cut connection: users retry
                await asyncio.sleep(0.2)
            else:
                return
        pytest.fail("the API server does not answer")


def _ref(name: str) -> dict[str, str]:
    return {"name": name, "kind": "AIMArtifact"}


async def _edit_and_kill(editor: Editor, account: Account, replicas: dict[str, Replica], rng: random.Random) -> None:
    """Edit in rounds; in each, wait until the leader starts to write, and kill it at a random moment."""
    for _ in range(EDITS // EDITS_PER_KILL):
        begun = account.progress()
        editing = asyncio.create_task(_edit(editor, EDITS_PER_KILL, rng))
        for _ in range(600):
            if account.progress() > begun + 2:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("no replica reconciles the edits")
        await asyncio.sleep(rng.random())
        leading = await leader(editor.client)
        assert all(replica.running() for replica in replicas.values()), "a replica ended unexpectedly"
        victim = next(replica for name, replica in replicas.items() if leading.startswith(name))
        victim.kill()
        victim.start()
        await editing


async def _edit(editor: Editor, times: int, rng: random.Random) -> None:
    for _ in range(times):
        await editor.edit()
        await asyncio.sleep(rng.random() * 2 * BETWEEN_EDITS)


async def _converged(client: Client, wanted: dict[str, Json]) -> list[str]:
    """Return the differences from the requested specs."""
    services, _ = await client.list_all(AIM_SERVICE, PLACE)
    served, _ = await client.list_all(INFERENCE_SERVICE, PLACE)
    by_name = {view.name_of(isvc): isvc for isvc in served}
    wrong = []
    for obj in services:
        name, spec = view.name_of(obj), wanted[view.name_of(obj)]
        told = {entry["name"]: entry.get("state") for entry in view.items(obj, "status", "adapters")}
        asked = {ref["name"]: "Downloaded" for ref in spec["adapters"]}
        isvc = by_name.get(inference_service_name(name, PLACE) or "")
        if told != asked:
            wrong.append(f"{name}: {told} instead of {asked}")
        elif view.condition(obj, "Adapters").get("reason") != "AdaptersStaged":
            wrong.append(f"{name}: {view.condition(obj, 'Adapters')}")
        elif obj["status"]["observedGeneration"] != obj["metadata"]["generation"]:
            wrong.append(f"{name}: its last spec was not handled")
        elif isvc is None or isvc["spec"]["predictor"]["minReplicas"] != spec.get("replicas", 1):
            wrong.append(f"{name}: InferenceService {isvc}")
        elif spec.get("env") and spec["env"][0] not in isvc["spec"]["predictor"]["containers"][0]["env"]:
            wrong.append(f"{name}: env of the InferenceService")
    return wrong


async def _until_converged(client: Client, wanted: dict[str, Json], seconds: float) -> None:
    async with asyncio.timeout(seconds + 30):
        for _ in range(int(seconds / 0.5)):
            if not await _converged(client, wanted):
                return
            await asyncio.sleep(0.5)
    pytest.fail(f"not converged after {seconds} s: {await _converged(client, wanted)}")


async def test_two_replicas_killed_in_turn_under_edits_do_nothing_twice(
    plane: Plane, client: Client, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    print(f"seed {seed}, {EDITS} edits of {SERVICES} services")  # noqa: T201 - shown when it fails
    await client.create(NAMESPACE, namespace_object(PLACE))
    account = Account(client, PLACE)
    following = [asyncio.create_task(account.follow(kind)) for kind in (AIM_SERVICE, INFERENCE_SERVICE, JOB)]
    names = ("replica-a", "replica-b")
    replicas = {name: Replica(name, plane.kubeconfig, tmp_path / f"{name}.log") for name in names}
    outside, editor = Outside(client), Editor(client, rng)
    try:
        for kind, obj in (*base_and_profile(PLACE, disk=True, projected=False), *model_and_template(PLACE)):
            await client.create(kind, obj)
        for name in ADAPTERS:
            await client.create(AIM_ARTIFACT, adapter(PLACE, name))
        for index in range(SERVICES):
            await editor.make(index)
        for replica in replicas.values():
            replica.start()
        async with outside.at_work():
            await _until_converged(client, editor.wanted, 120)
            await _edit_and_kill(editor, account, replicas, rng)
            await _until_converged(client, editor.wanted, 120)
            await asyncio.sleep(2)  # no more writes follow
            before = audited(plane.audit_log, PLACE)
            await asyncio.sleep(3)
            assert audited(plane.audit_log, PLACE) == before
    finally:
        for replica in replicas.values():
            replica.stop()
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    kills = sum(replica.kills for replica in replicas.values())
    written = audited(plane.audit_log, PLACE)
    applied = sum(n for (_, what, code), n in written.items() if what == "inferenceservices" and code in (200, 201))
    refused = {f"{verb} {what}": n for (verb, what, code), n in written.items() if code == 409}
    versions = account.versions[INFERENCE_SERVICE]
    said = f"{kills} kills, {len(account.made)} Jobs, {applied} applies of InferenceServices, conflicts: {refused}"
    print(said)  # noqa: T201 - shown when it fails
    assert list(account.jobs_made_twice()) == []
    assert list(account.same_content_twice()) == []
    assert applied <= len(
        versions
    )  # an apply without a change creates no version; the apply of a killed sender can create one
