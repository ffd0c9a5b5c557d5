"""Who is on which disk."""

from __future__ import annotations

import random
from typing import Any

from reconcile.artifact.users import DiskUsers


def _service(uid: str, claim: str | None, *attempts: int) -> dict[str, Any]:
    status = {"adapterDiskPersistentVolumeClaimUid": claim} if claim else {}
    entries = [{"name": f"a{index}", "attempts": count} for index, count in enumerate(attempts)]
    return {"metadata": {"namespace": "ns", "name": uid, "uid": uid}, "status": status | {"adapters": entries}}


def test_users_follow_each_change() -> None:
    rng = random.Random(4)
    users, stored = DiskUsers(), dict[str, dict[str, Any]]()
    for _ in range(500):
        uid = f"u{rng.randrange(8)}"
        claim = rng.choice((None, "d1", "d2"))
        new = _service(uid, claim, rng.randrange(3), rng.randrange(3)) if rng.random() < 0.8 else None
        users.changed(stored.get(uid), new)
        if new is None:
            stored.pop(uid, None)
        else:
            stored[uid] = new
        for disk in ("d1", "d2"):
            there = {
                uid: sum(entry["attempts"] for entry in obj["status"]["adapters"])
                for uid, obj in stored.items()
                if obj["status"].get("adapterDiskPersistentVolumeClaimUid") == disk
            }
            assert users.of("ns", disk) == tuple(sorted(there.items()))
    assert users.of("elsewhere", "d1") == ()
