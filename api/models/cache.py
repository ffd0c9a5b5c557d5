"""AIMProfileCache and AIMTemplateCache: the base models that a profile or template needs, as artifacts."""

from __future__ import annotations

from pydantic import Field

from api.models.common import (
    EnvList,
    ModelSource,
    Object,
    ObjectName,
    PullSecrets,
    Reference,
    Scope,
    Shape,
    Status,
    StoreMode,
)


class CacheSpec(Shape):
    """How to cache."""

    storage_class_name: str | None = Field(None, description="Storage class of the artifacts' claims.")
    env: EnvList | None = Field(None, description="Variables of the download Jobs, mainly credentials.")
    runtime_config_name: str | None = Field(
        None, description="RuntimeConfig to take defaults from; absent means the one named default, if there is one."
    )
    mode: StoreMode = Field(
        "Shared", description="Shared: for all services of the namespace, without an owner; Dedicated: for one service."
    )
    requires_adapter_disk: bool | None = Field(
        None, description="The base needs a disk for adapters; a base that exists already gets one, too."
    )


class AIMProfileCacheSpec(CacheSpec):
    """Which profile to cache, and how."""

    profile_name: ObjectName = Field(description="Name of the profile.")
    profile_scope: Scope | None = Field(
        None, description="Scope of the profile; absent means the namespace's first, then the cluster's."
    )


class AIMTemplateCacheSpec(CacheSpec):
    """Which template to cache, and how."""

    template_name: ObjectName = Field(description="Name of the template.")
    template_scope: Scope | None = Field(
        None, description="Scope of the template; absent means the namespace's first, then the cluster's."
    )
    image_pull_secrets: PullSecrets | None = Field(None, description="Pull secrets of the download Jobs.")
    download_image: str | None = Field(None, description="Image of the download Jobs.")
    model_sources: list[ModelSource] | None = Field(None, description="Replaces the template's model sources.")


class CachedArtifact(Shape):
    """One artifact of the cache."""

    uid: str | None = Field(None, description="UID of the artifact.")
    name: str | None = Field(None, description="Name of the artifact.")
    model: str | None = Field(None, description="Model id that it holds.")
    status: str | None = Field(None, description="Its status.status.")
    persistent_volume_claim: str | None = Field(None, description="Claim that holds the files.")
    mount_point: str | None = Field(None, description="Mount path in a model server.")


class CacheStatus(Status):
    """What is cached."""

    status: str | None = Field(None, description="Summary: Pending, Progressing, Ready, Degraded or Failed.")
    artifacts: dict[str, CachedArtifact] | None = Field(None, description="The artifacts by name.")


class AIMProfileCacheStatus(CacheStatus):
    """What is cached for the profile."""

    resolved_profile: Reference | None = Field(None, description="The profile that was found.")


class AIMTemplateCacheStatus(CacheStatus):
    """What is cached for the template."""

    resolved_template: Reference | None = Field(None, description="The template that was found.")


class AIMProfileCache(Object):
    """Caches the base model of a profile."""

    spec: AIMProfileCacheSpec = Field(description="Which profile to cache, and how.")
    status: AIMProfileCacheStatus | None = Field(None, description="What is cached; written by the controller.")


class AIMTemplateCache(Object):
    """Caches the base model of a template."""

    spec: AIMTemplateCacheSpec = Field(description="Which template to cache, and how.")
    status: AIMTemplateCacheStatus | None = Field(None, description="What is cached; written by the controller.")
