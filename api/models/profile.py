"""AIMProfile and AIMClusterProfile: how an image serves a model on given accelerators."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.models.common import (
    Caching,
    EnvList,
    Features,
    FromZero,
    Int32,
    Metric,
    ModelSource,
    Object,
    Precision,
    ProfileType,
    PullSecrets,
    ResourceRequirements,
    Shape,
    Status,
    Text,
)


class AIMClusterProfileSpec(Shape):
    """Image, accelerators, engine and model of a profile."""

    aim_id: str | None = Field(
        None,
        description="Id of the runtime profile's family, which is the folder of its file in the image. Immutable. "
        "Set both this and modelSources, or neither.",
    )
    model_id: str | None = Field(None, description="Model id in the runtime profile file.")
    profile_id: str | None = Field(
        None, description="Id of the runtime profile, which is its file name without the suffix."
    )
    engine: str | None = Field(None, description="Inference engine, for example vllm.")
    variant: str | None = Field(None, description="Distinguishes profiles that are otherwise the same.")
    metric: Metric | None = Field(None, description="What the profile is tuned for.")
    precision: Precision | None = Field(None, description="Numeric format of the weights.")
    type: ProfileType | None = Field(None, description="How far the profile has been tuned.")
    auto_selection_policy: str | None = Field(
        None, description="Whether the profile may be chosen without being named."
    )
    primary: bool | None = Field(None, description="Preferred among profiles that fit equally well.")
    manual_selection_only: bool | None = Field(None, description="Deprecated: use autoSelectionPolicy.")
    engine_args: dict[str, Any] | None = Field(None, description="Arguments of the engine, keys in kebab case.")
    engine_env: dict[str, str] | None = Field(None, description="Variables of the engine.")
    accelerator_vendor: str | None = Field(
        None, description="Vendor of the accelerator; nvidia requests nvidia.com/gpu, all others request amd.com/gpu."
    )
    accelerator_model: str | None = Field(None, description="Accelerator, for example MI300X; it selects the nodes.")
    accelerator_type: Literal["gpu", "cpu"] | None = Field(None, description="Kind of accelerator; gpu when absent.")
    accelerator_count: FromZero | None = Field(None, description="Accelerators per replica.")
    accelerator_partitioning_mode: str | None = Field(
        None, description="How the accelerator is partitioned; unpartitioned when absent."
    )
    resources: ResourceRequirements | None = Field(None, description="Overrides the built-in amounts, key by key.")
    image: Text = Field(description="Image of the model server.")
    model_sources: list[ModelSource] | None = Field(
        None, description="The base model. Adapters need exactly one entry."
    )
    container_env: EnvList | None = Field(None, description="Variables of the model server's container.")
    image_pull_secrets: PullSecrets | None = Field(None, description="Pull secrets for the image.")
    service_account_name: str | None = Field(None, description="Service account of the model server.")
    features: Features | None = Field(
        None,
        description="Features of the image: adapters (static and dynamic mode) or adapters-scale-only (static mode).",
    )


class AIMProfileSpec(AIMClusterProfileSpec):
    """Image, accelerators, engine and model of a profile, and its caching."""

    caching: Caching | None = Field(None, description="Whether the base is cached before a service asks for it.")


class AIMProfileStatus(Status):
    """Nodes that the profile matches."""

    status: Literal["Ready", "NotAvailable"] | None = Field(
        None, description="Ready when at least one node has the accelerators, otherwise NotAvailable."
    )
    deployable: bool | None = Field(None, description="Whether aimId and modelSources are set.")
    matching_nodes: Int32 | None = Field(None, description="Nodes that have the accelerators.")
    hardware_summary: str | None = Field(None, description="Accelerators for people, for example 4 x MI300X.")
    resolved_node_affinity: dict[str, Any] | None = Field(None, description="Node affinity that the model server gets.")
    origin: str | None = Field(None, description="The creator of the profile.")


class AIMProfile(Object):
    """How an image serves a model on given accelerators; of a namespace."""

    spec: AIMProfileSpec = Field(description="Image, accelerators, engine and model.")
    status: AIMProfileStatus | None = Field(None, description="Matching nodes; written by the controller.")


class AIMClusterProfile(Object):
    """How an image serves a model on given accelerators; for all namespaces."""

    spec: AIMClusterProfileSpec = Field(description="Image, accelerators, engine and model.")
    status: AIMProfileStatus | None = Field(None, description="Matching nodes; written by the controller.")
