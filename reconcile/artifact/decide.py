"""What an AIMArtifact needs, and its status. Pure; docs/contract.md, Artifacts, Reaper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT
from api.reasons import Reason
from api.view import Json
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.model import decide_model
from reconcile.artifact.status import config_valid, render_status
from reconcile.conditions import Condition
from reconcile.decision import Decision, Draft, leave_alone
from reconcile.objects import owned_by, owner_reference

_NOT_MODEL = Reason.PARENT_ARTIFACT_NOT_MODEL


def decide(seen: ArtifactFacts) -> Decision:
    """Return what this artifact needs: an adapter or a model."""
    if view.paused(seen.artifact) or view.terminating(seen.artifact):
        return leave_alone(seen.artifact)
    return _decide_adapter(seen) if view.is_adapter(seen.artifact) else decide_model(seen)


def _decide_adapter(seen: ArtifactFacts) -> Decision:
    """An adapter needs nothing of its own; it is valid, or waits for its parent, or is owned by it."""
    valid = config_valid(seen)
    draft = Draft()
    parent_name = view.parent_artifact(seen.artifact)
    if parent_name is None:
        fits = ", ".join(view.compatible_with(seen.artifact))
        ready = Condition("Ready", "True", Reason.ADAPTER_VALIDATED)
        fields: dict[str, Any] = {"compatibility": f"fits {fits}" if fits else None}
    else:
        ready, resolved = _judge_parent(seen, parent_name)
        fields = {"compatibility": f"child of {parent_name}", **resolved}
        if resolved and seen.parent is not None and not owned_by(seen.artifact, seen.parent):
            draft.apply.append((AIM_ARTIFACT, _ownership(seen.artifact, seen.parent)))
    if not valid.true and ready.reason != _NOT_MODEL:  # a rule refuses that too; this reason has a name of its own
        ready = Condition("Ready", "False", Reason.CONFIG_INVALID, valid.message)
    fields["adapterPath"] = view.adapter_path(seen.artifact)
    decision = draft.decision(render_status(seen, _phase(ready), [valid, ready], fields))
    return replace(decision, at_rest=not decision.apply)


def _judge_parent(seen: ArtifactFacts, name: str) -> tuple[Condition, dict[str, Any]]:
    """Return Ready of an exact adapter, and what is known of its parent (empty unless that can be its parent)."""
    parent = seen.parent
    if parent is None or view.terminating(parent):
        message = f'parent artifact "{name}" does not exist yet'
        return Condition("Ready", "False", Reason.PARENT_ARTIFACT_NOT_FOUND, message), {}
    if _had_another_parent(seen.artifact, parent):
        message = f'parent artifact "{name}" was deleted, and this adapter is deleted with it: create the adapter again'
        return Condition("Ready", "False", Reason.PARENT_ARTIFACT_NOT_FOUND, message), {}
    if view.is_adapter(parent):
        message = f'parent artifact "{name}" is itself an adapter'
        return Condition("Ready", "False", _NOT_MODEL, message), {}
    resolved = {"resolvedParent": _reference(parent), "parentModelId": view.model_id(parent)}
    if view.text(parent, "status", "adapterPersistentVolumeClaim"):
        return Condition("Ready", "True", Reason.ADAPTER_VALIDATED), resolved
    message = f'parent artifact "{name}" has no adapter disk yet'
    return Condition("Ready", "False", Reason.PARENT_LACKS_ADAPTER_DISK, message), resolved


def _had_another_parent(artifact: Json, parent: Json) -> bool:
    """Whether an earlier artifact of the parent's name owns it: the garbage collector takes it, and must not be raced.

    A deleted base has a successor of the same name at once, which would save the adapter where it is seen first.
    """
    return not owned_by(artifact, parent) and any(
        view.dig(reference, "kind") == AIM_ARTIFACT.kind and view.dig(reference, "name") == view.name_of(parent)
        for reference in view.items(artifact, "metadata", "ownerReferences")
    )


_FAILED_REASONS = frozenset({_NOT_MODEL, Reason.CONFIG_INVALID})


def _phase(ready: Condition) -> str:
    if ready.true:
        return "Ready"
    return "Failed" if ready.reason in _FAILED_REASONS else "Pending"


def _reference(obj: Json) -> dict[str, str]:
    return {
        "kind": AIM_ARTIFACT.kind,
        "name": view.name_of(obj),
        "namespace": view.namespace_of(obj),
        "scope": "Namespace",
        "uid": view.uid_of(obj),
    }


def _ownership(artifact: Json, parent: Json) -> dict[str, Any]:
    """Return the partial object that makes the parent own an exact adapter: it dies with its parent."""
    return {
        "apiVersion": AIM_ARTIFACT.api_version,
        "kind": AIM_ARTIFACT.kind,
        "metadata": {
            "name": view.name_of(artifact),
            "namespace": view.namespace_of(artifact),
            "ownerReferences": [owner_reference(AIM_ARTIFACT, parent, controller=False)],
        },
    }
