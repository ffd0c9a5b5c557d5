"""The runtime profile file that the image is given, and the ConfigMap that carries it. Pure.

Source: docs/contract.md, Runtime profile file.
"""

from __future__ import annotations

from typing import Any

import yaml

from api import view
from api.kinds import AIM_SERVICE, CONFIG_MAP
from api.names import LABEL_SERVICE, derive_name, short_hash
from api.view import Json
from reconcile.objects import created_labels, label_value, owner_reference
from reconcile.service.plan import Plan


def render_profile_config_map(service: Json, plan: Plan) -> dict[str, Any] | None:
    """Return the ConfigMap with the effective profile, named with its content's hash. None: nothing to project."""
    file = plan.profile_file
    if file is None:
        return None
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": derive_name(view.name_of(service), "profile", short_hash(file.folder, file.name, file.content)),
            "namespace": view.namespace_of(service),
            "labels": created_labels({LABEL_SERVICE: label_value(view.name_of(service))}),
            "ownerReferences": [owner_reference(AIM_SERVICE, service)],
        },
        "data": {file.name: file.content},
        "immutable": True,
    }


def projected_feature(config_map: Json | None) -> str | None:
    """Return the feature token in a projected profile, None when it has none or cannot be read."""
    for content in view.mapping(config_map, "data").values():
        try:
            parsed = yaml.safe_load(content) if isinstance(content, str) else None
        except yaml.YAMLError:
            continue
        features = view.dig(parsed, "metadata", "features")
        if isinstance(features, list) and features and isinstance(features[0], str):
            return features[0]
    return None
