"""Objects for properties: small vocabularies, so that references match and rules are really asked."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rules.examples import NAMESPACE, manifest
from rules.worlds import SnapshotWorld

NAMES = ["medical", "legal", "tone", "qwen3-8b-base", "absent"]
IDS = ["Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B"]
RANKS = [None, 1, 8, 16, 17, 64, 512, 513]
CEILINGS = [None, 1, 8, 16, 32, 64, 512]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _without_nones(value: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if part is not None}


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


refs = st.lists(
    st.sampled_from(NAMES).map(lambda name: {"name": name, "kind": "AIMArtifact"}),
    max_size=4,
    unique_by=lambda r: r["name"],
)
sources = st.lists(
    st.sampled_from(IDS).map(lambda model: {"sourceUri": f"hf://{model}", "modelId": model}), min_size=0, max_size=2
)
overrides = st.fixed_dictionaries(
    {
        "features": _optional(st.lists(st.sampled_from(["adapters", "adapters-scale-only"]), unique=True)),
        "modelSources": _optional(sources),
        "acceleratorCount": _optional(st.integers(1, 8)),
        "acceleratorPartitioningMode": _optional(st.just("cpx")),
    }
).map(_without_nones)
env = st.lists(
    st.sampled_from(["PYTHONPATH", "HF_TOKEN", "A", "AIM_ADAPTER_MODE"]).map(lambda name: {"name": name, "value": "x"}),
    max_size=2,
    unique_by=lambda entry: entry["name"],
)
service_specs = st.fixed_dictionaries(
    {
        "profile": _optional(st.sampled_from(["qwen3-8b-mi300x", "absent"]).map(lambda name: {"name": name})),
        "model": _optional(
            st.sampled_from([{"name": "qwen3-8b"}, {"image": "aim:0.12.0"}, {"name": "a", "image": "b"}])
        ),
        "template": _optional(st.just({"name": "qwen3-8b-latency"})),
        "profileOverrides": _optional(overrides),
        "adapterMode": st.sampled_from([None, "static", "dynamic"]),
        "adapters": _optional(refs),
        "adapterRuntime": st.sampled_from([*CEILINGS, 48]).map(
            lambda rank: None if rank is None else {"maxRank": rank}
        ),
        "caching": st.sampled_from([None, {"mode": "Shared"}, {"mode": "Never"}, {"mode": "Auto"}]),
        "minReplicas": st.sampled_from([None, 1, 3]),
        "maxReplicas": st.sampled_from([None, 1, 2, 3]),
        "env": _optional(env),
        "runtimeConfigName": st.sampled_from([None, "default", "fast"]),
        "autoScaling": st.sampled_from([None, None, None, {}]),
    }
).map(_without_nones)
services = service_specs.map(
    lambda spec: {
        "apiVersion": "aim.eai.amd.com/v1alpha2",
        "kind": "AIMService",
        "metadata": {"name": "chat", "namespace": NAMESPACE},
        "spec": spec,
    }
)


def _artifact(name: str) -> st.SearchStrategy[dict[str, Any]]:
    spec = st.fixed_dictionaries(
        {
            "type": st.sampled_from(["adapter", "adapter", "adapter", "model"]),
            "modelId": st.just(f"acme/{name}"),
            "sourceUri": st.just(f"hf://acme/{name}"),
            "compatibleWith": _optional(st.lists(st.sampled_from(IDS), min_size=1, max_size=2, unique=True)),
            "parentArtifact": st.sampled_from([None, None, "qwen3-8b-base", "other"]),
            "rank": st.sampled_from(RANKS),
        }
    ).map(_without_nones)
    path = st.sampled_from([None, None, "medical", "../up"])
    return st.tuples(spec, path).map(
        lambda pair: {
            "kind": "AIMArtifact",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": pair[0],
            "status": {} if pair[1] is None else {"adapterPath": pair[1]},
        }
    )


artifacts = st.sampled_from(NAMES[:3]).flatmap(_artifact)
bases = st.sampled_from([True, True, False]).map(
    lambda there: (
        [manifest("AIMArtifact", {"metadata": {"name": "qwen3-8b-base"}, "spec": {"sourceUri": f"hf://{IDS[0]}"}})]
        if there
        else []
    )
)


def _profile(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda features, sources_: {
            **manifest(kind, {}),
            "spec": {**manifest(kind, {})["spec"], "features": features, "modelSources": sources_},
        },
        st.sampled_from([[], ["adapters"], ["adapters"], ["adapters-scale-only"]]),
        sources,
    )


def _config(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda name, rank: {
            **manifest(kind, {"metadata": {"name": name}, "spec": {"adapterRuntime": {"maxRank": rank}}})
        },
        st.sampled_from(["default", "fast"]),
        st.sampled_from(CEILINGS[1:]),
    )


world_objects = st.builds(
    lambda adapters, base, profiles, configs: [*base, *adapters, *profiles, *configs],
    st.lists(artifacts, max_size=4),
    bases,
    st.lists(_profile("AIMProfile") | _profile("AIMClusterProfile"), max_size=2),
    st.lists(_config("AIMRuntimeConfig") | _config("AIMClusterRuntimeConfig"), max_size=3),
)
worlds = world_objects.map(SnapshotWorld)
