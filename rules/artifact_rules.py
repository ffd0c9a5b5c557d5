"""What an AIMArtifact may say (docs/contract.md, Artifacts, Edits of shared objects)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api import view
from api.errors import Cause, FieldError, FieldWarning
from api.kinds import AIM_ARTIFACT
from api.reasons import Reason
from api.source_uri import source_model_id
from rules import adapters as adapter_rules
from rules.environment import ALLOWED_JOB_ENV_WORDS, env_names, job_env_allowed, job_env_allowed_beside_typed_s3
from rules.rank import HIGHEST_RANK
from rules.registry import Basis, Example, Output, rule
from rules.relations import MOST_SERVICES_JUDGED, affected, naming_services
from rules.resolve import Ref, service_runtime_config
from rules.seen import Seen, forbidden, invalid, required
from rules.shared import size_finding, source_uri_finding, unimplemented_warnings, unknown_word, unusable_env_findings
from rules.suggest import did_you_mean
from rules.verdict import Finding

Outputs = Iterator[Output]

_BASE_ID = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$")  # said in modelId, or of an hf:// source
_ONE_SLIP = 0.85  # names of variables resemble each other more than what they mean does
_ADAPTER_FIELDS = ("rank", "parentArtifact", "compatibleWith")
_IMMUTABLE = ("type", "sourceUri", "parentArtifact", "downloadFilter")


@rule(
    AIM_ARTIFACT,
    reason=Reason.TYPE_UNKNOWN,
    fields="spec.type",
    refused=Example("spec: {type: adaptor}"),
    passes=Example("spec: {type: adapter}"),
)
def artifact_type_unknown(seen: Seen) -> Outputs:
    """An artifact is a model or an adapter (the schema speaks first)."""
    for finding in unknown_word("spec.type", view.dig(seen.spec, "type"), ("model", "adapter")):
        error = finding.error
        yield Finding(FieldError(error.path, Reason.TYPE_UNKNOWN, error.cause, error.detail, error.value, error.hint))


@rule(
    AIM_ARTIFACT,
    reason=Reason.SOURCE_UNUSABLE,
    fields="spec.sourceUri",
    refused=Example("spec: {sourceUri: 'hf://medical-lora'}"),
    passes=Example("spec: {sourceUri: 'hf://acme/medical-lora/v2@main'}"),
)
def source_unusable(seen: Seen) -> Outputs:
    """A source that cannot be parsed can never be downloaded, and it is immutable: better refused than stuck."""
    yield from source_uri_finding("spec.sourceUri", view.dig(seen.spec, "sourceUri"))


@rule(
    AIM_ARTIFACT,
    reason=Reason.FIELD_ONLY_ON_ADAPTERS,
    fields="spec.rank, spec.parentArtifact, spec.compatibleWith",
    refused=Example("spec: {type: model, rank: 16, compatibleWith: null}"),
    passes=Example("spec: {type: adapter, rank: 16}"),
)
def adapter_field_on_model(seen: Seen) -> Outputs:
    """Rank, parent and compatibility describe adapters."""
    if view.is_adapter(seen.new):
        return
    for key in _ADAPTER_FIELDS:
        value = view.dig(seen.spec, key)
        if value is not None and value != []:
            yield forbidden(
                f"spec.{key}",
                Reason.FIELD_ONLY_ON_ADAPTERS,
                "only adapters have this field, and this artifact has type model",
                "set spec.type: adapter, or remove the field",
            )


@rule(
    AIM_ARTIFACT,
    reason=Reason.ADAPTER_DISK_ON_ADAPTER,
    fields="spec.adapterDisk",
    refused=Example("spec: {type: adapter, adapterDisk: {size: 50Gi}}"),
    passes=Example("spec: {type: model, adapterDisk: {size: 50Gi}, compatibleWith: null}"),
)
def adapter_disk_on_adapter(seen: Seen) -> Outputs:
    """Adapters live on their base's disk."""
    if view.is_adapter(seen.new) and view.dig(seen.spec, "adapterDisk") is not None:
        yield forbidden(
            "spec.adapterDisk",
            Reason.ADAPTER_DISK_ON_ADAPTER,
            "the adapter disk belongs to the base model, which all its adapters share",
            "set it on the artifact of type model, or remove it",
        )


