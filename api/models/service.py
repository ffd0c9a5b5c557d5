"""AIMService: a model served with its adapters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from api.models.common import (
    AdapterRuntime,
    EnvList,
    Features,
    FromOne,
    FromZero,
    Int32,
    Int64,
    ModelSource,
    Object,
    ObjectName,
    PullSecrets,
    Reference,
    ResourceRequirements,
    Shape,
    Status,
    Storage,
    Text,
    Timestamp,
    keyed_by,
    not_acted_on,
)
from api.models.template import Hardware
from api.names import MAX_ADAPTERS


class CustomModel(Shape):
    """A model that no AIMModel describes."""

    base_image: Text = Field(description="Image of the model server.")
    model_sources: Annotated[list[ModelSource], Field(min_length=1, max_length=1)] = Field(
        description="The model to serve; exactly one."
    )
    hardware: Hardware | None = Field(None, description="Accelerators of one replica.")


class ServiceModel(Shape):
    """The model to serve; exactly one of the fields."""

    name: Text | None = Field(None, description="Name of an AIMModel of the namespace, else of an AIMClusterModel.")
    image: Text | None = Field(None, description="Image that holds the model's runtime.")
    custom: CustomModel | None = Field(None, description="A model described right here.")


class ServiceTemplateRef(Shape):
    """The template to serve with (template pipeline)."""

    name: Text | None = Field(None, description="Name of an AIMServiceTemplate, else of an AIMClusterServiceTemplate.")
    allow_unoptimized: bool | None = Field(None, description="Accept templates that nobody has tuned.")


class ServiceProfileRef(Shape):
    """The profile to serve with (profile pipeline)."""

    name: Text | None = Field(None, description="Name of an AIMProfile of the namespace, else of an AIMClusterProfile.")
    selector: Any = not_acted_on("Choice of a profile by its properties.")


class ProfileOverrides(Shape):
    """What this service changes in its profile; needs spec.profile."""

    model_sources: list[ModelSource] | None = Field(None, description="Replaces the profile's model sources.")
    features: Features | None = Field(
        None,
        description="Added to the profile's features; nothing is removed. "
        "`adapters` asserts that the image honours the adapter contract.",
    )
    accelerator_model: str | None = Field(None, description="Accelerator, for example MI300X.")
    accelerator_vendor: str | None = Field(None, description="Vendor of the accelerator, for example amd.")
    accelerator_count: FromZero | None = Field(None, description="Accelerators per replica.")
    accelerator_partitioning_mode: str | None = Field(
        None, description="How the accelerator is partitioned; only together with acceleratorCount."
    )
    container_env: EnvList | None = Field(None, description="Merged over the profile's containerEnv, by name.")
    engine_env: dict[str, str] | None = Field(None, description="Merged over the profile's engineEnv, by key.")
    engine_args: dict[str, Any] | None = Field(
        None, description="Merged over the profile's engineArgs, top-level keys only."
    )


class AdapterReference(Shape):
    """A reference to an adapter artifact of the same namespace."""

    name: ObjectName = Field(description="Name of the AIMArtifact.")
    kind: Literal["AIMArtifact"] = Field("AIMArtifact", description="Kind of the referenced object.")
    source_uri: Any = not_acted_on("Reserved: write an AIMArtifact and refer to it.")
    model_id: Any = not_acted_on("Reserved: write an AIMArtifact and refer to it.")
    rank: Any = not_acted_on("Reserved: write an AIMArtifact and refer to it.")


class ServiceCaching(Shape):
    """Where the base model is cached."""

    mode: Literal["Shared", "Dedicated", "Auto", "Always", "Never"] = Field(
        "Shared",
        description="Shared: one cache for all services of the namespace (also written Auto or Always); "
        "Dedicated: one of its own (also Never), not possible with adapters. Immutable.",
    )
    env: EnvList | None = Field(None, description="Variables of the download Jobs, credentials above all.")


class AIMServiceSpec(Shape):
    """What to serve, with which adapters, on what."""

    model: ServiceModel | None = Field(
        None,
        description="The model to serve (template pipeline). Immutable. At least one of model and profile is needed.",
    )
    template: ServiceTemplateRef | None = Field(
        None, description="Template of the template pipeline. Immutable; excludes profile. In v1alpha2 not newly set."
    )
    profile: ServiceProfileRef | None = Field(
        None, description="Profile to serve with (profile pipeline). In v1alpha2 adapters need it."
    )
    profile_overrides: ProfileOverrides | None = Field(None, description="What this service changes in its profile.")
    adapter_mode: Literal["static", "dynamic"] = Field(
        "static",
        description="static: the adapters are fixed at creation, serving starts when all are staged; "
        "dynamic: adapters come and go while the server runs. Immutable.",
    )
    adapters: (
        Annotated[list[AdapterReference], Field(max_length=MAX_ADAPTERS, json_schema_extra=keyed_by("kind", "name"))]
        | None
    ) = Field(None, description="LoRA adapters to serve beside the base model. Frozen in static mode.")
    adapter_runtime: AdapterRuntime | None = Field(
        None, description="How the server is started for adapters; dynamic mode only."
    )
    caching: ServiceCaching | None = Field(None, description="Where the base model is cached.")
    replicas: FromZero = Field(
        1, description="Number of replicas; not looked at when minReplicas and maxReplicas differ."
    )
    min_replicas: FromZero | None = Field(None, description="Fewest replicas under autoscaling; at most maxReplicas.")
    max_replicas: FromOne | None = Field(None, description="Most replicas under autoscaling.")
    runtime_config_name: str | None = Field(
        None, description="RuntimeConfig to take defaults from; absent means the one named default, if there is one."
    )
    storage: Storage | None = Field(
        None,
        description="Wins over the RuntimeConfig's storage. The adapter disk is shared: its size and class are set on "
        "the base artifact or the RuntimeConfig, not here.",
    )
    env: EnvList | None = Field(None, description="Variables of the model server, never of a Job.")
    resources: ResourceRequirements | None = Field(None, description="Wins over the profile's resources, key by key.")
    image_pull_secrets: PullSecrets | None = Field(
        None, description="Pull secrets of the model server and of the adapter Jobs."
    )
    service_account_name: str | None = Field(None, description="Service account of the model server.")
    priority_class_name: str | None = Field(None, description="Priority class of the model server.")
    auto_scaling: Any = not_acted_on("Autoscaling by metrics; minReplicas and maxReplicas are acted on.")
    routing: Any = not_acted_on("HTTP routing to the service.")
    scale_from_zero: Any = not_acted_on("Start on the first request.")
    overrides: Any = not_acted_on("Choice of a template by metric, precision and hardware.")
    cache_model: bool | None = Field(None, description="Deprecated and ignored: models are always cached.")


class ServiceCacheStatus(Shape):
    """The cache that the base comes from."""

    profile_cache_ref: Reference | None = Field(None, description="The AIMProfileCache (profile pipeline).")
    template_cache_ref: Reference | None = Field(None, description="The AIMTemplateCache (template pipeline).")
    retry_attempts: Int32 | None = Field(None, description="How often the cache was asked to try again.")


class ServiceRuntimeStatus(Shape):
    """Replicas of the model server."""

    current_replicas: Int32 | None = Field(None, description="Replicas that exist.")
    desired_replicas: Int32 | None = Field(None, description="Replicas that should exist.")
    min_replicas: Int32 | None = Field(None, description="Lower bound in force.")
    max_replicas: Int32 | None = Field(None, description="Upper bound in force.")
    replicas: str | None = Field(None, description="Ready of desired, for example 1/2.")


class AdapterWarning(Shape):
    """Something about an adapter that does not stop it from being served."""

    reason: str | None = Field(None, description="CamelCase word for machines.")
    message: str | None = Field(None, description="Sentence for people.")


class AdapterProgress(Shape):
    """How far the staging of an adapter is."""

    downloaded_bytes: Int64 | None = Field(None, description="Bytes on disk so far.")
    total_bytes: Int64 | None = Field(None, description="Size of the adapter; 0 or absent: not known yet.")
    percentage: Int32 | None = Field(None, description="Share on disk, 0 to 100.")


class AdapterStatus(Shape):
    """State of one adapter of this service."""

    name: str = Field(description="Name of the adapter's artifact.")
    adapter_path: str | None = Field(
        None, description="Directory below the service's subtree, and the model name to ask the server for."
    )
    model_id: str | None = Field(None, description="Model id of the adapter.")
    state: Literal["Pending", "Downloading", "Downloaded", "Failed", "Deleting", "Loaded", "LoadRejected"] | None = (
        Field(
            None,
            description="Pending: waits, lastError says for what; Downloading: on its way; Downloaded: staged; "
            "Loaded: ready pods list it; LoadRejected: staged, but a ready pod does not list it; "
            "Failed: lastError says why; Deleting: removed, but a pod still lists it.",
        )
    )
    last_error: str | None = Field(None, description="Reason: message, of what is wrong; the reasons are documented.")
    last_observed: Timestamp | None = Field(None, description="When state last changed.")
    loaded_replicas: Int32 | None = Field(None, description="Ready replicas whose server lists the adapter.")
    rank: Int32 | None = Field(None, description="Real rank, read from the adapter's files.")
    base_model_id: str | None = Field(None, description="Base model that the adapter's own files name.")
    size_bytes: Int64 | None = Field(None, description="Size of the staged files.")
    digest: str | None = Field(None, description="Checksum over the staged files, sha256:….")
    revision: str | None = Field(None, description="Revision that the source said it served.")
    staged_at: Timestamp | None = Field(None, description="When the staged content came to the disk.")
    progress: AdapterProgress | None = Field(None, description="The running download.")
    attempts: Int32 | None = Field(None, description="Staging attempts so far.")
    next_retry_time: Timestamp | None = Field(None, description="When staging is tried again by itself.")
    stage_key: str | None = Field(None, description="Artifact, source, service and disk that state speaks for.")
    artifact_generation: Int64 | None = Field(None, description="Generation of the artifact that the last attempt saw.")
    staged_for_max_rank: Int32 | None = Field(None, description="Ceiling that the last attempt was judged by.")
    last_retry_staging: str | None = Field(
        None, description="Handled value of the artifact's annotation retry-staging."
    )
    last_restage: str | None = Field(None, description="Handled value of the restage annotation.")
    warnings: list[AdapterWarning] | None = Field(
        None, description="Findings that do not stop the adapter from being served."
    )


class AIMServiceStatus(Status):
    """What is being served."""

    status: Literal["Pending", "Starting", "Running", "Degraded", "Failed"] | None = Field(
        None, description="Summary of the conditions."
    )
    resolved_profile: Reference | None = Field(None, description="The profile in use.")
    resolved_model: Reference | None = Field(None, description="The model in use (template pipeline).")
    resolved_template: Reference | None = Field(None, description="The template in use (template pipeline).")
    resolved_runtime_config: Reference | None = Field(None, description="The RuntimeConfig in use.")
    cache: ServiceCacheStatus | None = Field(None, description="The cache that the base comes from.")
    runtime: ServiceRuntimeStatus | None = Field(None, description="Replicas of the model server.")
    adapters: Annotated[list[AdapterStatus], Field(json_schema_extra=keyed_by("name"))] | None = Field(
        None, description="State of each adapter."
    )
    adapter_summary: str | None = Field(None, description="Staged of declared adapters, for example 2/3.")
    adapter_max_rank: Int32 | None = Field(
        None, description="Last valid rank ceiling, as the server is started with; not reported by the server."
    )
    adapter_subtree_sync_key: str | None = Field(
        None, description="Declared set and disk that the subtree was last brought in line with."
    )
    adapter_disk_persistent_volume_claim: str | None = Field(None, description="Claim of the adapter disk in use.")
    adapter_disk_persistent_volume_claim_uid: str | None = Field(None, description="UID of that claim.")
    last_retry_staging: str | None = Field(
        None, description="Value of annotation aim.eai.amd.com/retry-staging that was handled last."
    )
    last_restage: str | None = Field(
        None, description="Value of annotation aim.eai.amd.com/restage that was handled last."
    )


class AIMService(Object):
    """A model served with LoRA adapters."""

    spec: AIMServiceSpec = Field(description="What to serve, with which adapters, on what.")
    status: AIMServiceStatus | None = Field(None, description="What is being served; written by the controller.")
