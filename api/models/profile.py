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
        description="Id of the runtime profile's family; folder of its file in the image. Immutable. "
        "Set together with modelSources, or neither is.",
    )
    model_id: str | None = Field(None, description="Model id that the runtime profile file names.")
    profile_id: str | None = Field(None, description="Id of the runtime profile; stem of its file name.")
    engine: str | None = Field(None, description="Inference engine, for example vllm.")
    variant: str | None = Field(None, description="Tells profiles apart that are otherwise alike.")
    metric: Metric | None = Field(None, description="What the profile is tuned for.")
    precision: Precision | None = Field(None, description="Numeric format of the weights.")
    type: ProfileType | None = Field(None, description="How far the profile has been tuned.")
    auto_selection_policy: str | None = Field(
        None, description="Whether the profile may be chosen without being named."
    )
    primary: bool | None = Field(None, description="Preferred among profiles that fit alike.")
    manual_selection_only: bool | None = Field(None, description="Deprecated: use autoSelectionPolicy.")
    engine_args: dict[str, Any] | None = Field(None, description="Arguments of the engine, keys in kebab case.")
    engine_env: dict[str, str] | None = Field(None, description="Variables of the engine.")
    accelerator_vendor: str | None = Field(
        None, description="Vendor of the accelerator; nvidia asks for nvidia.com/gpu, anything else for amd.com/gpu."
    )
    accelerator_model: str | None = Field(
        None, description="Accelerator, for example MI300X; decides on which nodes it runs."
    )
    accelerator_type: Literal["gpu", "cpu"] | None = Field(None, description="Kind of accelerator; gpu when absent.")
    accelerator_count: FromZero | None = Field(None, description="Accelerators per replica.")
    accelerator_partitioning_mode: str | None = Field(
        None, description="How the accelerator is partitioned; unpartitioned when absent."
    )
    resources: ResourceRequirements | None = Field(None, description="Wins over the built-in amounts, key by key.")
    image: Text = Field(description="Image of the model server.")
    model_sources: list[ModelSource] | None = Field(
        None, description="The base model. Adapters need exactly one entry."
    )
    container_env: EnvList | None = Field(None, description="Variables of the model server's container.")
    image_pull_secrets: PullSecrets | None = Field(None, description="Pull secrets for the image.")
    service_account_name: str | None = Field(None, description="Service account of the model server.")
    features: Features | None = Field(
        None,
        description="What the image can do: adapters (static and dynamic mode) or adapters-scale-only (static mode).",
    )


class AIMProfileSpec(AIMClusterProfileSpec):
    """Image, accelerators, engine and model of a profile, and its caching."""

    caching: Caching | None = Field(None, description="Whether the base is cached before a service asks for it.")


class AIMProfileStatus(Status):
    """Where the profile can run."""

    status: Literal["Ready", "NotAvailable"] | None = Field(
        None, description="Ready when at least one node has the accelerators, else NotAvailable."
    )
    deployable: bool | None = Field(None, description="Whether aimId and modelSources are set.")
    matching_nodes: Int32 | None = Field(None, description="Nodes that have the accelerators.")
    hardware_summary: str | None = Field(None, description="Accelerators for people, for example 4 x MI300X.")
    resolved_node_affinity: dict[str, Any] | None = Field(None, description="Node affinity that the model server gets.")
    origin: str | None = Field(None, description="Who made the profile.")


class AIMProfile(Object):
    """How an image serves a model on given accelerators; of a namespace."""

    spec: AIMProfileSpec = Field(description="Image, accelerators, engine and model.")
    status: AIMProfileStatus | None = Field(None, description="Where it can run; written by the controller.")


class AIMClusterProfile(Object):
    """How an image serves a model on given accelerators; for all namespaces."""

    spec: AIMClusterProfileSpec = Field(description="Image, accelerators, engine and model.")
    status: AIMProfileStatus | None = Field(None, description="Where it can run; written by the controller.")
