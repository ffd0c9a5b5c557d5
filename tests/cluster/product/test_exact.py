"""An adapter with parentArtifact waits for its parent, is served with it, and is deleted with it."""

from __future__ import annotations

from api.view import JsonObject
from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import TINY, Team


def _exact(team: Team, name: str, parent: str) -> JsonObject:
    return team.adapter(name, compatibleWith=None, parentArtifact=parent)


def _ready(team: Team, name: str) -> tuple[str, str]:
    """Return the status and the reason of Ready of an artifact."""
    status = team.get("aimartifact", name).get("status") or {}
    reason = next((c["reason"] for c in status.get("conditions", []) if c["type"] == "Ready"), "")
    return status.get("status", ""), reason


@on_both_pipelines
def test_an_exact_adapter_waits_for_its_parent_and_is_deleted_with_it(team: Team) -> None:
    team.put("a")
    assert 'no AIMArtifact "base" exists yet' in team.apply(_exact(team, "a", "base"))
    team.until("it to wait for its parent", lambda: _ready(team, "a") == ("Pending", "ParentArtifactNotFound"))
    spec = {"type": "model", "sourceUri": f"hf://{TINY.model_id}", "modelId": TINY.model_id, "size": "16Mi"}
    team.apply(team._object("v1alpha1", "AIMArtifact", "base", spec))
    team.until("it to wait for the disk", lambda: _ready(team, "a") == ("Pending", "ParentLacksAdapterDisk"))

    team.apply(team.service("svc", ["a"]))  # its cache adopts the parent and requests a disk
    team.until_loaded("svc", "a")
    assert _ready(team, "a") == ("Ready", "AdapterValidated")
    base = team.get("aimartifact", "base")
    (owner,) = team.get("aimartifact", "a")["metadata"]["ownerReferences"]
    assert owner["uid"] == base["metadata"]["uid"]
    assert team.get("aimartifact", "a")["status"]["resolvedParent"]["name"] == "base"

    team.delete("aimservice", "svc")
    team.delete("aimartifact", "base")
    team.until("the adapter to go with its parent", lambda: not team.get("aimartifact", "a"))


def test_an_adapter_cannot_be_a_parent(team: Team) -> None:
    team.apply(_exact(team, "child", "parent"))
    team.apply(team.adapter("parent"))
    team.until("it to fail", lambda: _ready(team, "child") == ("Failed", "ParentArtifactNotModel"))