@rule(
    AIM_ARTIFACT,
    reason=Reason.ADAPTER_MODEL_ID_MISSING,
    fields="spec.modelId",
    refused=Example("spec: {type: adapter, modelId: null}"),
    passes=Example("spec: {type: adapter, modelId: acme/medical-lora}"),
)
def adapter_without_model_id(seen: Seen) -> Outputs:
    """An adapter says its own model id."""
    if view.is_adapter(seen.new) and view.text(seen.spec, "modelId") is None:
        implied = view.model_id({"sourceUri": view.source_uri(seen.new)})
        hint = f'for example spec.modelId: "{implied}"' if implied else 'for example spec.modelId: "acme/medical-lora"'
        yield required(
            "spec.modelId", Reason.ADAPTER_MODEL_ID_MISSING, "an adapter needs an id of its own (org/name)", hint
        )


@rule(
    AIM_ARTIFACT,
    reason=(Reason.COMPATIBILITY_MISSING, Reason.COMPATIBILITY_TWICE),
    fields="spec.compatibleWith, spec.parentArtifact",
    refused=Example("spec: {type: adapter, compatibleWith: []}"),
    passes=Example("spec: {type: adapter, compatibleWith: [Qwen/Qwen3-8B]}"),
)
def compatibility_not_exactly_one(seen: Seen) -> Outputs:
    """An adapter names the models it fits (recommended), or one parent artifact: exactly one of the two."""
    if not view.is_adapter(seen.new):
        return
    logical, exact = bool(view.items(seen.spec, "compatibleWith")), view.parent_artifact(seen.new) is not None
    if not logical and not exact:
        yield required(
            "spec.compatibleWith",
            Reason.COMPATIBILITY_MISSING,
            "nothing tells which base models this adapter fits",
            "list model ids, for example spec.compatibleWith: [Qwen/Qwen3-8B]",
        )
    elif logical and exact:
        yield forbidden(
            "spec.parentArtifact",
            Reason.COMPATIBILITY_TWICE,
            "spec.compatibleWith is set too, and exactly one of the two decides what the adapter fits",
            "keep spec.compatibleWith (recommended)",
        )


@rule(
    AIM_ARTIFACT,
    reason=Reason.RANK_BELOW_ONE,
    fields="spec.rank",
    refused=Example("spec: {type: adapter, rank: 0}"),
    passes=Example("spec: {type: adapter, rank: 1}"),
)
def rank_below_one(seen: Seen) -> Outputs:
    """A rank is at least 1 (the schema speaks first); absent means 16."""
    rank = view.integer(seen.spec, "rank")
    if rank is not None and rank < 1 and view.is_adapter(seen.new):
        yield invalid("spec.rank", Reason.RANK_BELOW_ONE, "a rank is at least 1", "see r in adapter_config.json", rank)


@rule(
    AIM_ARTIFACT,
    reason=Reason.SIZE_UNUSABLE,
    fields="spec.size, spec.adapterDisk.size",
    refused=Example("spec: {type: model, compatibleWith: null, size: 0Gi}"),
    passes=Example("spec: {type: model, compatibleWith: null, size: 60Gi}"),
)
def size_unusable(seen: Seen) -> Outputs:
    """A claim needs a size above zero."""
    yield from size_finding("spec.size", view.dig(seen.spec, "size"))
    yield from size_finding("spec.adapterDisk.size", view.dig(seen.spec, "adapterDisk", "size"))


