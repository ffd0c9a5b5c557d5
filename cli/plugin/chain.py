"""The links of the chain that `why` walks, and what several of them share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from api import view
from api.errors import FieldError
from api.reasons import Reason, explain
from api.view import Json
from api.words import parse_time
from cli.plugin.snapshot import Snapshot

State = Literal["ok", "waiting", "broken"]
PLUGIN = "kubectl aim-adapters"


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain. `fix`: what to do; `look`: a command that shows more."""

    link: str
    state: State
    says: str
    reason: str = ""
    fix: str = ""
    look: str = ""


def broken(link: str, reason: str, says: str, fix: str = "", look: str = "", *, state: State = "broken") -> Link:
    """Return a link that does not hold; without a fix of its own it gets the documented one of the reason."""
    return Link(link, state, says, str(reason), fix or documented_fix(reason), look)


def documented_fix(reason: str) -> str:
    """Return the fix of a reason in the table, empty for a word that is not in it."""
    found = explain(reason)
    return "" if found is None else found.advice


def in_conditions(word: str) -> bool:
    """Return whether a word is a reason that conditions have."""
    found = explain(word)
    return found is not None and "condition" in found.surfaces


_BLOCKED = (
    (("untolerated taint",), "add a toleration for the taint (setting jobTolerations), or a node without it"),
    (("quota", "limitrange", "limit range"), documented_fix(Reason.FAILED_CREATE)),
    (("(referred to by",), documented_fix(Reason.FAILED_MOUNT)),
    (("secret",), "create that Secret in this namespace: env of a RuntimeConfig, cache or artifact refers to it"),
    (("configmap",), "create that ConfigMap in this namespace: env of a RuntimeConfig or artifact refers to it"),
    (("image", "pull"), "correct the image, or add imagePullSecrets with access to it"),
    (("unschedulable", "nodes are available", "no node"), "free resources for the pod, or request less"),
    (("persistentvolumeclaim", "volume"), "check the events of the claim: its volume is not provisioned or mounted"),
)


def fix_of_blocked(said: str) -> str:
    """Return what to do about a pod that cannot start, from the cluster's message about it."""
    lower = said.lower()
    for words, fix in _BLOCKED:
        if any(word in lower for word in words):
            return fix
    return documented_fix(said.partition(":")[0])


def reason_of_blocked(said: str, otherwise: Reason) -> str:
    """Return the reason of a message about a pod that cannot start, where it is a documented one."""
    word = said.partition(":")[0]
    return otherwise if explain(word) is None else word


def from_error(link: str, error: FieldError) -> Link:
    """Return the link for an error of a rule."""
    return Link(link, "broken", _said(error), error.reason, error.hint or f"correct {error.path}")


def _said(error: FieldError) -> str:
    shown = f' "{error.value}"' if error.value is not None else ""
    return f"{error.path}{shown}: {error.detail}"


def look_events(seen: Snapshot) -> str:
    """Return the command that shows the service's conditions and events."""
    return f"kubectl describe aimservice -n {seen.namespace} {seen.name}"


def look_job(seen: Snapshot, job: str) -> str:
    """Return the command that shows a Job's events."""
    return f"kubectl describe job -n {seen.namespace} {job}"


def look_claim(seen: Snapshot, field: str) -> str:
    """Return the command that shows the events of one of the base's claims."""
    return f"kubectl describe pvc -n {seen.namespace} {view.text(seen.base, 'status', field) or ''}".rstrip()


def is_held(lease: Json, now: datetime) -> bool:
    """Whether a controller holds a lease: it was renewed within twice its duration."""
    renewed = parse_time(view.dig(lease, "spec", "renewTime"))
    seconds = view.integer(lease, "spec", "leaseDurationSeconds") or 15
    holder = view.text(lease, "spec", "holderIdentity")
    return bool(holder) and renewed is not None and (now - renewed).total_seconds() <= 2 * seconds
