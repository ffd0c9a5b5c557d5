"""The models: every field of the interface, defaults, what they accept and refuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from api import kinds
from api.errors import field_path
from api.kinds import AIM_KINDS, Kind
from api.models import MODELS, AIMArtifact, AIMProfileCache, AIMRuntimeConfig, AIMService
from api.models.marks import not_acted_on_paths
from api.models.service import AdapterStatus, AIMServiceStatus
from api.schema import object_schema
from tests.manifests import ENV, full, full_status

# What the wire knows, per kind: spec paths, then status paths. `*` after a name: any value passes.
_ENV_FIELDS = "name value valueFrom.secretKeyRef.name valueFrom.secretKeyRef.key valueFrom.configMapKeyRef.name"
_SOURCE_FIELDS = ("modelId", "sourceUri", "size", "env")
_REFERENCE_FIELDS = ("name", "namespace", "scope", "kind", "uid")
_CACHED_FIELDS = ("uid", "name", "model", "status", "persistentVolumeClaim", "mountPoint")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _below(prefix: str, names: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in (_words(names) if isinstance(names, str) else names))


_STORAGE = _below(
    "storage",
    "defaultStorageClassName pvcHeadroomPercent downloadFilter.include downloadFilter.exclude "
    "adapterDiskStorageClassName adapterDiskSize",
)
_RUNTIME_CONFIG = (
    *_words(
        "adapterRuntime.maxRank env artifact.modelDownloadImage artifact.defaultRetentionPriority* "
        "labelPropagation.enabled labelPropagation.match routing* scaleFromZero* model.autoDiscovery* "
        "imagePullSecrets serviceAccountName defaultStorageClassName pvcHeadroomPercent"
    ),
    *_STORAGE,
    *_below(
        "artifact.s3",
        "endpoint region addressingStyle signatureVersion auth.mode auth.credentialsSecretRef.name "
        "auth.credentialsSecretRef.accessKeyIdKey auth.credentialsSecretRef.secretAccessKeyKey "
        "auth.credentialsSecretRef.sessionTokenKey tls.caBundleRef.kind tls.caBundleRef.name tls.caBundleRef.key "
        "tls.insecureSkipVerify",
    ),
)
_PROFILE = (
    *_words(
        "aimId modelId profileId engine variant metric precision type autoSelectionPolicy primary "
        "manualSelectionOnly engineArgs engineEnv acceleratorVendor acceleratorModel acceleratorType "
        "acceleratorCount acceleratorPartitioningMode resources.limits resources.requests image "
        "containerEnv imagePullSecrets serviceAccountName features"
    ),
    *_below("modelSources[]", _SOURCE_FIELDS),
)
_TEMPLATE = _words(
    "modelName metric precision hardware.gpu.model hardware.gpu.count hardware.gpu.minVram* "
    "hardware.gpu.resourceName runtimeConfigName imagePullSecrets serviceAccountName resources "
    "modelSources profileId type env caching"
)
_MODEL = _words(
    "image modelSources custom* customTemplates* discovery* defaultServiceTemplate imageMetadata* "
    "runtimeConfigName imagePullSecrets serviceAccountName env resources"
)
SPEC_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    kinds.AIM_SERVICE: (
        *_words(
            "model.name model.image model.custom.baseImage model.custom.modelSources model.custom.hardware "
            "template.name template.allowUnoptimized profile.name profile.selector* adapterMode "
            "adapters[].name adapters[].kind adapters[].sourceUri* adapters[].modelId* adapters[].rank* "
            "adapterRuntime.maxRank caching.mode caching.env replicas minReplicas maxReplicas autoScaling* "
            "routing* scaleFromZero* overrides* cacheModel runtimeConfigName resources "
            "imagePullSecrets[].name serviceAccountName priorityClassName"
        ),
        *_below(
            "profileOverrides",
            "features acceleratorModel acceleratorVendor acceleratorCount acceleratorPartitioningMode containerEnv "
            "engineEnv engineArgs",
        ),
        *_below("profileOverrides.modelSources[]", _SOURCE_FIELDS),
        *_STORAGE,
        *_below("env[]", _ENV_FIELDS),
    ),
    kinds.AIM_ARTIFACT: _words(
        "type sourceUri modelId parentArtifact compatibleWith rank adapterDisk.size "
        "adapterDisk.storageClassName size storageClassName env modelDownloadImage "
        "downloadFilter.include downloadFilter.exclude imagePullSecrets runtimeConfigName "
        "retentionPriority*"
    ),
    kinds.AIM_RUNTIME_CONFIG: _RUNTIME_CONFIG,
    kinds.AIM_CLUSTER_RUNTIME_CONFIG: (*_RUNTIME_CONFIG, "artifactStorageQuota*"),
    kinds.AIM_PROFILE: (*_PROFILE, "caching.enabled", "caching.env"),
    kinds.AIM_CLUSTER_PROFILE: _PROFILE,
    kinds.AIM_PROFILE_CACHE: _words(
        "profileName profileScope storageClassName env runtimeConfigName mode requiresAdapterDisk"
    ),
    kinds.AIM_MODEL: _MODEL,
    kinds.AIM_CLUSTER_MODEL: _MODEL,
    kinds.AIM_SERVICE_TEMPLATE: _TEMPLATE,
    kinds.AIM_CLUSTER_SERVICE_TEMPLATE: _TEMPLATE,
    kinds.AIM_TEMPLATE_CACHE: _words(
        "templateName templateScope env imagePullSecrets storageClassName downloadImage modelSources "
        "runtimeConfigName mode"
    ),
}
_PROFILE_STATUS = _words("status deployable matchingNodes hardwareSummary resolvedNodeAffinity origin conditions")
STATUS_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    kinds.AIM_SERVICE: (
        *_words(
            "status observedGeneration conditions cache.retryAttempts runtime.currentReplicas "
            "runtime.desiredReplicas runtime.minReplicas runtime.maxReplicas runtime.replicas adapterMaxRank "
            "adapterSubtreeSyncKey adapterSummary adapterDiskPersistentVolumeClaim "
            "adapterDiskPersistentVolumeClaimUid lastRetryStaging"
        ),
        *_below("resolvedProfile", _REFERENCE_FIELDS),
        *_below("resolvedModel", _REFERENCE_FIELDS),
        *_below("resolvedTemplate", _REFERENCE_FIELDS),
        *_below("resolvedRuntimeConfig", _REFERENCE_FIELDS),
        *_below("cache.profileCacheRef", _REFERENCE_FIELDS),
        *_below("cache.templateCacheRef", _REFERENCE_FIELDS),
        *_below(
            "adapters[]",
            "name adapterPath modelId state lastError loadedReplicas lastObserved rank baseModelId sizeBytes digest "
            "progress.downloadedBytes progress.totalBytes progress.percentage attempts nextRetryTime stageKey warnings",
        ),
    ),
    kinds.AIM_ARTIFACT: (
        *_words(
            "status conditions persistentVolumeClaim mode displaySize discoveredSizeBytes allocatedSize "
            "headroomPercent lastUsed adapterPersistentVolumeClaim adapterPath resolvedParent parentModelId "
            "compatibility lastRestage"
        ),
        *_below("progress", "totalBytes downloadedBytes percentage displayPercentage message"),
        *_below("download", "protocol attempt totalAttempts message"),
    ),
    kinds.AIM_PROFILE: _PROFILE_STATUS,
    kinds.AIM_CLUSTER_PROFILE: _PROFILE_STATUS,
    kinds.AIM_PROFILE_CACHE: ("conditions", *_below("artifacts{}", _CACHED_FIELDS)),
    kinds.AIM_TEMPLATE_CACHE: ("conditions", *_below("artifacts{}", _CACHED_FIELDS)),
}
EACH_KIND = pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)


def _at(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    for part in path.split("."):
        schema = schema["properties"][part.rstrip("[]{}*")]
        if part.endswith("[]"):
            schema = schema["items"]
        if part.endswith("{}"):
            schema = schema["additionalProperties"]
    return schema


@EACH_KIND
def test_every_spec_field_of_the_interface_is_in_the_schema(kind: Kind) -> None:
    spec = object_schema(kind)["properties"]["spec"]
    for path in SPEC_FIELDS[kind]:
        free = _at(spec, path).get("x-kubernetes-preserve-unknown-fields") is True and "type" not in _at(spec, path)
        assert free == path.endswith("*"), path


@pytest.mark.parametrize("kind", STATUS_FIELDS, ids=lambda kind: kind.kind)
def test_every_status_field_of_the_interface_is_in_the_schema(kind: Kind) -> None:
    status = object_schema(kind)["properties"]["status"]
    for path in STATUS_FIELDS[kind]:
        assert _at(status, path)["description"], path


@EACH_KIND
def test_marks_are_those_of_the_interface(kind: Kind) -> None:
    expected = {f"spec.{path.rstrip('*')}" for path in SPEC_FIELDS[kind] if path.endswith("*")}
    if kind is kinds.AIM_SERVICE:
        expected.add("spec.model.custom.hardware.gpu.minVram")
    assert set(not_acted_on_paths(kind)) == expected


def _leaves(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of schema properties that a manifest does not set (in lists: in no entry)."""
    if "items" in schema:
        entries = [set(_leaves(entry, schema["items"], f"{path}[]")) for entry in value or [None]]
        yield from set.intersection(*entries)
        return
    if "additionalProperties" in schema:
        yield from _leaves(next(iter(value.values()), None) if value else None, schema["additionalProperties"], path)
        return
    for name, child in schema.get("properties", {}).items():
        below = value.get(name) if isinstance(value, Mapping) else None
        if below is None:
            yield f"{path}.{name}"
        else:
            yield from _leaves(below, child, f"{path}.{name}")


