"""What a service runs, in the same form for both pipelines: image, model, accelerators, environment. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

from api import view
from api.names import LABEL_METRIC, LABEL_MODEL, LABEL_PRECISION, LABEL_PROFILE, LABEL_TEMPLATE
from api.view import Json
from rules.environment import merge_env
from rules.pipeline import Pipeline, effective_profile
from rules.references import Resolved

PROFILES_FOLDER = "/workspace/aim-runtime/profiles/custom"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """The effective profile as the image reads it: `folder`/`name`, selected by `profile_id`."""

    folder: str
    name: str
    content: str
    profile_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `env` are entries below the service's own; `gpus` is 0 for a CPU profile."""

    image: str
    model_id: str | None
    source_uri: str | None
    env: tuple[Mapping[str, Any], ...] = ()
    engine: str | None = None
    engine_args: Json = field(default_factory=dict)
    metric: str | None = None
    precision: str | None = None
    aim_id: str | None = None
    profile_id: str | None = None
    profile_file: ProfileFile | None = None
    accelerator_model: str | None = None
    accelerator_vendor: str | None = None
    partitioning: str | None = None
    gpus: int = 1
    gpu_resource: str | None = None
    resources: Json = field(default_factory=dict)
    pull_secrets: Sequence[Any] = ()
    service_account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    runtime_profile: str | None = None


def make_plan(pipeline: Pipeline, service: Json, *, keep_feature: str | None = None) -> Plan | None:
    """Return what the resolved pipeline runs, or None while it is not resolved.

    `keep_feature`: the token that a running server was started with and keeps although the profile lost it.
    """
    if pipeline.kind == "profile":
        found = pipeline.profile
        return _from_profile(found.obj, found.name, service, keep_feature) if isinstance(found, Resolved) else None
    return _from_template(pipeline, service)


def _sole_source(sources: Sequence[Any] | None) -> Json:
    return sources[0] if sources and isinstance(sources[0], Mapping) else view.EMPTY


def _from_profile(profile: Json, name: str, service: Json, keep_feature: str | None) -> Plan | None:
    spec = effective_profile(profile, service)
    if keep_feature is not None:
        spec["features"] = [*view.strings(spec, "features"), keep_feature]
    image = view.text(spec, "image")
    if image is None:
        return None
    source = _sole_source(view.items(spec, "modelSources"))
    file = render_profile_file(spec)
    engine_env = [{"name": key, "value": str(value)} for key, value in view.mapping(spec, "engineEnv").items()]
    # The image applies env_vars of the projected file itself; without one the variables go to the container.
    env = merge_env([] if file else engine_env, view.items(spec, "containerEnv"))
    return Plan(
        image=image,
        model_id=view.model_id(source) or view.text(spec, "modelId"),
        source_uri=view.text(source, "sourceUri"),
        env=tuple(env.values()),
        engine=view.text(spec, "engine"),
        engine_args=view.mapping(spec, "engineArgs"),
        metric=view.text(spec, "metric"),
        precision=view.text(spec, "precision"),
        aim_id=view.text(spec, "aimId"),
        profile_id=file.profile_id if file else view.text(spec, "profileId"),
        profile_file=file,
        accelerator_model=view.text(spec, "acceleratorModel"),
        accelerator_vendor=view.text(spec, "acceleratorVendor"),
        partitioning=view.text(spec, "acceleratorPartitioningMode"),
        gpus=_gpus(view.text(spec, "acceleratorType"), view.integer(spec, "acceleratorCount")),
        resources=view.mapping(spec, "resources"),
        pull_secrets=view.items(spec, "imagePullSecrets"),
        service_account=view.text(spec, "serviceAccountName"),
        labels={LABEL_PROFILE: name, **_shape_labels(spec)},
        runtime_profile=view.text(spec, "profileId") or name,
    )


def _with_cpu(cpu: Json, given: Json) -> Json:
    """Return resources with the CPU of `hardware.cpu` where they set none."""
    parts = {part: {"cpu": cpu[part], **view.mapping(given, part)} for part in ("requests", "limits") if cpu.get(part)}
    return {**given, **parts} if parts else given


def _gpus(kind: str | None, count: int | None) -> int:
    return 0 if kind == "cpu" else max(0, count if count is not None else 1)


def _shape_labels(spec: Json) -> dict[str, str]:
    words = {LABEL_METRIC: view.text(spec, "metric"), LABEL_PRECISION: view.text(spec, "precision")}
    return {key: value for key, value in words.items() if value}


