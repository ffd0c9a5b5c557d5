"""Whether a service can serve an adapter: one check for webhook, reconciler and command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from api import view
from api.errors import Cause, FieldError
from api.kinds import AIM_ARTIFACT
from api.names import ADAPTER_DIRECTORY_PATTERN
from api.reasons import Reason
from api.record import record
from api.view import AdapterRef, Json
from rules.base import BaseResolution
from rules.rank import HIGHEST_RANK, ORIGIN_BUILT_IN, ORIGIN_SERVICE, SUPPORTED_RANKS, Ceiling, round_up
from rules.references import ArtifactState, Ref, Unreadable
from rules.verdict import Finding

REASON_NOT_AN_ADAPTER = Reason.ADAPTER_NOT_AN_ADAPTER
REASON_PATH_INVALID = Reason.ADAPTER_PATH_INVALID
REASON_PATH_DUPLICATE = Reason.ADAPTER_PATH_DUPLICATE
REASON_INCOMPATIBLE = Reason.ADAPTER_INCOMPATIBLE
REASON_WRONG_PARENT = Reason.ADAPTER_PARENT_MISMATCH
REASON_RANK_ABOVE_CEILING = Reason.ADAPTER_RANK_ABOVE_CEILING

_DIRECTORY = re.compile(ADAPTER_DIRECTORY_PATTERN)
_NAMES_SHOWN = 3


@record
class AdapterFindings:
    """What is wrong with one declared adapter; `path` is the directory that it would be staged to."""

    ref: AdapterRef
    path: str
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """The bare errors."""
        return tuple(finding.error for finding in self.findings)


def judge_adapters(
    service: object,
    artifacts: Mapping[str, ArtifactState],
    base: BaseResolution,
    asked: Ceiling,
    asked_rests_on: tuple[Ref, ...] = (),
    *,
    refs: Sequence[AdapterRef] | None = None,
) -> list[AdapterFindings]:
    """Return the adapters that cannot be served, in the user's order, each with everything that is wrong with it.

    Missing and unreadable artifacts are not checked. Neither is anything that depends on an unknown base or on a
    ceiling that cannot be read.
    Args: `asked` is the ceiling that they are judged against, `asked_rests_on` where it was read; `refs` are the
    declared adapters where the caller has read them already.
    Source: docs/contract.md, Compatibility, Adapter paths, Rank ceiling, Field paths.
    """
    namespace = view.namespace_of(service)
    path_owner: dict[str, AdapterRef] = {}
    seen: set[str] = set()
    judged: list[AdapterFindings] = []
    for ref in view.adapter_refs(service) if refs is None else refs:
        artifact = artifacts.get(ref.name)
        if ref.name in seen or artifact is None or isinstance(artifact, Unreadable):
            continue
        seen.add(ref.name)
        path = view.adapter_path(artifact) or ref.name
        spec = view.spec_of(artifact)
        if spec.get("type") != "adapter":
            found = [_not_an_adapter(ref, Ref(AIM_ARTIFACT, namespace, ref.name))]
        else:
            owner = path_owner.setdefault(path, ref)
            if owner is ref and is_fine(spec, path, base, asked):
                continue
            me = Ref(AIM_ARTIFACT, namespace, ref.name)
            found = [
                finding
                for finding in (
                    _path_invalid(ref, path, me),
                    _path_duplicate(ref, path, owner, me),
                    _incompatible(ref, artifact, base, me),
                    _wrong_parent(ref, artifact, base, me),
                    _rank_above_ceiling(ref, artifact, asked, (me, *asked_rests_on)),
                )
                if finding is not None
            ]
        if found:
            judged.append(AdapterFindings(ref, path, tuple(found)))
    return judged


def is_fine(spec: Json, path: str, base: BaseResolution, asked: Ceiling) -> bool:
    """Whether a quick look shows that nothing is wrong, as for most adapters. False only means: look closer."""
    limit = asked.value
    fits = spec.get("compatibleWith")
    return (
        (limit is None or view.rank_of(spec) <= limit)
        and spec.get("parentArtifact") is None
        and (base.state != "known" or (isinstance(fits, list) and base.model_id in fits))
        and _DIRECTORY.fullmatch(path) is not None
    )


def _error(ref: AdapterRef, reason: Reason, detail: str, hint: str, cause: Cause = Cause.INVALID) -> FieldError:
    return FieldError(ref.path, reason, cause, detail, ref.name, hint)


def _not_an_adapter(ref: AdapterRef, me: Ref) -> Finding:
    detail = "this AIMArtifact has spec.type model; only artifacts of type adapter can be declared"
    hint = "name an AIMArtifact with spec.type: adapter; the base model comes from the profile or model"
    return Finding(_error(ref, REASON_NOT_AN_ADAPTER, detail, hint), (me,), ref.name)


def _path_invalid(ref: AdapterRef, path: str, me: Ref) -> Finding | None:
    if _DIRECTORY.fullmatch(path):
        return None
    detail = f'its fixed path "{path[:80]}" (status.adapterPath) is not a valid directory name for an adapter'
    hint = "delete the AIMArtifact and create it again; its path is then its name"
    return Finding(_error(ref, REASON_PATH_INVALID, detail, hint), (me,), ref.name)


def _path_duplicate(ref: AdapterRef, path: str, owner: AdapterRef, me: Ref) -> Finding | None:
    if owner is ref:
        return None
    detail = f'{owner.path} "{owner.name}" already has the same path "{path}", which is the served model name'
    hint = "remove one of the two, or create one of the artifacts again under another name"
    other = Ref(AIM_ARTIFACT, me.namespace, owner.name)
    return Finding(_error(ref, REASON_PATH_DUPLICATE, detail, hint, Cause.DUPLICATE), (me, other), ref.name)


def _incompatible(ref: AdapterRef, artifact: Json, base: BaseResolution, me: Ref) -> Finding | None:
    if not base.known or base.model_id is None:
        return None
    fits = view.compatible_with(artifact)
    if base.model_id in fits or (not fits and view.parent_artifact(artifact) is not None):
        return None
    made_for = listed(fits) or "nothing, since its spec.compatibleWith is empty"
    detail = f'it fits {made_for}; the base of this service, AIMArtifact "{base.name}", is {base.model_id}'
    hint = f'if it really fits, add "{base.model_id}" to its spec.compatibleWith; otherwise choose another adapter'
    return Finding(_error(ref, REASON_INCOMPATIBLE, detail, hint), (me, *base.looked_at), ref.name)


def _wrong_parent(ref: AdapterRef, artifact: Json, base: BaseResolution, me: Ref) -> Finding | None:
    parent = view.parent_artifact(artifact)
    if not base.known or parent is None or parent == base.name:
        return None
    detail = f'its spec.parentArtifact is "{parent}"; the base of this service is AIMArtifact "{base.name}"'
    hint = "choose an adapter of that base, or declare the adapter with spec.compatibleWith instead of a parent"
    return Finding(_error(ref, REASON_WRONG_PARENT, detail, hint), (me, *base.looked_at), ref.name)


def _rank_above_ceiling(ref: AdapterRef, artifact: Json, asked: Ceiling, rests_on: tuple[Ref, ...]) -> Finding | None:
    rank = view.declared_rank(artifact)
    limit = asked.value
    if limit is None or rank <= limit:
        return None
    needed = round_up(rank)
    if needed is None:
        detail = f"its rank {rank} is above {HIGHEST_RANK}, the highest rank that engines support"
        hint = f"supported ceilings: {SUPPORTED_RANKS}; train it with a lower rank"
        return Finding(_error(ref, REASON_RANK_ABOVE_CEILING, detail, hint), rests_on[:1], ref.name)
    origin = asked.origin
    source = f", the {origin}" if origin == ORIGIN_BUILT_IN else f" from {origin}"
    detail = f"its rank {_shown_rank(artifact, rank)} is above the ceiling {limit}{source}"
    hint = _raise_hint(origin, needed)
    return Finding(_error(ref, REASON_RANK_ABOVE_CEILING, detail, hint), rests_on, ref.name)


def _shown_rank(artifact: Json, rank: int) -> str:
    return f"{rank}" if view.integer(artifact, "spec", "rank") is not None else f"{rank} (the default)"


def _raise_hint(origin: str, needed: int) -> str:
    if origin == ORIGIN_SERVICE:
        return f"raise spec.adapterRuntime.maxRank to {needed}"
    if origin == ORIGIN_BUILT_IN:
        return f"set spec.adapterRuntime.maxRank: {needed}, or first apply a RuntimeConfig that sets it"
    return f"set spec.adapterRuntime.maxRank: {needed} on this service, or first raise it in {origin}"


def listed(names: tuple[str, ...]) -> str:
    """Return a few names as prose: `a, b, c and 4 more`."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
