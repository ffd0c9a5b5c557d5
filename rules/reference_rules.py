"""Objects that a service uses and that their own rules refuse: they were created while admission was away.

Admission of the service does not ask these rules. Its status reports what they find.

Source: docs/contract.md, Objects that their own rules refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from api import view
from api.errors import Cause, FieldError, sorted_errors
from api.kinds import AIM_ARTIFACT, AIM_CLUSTER_RUNTIME_CONFIG, AIM_RUNTIME_CONFIG, AIM_SERVICE, Kind
from api.reasons import Reason
from api.view import Json
from rules.bounds import beyond
from rules.references import Ref, Reference, Resolved, Unreadable
from rules.registry import Basis, Example, Output, rule, rules_for, run
from rules.seen import Seen, ServiceSeen
from rules.verdict import Finding

Outputs = Iterable[Output]

_KEEP_NOTHING_FROM_SERVING = frozenset(
    {Reason.AIM_ID_WITHOUT_SOURCES, Reason.MAX_RANK_UNSUPPORTED, Reason.SOURCES_WITHOUT_AIM_ID}
)
"""Reasons of profiles and RuntimeConfigs with which services can be served, or which the service reports itself."""

_MEDICAL = "spec: {adapters: [{name: medical, kind: AIMArtifact}]}"


def own_error(kind: Kind, obj: Json, seen: Seen) -> FieldError | None:
    """Return the first error that an object's own rules report about it, None when they accept it.

    Args: `seen` is the object that uses it.
    """
    if (large := beyond(kind, obj)) is not None:
        return large.error
    own = Seen(kind, obj, None, seen.world, context=seen.context)
    findings, _, _ = run(rules_for(kind.kind, Basis.OBJECT, Basis.WORLD, warns=False), own)
    errors = [finding.error for finding in findings if finding.error.reason not in _KEEP_NOTHING_FROM_SERVING]
    return sorted_errors(errors)[0] if errors else None


def refused_adapters(seen: ServiceSeen) -> dict[str, FieldError]:
    """Return the declared adapters whose artifacts are refused by their own rules, with the error of the service."""
    refused = {}
    for ref in seen.refs:
        artifact = seen.artifacts.get(ref.name)
        if artifact is None or isinstance(artifact, Unreadable) or not view.is_adapter(artifact):
            continue
        if ref.name not in refused and (error := own_error(AIM_ARTIFACT, artifact, seen)) is not None:
            refused[ref.name] = _error(ref.path, Reason.ADAPTER_ARTIFACT_INVALID, AIM_ARTIFACT, ref.name, error)
    return refused


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTER_ARTIFACT_INVALID,
    fields="spec.adapters[i].name",
    basis=Basis.STORED,
    refused=Example(_MEDICAL, world="[{kind: AIMArtifact, metadata: {name: medical}, spec: {rank: 0}}]"),
    passes=Example(_MEDICAL),
    when=("adapters",),
)
def adapter_artifact_invalid(seen: ServiceSeen) -> Outputs:
    """An adapter artifact that its own rules refuse, created while admission was away, is never staged."""
    for name, error in refused_adapters(seen).items():
        yield Finding(error, (Ref(AIM_ARTIFACT, seen.namespace, name),), name)


@rule(
    AIM_SERVICE,
    reason=Reason.REFERENCE_INVALID,
    fields="spec.profile.name, spec.model.name, spec.template.name, spec.runtimeConfigName",
    basis=Basis.STORED,
    refused=Example(
        "spec: {runtimeConfigName: default}",
        world="[{kind: AIMRuntimeConfig, metadata: {name: default}, spec: {artifact: {s3: {auth: {mode: static}}}}}]",
    ),
    passes=Example("spec: {runtimeConfigName: default}"),
)
def referenced_object_invalid(seen: ServiceSeen) -> Outputs:
    """A profile, model, template or RuntimeConfig that its own rules refuse makes the service invalid."""
    for path, kind, obj in _used(seen):
        if (error := own_error(kind, obj, seen)) is not None:
            name = view.name_of(obj)
            ref = Ref(kind, seen.namespace if kind.namespaced else None, name)
            yield Finding(_error(path, Reason.REFERENCE_INVALID, kind, name, error), (ref,))


def _used(seen: ServiceSeen) -> Iterator[tuple[str, Kind, Json]]:
    """Return the objects that the service is made from, each with the field that refers to it."""
    pipeline, config = seen.pipeline, seen.config
    references: tuple[tuple[str, Reference | None], ...] = (
        ("spec.profile.name", pipeline.profile),
        ("spec.model.name", pipeline.model),
        ("spec.template.name", pipeline.template),
    )
    for path, reference in references:
        if isinstance(reference, Resolved):
            yield path, reference.kind, reference.obj
    for kind, obj in ((AIM_RUNTIME_CONFIG, config.namespaced), (AIM_CLUSTER_RUNTIME_CONFIG, config.cluster)):
        if obj is not None and view.left_out(obj) is None:
            yield "spec.runtimeConfigName", kind, obj


def _error(path: str, reason: Reason, kind: Kind, name: str, error: FieldError) -> FieldError:
    detail = f'its own rules refuse {kind.kind} "{name}": {error.path}: {error.detail} ({error.reason})'
    return FieldError(path, reason, Cause.INVALID, detail, name, error.hint)
