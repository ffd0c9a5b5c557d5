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

    name: Text | None = Field(None, description="Name of an AIMModel of the namespace, or of an AIMClusterModel.")
    image: Text | None = Field(None, description="Image that holds the model's runtime.")
    custom: CustomModel | None = Field(None, description="A model that is described here.")


class ServiceTemplateRef(Shape):
    """The template to serve with (template pipeline)."""

    name: Text | None = Field(None, description="Name of an AIMServiceTemplate, or of an AIMClusterServiceTemplate.")
    allow_unoptimized: bool | None = Field(None, description="Accept templates of type unoptimized.")


class ServiceProfileRef(Shape):
    """The profile to serve with (profile pipeline)."""

    name: Text | None = Field(None, description="Name of an AIMProfile of the namespace, or of an AIMClusterProfile.")
    selector: Any = not_acted_on("Choice of a profile by its properties.")


class ProfileOverrides(Shape):
    """Fields of the profile that this service changes; needs spec.profile."""

    model_sources: list[ModelSource] | None = Field(None, description="Replaces the profile's model sources.")
    features: Features | None = Field(
        None,
        description="Added to the profile's features; nothing is removed. "
        "`adapters` asserts that the image implements the adapter contract.",
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
    source_uri: Any = not_acted_on("Reserved: create an AIMArtifact and refer to it.")
    model_id: Any = not_acted_on("Reserved: create an AIMArtifact and refer to it.")
    rank: Any = not_acted_on("Reserved: create an AIMArtifact and refer to it.")


class ServiceCaching(Shape):
    """Where the base model is cached."""

    mode: Literal["Shared", "Dedicated", "Auto", "Always", "Never"] = Field(
        "Shared",
        description="Shared: one cache for all services of the namespace (also written Auto or Always); "
        "Dedicated: a cache for this service only (also written Never), not possible with adapters. Immutable.",
    )
    env: EnvList | None = Field(None, description="Variables of the download Jobs, mainly credentials.")


class AIMServiceSpec(Shape):
    """What to serve, with which adapters, on what."""

    model: ServiceModel | None = Field(
        None,
        description="The model to serve (template pipeline). Immutable. At least one of model and profile is needed.",
    )
    template: ServiceTemplateRef | None = Field(
        None,
        description="Template of the template pipeline. Immutable; excludes profile. It cannot be added in v1alpha2.",
    )
    profile: ServiceProfileRef | None = Field(
        None, description="Profile to serve with (profile pipeline). Required for adapters in v1alpha2."
    )
    profile_overrides: ProfileOverrides | None = Field(
        None, description="Fields of the profile that this service changes."
    )
    adapter_mode: Literal["static", "dynamic"] = Field(
        "static",
        description="static: the adapters are fixed at creation, and serving starts when all are staged; "
        "dynamic: adapters can be added and removed while the server runs. Immutable.",
    )
    adapters: (
        Annotated[list[AdapterReference], Field(max_length=MAX_ADAPTERS, json_schema_extra=keyed_by("kind", "name"))]
        | None
    ) = Field(None, description="LoRA adapters to serve beside the base model. Immutable in static mode.")
    adapter_runtime: AdapterRuntime | None = Field(
        None, description="How the server is started for adapters; dynamic mode only."
    )
    caching: ServiceCaching | None = Field(None, description="Where the base model is cached.")
    replicas: FromZero = Field(1, description="Number of replicas; ignored when minReplicas and maxReplicas differ.")
    min_replicas: FromZero | None = Field(
        None, description="Minimum number of replicas under autoscaling; at most maxReplicas."
    )
    max_replicas: FromOne | None = Field(None, description="Maximum number of replicas under autoscaling.")
    runtime_config_name: str | None = Field(
        None, description="RuntimeConfig to take defaults from; absent means the one named default, if there is one."
    )
    storage: Storage | None = Field(
        None,
        description="Overrides the RuntimeConfig's storage. The adapter disk is shared: its size and class are set on "
        "the base artifact or the RuntimeConfig, not here.",
    )
    env: EnvList | None = Field(None, description="Variables of the model server, never of a Job.")
    resources: ResourceRequirements | None = Field(None, description="Overrides the profile's resources, key by key.")
    image_pull_secrets: PullSecrets | None = Field(
        None, description="Pull secrets of the model server and of the adapter Jobs."
    )
    service_account_name: str | None = Field(None, description="Service account of the model server.")
    priority_class_name: str | None = Field(None, description="Priority class of the model server.")
    auto_scaling: Any = not_acted_on("Autoscaling by metrics; minReplicas and maxReplicas have an effect.")
    routing: Any = not_acted_on("HTTP routing to the service.")
    scale_from_zero: Any = not_acted_on("Start at the first request.")
    overrides: Any = not_acted_on("Choice of a template by metric, precision and hardware.")
    cache_model: bool | None = Field(None, description="Deprecated and ignored: models are always cached.")


class ServiceCacheStatus(Shape):
    """The cache that provides the base."""

    profile_cache_ref: Reference | None = Field(None, description="The AIMProfileCache (profile pipeline).")
    template_cache_ref: Reference | None = Field(None, description="The AIMTemplateCache (template pipeline).")
    retry_attempts: Int32 | None = Field(None, description="How often the cache was asked to try again.")


class ServiceRuntimeStatus(Shape):
    """Replicas of the model server."""

    current_replicas: Int32 | None = Field(None, description="Existing replicas.")
    desired_replicas: Int32 | None = Field(None, description="Replicas that should exist.")
    min_replicas: Int32 | None = Field(None, description="Lower bound in force.")
    max_replicas: Int32 | None = Field(None, description="Upper bound in force.")
    replicas: str | None = Field(None, description="Ready of desired, for example 1/2.")


class AdapterWarning(Shape):
    """Something about an adapter that does not stop it from being served."""

    reason: str | None = Field(None, description="CamelCase word for programs.")
    message: str | None = Field(None, description="Sentence for people.")


class AdapterProgress(Shape):
    """Progress of the staging of an adapter."""

    downloaded_bytes: Int64 | None = Field(None, description="Bytes on disk so far.")
    total_bytes: Int64 | None = Field(None, description="Size of the adapter; 0 or absent while it is unknown.")
    percentage: Int32 | None = Field(None, description="Share on disk, 0 to 100.")


class AdapterStatus(Shape):
    """State of one adapter of this service."""

    name: str = Field(description="Name of the adapter's artifact.")
    adapter_path: str | None = Field(
        None, description="Directory in the service's subtree, and the model name in requests to the server."
    )
    model_id: str | None = Field(None, description="Model id of the adapter.")
    state: Literal["Pending", "Downloading", "Downloaded", "Failed", "Deleting", "Loaded", "LoadRejected"] | None = (
        Field(
            None,
            description="Pending: waits for what lastError names; Downloading: being staged; Downloaded: staged; "
            "Loaded: ready pods list it; LoadRejected: staged, but a ready pod does not list it; "
            "Failed: see lastError; Deleting: removed from the service, but a pod still lists it.",
        )
    )
    last_error: str | None = Field(
        None, description="What is wrong, as reason and message; the reasons are documented."
    )
    last_observed: Timestamp | None = Field(None, description="When state last changed.")
    loaded_replicas: Int32 | None = Field(None, description="Ready replicas whose server lists the adapter.")
    rank: Int32 | None = Field(None, description="Real rank, read from the adapter's files.")
    base_model_id: str | None = Field(None, description="Base model that the adapter's own files name.")
    size_bytes: Int64 | None = Field(None, description="Size of the staged files.")
    digest: str | None = Field(None, description="Checksum over the staged files, sha256:….")
    revision: str | None = Field(None, description="Revision that the source reported.")
    staged_at: Timestamp | None = Field(None, description="When the content was staged.")
    left_disk_at: Timestamp | None = Field(
        None, description="When the directory of a removed adapter left the mount of the servers."
    )
    progress: AdapterProgress | None = Field(None, description="The running download.")
    attempts: Int32 | None = Field(None, description="Staging attempts so far.")
    next_retry_time: Timestamp | None = Field(None, description="When staging is retried automatically.")
    stage_key: str | None = Field(
        None, description="Key of the artifact, source, service and disk that state describes."
    )
    artifact_generation: Int64 | None = Field(None, description="Generation of the artifact at the last attempt.")
    staged_for_max_rank: Int32 | None = Field(None, description="Rank ceiling at the last attempt.")
    last_retry_staging: str | None = Field(
        None, description="Value of the artifact's annotation aim.eai.amd.com/retry-staging that was handled last."
    )
    last_restage: str | None = Field(
        None, description="Value of annotation aim.eai.amd.com/restage that was handled last."
    )
    warnings: list[AdapterWarning] | None = Field(
        None, description="Findings that do not stop the adapter from being served."
    )


class AIMServiceStatus(Status):
    """State of the service."""

    status: Literal["Pending", "Starting", "Running", "Degraded", "Failed"] | None = Field(
        None, description="Summary of the conditions."
    )
    resolved_profile: Reference | None = Field(None, description="The profile in use.")
    resolved_model: Reference | None = Field(None, description="The model in use (template pipeline).")
    resolved_template: Reference | None = Field(None, description="The template in use (template pipeline).")
    resolved_runtime_config: Reference | None = Field(None, description="The RuntimeConfig in use.")
    cache: ServiceCacheStatus | None = Field(None, description="The cache that provides the base.")
    runtime: ServiceRuntimeStatus | None = Field(None, description="Replicas of the model server.")
    adapters: Annotated[list[AdapterStatus], Field(json_schema_extra=keyed_by("name"))] | None = Field(
        None, description="State of each adapter."
    )
    adapter_summary: str | None = Field(None, description="Staged of declared adapters, for example 2/3.")
    adapter_max_rank: Int32 | None = Field(
        None,
        description="Last valid rank ceiling, with which the server is started; the server itself does not report it.",
    )
    adapter_subtree_sync_key: str | None = Field(
        None, description="Key of the declared adapters and the disk for which the subtree was last synced."
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
    status: AIMServiceStatus | None = Field(None, description="State; written by the controller.")
