"""After any walk: at rest, true, and the same as what a controller without any memory arrives at.

`AIM_WALKS=5000` takes more of them, `AIM_FIRST_SEED=0` others each time (`AIM_TEST_LONG=1` does both), and
`AIM_WALK_SEED=17` repeats one.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_TEMPLATE_CACHE,
    INFERENCE_SERVICE,
    PERSISTENT_VOLUME_CLAIM,
)
from api.names import inference_service_name, stage_key
from api.view import Json
from reconcile.service.live import live_wiring
from reconcile.service.loading import ON_DISK
from rules.examples import NAMESPACE
from rules.seen import see_service
from tests.unit.reconcile.model.store import copy_json
from tests.unit.reconcile.model.walk import Walk

LONG = os.environ.get("AIM_TEST_LONG") == "1"
WALKS = int(os.environ.get("AIM_WALKS", "5000" if LONG else "500"))
BATCH = 25
STEPS = 30
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")  # what the workers of one run share, so that they collect the same
FIRST_SEED = int(os.environ.get("AIM_FIRST_SEED", "0" if LONG else "1")) or random.Random(RUN).randrange(1, 1 << 30)
SEEDS = [int(os.environ["AIM_WALK_SEED"])] if "AIM_WALK_SEED" in os.environ else None


def _batches(walks: int) -> list[Any]:
    if SEEDS:
        return [SEEDS]
    return [range(FIRST_SEED + first, FIRST_SEED + min(first + BATCH, walks)) for first in range(0, walks, BATCH)]


BATCHES, BOLD_BATCHES = _batches(WALKS), _batches(WALKS // 20)


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"seed-{seeds[0]}")
def test_walks(seeds: Any) -> None:
    print(f"walks from seed {seeds[0]}, {len(seeds)} of them, {STEPS} steps each")  # noqa: T201 - said on failure
    for seed in seeds:
        _tell(Walk(seed), seed)


@pytest.mark.parametrize("seeds", BOLD_BATCHES, ids=lambda seeds: f"seed-{seeds[0]}")
def test_bold_walks(seeds: Any) -> None:
    """People delete the product's objects and pause it, and servers fall silent."""
    print(f"bold walks from seed {seeds[0]}, {len(seeds)} of them, {STEPS} steps each")  # noqa: T201 - said on failure
    for seed in seeds:
        _tell(Walk(seed, bold=True), seed)


def _tell(walk: Walk, seed: int) -> None:
    try:
        _walk(walk, seed)
    except Exception as error:
        tail = "\n".join(walk.log[-60:])
        raise AssertionError(f"seed {seed}: {error}\n{tail}") from error


def _walk(walk: Walk, seed: int) -> None:
    guard = RollGuard(walk)
    for _ in range(STEPS):
        walk.step()
        guard.check()
        check_nothing_false(walk)
        if walk.log[-1].startswith("passes "):
            check_what_is_served(walk)
    walk.settle()
    guard.check()
    check_second_pass(walk)
    check_end_state(walk)
    if seed % 4 == 0:  # costs as much as the walk itself
        check_without_memory(walk)


