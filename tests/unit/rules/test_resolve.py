"""References, resolved: profile, RuntimeConfig, template pipeline, base."""

from __future__ import annotations

from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT, AIM_CLUSTER_PROFILE, AIM_CLUSTER_RUNTIME_CONFIG, AIM_PROFILE
from rules.base import resolve_base
from rules.examples import NAMESPACE, manifest, merge, surroundings
from rules.pipeline import effective_profile, resolve_pipeline, resolve_profile
from rules.references import Missing, Resolved, Unknown
from rules.runtime_config import resolve_runtime_config
from rules.world import address
from rules.worlds import OverlayWorld, SnapshotWorld

CHAT = manifest("AIMService", {})
TEMPLATED = manifest("AIMService", {"spec": {"profile": None, "model": {"name": "qwen3-8b"}}})


def test_the_namespace_profile_wins_over_the_cluster() -> None:
    own = manifest("AIMProfile", {"spec": {"image": "own:0.13"}})
    reference = resolve_profile(surroundings([own]), CHAT)
    assert isinstance(reference, Resolved)
    assert (reference.kind, reference.scope) == (AIM_PROFILE, "Namespace")


def test_the_cluster_profile_is_found() -> None:
    reference = resolve_profile(surroundings(), CHAT)
    assert isinstance(reference, Resolved)
    assert (reference.kind, reference.scope, reference.name) == (AIM_CLUSTER_PROFILE, "Cluster", "qwen3-8b-mi300x")


def test_a_missing_profile_is_missing_and_an_unread_one_unknown() -> None:
    assert isinstance(resolve_profile(SnapshotWorld(), CHAT), Missing)
    assert isinstance(resolve_profile(SnapshotWorld(unknown=[AIM_CLUSTER_PROFILE]), CHAT), Unknown)


def test_a_cluster_profile_is_not_used_while_the_namespace_is_unread() -> None:
    world = SnapshotWorld([manifest("AIMClusterProfile", {})], unknown=[AIM_PROFILE])
    assert isinstance(resolve_profile(world, CHAT), Unknown)


def test_overrides_are_applied_field_by_field() -> None:
    profile = manifest(
        "AIMProfile",
        {
            "spec": {
                "features": ["adapters"],
                "containerEnv": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "engineEnv": {"X": "1"},
                "engineArgs": {"deep": {"a": 1, "b": 2}, "kept": True},
                "acceleratorCount": 1,
            }
        },
    )
    service = merge(
        CHAT,
        {
            "spec": {
                "profileOverrides": {
                    "features": ["adapters-scale-only"],
                    "containerEnv": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}],
                    "engineEnv": {"Y": "2"},
                    "engineArgs": {"deep": {"a": 9}},
                    "acceleratorCount": 4,
                    "modelSources": [{"sourceUri": "hf://a/b"}],
                }
            }
        },
    )
    spec = effective_profile(profile, service)
    assert spec["features"] == ["adapters", "adapters-scale-only"]
    assert [(entry["name"], entry["value"]) for entry in spec["containerEnv"]] == [("A", "1"), ("B", "3"), ("C", "4")]
    assert spec["engineEnv"] == {"X": "1", "Y": "2"}
    assert spec["engineArgs"] == {"deep": {"a": 9}, "kept": True}
    assert (spec["acceleratorCount"], spec["modelSources"]) == (4, [{"sourceUri": "hf://a/b"}])
    assert profile["spec"]["acceleratorCount"] == 1