def _from_template(pipeline: Pipeline, service: Json) -> Plan | None:
    if pipeline.image is None:
        return None
    template = pipeline.template.obj if isinstance(pipeline.template, Resolved) else view.EMPTY
    model = pipeline.model.obj if isinstance(pipeline.model, Resolved) else view.EMPTY
    source = _sole_source(pipeline.sources)
    custom = view.mapping(service, "spec", "model", "custom")
    hardware = view.mapping(template, "spec", "hardware") or view.mapping(custom, "hardware")
    gpu, cpu = view.mapping(hardware, "gpu"), view.mapping(hardware, "cpu")
    env = merge_env(view.items(model, "spec", "env"), view.items(template, "spec", "env"))
    labels = {
        LABEL_TEMPLATE: view.text(template, "metadata", "name"),
        LABEL_MODEL: view.text(model, "metadata", "name"),
        **_shape_labels(view.mapping(template, "spec")),
    }
    spec = view.mapping(template, "spec")
    return Plan(
        image=pipeline.image,
        model_id=view.model_id(source),
        source_uri=view.text(source, "sourceUri"),
        env=tuple(env.values()),
        metric=view.text(spec, "metric"),
        precision=view.text(spec, "precision"),
        profile_id=view.text(spec, "profileId"),
        accelerator_model=view.text(gpu, "model"),
        gpus=_gpus(None, view.accelerators(gpu)),
        gpu_resource=view.text(gpu, "resourceName"),
        resources=_with_cpu(cpu, view.mapping(spec, "resources") or view.mapping(model, "spec", "resources")),
        pull_secrets=[*view.items(model, "spec", "imagePullSecrets"), *view.items(spec, "imagePullSecrets")],
        service_account=view.text(spec, "serviceAccountName") or view.text(model, "spec", "serviceAccountName"),
        labels={key: value for key, value in labels.items() if value},
        runtime_profile=view.text(spec, "profileId"),
    )


def render_profile_file(spec: Json) -> ProfileFile | None:
    """Return the runtime profile file of an effective profile, or None when it has no `aimId` to live under.

    Source: docs/contract.md, Runtime profile file.
    """
    aim_id = view.text(spec, "aimId")
    if aim_id is None:
        return None
    count = view.integer(spec, "acceleratorCount")
    token = view.feature_token(view.strings(spec, "features"))
    source = _sole_source(view.items(spec, "modelSources"))
    metadata: dict[str, Any] = {
        "engine": view.text(spec, "engine"),
        "gpu": view.text(spec, "acceleratorModel"),
        "gpu_count": count,
        "manual_selection_only": view.dig(spec, "manualSelectionOnly"),
        "metric": view.text(spec, "metric"),
        "precision": view.text(spec, "precision"),
        "type": view.text(spec, "type"),
        "features": [token] if token else [],
    }
    content: dict[str, Any] = {
        "aim_id": aim_id,
        "model_id": view.model_id(source) or view.text(spec, "modelId"),
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "engine_args": _kebab(view.mapping(spec, "engineArgs")),
        "env_vars": {key: str(value) for key, value in sorted(view.mapping(spec, "engineEnv").items())},
    }
    stem = _file_stem(spec, count)
    return ProfileFile(
        folder=f"{PROFILES_FOLDER}/{aim_id}",
        name=f"{stem}.yaml",
        content=_yaml(json.dumps({key: value for key, value in content.items() if value is not None}, sort_keys=True)),
        profile_id=f"custom/{aim_id}/{stem}",
    )


@lru_cache(maxsize=4096)
def _yaml(document: str) -> str:
    """Return a JSON document as YAML for people; each is turned once, for a pass must not take milliseconds."""
    return yaml.safe_dump(json.loads(document), sort_keys=True)


def _kebab(args: Json) -> dict[str, Any]:
    return {key.replace("_", "-"): args[key] for key in sorted(args)}


def _file_stem(spec: Json, count: int | None) -> str:
    if given := view.text(spec, "profileId"):
        return given
    parts = [
        view.text(spec, "engine"),
        view.text(spec, "acceleratorModel"),
        view.text(spec, "precision"),
        f"tp{count if count is not None else 1}",
        view.text(spec, "metric"),
        view.text(spec, "variant"),
    ]
    return "-".join(part for part in parts if part).lower()
