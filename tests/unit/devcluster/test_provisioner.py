"""Claims become directories."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devcluster.content import RWO_PROVISIONER, RWX_PROVISIONER
from devcluster.provisioner import make_directory, plan_claim, plan_volume, remove_directory, render_refusal

CLAIMS = Path("/d/claims")
PLACE = Path("ns/disk")


def claim(provisioner: str = RWX_PROVISIONER, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": "disk",
            "uid": "u1",
            "resourceVersion": "7",
            "annotations": {"volume.kubernetes.io/storage-provisioner": provisioner},
        },
        "spec": {
            "storageClassName": "c",
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }


def test_a_claim_of_the_class_gets_a_volume_that_is_bound_to_it_alone() -> None:
    plan = plan_claim(claim(), CLAIMS)
    assert plan.action == "create"
    assert plan.volume is not None
    assert plan.volume["spec"]["hostPath"]["path"] == "/d/claims/ns/disk"
    assert plan.volume["spec"]["claimRef"]["uid"] == "u1"
    assert plan.volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


def deleted(item: dict[str, Any]) -> dict[str, Any]:
    item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return item


@pytest.mark.parametrize(
    "item",
    [claim("elsewhere"), claim(volumeName="pv"), deleted(claim()), {"metadata": {"name": "x"}, "spec": {}}],
    ids=["another provisioner", "bound", "being deleted", "no class"],
)
def test_other_claims_are_left_alone(item: dict[str, Any]) -> None:
    assert plan_claim(item, CLAIMS).action == "none"


@pytest.mark.parametrize(
    ("item", "action"),
    [
        (claim(RWO_PROVISIONER), "refuse"),
        (claim(RWO_PROVISIONER, accessModes=["ReadWriteOnce"]), "create"),
        (claim(volumeMode="Block"), "refuse"),
    ],
    ids=["many writers on the class for one", "one writer", "a block device"],
)
def test_what_a_class_can_do(item: dict[str, Any], action: str) -> None:
    assert plan_claim(item, CLAIMS).action == action


def test_a_refusal_is_an_event_on_the_claim() -> None:
    event = render_refusal(claim(RWO_PROVISIONER), "no", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "ProvisioningFailed", "no")
    assert event["involvedObject"]["uid"] == "u1"
    assert event["lastTimestamp"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("phase", "by", "policy", "action"),
    [
        ("Released", RWX_PROVISIONER, "Delete", "remove"),
        ("Bound", RWX_PROVISIONER, "Delete", "none"),
        ("Released", "elsewhere", "Delete", "none"),
        ("Released", RWX_PROVISIONER, "Retain", "none"),
    ],
)
def test_volumes(phase: str, by: str, policy: str, action: str) -> None:
    volume = {
        "metadata": {"name": "pv", "annotations": {"pv.kubernetes.io/provisioned-by": by}},
        "spec": {"persistentVolumeReclaimPolicy": policy},
        "status": {"phase": phase},
    }
    assert plan_volume(volume).action == action


def test_a_new_claim_of_an_old_name_starts_empty_and_keeps_what_it_writes(tmp_path: Path) -> None:
    claims, owners = tmp_path / "claims", tmp_path / "owners"
    make_directory(claims, owners, PLACE, "u1")
    (claims / PLACE / "old").write_text("x")
    make_directory(claims, owners, PLACE, "u1")
    assert (claims / PLACE / "old").exists()
    make_directory(claims, owners, PLACE, "u2")
    assert list((claims / PLACE).iterdir()) == []
    remove_directory(claims, owners, PLACE, "u1")  # the late word about the first claim
    assert (claims / PLACE).is_dir()
    assert (claims / PLACE).stat().st_mode & 0o777 == 0o777
    remove_directory(claims, owners, PLACE, "u2")
    assert list(claims.iterdir()) == []
    assert list(owners.iterdir()) == []
