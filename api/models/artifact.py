"""AIMArtifact: a base model or a LoRA adapter that can be downloaded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.models.common import (
    DownloadFilter,
    EnvList,
    FromOne,
    Int32,
    Int64,
    ModelId,
    Object,
    ObjectName,
    PullSecrets,
    Quantity,
    Reference,
    Shape,
    SourceUri,
    Status,
    StoreMode,
    Text,
    Timestamp,
    not_acted_on,
)


class AdapterDisk(Shape):
    """A shared disk beside the model cache, for the adapters of the services that use this base."""

    size: Quantity | None = Field(
        None, description="Size of the disk; absent means the RuntimeConfig's adapterDiskSize, or 50Gi."
    )
    storage_class_name: str | None = Field(
        None,
        description="Storage class that supports ReadWriteMany; absent means the RuntimeConfig's "
        "adapterDiskStorageClassName, then its defaultStorageClassName, then the cluster's default.",
    )


class AIMArtifactSpec(Shape):
    """What to download, and how it may be used."""

    type: Literal["model", "adapter"] = Field(
        "model", description="model: a base model; adapter: a LoRA adapter. Immutable."
    )
    source_uri: SourceUri = Field(
        description="Location of the files: hf://org/name[/subfolder][@revision] or s3://bucket/prefix/. Immutable."
    )
    model_id: ModelId | None = Field(
        None,
        description="Canonical id, org/name. Required for adapters; a model without one gets that of its hf:// source.",
    )
    compatible_with: list[Text] | None = Field(
        None,
        description="Adapters only: model ids of the bases that this adapter fits (logical binding, recommended). "
        "Excludes parentArtifact.",
    )
    parent_artifact: ObjectName | None = Field(
        None,
        description="Adapters only: name of the one base artifact that this adapter belongs to and is deleted with "
        "(exact binding). Excludes compatibleWith. Immutable.",
    )
    rank: FromOne | None = Field(
        None, description="Adapters only: LoRA rank. Absent means 16. A server's ceiling must not be below it."
    )
    adapter_disk: AdapterDisk | None = Field(
        None,
        description="Models only: provide a ReadWriteMany disk for adapters. "
        "A cache of an adapter-enabled profile requests one automatically.",
    )
    size: Quantity | None = Field(
        None, description="Expected size of the download; absent means that the source reports it."
    )
    storage_class_name: str | None = Field(
        None,
        description="Storage class of the cache claim; absent means the RuntimeConfig's, then the cluster's default.",
    )
    env: EnvList | None = Field(
        None, description="Variables of the download Job: only credentials and tuning of the source."
    )
    model_download_image: str | None = Field(
        None, description="Image of the download Job; absent means the RuntimeConfig's, then the built-in one."
    )
    download_filter: DownloadFilter | None = Field(
        None, description="Which files to download; absent means all except those in subfolders. Immutable."
    )
    image_pull_secrets: PullSecrets | None = Field(None, description="Pull secrets of the download Job.")
    runtime_config_name: str | None = Field(
        None, description="RuntimeConfig to take defaults from; absent means the one named default, if there is one."
    )
    retention_priority: Any = not_acted_on("How long to keep the artifact when space is low.")


class DownloadProgress(Shape):
    """Progress of a running download."""

    total_bytes: Int64 | None = Field(
        None, description="Size of everything to download; 0 or absent while it is unknown."
    )
    downloaded_bytes: Int64 | None = Field(None, description="Bytes on disk so far.")
    percentage: Int32 | None = Field(None, description="Share on disk, 0 to 100.")
    display_percentage: str | None = Field(None, description="The share for people, for example 42 %.")
    message: str | None = Field(None, description="The current step.")


class DownloadState(Shape):
    """The download attempts."""

    protocol: str | None = Field(None, description="Protocol in use: hf or s3.")
    attempt: Int32 | None = Field(None, description="Number of the running or last attempt, from 1.")
    total_attempts: Int32 | None = Field(None, description="Attempts before giving up; absent means no limit.")
    message: str | None = Field(None, description="Result of the last attempt.")
    next_retry_time: Timestamp | None = Field(None, description="When the next attempt starts automatically.")
    key: str | None = Field(None, description="Key of the artifact, source and claim that this describes.")
    completed: bool | None = Field(None, description="Everything is on disk and checked.")
    reason: str | None = Field(None, description="Result of the last attempt: CamelCase word for programs.")
    size_bytes: Int64 | None = Field(None, description="Size of the files.")
    last_retry: str | None = Field(
        None, description="Value of annotation aim.eai.amd.com/retry-staging that was handled last."
    )


class ReapOutcome(Shape):
    """Result of the last clean-up of the adapter disk."""

    reason: str | None = Field(None, description="CamelCase word for programs.")
    message: str | None = Field(None, description="Sentence for people.")
    reclaimed_bytes: Int64 | None = Field(None, description="Freed bytes.")
    removed: list[str] | None = Field(None, description="Removed paths; a long list is shortened.")


class AIMArtifactStatus(Status):
    """State of the artifact."""

    status: Literal["Pending", "Progressing", "Ready", "Degraded", "Failed", "NotAvailable"] | None = Field(
        None, description="Summary. A model is Ready when it is cached, an adapter when it may be referenced."
    )
    persistent_volume_claim: str | None = Field(None, description="Claim that holds the model's files.")
    mode: StoreMode | None = Field(
        None, description="Shared: all services of the namespace may use it; Dedicated: only one may."
    )
    progress: DownloadProgress | None = Field(None, description="The running download.")
    download: DownloadState | None = Field(None, description="Attempts at the download.")
    display_size: str | None = Field(None, description="Size for people, for example 51.2 GiB.")
    discovered_size_bytes: Int64 | None = Field(None, description="Size as the source reports it.")
    allocated_size: Quantity | None = Field(None, description="Size of the cache claim.")
    headroom_percent: Int32 | None = Field(None, description="Headroom in it, in percent.")
    last_used: Timestamp | None = Field(None, description="When a service last started to use it.")
    adapter_persistent_volume_claim: str | None = Field(
        None, description="Claim of the adapter disk; set as soon as the claim exists."
    )
    adapter_path: str | None = Field(
        None,
        description="Directory of the adapter in a service's subtree, and its model name on the server. Never changes.",
    )
    resolved_parent: Reference | None = Field(None, description="The base artifact that parentArtifact names.")
    parent_model_id: str | None = Field(None, description="Model id of that base.")
    last_reap_time: Timestamp | None = Field(None, description="When the adapter disk was last cleaned up.")
    last_reap: ReapOutcome | None = Field(None, description="Result of that clean-up.")
    last_reap_world: str | None = Field(
        None, description="Hash of the services that used the disk when it was cleaned."
    )
    last_reap_request: str | None = Field(
        None, description="Value of annotation aim.eai.amd.com/reap that was handled last."
    )
    compatibility: str | None = Field(None, description="Binding in words: fits <model ids>, or child of <artifact>.")
    last_restage: str | None = Field(
        None, description="Value of annotation aim.eai.amd.com/restage that was handled last."
    )


class AIMArtifact(Object):
    """A base model or a LoRA adapter: where its files are, and how it may be used."""

    spec: AIMArtifactSpec = Field(description="What to download, and how it may be used.")
    status: AIMArtifactStatus | None = Field(None, description="State; written by the controller.")
