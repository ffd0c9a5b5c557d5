"""The shape of every kind, spec and status, as pydantic models: CRDs and the reference page are generated from them.

Leaves to others: rules that relate a field to another field, another object or its old value (`rules`).
"""

from __future__ import annotations

from collections.abc import Mapping

from api import kinds
from api.models.artifact import AIMArtifact
from api.models.cache import AIMProfileCache, AIMTemplateCache
from api.models.common import Object
from api.models.model import AIMClusterModel, AIMModel
from api.models.profile import AIMClusterProfile, AIMProfile
from api.models.runtime_config import AIMClusterRuntimeConfig, AIMRuntimeConfig
from api.models.service import AIMService
from api.models.template import AIMClusterServiceTemplate, AIMServiceTemplate

__all__ = [
    "MODELS",
    "AIMArtifact",
    "AIMClusterModel",
    "AIMClusterProfile",
    "AIMClusterRuntimeConfig",
    "AIMClusterServiceTemplate",
    "AIMModel",
    "AIMProfile",
    "AIMProfileCache",
    "AIMRuntimeConfig",
    "AIMService",
    "AIMServiceTemplate",
    "AIMTemplateCache",
]

MODELS: Mapping[kinds.Kind, type[Object]] = {
    kinds.AIM_SERVICE: AIMService,
    kinds.AIM_ARTIFACT: AIMArtifact,
    kinds.AIM_RUNTIME_CONFIG: AIMRuntimeConfig,
    kinds.AIM_CLUSTER_RUNTIME_CONFIG: AIMClusterRuntimeConfig,
    kinds.AIM_PROFILE: AIMProfile,
    kinds.AIM_CLUSTER_PROFILE: AIMClusterProfile,
    kinds.AIM_PROFILE_CACHE: AIMProfileCache,
    kinds.AIM_MODEL: AIMModel,
    kinds.AIM_CLUSTER_MODEL: AIMClusterModel,
    kinds.AIM_SERVICE_TEMPLATE: AIMServiceTemplate,
    kinds.AIM_CLUSTER_SERVICE_TEMPLATE: AIMClusterServiceTemplate,
    kinds.AIM_TEMPLATE_CACHE: AIMTemplateCache,
}
"""The model of each kind, in the order of `kinds.AIM_KINDS`."""