@rule(
    AIM_ARTIFACT,
    reason=(Reason.ENV_NOT_ALLOWED, Reason.ENV_UNUSABLE),
    fields="spec.env[i].name, spec.env[i].valueFrom",
    refused=Example("spec: {env: [{name: HF_HOME, value: /tmp}]}"),
    passes=Example("spec: {env: [{name: HF_TOKEN, value: from-a-secret}]}"),
)
def env_not_allowed(seen: Seen) -> Outputs:
    """The artifact's env reaches the Job that writes the disk: an allow-list keeps the writer's settings ours."""
    yield from unusable_env_findings(seen.new, "spec", "env", names=False)
    for path, name in env_names(seen.new, "spec", "env"):
        if not job_env_allowed(name):
            hint = did_you_mean(name, ("HF_TOKEN", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"), _ONE_SLIP)
            detail = f"this variable is not allowed here; allowed: {ALLOWED_JOB_ENV_WORDS}"
            yield invalid(path, Reason.ENV_NOT_ALLOWED, detail, hint or "remove it", name)


@rule(
    AIM_ARTIFACT,
    reason=Reason.DISALLOWED_S3_ARTIFACT_ENVIRONMENT,
    fields="spec.env[i].name",
    basis=Basis.WORLD,
    refused=Example(
        "spec: {sourceUri: 's3://bucket/a/', env: [{name: AWS_ACCESS_KEY_ID, value: x}]}",
        world="[{kind: AIMRuntimeConfig, metadata: {name: default}, spec: {artifact: {s3: {region: eu}}}}]",
    ),
    passes=Example(
        "spec: {sourceUri: 's3://bucket/a/', env: [{name: AWS_MAX_ATTEMPTS, value: '5'}]}",
        world="[{kind: AIMRuntimeConfig, metadata: {name: default}, spec: {artifact: {s3: {region: eu}}}}]",
    ),
)
def env_beside_typed_s3(seen: Seen) -> Outputs:
    """With a typed s3 block credentials are mounted as files; the artifact's env then only tunes."""
    if not view.source_uri(seen.new).startswith("s3://") or not view.items(seen.spec, "env"):
        return
    config = service_runtime_config(seen.world, seen.new)
    block, origin = config.value("artifact", "s3")
    if block is None:
        return
    for path, name in env_names(seen.new, "spec", "env"):
        if job_env_allowed(name) and not job_env_allowed_beside_typed_s3(name):
            detail = f"{origin} has a typed s3 block (artifact.s3), which alone says how to reach the bucket"
            hint = "remove it; set spec.artifact.s3 of that RuntimeConfig instead"
            error = FieldError(path, Reason.DISALLOWED_S3_ARTIFACT_ENVIRONMENT, Cause.INVALID, detail, name, hint)
            yield Finding(error, config.looked_at)


@rule(
    AIM_ARTIFACT,
    reason=Reason.PARENT_NOT_MODEL,
    fields="spec.parentArtifact",
    basis=Basis.WORLD,
    refused=Example("spec: {type: adapter, compatibleWith: null, parentArtifact: legal}"),
    passes=Example("spec: {type: adapter, compatibleWith: null, parentArtifact: qwen3-8b-base}"),
)
def parent_not_a_model(seen: Seen) -> Outputs:
    """The parent of an exact adapter is a model artifact."""
    parent = view.parent_artifact(seen.new)
    if parent is None or not view.is_adapter(seen.new):
        return
    found = seen.world.get(AIM_ARTIFACT, seen.namespace, parent)
    if parent == seen.name or (found is not None and view.is_adapter(found)):
        rests_on = () if parent == seen.name else (Ref(AIM_ARTIFACT, seen.namespace, parent),)
        error = FieldError(
            "spec.parentArtifact",
            Reason.PARENT_NOT_MODEL,
            Cause.INVALID,
            "this AIMArtifact is an adapter itself",
            parent,
            "name the artifact of the base model",
        )
        yield Finding(error, rests_on)


@rule(
    AIM_ARTIFACT,
    reason=Reason.FIELD_IMMUTABLE,
    fields="spec.type, spec.sourceUri, spec.parentArtifact, spec.downloadFilter",
    basis=Basis.TRANSITION,
    refused=Example("spec: {sourceUri: 'hf://acme/other'}", old="spec: {sourceUri: 'hf://acme/medical-lora'}"),
    passes=Example("spec: {rank: 32}", old="spec: {rank: 16}"),
)
def immutable_field_changed(seen: Seen) -> Outputs:
    """What an artifact is and where it comes from never changes: bytes on disks are known by it."""
    for key in _IMMUTABLE:
        differs = view.is_adapter(seen.old) != view.is_adapter(seen.new) if key == "type" else seen.changed(key)
        if differs:
            yield invalid(
                f"spec.{key}",
                Reason.FIELD_IMMUTABLE,
                "this field is fixed at creation",
                "create another artifact, or delete this one first",
                seen.spec.get(key) if isinstance(seen.spec.get(key), str) else None,
            )


# -- warnings -------------------------------------------------------------------------------------------------------


@rule(
    AIM_ARTIFACT,
    reason=Reason.PARENT_ARTIFACT_NOT_FOUND,
    fields="spec.parentArtifact",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {type: adapter, compatibleWith: null, parentArtifact: not-yet}"),
    passes=Example("spec: {type: adapter, compatibleWith: null, parentArtifact: qwen3-8b-base}"),
)
def parent_not_found_yet(seen: Seen) -> Outputs:
    """An exact adapter waits for its parent."""
    parent = view.parent_artifact(seen.new)
    if parent is None or not view.is_adapter(seen.new) or parent == seen.name or not seen.world.knows(AIM_ARTIFACT):
        return
    if seen.world.get(AIM_ARTIFACT, seen.namespace, parent) is None:
        detail = f'no AIMArtifact "{parent[:40]}" exists yet; the adapter stays Pending until it does'
        yield FieldWarning("spec.parentArtifact", Reason.PARENT_ARTIFACT_NOT_FOUND, detail, 20)


@rule(
    AIM_ARTIFACT,
    reason=Reason.REFERENCE_NOT_FOUND,
    fields="spec.runtimeConfigName",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {runtimeConfigName: not-yet}"),
    passes=Example("spec: {runtimeConfigName: default}"),
)
def artifact_runtime_config_not_found_yet(seen: Seen) -> Outputs:
    """A RuntimeConfig that is named may be applied next."""
    config = service_runtime_config(seen.world, seen.new)
    if config.missing:
        detail = f'no RuntimeConfig "{config.name[:50]}" exists yet'
        yield FieldWarning("spec.runtimeConfigName", Reason.REFERENCE_NOT_FOUND, detail, 20)


@rule(
    AIM_ARTIFACT,
    reason=Reason.BASE_ID_IMPOSSIBLE,
    fields="spec.compatibleWith[i]",
    warns=True,
    when=("compatibleWith",),
    refused=Example("spec: {compatibleWith: [Qwen/Qwen3-8B, 'hf://Qwen/Qwen3-8B']}"),
    passes=Example("spec: {compatibleWith: [Qwen/Qwen3-8B, Qwen/Qwen3-4B]}"),
)
def base_id_impossible(seen: Seen) -> Outputs:
    """A base is known by its model id (org/name), compared as it stands: no URI or path is ever equal to one."""
    if not view.is_adapter(seen.new):
        return
    for index, entry in enumerate(view.items(seen.spec, "compatibleWith")):
        if isinstance(entry, str) and entry and not _BASE_ID.match(entry):
            meant = source_model_id(entry) or source_model_id(f"hf://{entry.strip().rstrip('/')}")
            write = f'write "{meant[:30]}"' if meant else "write org/name"
            detail = f'no base has the model id "{entry[:30]}"; {write}'
            yield FieldWarning(f"spec.compatibleWith[{index}]", Reason.BASE_ID_IMPOSSIBLE, detail, 15)


@rule(
    AIM_ARTIFACT,
    reason=Reason.RANK_ABOVE_HIGHEST,
    fields="spec.rank",
    warns=True,
    refused=Example("spec: {type: adapter, rank: 1024}"),
    passes=Example("spec: {type: adapter, rank: 512}"),
)
def rank_above_highest(seen: Seen) -> Outputs:
    """No engine takes a rank above 512; services that declare such an adapter are refused."""
    if view.is_adapter(seen.new) and view.declared_rank(seen.new) > HIGHEST_RANK:
        detail = (
            f"{view.declared_rank(seen.new)} is above {HIGHEST_RANK}: every service that declares it will be refused"
        )
        yield FieldWarning("spec.rank", Reason.RANK_ABOVE_HIGHEST, detail, 10)


@rule(
    AIM_ARTIFACT,
    reason=Reason.FIELD_NOT_IMPLEMENTED,
    fields="spec.retentionPriority",
    warns=True,
    refused=Example("spec: {retentionPriority: 5}"),
    passes=Example("spec: {}"),
)
def artifact_field_not_implemented(seen: Seen) -> Outputs:
    """A field that others may act on, but we do not."""
    if not seen.context.admission_only:
        yield from unimplemented_warnings(seen.spec, [("retentionPriority",)])


@rule(
    AIM_ARTIFACT,
    reason=(
        Reason.RANK_EDIT_BREAKS_SERVICES,
        Reason.RANK_EDIT_ROLLS,
        Reason.COMPATIBILITY_EDIT_BREAKS_SERVICES,
        Reason.MODEL_ID_EDIT_BREAKS_SERVICES,
        Reason.MODEL_ID_CHANGED,
    ),
    fields="spec.rank, spec.compatibleWith, spec.modelId, spec.parentArtifact, spec.type",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        "spec: {rank: 64}",
        old="spec: {rank: 16}",
        world="[{kind: AIMService, metadata: {name: chat}, "
        "spec: {adapterMode: dynamic, adapters: [{name: medical, kind: AIMArtifact}]}}]",
    ),
    passes=Example(
        "spec: {rank: 32}",
        old="spec: {rank: 16}",
        world="[{kind: AIMService, metadata: {name: chat}, "
        "spec: {adapterMode: dynamic, adapters: [{name: medical, kind: AIMArtifact}]}}]",
    ),
)
def edit_breaks_services(seen: Seen) -> Outputs:
    """What services of today cannot follow is answered with their names: an edit, or one that they waited for."""
    if seen.old is None:
        yield from _came_late(seen)
    elif view.is_adapter(seen.new):
        yield from _adapter_edit(seen)
    elif seen.changed("modelId"):
        yield from _base_edit(seen)


def _came_late(seen: Seen) -> Outputs:
    """Services may declare an adapter before it is there; one that they then cannot use is told when it is made.

    Where it is there already (files that are judged as a whole), the services say so themselves.
    """
    if seen.world.get(AIM_ARTIFACT, seen.namespace, seen.name) is not None:
        return
    services = seen.world.services_by_artifact(seen.namespace, seen.name)
    if not services:
        return
    among = affected(seen, services)
    rank, misfit = view.declared_rank(seen.new), Reason.COMPATIBILITY_EDIT_BREAKS_SERVICES
    for path, reason, why, told in (
        ("spec.type", misfit, adapter_rules.REASON_NOT_AN_ADAPTER, "no adapter, but declared as one by"),
        ("spec.compatibleWith", misfit, adapter_rules.REASON_INCOMPATIBLE, "it does not fit the base of"),
        ("spec.parentArtifact", misfit, adapter_rules.REASON_WRONG_PARENT, "it is not the base of"),
        (
            "spec.rank",
            Reason.RANK_EDIT_BREAKS_SERVICES,
            adapter_rules.REASON_RANK_ABOVE_CEILING,
            f"rank {rank} is above the ceiling of",
        ),
    ):
        broken = [entry for entry in among if entry.newly_broken([why])]
        yield from naming_services(path, reason, told, broken, total=len(services))


def _adapter_edit(seen: Seen) -> Outputs:
    rank_differs = view.declared_rank(seen.old) != view.declared_rank(seen.new)
    fits_differ = set(view.compatible_with(seen.old)) != set(view.compatible_with(seen.new))
    id_differs = seen.changed("modelId")
    if not (rank_differs or fits_differ or id_differs):
        return
    services = seen.world.services_by_artifact(seen.namespace, seen.name)
    among, total = affected(seen, services), len(services)
    if rank_differs:
        broken = [entry for entry in among if entry.newly_broken([adapter_rules.REASON_RANK_ABOVE_CEILING])]
        told = f"rank {view.declared_rank(seen.new)} is above the ceiling of"
        yield from naming_services("spec.rank", Reason.RANK_EDIT_BREAKS_SERVICES, told, broken, total=total)
        rolls = [entry for entry in among if entry not in broken and entry.rolls]
        told = "rolls the pods of"
        yield from naming_services("spec.rank", Reason.RANK_EDIT_ROLLS, told, rolls, total=total, weight=2)
    if fits_differ:
        broken = [entry for entry in among if entry.newly_broken([adapter_rules.REASON_INCOMPATIBLE])]
        told = "it no longer fits the base of"
        yield from naming_services(
            "spec.compatibleWith", Reason.COMPATIBILITY_EDIT_BREAKS_SERVICES, told, broken, total=total
        )
    if id_differs:
        told = "declared by"
        yield from naming_services("spec.modelId", Reason.MODEL_ID_CHANGED, told, among, total=total, weight=30)


def _base_edit(seen: Seen) -> Outputs:
    services = [*seen.world.services_by_base(seen.namespace, seen.name)]
    among = affected(seen, services[:MOST_SERVICES_JUDGED])
    broken = [entry for entry in among if entry.newly_broken([adapter_rules.REASON_INCOMPATIBLE])]
    told = "adapters no longer fit this base in"
    yield from naming_services("spec.modelId", Reason.MODEL_ID_EDIT_BREAKS_SERVICES, told, broken, total=len(services))
    if not broken:
        told = "base of"
        yield from naming_services("spec.modelId", Reason.MODEL_ID_CHANGED, told, among, total=len(services), weight=30)
