"""AIMServiceTemplate and AIMClusterServiceTemplate: hardware and tuning of a model (template pipeline)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.models.common import (
    Caching,
    EnvList,
    FromZero,
    Metric,
    ModelSource,
    Object,
    ObjectName,
    ProfileType,
    PullSecrets,
    Quantity,
    Reference,
    ResourceRequirements,
    Shape,
    Status,
    not_acted_on,
)


class GpuRequirements(Shape):
    """Accelerators of one replica."""

    model: str | None = Field(None, description="Accelerator, for example MI300X; it selects the nodes.")
    requests: FromZero | None = Field(None, description="Accelerators per replica.")
    count: FromZero | None = Field(None, description="Deprecated; use requests.")
    resource_name: str | None = Field(None, description="Resource to request from nodes; amd.com/gpu when absent.")
    min_vram: Any = not_acted_on("Minimum memory of an accelerator.")


class CpuRequirements(Shape):
    """CPU of one replica; `resources` wins."""

    requests: Quantity | None = Field(None, description="CPU that must be free on a node.")
    limits: Quantity | None = Field(None, description="CPU that the replica may use at most.")


class Hardware(Shape):
    """What one replica runs on."""

    gpu: GpuRequirements | None = Field(None, description="Accelerators of one replica.")
    cpu: CpuRequirements | None = Field(None, description="CPU of one replica.")


class AIMServiceTemplateSpec(Shape):
    """Hardware and tuning."""

    model_name: ObjectName = Field(description="Name of the AIMModel or AIMClusterModel. Immutable.")
    metric: Metric | None = Field(None, description="What the template is tuned for. Immutable.")
    precision: Literal["auto", "fp4", "fp8", "fp16", "fp32", "fp64", "bf16", "int4", "int8"] | None = Field(
        None, description="Numeric format of the weights; auto lets the image choose. Immutable."
    )
    hardware: Hardware | None = Field(None, description="What one replica runs on. Immutable.")
    runtime_config_name: str | None = Field(
        None, description="RuntimeConfig to take defaults from; absent means the one named default, if there is one."
    )
    image_pull_secrets: PullSecrets | None = Field(None, description="Pull secrets for the image.")
    service_account_name: str | None = Field(None, description="Service account of the model server.")
    resources: ResourceRequirements | None = Field(None, description="Overrides the built-in amounts, key by key.")
    model_sources: list[ModelSource] | None = Field(
        None, description="The base model; overrides the AIMModel's. Adapters need exactly one entry."
    )
    profile_id: str | None = Field(None, description="Id of the image's runtime profile to serve with.")
    type: ProfileType | None = Field(None, description="How far the template has been tuned.")
    env: EnvList | None = Field(None, description="Variables of the model server.")
    caching: Caching | None = Field(None, description="Whether the base is cached before a service asks for it.")


class AIMServiceTemplateStatus(Status):
    """State of the template."""

    status: str | None = Field(
        None, description="Summary: Pending, Progressing, Ready, Degraded, Failed or NotAvailable."
    )
    resolved_model: Reference | None = Field(None, description="The model that was found.")
    resolved_runtime_config: Reference | None = Field(None, description="The RuntimeConfig in use.")
    hardware_summary: str | None = Field(None, description="Accelerators for people, for example 4 x MI300X.")


class AIMServiceTemplate(Object):
    """Hardware and tuning of a model; of a namespace."""

    spec: AIMServiceTemplateSpec = Field(description="Hardware and tuning.")
    status: AIMServiceTemplateStatus | None = Field(None, description="State; written by the controller.")


class AIMClusterServiceTemplate(Object):
    """Hardware and tuning of a model; for all namespaces."""

    spec: AIMServiceTemplateSpec = Field(description="Hardware and tuning.")
    status: AIMServiceTemplateStatus | None = Field(None, description="State; written by the controller.")
