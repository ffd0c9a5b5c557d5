"""The chart values that `dev up` passes to helm on this machine. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from devcluster.image_table import SERVICE_IMAGE

CHART_PREFIX = "chart."
_OWN = frozenset({"audit"})  # settings that the cluster keeps for itself
POD_ADDRESS = {"name": "AIMA_BIND_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""Pods share the network of this machine, so the server must listen on the address of its pod only."""


def render_values(settings: dict[str, str], *, service_port: int) -> dict[str, Any]:
    """Return the chart's values: our image, a port that may be bound here, and what `--set` says.

    `chart.a.b=VALUE` is the value a.b of the chart, any other name a setting of the service (fooBar, foo-bar and
    foo_bar are the same). Numbers, true, false and JSON are read as such, everything else is text.
    Raises: ValueError when two names contradict each other.
    """
    repository, _, tag = SERVICE_IMAGE.rpartition(":")
    values: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag},
        "service": {"port": service_port},
        "settings": {},
        "extraEnv": [POD_ADDRESS],
    }
    for name, text in settings.items():
        if name.startswith(CHART_PREFIX):
            _put(values, name.removeprefix(CHART_PREFIX).split("."), read_value(text))
        elif name not in _OWN:
            values["settings"][camel_case(name)] = read_value(text)
    if isinstance(given := values["extraEnv"], list) and POD_ADDRESS not in given:
        values["extraEnv"] = [POD_ADDRESS, *given]
    return values


def is_on(settings: dict[str, str], name: str) -> bool:
    """Return whether a setting of the development cluster is on."""
    return settings.get(name, "").strip().lower() in {"1", "true", "yes", "on"}


def camel_case(name: str) -> str:
    """Return the name as the chart spells settings: refresh_interval and refresh-interval become refreshInterval."""
    return re.sub(r"[-_]+([a-z0-9])", lambda match: match[1].upper(), name)


def read_value(text: str) -> Any:
    """Return a number, true, false, null, list or object when the text is one in JSON, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ValueError(f'"{".".join(path)}": "{part}" is a value, not a mapping')
        values = inner
    values[path[-1]] = value
