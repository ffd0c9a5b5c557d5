"""What an AIMArtifact may contain (docs/contract.md, Artifacts, Edits of shared objects)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api import view
from api.errors import Cause, FieldError, FieldWarning
from api.kinds import AIM_ARTIFACT
from api.quantity import parse_quantity
from api.reasons import Reason
from api.source_uri import source_model_id
from rules import adapters as adapter_rules
from rules.environment import ALLOWED_JOB_ENV_WORDS, env_names, job_env_allowed, job_env_allowed_beside_typed_s3
from rules.rank import HIGHEST_RANK
from rules.references import Ref
from rules.registry import Basis, Example, Output, rule
from rules.relations import MOST_SERVICES_JUDGED, affected, naming_services
from rules.runtime_config import service_runtime_config
from rules.seen import Seen, forbidden, invalid, required
from rules.shared import not_found_yet, short, unimplemented_warnings, unknown_word
from rules.suggest import did_you_mean
from rules.verdict import Finding
from rules.world import Index

Outputs = Iterator[Output]

_BASE_ID = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$")  # of modelId or an hf:// source
_ONE_SLIP = 0.85  # names of variables are alike even if their meanings are not
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
    """An artifact is a model or an adapter. The schema checks this first."""
    for finding in unknown_word("spec.type", view.dig(seen.spec, "type"), ("model", "adapter")):
        error = finding.error
        yield Finding(FieldError(error.path, Reason.TYPE_UNKNOWN, error.cause, error.detail, error.value, error.hint))


@rule(
    AIM_ARTIFACT,
    reason=Reason.FIELD_ONLY_ON_ADAPTERS,
    fields="spec.rank, spec.parentArtifact, spec.compatibleWith",
    refused=Example("spec: {type: model, rank: 16, compatibleWith: null}"),
    passes=Example("spec: {type: adapter, rank: 16}"),
)
def adapter_field_on_model(seen: Seen) -> Outputs:
    """Rank, parent and compatibility describe adapters only."""
    written = seen.spec.get("type")
    if written not in (None, "model"):  # an adapter, or an unknown type, which has a rule of its own
        return
    why = "this artifact has type model" if written else "spec.type is not set and defaults to model"
    for key in _ADAPTER_FIELDS:
        value = view.dig(seen.spec, key)
        if value is not None and value != []:
            yield forbidden(
                f"spec.{key}",
                Reason.FIELD_ONLY_ON_ADAPTERS,
                f"only adapters have this field, and {why}",
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
    """Adapters are stored on the disk of their base."""
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
    """An adapter has a model id of its own."""
    if view.is_adapter(seen.new) and view.text(seen.spec, "modelId") is None:
        implied = view.model_id({"sourceUri": view.source_uri(seen.new)})
        hint = f'for example spec.modelId: "{implied}"' if implied else 'for example spec.modelId: "acme/medical-lora"'
        yield required(
            "spec.modelId", Reason.ADAPTER_MODEL_ID_MISSING, "an adapter needs a model id of its own (org/name)", hint
        )


@rule(
    AIM_ARTIFACT,
    reason=(Reason.COMPATIBILITY_MISSING, Reason.COMPATIBILITY_TWICE),
    fields={Reason.COMPATIBILITY_MISSING: "spec.compatibleWith", Reason.COMPATIBILITY_TWICE: "spec.parentArtifact"},
    refused=Example("spec: {type: adapter, compatibleWith: []}"),
    passes=Example("spec: {type: adapter, compatibleWith: [Qwen/Qwen3-8B]}"),
)
def compatibility_not_exactly_one(seen: Seen) -> Outputs:
    """An adapter lists the models that it fits (recommended) or names one parent artifact, but not both."""
    if not view.is_adapter(seen.new):
        return
    logical, exact = bool(view.items(seen.spec, "compatibleWith")), view.parent_artifact(seen.new) is not None
    if not logical and not exact:
        yield required(
            "spec.compatibleWith",
            Reason.COMPATIBILITY_MISSING,
            "it is not set, so it is unknown which base models this adapter fits",
            "list model ids, for example spec.compatibleWith: [Qwen/Qwen3-8B]",
        )
    elif logical and exact:
        yield forbidden(
            "spec.parentArtifact",
            Reason.COMPATIBILITY_TWICE,
            "spec.compatibleWith is set, too, and only one of the two can define what the adapter fits",
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
    """A rank is at least 1, and 16 if it is not set. The schema checks this first."""
    rank = view.integer(seen.spec, "rank")
    if rank is not None and rank < 1 and view.is_adapter(seen.new):
        yield invalid(
            "spec.rank", Reason.RANK_BELOW_ONE, "a rank is at least 1", "use r from adapter_config.json", rank
        )


@rule(
    AIM_ARTIFACT,
    reason=Reason.ENV_NOT_ALLOWED,
    fields="spec.env[i].name",
    refused=Example("spec: {env: [{name: HF_HOME, value: /tmp}]}"),
    passes=Example("spec: {env: [{name: HF_TOKEN, value: from-a-secret}]}"),
)
def env_not_allowed(seen: Seen) -> Outputs:
    """The artifact's variables reach the Job that writes the disk, so only those on an allow-list are valid."""
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
    """With a typed s3 block credentials are mounted as files, so variables of the artifact may only tune downloads."""
    if not view.source_uri(seen.new).startswith("s3://") or not view.items(seen.spec, "env"):
        return
    config = service_runtime_config(seen.world, seen.new)
    block, origin = config.value("artifact", "s3")
    if block is None:
        return
    for path, name in env_names(seen.new, "spec", "env"):
        if job_env_allowed(name) and not job_env_allowed_beside_typed_s3(name):
            detail = f"{origin} has a typed s3 block (artifact.s3), which alone defines how to reach the bucket"
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
    """`spec.parentArtifact` names an artifact of type model."""
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
    """Type and source of an artifact are fixed at creation, because they identify the content on disks."""
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