class RollGuard:
    """No pod template changes without an event that says why, and none for a changed list of a dynamic service."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.templates: dict[str, Json] = {}
        self.told = 0

    def check(self) -> None:
        events = self.walk.cluster.events[self.told :]
        self.told = len(self.walk.cluster.events)
        for isvc in self.walk.store.all(INFERENCE_SERVICE):
            template = {k: v for k, v in isvc["spec"]["predictor"].items() if k not in _SCALE}
            before = self.templates.get(view.uid_of(isvc))
            self.templates[view.uid_of(isvc)] = copy_json(template)
            if before is None or before == template:
                continue
            owner = isvc["metadata"]["ownerReferences"][0]["name"]
            told = any(event.startswith(f"{owner}: ") and _is_a_cause(event) for event in events)
            crashed = any(
                word in line for line in self.walk.log[-1:] for word in ("crash after 1", "crash after 2", "hurry")
            )
            assert told or crashed, f"pods of {owner} roll without a word: {before} → {template}"
            assert _reasons(before, template) <= _REASONS, f"unexpected: {_reasons(before, template)}"
            assert _mounts_adapters(template) or not _mounts_adapters(before), "the adapter mount was taken away"


_SCALE = ("minReplicas", "maxReplicas", "deploymentStrategy")
_REASONS = {"env X", "env T", "env AIM_ADAPTER_MAX_RANK", "resources", "volumes", "volumeMounts", "env AIM_ADAPTERS"}


def _mounts_adapters(template: Json) -> bool:
    return any(volume["name"] == "adapter-disk" for volume in template["volumes"])


def _is_a_cause(event: str) -> bool:
    return ": PredictorChanged: " in event or ": AdapterMaxRankChanged: " in event


def _reasons(before: Json, after: Json) -> set[str]:
    found = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} - {"containers"}
    old, new = before["containers"][0], after["containers"][0]
    found |= {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)} - {"env"}
    was, now = ({entry["name"]: entry for entry in side["env"]} for side in (old, new))
    changed = {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)}
    if "AIM_ADAPTER_SOURCE" in changed:  # the whole adapter part came: the first adapters of a static service
        changed = {name for name in changed if not name.startswith("AIM_ADAPTER_")} | {"AIM_ADAPTERS"}
    return found | {f"env {name}" for name in changed}


def check_nothing_false(walk: Walk) -> None:
    """What the stored status calls staged is there, at every moment: on its disk, or in what the pods still serve."""
    for service in walk.store.all(AIM_SERVICE):
        if view.paused(service):
            continue
        declared = {ref.name for ref in view.adapter_refs(service)}
        for entry in view.items(service, "status", "adapters"):
            if entry["state"] in ON_DISK and entry["name"] in declared:
                assert _bytes(walk, service, entry), (
                    f"{view.name_of(service)}/{entry['name']} is {entry['state']}, no bytes"
                )


def check_what_is_served(walk: Walk) -> None:
    """Right after a pass `Loaded` means that every ready server lists it, and numbers are those of the servers."""
    for service in walk.store.all(AIM_SERVICE):
        if view.paused(service) or walk.cluster.deaf or walk.machinery.late:
            continue
        isvc = walk.store.get(INFERENCE_SERVICE, inference_service_name(view.name_of(service), NAMESPACE))
        pods = walk.machinery.server_pods(isvc)
        for entry in view.items(service, "status", "adapters"):
            listing = sum(1 for pod in pods if entry.get("adapterPath") in (pod.listed or ()))
            if entry["state"] == "Loaded":
                assert pods, entry
                assert listing == len(pods) == entry["loadedReplicas"], (entry, pods)
            if entry["state"] == "LoadRejected" and view.name_of(service) == "fixed":
                raise AssertionError(f"servers of a static service reject nothing here: {entry} {pods}")
            if entry["state"] == "Downloaded" and "loadedReplicas" in entry and not entry.get("lastError"):
                assert listing == entry["loadedReplicas"], (entry, pods)


def _bytes(walk: Walk, service: Json, entry: Json) -> bool:
    isvc = walk.store.get(INFERENCE_SERVICE, inference_service_name(view.name_of(service), NAMESPACE))
    pods = walk.machinery.pods.get(view.uid_of(isvc), [])
    if any(entry["adapterPath"] in pod.loaded for pod in pods):
        return True
    told_of = walk.cluster.told_of.get(view.uid_of(service), frozenset())
    if not entry.get("digest") and entry["adapterPath"] in told_of:
        return True  # read from servers that died since or unload it now (seeds 1040295378 and 424719115)
    wiring = live_wiring(isvc)  # the disk that a pod died on a moment ago may be another than the status speaks of
    mounted = walk.store.get(PERSISTENT_VOLUME_CLAIM, wiring.claim) if wiring is not None else None
    disks = walk.machinery.disks
    recorded = disks.get(service["status"].get("adapterDiskPersistentVolumeClaimUid", ""))
    if recorded is None:
        return True  # the disk went with its base
    folders = [disk.get(view.uid_of(service)) for disk in (recorded, disks.get(view.uid_of(mounted), {}))]
    return any(folder is not None and entry["adapterPath"] in folder.live for folder in folders)


def check_second_pass(walk: Walk) -> None:
    walk.store.writes.clear()
    walk.cluster.events.clear()
    for kind, name in walk.cluster.addresses():
        walk.cluster.reconcile(kind, name)
    assert walk.store.writes == []
    assert walk.cluster.events == []


def check_end_state(walk: Walk) -> None:
    """Declared and valid adapters are on the disk, with the bytes of their present source; nothing else is."""
    world = walk.store.world()
    for service in walk.store.all(AIM_SERVICE):
        facts = see_service(service, world)
        status = service["status"]
        entries = {entry["name"]: entry for entry in view.items(service, "status", "adapters")}
        invalid = {found.ref.name for found in facts.adapter_findings}
        claim_uid = status.get("adapterDiskPersistentVolumeClaimUid", "")
        folder = walk.machinery.disks.get(claim_uid, {}).get(view.uid_of(service))
        for ref in view.adapter_refs(service):
            artifact = walk.store.get(AIM_ARTIFACT, ref.name)
            entry = entries[ref.name]
            if artifact is None:
                assert entry.get("lastError", "").startswith("AdapterArtifactNotFound"), entry
                continue
            if ref.name in invalid:
                assert entry["state"] == "Failed", entry
                continue
            rank = walk.machinery.sources[view.source_uri(artifact)].rank
            if rank > status["adapterMaxRank"]:
                assert entry["state"] == "Failed", entry
                assert "AdapterRankExceedsCeiling" in entry["lastError"]
                continue
            assert entry["state"] in ON_DISK, entry
            isvc = walk.store.get(INFERENCE_SERVICE, inference_service_name(view.name_of(service), NAMESPACE))
            pods = walk.machinery.server_pods(isvc)
            if all(view.adapter_path(artifact) in (pod.listed or ()) for pod in pods):
                assert entry["state"] == ("Loaded" if pods else "Downloaded") or _reason(entry), entry
            else:  # pods keep a static list that changed all the same, and the old disk while an adapter is invalid
                disk = status["adapterDiskPersistentVolumeClaim"]
                assert service["spec"]["adapterMode"] == "static" or any(pod.claim != disk for pod in pods), entry
            assert folder is not None
            path = view.adapter_path(artifact)
            assert path in folder.live
            key = stage_key(view.uid_of(artifact), view.source_uri(artifact), view.uid_of(service), path, claim_uid)
            assert folder.done[path] == key
        declared = {
            view.adapter_path(walk.store.get(AIM_ARTIFACT, ref.name), ref.name) for ref in view.adapter_refs(service)
        }
        if folder is not None:
            assert set(folder.live) <= declared, f"{sorted(folder.live)} but declared {sorted(declared)}"
        assert not [entry for entry in entries.values() if entry["state"] == "Deleting"], entries
        _check_served(walk, service)


def _check_served(walk: Walk, service: Json) -> None:
    isvc = walk.store.get(INFERENCE_SERVICE, inference_service_name(view.name_of(service), NAMESPACE))
    ready = next(entry for entry in service["status"]["conditions"] if entry["type"] == "Ready")
    if isvc is None:
        assert ready["status"] == "False"
        assert service["status"]["status"] in ("Pending", "Failed"), service["status"]
        return
    pods = walk.machinery.server_pods(isvc)
    assert (ready["status"] == "True") == bool(pods), (ready, pods)
    assert isvc["spec"]["predictor"]["minReplicas"] == service["spec"].get("replicas", 1)


def check_without_memory(walk: Walk) -> None:
    """Wipe every status: the same state comes back, no pod is replaced for it and nothing is downloaded again.

    What only the status remembers is left out: a ceiling held by what was reported before (an artifact is missing, a
    lower one is not valid), and that the pods of a static service are older than what is on the disk.
    """
    world = walk.store.world()
    held = set()
    for service in walk.store.all(AIM_SERVICE):
        ceiling = see_service(service, world).ceiling
        restart = any(_reason(entry) == "RestartRequired" for entry in view.items(service, "status", "adapters"))
        if ceiling.unresolved or ceiling.invalid_because or ceiling.deferred or restart:
            held.add(view.name_of(service))
    before, templates, bytes_before = _picture(walk, held), _templates(walk), _bytes_on_disks(walk)
    for kind in (AIM_SERVICE, AIM_ARTIFACT, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE):
        for obj in walk.store.all(kind):
            walk.store.set_status(kind, view.name_of(obj), {})
    walk.settle()
    assert _picture(walk, held) == before
    assert _templates(walk) == templates
    if not held:
        assert _bytes_on_disks(walk) == bytes_before


def _bytes_on_disks(walk: Walk) -> dict[str, Any]:
    return {
        claim: {uid: (dict(folder.live), dict(folder.done)) for uid, folder in disk.items()}
        for claim, disk in walk.machinery.disks.items()
    }


def _templates(walk: Walk) -> dict[str, Any]:
    return {view.uid_of(isvc): copy_json(isvc["spec"]) for isvc in walk.store.all(INFERENCE_SERVICE)}


def _picture(walk: Walk, left_out: set[str]) -> dict[str, Any]:
    """What the statuses say, without times and numbers of attempts."""
    picture: dict[str, Any] = {}
    for service in walk.store.all(AIM_SERVICE):
        if view.name_of(service) in left_out:
            continue
        status = service["status"]
        picture[view.name_of(service)] = {
            "status": status["status"],
            "maxRank": status.get("adapterMaxRank"),
            "sync": status.get("adapterSubtreeSyncKey") if service["spec"]["adapters"] else None,
            "conditions": [(c["type"], c["status"], c["reason"]) for c in status["conditions"]],
            "adapters": [(e["name"], e["state"], e.get("stageKey"), _reason(e)) for e in status.get("adapters", [])],
        }
    for artifact in walk.store.all(AIM_ARTIFACT):
        status = artifact["status"]
        picture[view.name_of(artifact)] = (status["status"], status.get("adapterPersistentVolumeClaim"))
    return picture


def _reason(entry: Json) -> str:
    return (view.text(entry, "lastError") or "").partition(":")[0]