def _config(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return manifest(kind, {"spec": spec})


def test_the_namespace_config_is_merged_over_the_cluster_field_by_field() -> None:
    cluster = _config(
        "AIMClusterRuntimeConfig",
        {
            "adapterRuntime": {"maxRank": 128},
            "storage": {"defaultStorageClassName": "slow", "adapterDiskSize": "10Gi"},
            "env": [{"name": "HF_TOKEN", "value": "c"}, {"name": "HF_ENDPOINT", "value": "c"}],
            "artifact": {
                "s3": {"endpoint": "http://c", "auth": {"mode": "static", "credentialsSecretRef": {"name": "c"}}}
            },
        },
    )
    own = _config(
        "AIMRuntimeConfig",
        {
            "storage": {"adapterDiskSize": "20Gi"},
            "env": [{"name": "HF_TOKEN", "value": "n"}],
            "artifact": {"s3": {"auth": {"mode": "anonymous"}}},
            "pvcHeadroomPercent": 20,
        },
    )
    config = resolve_runtime_config(SnapshotWorld([cluster, own]), NAMESPACE)
    assert config.scope == "Merged"
    assert config.spec["storage"] == {
        "defaultStorageClassName": "slow",
        "adapterDiskSize": "20Gi",
        "pvcHeadroomPercent": 20,
    }
    assert config.spec["env"] == [{"name": "HF_TOKEN", "value": "n"}, {"name": "HF_ENDPOINT", "value": "c"}]
    assert config.spec["artifact"]["s3"] == {"endpoint": "http://c", "auth": {"mode": "anonymous"}}
    assert config.value("adapterRuntime", "maxRank") == (128, 'AIMClusterRuntimeConfig "default"')
    assert config.value("storage", "adapterDiskSize") == ("20Gi", 'AIMRuntimeConfig "default"')


def test_a_config_is_unreadable_when_a_place_was_not_read() -> None:
    assert not resolve_runtime_config(SnapshotWorld(unknown=[AIM_CLUSTER_RUNTIME_CONFIG]), NAMESPACE).readable
    nothing = resolve_runtime_config(SnapshotWorld(), NAMESPACE)
    assert (nothing.readable, nothing.found, nothing.scope) == (True, False, None)


def test_the_base_is_the_oldest_artifact_of_the_source_that_stays() -> None:
    def base(name: str, created: str, **more: Any) -> dict[str, Any]:
        metadata = {"name": name, "creationTimestamp": created, **more}
        return manifest("AIMArtifact", {"metadata": metadata, "spec": {"sourceUri": "hf://Qwen/Qwen3-8B"}})

    world = SnapshotWorld(
        [
            manifest("AIMClusterProfile", {}),
            base("oldest-leaving", "2024-01-01T00:00:00Z", deletionTimestamp="2024-02-01T00:00:00Z"),
            base("younger", "2024-01-03T00:00:00Z"),
            base("older", "2024-01-02T00:00:00Z"),
        ]
    )
    assert resolve_base(world, CHAT).name == "older"


def test_the_recorded_cache_decides_among_artifacts_of_one_source() -> None:
    bases = [
        manifest(
            "AIMArtifact",
            {
                "metadata": {"name": name, "uid": name},
                "spec": {"sourceUri": "hf://Qwen/Qwen3-8B", "modelId": "Qwen/Qwen3-8B"},
            },
        )
        for name in ("a", "b")
    ]
    cache = manifest("AIMProfileCache", {"status": {"artifacts": {"b": {"name": "b", "uid": "b"}}}})
    service = merge(CHAT, {"status": {"cache": {"profileCacheRef": {"name": "qwen3-8b"}}}})
    world = SnapshotWorld([manifest("AIMClusterProfile", {}), *bases, cache])
    assert resolve_base(world, service).name == "b"
    replaced = OverlayWorld(world, {address(AIM_ARTIFACT, NAMESPACE, "b"): merge(bases[1], {"metadata": {"uid": "c"}})})
    assert resolve_base(replaced, service).name == "a", "another artifact of that name is another artifact"


def test_without_an_artifact_the_base_is_a_guess() -> None:
    base = resolve_base(SnapshotWorld([manifest("AIMClusterProfile", {})]), CHAT)
    assert (base.state, base.model_id, base.known) == ("guessed", "Qwen/Qwen3-8B", False)


def test_several_sources_are_ambiguous_and_none_unknown() -> None:
    two = {"spec": {"profileOverrides": {"modelSources": [{"sourceUri": "hf://a/b"}, {"sourceUri": "hf://c/d"}]}}}
    assert resolve_base(surroundings(), merge(CHAT, two)).state == "ambiguous"
    assert resolve_base(SnapshotWorld(), CHAT).state == "unknown"


def test_the_only_template_that_fits_is_chosen() -> None:
    pipeline = resolve_pipeline(surroundings(), TEMPLATED)
    assert isinstance(pipeline.template, Resolved)
    assert pipeline.template.name == "qwen3-8b-latency"
    assert resolve_base(surroundings(), TEMPLATED).name == "qwen3-8b-base"


def test_a_later_template_does_not_replace_that_of_a_running_service() -> None:
    other = manifest("AIMServiceTemplate", {"metadata": {"name": "other"}, "spec": {"modelName": "qwen3-8b"}})
    shared = manifest("AIMClusterServiceTemplate", {"metadata": {"name": "shared"}, "spec": {"modelName": "qwen3-8b"}})
    world = surroundings([other, shared])
    for kind, name in (("AIMServiceTemplate", "other"), ("AIMClusterServiceTemplate", "shared")):
        running = {**TEMPLATED, "status": {"resolvedTemplate": {"kind": kind, "name": name}}}
        pipeline = resolve_pipeline(world, running)
        assert isinstance(pipeline.template, Resolved)
        assert (pipeline.template.kind.kind, pipeline.template.name) == (kind, name)
        assert not pipeline.fitting
    gone = {**TEMPLATED, "status": {"resolvedTemplate": {"kind": "AIMServiceTemplate", "name": "gone"}}}
    assert resolve_pipeline(world, gone).template is None


def test_of_two_templates_none_is_chosen_unless_one_is_the_default() -> None:
    other = manifest("AIMServiceTemplate", {"metadata": {"name": "other"}, "spec": {"modelName": "qwen3-8b"}})
    pipeline = resolve_pipeline(surroundings([other]), TEMPLATED)
    assert pipeline.template is None
    assert sorted(view.name_of(template) for template in pipeline.fitting) == ["other", "qwen3-8b-latency"]
    model = {"kind": "AIMModel", "metadata": {"name": "qwen3-8b"}, "spec": {"defaultServiceTemplate": "other"}}
    chosen = resolve_pipeline(surroundings([other, model]), TEMPLATED).template
    assert isinstance(chosen, Resolved)
    assert chosen.name == "other"


def test_an_unoptimized_template_is_chosen_only_where_it_is_allowed() -> None:
    world = surroundings(
        [{"kind": "AIMServiceTemplate", "metadata": {"name": "qwen3-8b-latency"}, "spec": {"type": "unoptimized"}}]
    )
    assert resolve_pipeline(world, TEMPLATED).template is None
    allowed = merge(TEMPLATED, {"spec": {"template": {"allowUnoptimized": True}}})
    assert isinstance(resolve_pipeline(world, allowed).template, Resolved)


def test_a_model_is_found_by_its_image() -> None:
    service = merge(TEMPLATED, {"spec": {"model": {"name": None, "image": "amdenterpriseai/aim-qwen-qwen3-8b:0.13.0"}}})
    pipeline = resolve_pipeline(surroundings(), service)
    assert isinstance(pipeline.model, Resolved)
    assert pipeline.image == "amdenterpriseai/aim-qwen-qwen3-8b:0.13.0"


def test_a_template_alone_names_its_model() -> None:
    service = merge(TEMPLATED, {"spec": {"model": None, "template": {"name": "qwen3-8b-latency"}}})
    pipeline = resolve_pipeline(surroundings(), service)
    assert isinstance(pipeline.model, Resolved)
    assert pipeline.model.name == "qwen3-8b"