_READ_ONCE = (
    (("size",), "persistentVolumeClaim"),
    (("storageClassName",), "persistentVolumeClaim"),
    (("adapterDisk", "size"), "adapterPersistentVolumeClaim"),
    (("adapterDisk", "storageClassName"), "adapterPersistentVolumeClaim"),
)
"""Fields of a base model that only count when its claim is created, and the field of the status with that claim."""

_CLAIMED = "status: {adapterPersistentVolumeClaim: qwen3-8b-adapters}"


@rule(
    AIM_ARTIFACT,
    reason=Reason.EDIT_HAS_NO_EFFECT,
    fields="spec.size, spec.storageClassName, spec.adapterDisk.size, .storageClassName",
    basis=Basis.TRANSITION,
    warns=True,
    refused=Example(
        f"{{{_CLAIMED}, spec: {{type: model, compatibleWith: null, adapterDisk: {{size: 20Gi}}}}}}",
        old=f"{{{_CLAIMED}, spec: {{type: model, compatibleWith: null, adapterDisk: {{size: 10Gi}}}}}}",
    ),
    passes=Example(
        "spec: {type: model, compatibleWith: null, adapterDisk: {size: 20Gi}}",
        old="spec: {type: model, compatibleWith: null, adapterDisk: {size: 10Gi}}",
    ),
)
def edit_of_what_is_read_once(seen: Seen) -> Outputs:
    """A claim that exists keeps its size and its class; only a new claim gets those of the spec."""
    if view.is_adapter(seen.new):
        return
    old = view.mapping(seen.old, "spec")
    for path, field in _READ_ONCE:
        claim = view.text(seen.new, "status", field)
        if claim is None or view.dig(seen.spec, *path) == view.dig(old, *path):
            continue
        before, after = parse_quantity(view.dig(old, *path)), parse_quantity(view.dig(seen.spec, *path))
        if path[-1] != "size":
            then = "a claim keeps its class; to move the data, create another artifact"
        elif before is not None and after is not None and after < before:
            then = "a claim cannot shrink; to use less, create another artifact"
        else:
            then = f"to expand it, set spec.resources.requests.storage of the claim: kubectl edit pvc {claim}"
        detail = f'no effect on the existing claim "{claim}"; {then}'
        yield FieldWarning(f"spec.{'.'.join(path)}", Reason.EDIT_HAS_NO_EFFECT, detail, 20)


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
    """The parent artifact may be applied later; the adapter waits for it."""
    parent = view.parent_artifact(seen.new)
    if parent is None or not view.is_adapter(seen.new) or parent == seen.name or not seen.world.knows(AIM_ARTIFACT):
        return
    if seen.world.get(AIM_ARTIFACT, seen.namespace, parent) is None:
        then = "; the adapter stays Pending until it does"
        reason = Reason.PARENT_ARTIFACT_NOT_FOUND
        yield not_found_yet("spec.parentArtifact", "AIMArtifact", parent, reason=reason, then=then, room=30)


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
    """The RuntimeConfig that the artifact names may be applied later."""
    config = service_runtime_config(seen.world, seen.new)
    if config.missing:
        yield not_found_yet("spec.runtimeConfigName", "RuntimeConfig", config.name)


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
    """`spec.compatibleWith` lists model ids (org/name), which are compared literally, so no URI or path matches."""
    if not view.is_adapter(seen.new):
        return
    for index, entry in enumerate(view.items(seen.spec, "compatibleWith")):
        if isinstance(entry, str) and entry and not _BASE_ID.match(entry):
            meant = source_model_id(entry) or source_model_id(f"hf://{entry.strip().rstrip('/')}")
            write = f'write "{short(meant, 30)}"' if meant else "write org/name"
            detail = f'no base has the model id "{short(entry, 30)}"; {write}'
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
    """No engine supports a rank above 512, so services that declare this adapter will be refused."""
    if view.is_adapter(seen.new) and view.declared_rank(seen.new) > HIGHEST_RANK:
        detail = f"{view.declared_rank(seen.new)} is above {HIGHEST_RANK}, so services that declare it will be refused"
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
    """aim-adapters does not act on this field; other controllers may."""
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
    fields={
        Reason.RANK_EDIT_BREAKS_SERVICES: "spec.rank",
        Reason.RANK_EDIT_ROLLS: "spec.rank",
        Reason.COMPATIBILITY_EDIT_BREAKS_SERVICES: "spec.compatibleWith, spec.parentArtifact, spec.type",
        Reason.MODEL_ID_EDIT_BREAKS_SERVICES: "spec.modelId",
        Reason.MODEL_ID_CHANGED: "spec.modelId",
    },
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
    """Lists the services that this edit, or this new artifact, would break or restart."""
    if seen.old is None:
        yield from _came_late(seen)
    elif view.is_adapter(seen.new):
        yield from _adapter_edit(seen)
    elif seen.changed("modelId"):
        yield from _base_edit(seen)


