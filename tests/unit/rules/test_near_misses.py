"""A known value is suggested for a similar one, wherever such values are written."""

from __future__ import annotations

from typing import Any

import pytest

from rules.examples import manifest, surroundings
from rules.validate import validate
from rules.world import KIND_BY_NAME

NEAR: list[tuple[str, dict[str, Any], str, str]] = [
    ("AIMService", {"adapterMode": "dynamc"}, "spec.adapterMode", "dynamic"),
    ("AIMService", {"caching": {"mode": "alway"}}, "spec.caching.mode", "Always"),
    (
        "AIMService",
        {"adapters": [{"name": "medical", "kind": "AIMArtefact"}]},
        "spec.adapters[0].kind",
        "AIMArtifact",
    ),
    (
        "AIMService",
        {"profileOverrides": {"features": ["adapter"]}},
        "spec.profileOverrides.features[0]",
        "adapters",
    ),
    (
        "AIMService",
        {"profileOverrides": {"acceleratorModel": "MI300"}},
        "spec.profileOverrides.acceleratorModel",
        "MI300X",
    ),
    ("AIMArtifact", {"type": "adaptor"}, "spec.type", "adapter"),
    ("AIMProfile", {"features": ["adapters-scaleonly"]}, "spec.features[0]", "adapters-scale-only"),
    ("AIMClusterProfile", {"acceleratorModel": "Mi325x"}, "spec.acceleratorModel", "MI325X"),
    ("AIMServiceTemplate", {"hardware": {"gpu": {"model": "mi300x"}}}, "spec.hardware.gpu.model", "MI300X"),
]


def said(kind: str, spec: dict[str, Any]) -> list[str]:
    """All messages about a plain manifest with this spec laid over it."""
    verdict = validate(KIND_BY_NAME[kind], manifest(kind, {"spec": spec}), None, surroundings())
    return [str(error) for error in verdict.errors] + verdict.warning_texts


@pytest.mark.parametrize(("kind", "spec", "path", "meant"), NEAR, ids=[f"{row[0]}-{row[2]}" for row in NEAR])
def test_the_nearest_known_word_is_suggested(kind: str, spec: dict[str, Any], path: str, meant: str) -> None:
    (text,) = [text for text in said(kind, spec) if text.startswith(f"{path}: ")]
    assert f'did you mean "{meant}"?' in text


def test_nothing_is_suggested_for_a_word_that_is_like_no_other() -> None:
    assert "did you mean" not in " ".join(said("AIMService", {"adapterMode": "qqqq"}))
