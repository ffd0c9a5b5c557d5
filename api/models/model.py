"""AIMModel and AIMClusterModel: a model's name and the image that serves it (template pipeline)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from api.models.common import (
    EnvList,
    ModelSource,
    Object,
    PullSecrets,
    Reference,
    ResourceRequirements,
    Shape,
    Status,
    not_acted_on,
)


class AIMModelSpec(Shape):
    """Image and sources of a model."""

    image: str | None = Field(None, description="Image of the model server.")
    model_sources: Annotated[list[ModelSource], Field(max_length=1)] | None = Field(
        None, description="The base model, at most one; absent means that the image or the template contains it."
    )
    default_service_template: str | None = Field(
        None, description="Template of services that name this model and no template."
    )
    runtime_config_name: str | None = Field(
        None, description="RuntimeConfig to take defaults from; absent means the one named default, if there is one."
    )
    image_pull_secrets: PullSecrets | None = Field(None, description="Pull secrets for the image.")
    service_account_name: str | None = Field(None, description="Service account of the model server.")
    env: EnvList | None = Field(None, description="Variables of the model server.")
    resources: ResourceRequirements | None = Field(None, description="Overrides the built-in amounts, key by key.")
    custom: Any = not_acted_on("Description of a model that no image contains.")
    custom_templates: Any = not_acted_on("Templates to create for the model.")
    discovery: Any = not_acted_on("Discovery of templates from the image.")
    image_metadata: Any = not_acted_on("Labels read from the image.")


class AIMModelStatus(Status):
    """State of the model."""

    status: str | None = Field(
        None, description="Summary: Pending, Progressing, Ready, Degraded, Failed or NotAvailable."
    )
    resolved_runtime_config: Reference | None = Field(None, description="The RuntimeConfig in use.")


class AIMModel(Object):
    """A model by name: the image that serves it, and where its files are; of a namespace."""

    spec: AIMModelSpec | None = Field(None, description="Image and sources.")
    status: AIMModelStatus | None = Field(None, description="State; written by the controller.")


class AIMClusterModel(Object):
    """A model by name: the image that serves it, and where its files are; for all namespaces."""

    spec: AIMModelSpec | None = Field(None, description="Image and sources.")
    status: AIMModelStatus | None = Field(None, description="State; written by the controller.")