@EACH_KIND
def test_the_full_manifest_sets_every_field_of_the_schema(kind: Kind) -> None:
    properties = object_schema(kind)["properties"]
    assert list(_leaves(full(kind)["spec"], properties["spec"])) == []
    assert list(_leaves(full_status(kind), properties["status"])) == []


@EACH_KIND
def test_round_trip(kind: Kind) -> None:
    manifest = full(kind) | {"status": full_status(kind)}
    model = MODELS[kind].model_validate(manifest)
    assert model.to_wire() == _without_none(manifest)
    assert MODELS[kind].model_validate(model.to_wire()) == model


def _without_none(value: Any) -> Any:
    """What `to_wire` leaves out: keys whose value is None (None inside lists stays)."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def test_defaults() -> None:
    service = AIMService.model_validate(
        {"spec": {"profile": {"name": "p"}, "adapters": [{"name": "a"}], "caching": {}}}
    ).to_wire()["spec"]
    assert service == {
        "profile": {"name": "p"},
        "adapterMode": "static",
        "adapters": [{"name": "a", "kind": "AIMArtifact"}],
        "caching": {"mode": "Shared"},
        "replicas": 1,
    }
    artifact = AIMArtifact.model_validate({"spec": {"sourceUri": "hf://o/n"}}).to_wire()["spec"]
    assert artifact == {"type": "model", "sourceUri": "hf://o/n"}
    cache = AIMProfileCache.model_validate({"spec": {"profileName": "p"}}).to_wire()["spec"]
    assert cache == {"profileName": "p", "mode": "Shared"}


def test_a_namespace_configuration_gets_no_default_that_would_hide_the_cluster_one() -> None:
    spec: dict[str, Any] = {
        "adapterRuntime": {},
        "storage": {},
        "artifact": {"s3": {"auth": {}, "tls": {}}},
        "labelPropagation": {},
    }
    assert AIMRuntimeConfig.model_validate({"spec": spec}).to_wire()["spec"] == spec


REFUSED = {
    "a word outside the list": (AIMService, {"spec": {"adapterMode": "Dynamic"}}, "spec.adapterMode"),
    "an unknown feature": (
        AIMService,
        {"spec": {"profileOverrides": {"features": ["adapters", "lora"]}}},
        "spec.profileOverrides.features[1]",
    ),
    "65 adapters": (AIMService, {"spec": {"adapters": [{"name": f"a{i}"} for i in range(65)]}}, "spec.adapters"),
    "an adapter without a name": (AIMService, {"spec": {"adapters": [{"name": ""}]}}, "spec.adapters[0].name"),
    "an adapter of another kind": (
        AIMService,
        {"spec": {"adapters": [{"name": "a", "kind": "AIMModel"}]}},
        "spec.adapters[0].kind",
    ),
    "rank ceiling below 1": (AIMService, {"spec": {"adapterRuntime": {"maxRank": 0}}}, "spec.adapterRuntime.maxRank"),
    "a number in quotes": (AIMService, {"spec": {"replicas": "2"}}, "spec.replicas"),
    "a truth value as number": (AIMService, {"spec": {"replicas": True}}, "spec.replicas"),
    "replicas below 0": (AIMService, {"spec": {"replicas": -1}}, "spec.replicas"),
    "maxReplicas of 0": (AIMService, {"spec": {"maxReplicas": 0}}, "spec.maxReplicas"),
    "an unknown field": (AIMService, {"spec": {"adapterMod": "static"}}, "spec.adapterMod"),
    "no spec": (AIMService, {}, "spec"),
    "two sources of a custom model": (
        AIMService,
        {"spec": {"model": {"custom": {"baseImage": "i", "modelSources": [{"sourceUri": "hf://o/n"}] * 2}}}},
        "spec.model.custom.modelSources",
    ),
    "no source": (AIMArtifact, {"spec": {}}, "spec.sourceUri"),
    "another scheme": (AIMArtifact, {"spec": {"sourceUri": "https://o/n"}}, "spec.sourceUri"),
    "white space in the source": (AIMArtifact, {"spec": {"sourceUri": "hf://o/n x"}}, "spec.sourceUri"),
    "a model id without organisation": (
        AIMArtifact,
        {"spec": {"sourceUri": "hf://o/n", "modelId": "n"}},
        "spec.modelId",
    ),
    "rank 0": (AIMArtifact, {"spec": {"sourceUri": "hf://o/n", "rank": 0}}, "spec.rank"),
    "no quantity": (
        AIMArtifact,
        {"spec": {"sourceUri": "hf://o/n", "adapterDisk": {"size": "fifty"}}},
        "spec.adapterDisk.size",
    ),
}


@pytest.mark.parametrize(("model", "manifest", "path"), REFUSED.values(), ids=REFUSED)
def test_refused(model: type[BaseModel], manifest: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(manifest)
    paths = {field_path(error["loc"]) for error in caught.value.errors()}
    assert any(found == path or found.startswith(f"{path}.") for found in paths), paths


QUANTITIES = st.one_of(
    st.integers(min_value=0, max_value=2**31),
    st.from_regex(r"\A[0-9]{1,6}(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|e[0-9]{1,2})?\Z"),
)


@given(QUANTITIES)
def test_quantities_pass(size: int | str) -> None:
    spec = {"sourceUri": "hf://o/n", "size": size}
    assert AIMArtifact.model_validate({"spec": spec}).to_wire()["spec"]["size"] == size


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(JSON)
def test_fields_without_effect_accept_any_value(value: Any) -> None:
    spec = {"profile": {"selector": value}, "routing": value, "adapters": [{"name": "a", "rank": value}]}
    AIMService.model_validate({"spec": spec})


@given(JSON, JSON)
def test_validation_raises_only_its_own_error(spec: Any, status: Any) -> None:
    for model in MODELS.values():
        with suppress(ValidationError):
            model.model_validate({"spec": spec, "status": status})


def test_a_status_is_built_by_python_names() -> None:
    status = AIMServiceStatus(
        status="Running",
        adapter_max_rank=32,
        adapters=[AdapterStatus(name="a", state="Downloaded", stage_key="k", loaded_replicas=0)],
    )
    assert status.to_wire() == {
        "status": "Running",
        "adapterMaxRank": 32,
        "adapters": [{"name": "a", "state": "Downloaded", "stageKey": "k", "loadedReplicas": 0}],
    }


def test_env_is_kept_as_it_is() -> None:
    assert AIMService.model_validate({"spec": {"env": ENV}}).to_wire()["spec"]["env"] == ENV


def test_import_is_quick() -> None:
    """In processor time: the machine may be busy with other tests."""
    script = "import time; start = time.process_time(); import api.models; print(time.process_time() - start)"
    seconds = min(
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout)
        for _ in range(3)
    )
    assert seconds < 1.0, "0.25 s on an idle core"