def _came_late(seen: Seen) -> Outputs:
    """Warn about services that declared the adapter before it existed, and cannot use it.

    If it exists already (files that are checked together), the rules about the services report it.
    """
    if seen.world.get(AIM_ARTIFACT, seen.namespace, seen.name) is not None:
        return
    services = seen.world.find(Index.SERVICES_BY_ARTIFACT, seen.namespace, seen.name)
    if not services:
        return
    among = affected(seen, services)
    rank, misfit = view.declared_rank(seen.new), Reason.COMPATIBILITY_EDIT_BREAKS_SERVICES
    for path, reason, why, words in (
        ("spec.type", misfit, adapter_rules.REASON_NOT_AN_ADAPTER, "not an adapter, but declared as one by"),
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
        yield from naming_services(path, reason, words, broken, total=len(services))


def _adapter_edit(seen: Seen) -> Outputs:
    rank_differs = view.declared_rank(seen.old) != view.declared_rank(seen.new)
    fits_differ = set(view.compatible_with(seen.old)) != set(view.compatible_with(seen.new))
    id_differs = seen.changed("modelId")
    if not (rank_differs or fits_differ or id_differs):
        return
    services = seen.world.find(Index.SERVICES_BY_ARTIFACT, seen.namespace, seen.name)
    among, total = affected(seen, services), len(services)
    if rank_differs:
        broken = [entry for entry in among if entry.newly_broken([adapter_rules.REASON_RANK_ABOVE_CEILING])]
        words = f"rank {view.declared_rank(seen.new)} is above the ceiling of"
        yield from naming_services("spec.rank", Reason.RANK_EDIT_BREAKS_SERVICES, words, broken, total=total)
        rolls = [entry for entry in among if entry not in broken and entry.rolls]
        words = "rolls the pods of"
        yield from naming_services("spec.rank", Reason.RANK_EDIT_ROLLS, words, rolls, total=total, weight=2)
    if fits_differ:
        broken = [entry for entry in among if entry.newly_broken([adapter_rules.REASON_INCOMPATIBLE])]
        words = "it no longer fits the base of"
        yield from naming_services(
            "spec.compatibleWith", Reason.COMPATIBILITY_EDIT_BREAKS_SERVICES, words, broken, total=total
        )
    if id_differs:
        words = "declared by"
        yield from naming_services("spec.modelId", Reason.MODEL_ID_CHANGED, words, among, total=total, weight=30)


def _base_edit(seen: Seen) -> Outputs:
    services = [*seen.world.find(Index.SERVICES_BY_BASE, seen.namespace, seen.name)]
    among = affected(seen, services[:MOST_SERVICES_JUDGED])
    broken = [entry for entry in among if entry.newly_broken([adapter_rules.REASON_INCOMPATIBLE])]
    words = "adapters no longer fit this base in"
    yield from naming_services("spec.modelId", Reason.MODEL_ID_EDIT_BREAKS_SERVICES, words, broken, total=len(services))
    if not broken:
        words = "base of"
        yield from naming_services(
            "spec.modelId", Reason.MODEL_ID_CHANGED, words, among, total=len(services), weight=30
        )
