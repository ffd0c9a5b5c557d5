"""Faults that users reported about similar systems, and that admission can prevent or explain."""

from __future__ import annotations

from typing import Any

import pytest

from api.kinds import AIM_ARTIFACT, AIM_CLUSTER_PROFILE, AIM_PROFILE, AIM_RUNTIME_CONFIG, AIM_SERVICE, Kind
from rules.examples import manifest, merge, surroundings
from rules.relations import MOST_SERVICES_JUDGED
from rules.validate import judge_stored, validate
from rules.verdict import Verdict
from rules.worlds import SnapshotWorld
from tests.unit.rules.judging import validate_service


def service(**spec: Any) -> dict[str, Any]:
    return manifest("AIMService", {"spec": spec})


def artifact(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "AIMArtifact", "metadata": {"name": name}, "spec": spec}


def refs(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "kind": "AIMArtifact"} for name in names]


def told(verdict: Verdict) -> list[tuple[str, str]]:
    return [(error.path, error.reason) for error in verdict.errors]


def warned(verdict: Verdict) -> dict[str, str]:
    return {warning.reason: str(warning) for warning in verdict.warnings}


def test_finalizers_of_a_terminating_invalid_object_can_be_removed() -> None:
    """Prevents: removing a finalizer is an UPDATE; validation refuses it; Terminating forever."""
    old = merge(service(minReplicas=3, maxReplicas=1), {"metadata": {"deletionTimestamp": "x", "finalizers": ["a/b"]}})
    assert validate_service(merge(old, {"metadata": {"finalizers": None}}), old, surroundings()).allowed


def test_a_terminating_object_is_otherwise_still_checked() -> None:
    """Prevents: an exemption for terminating objects that lets anyone change anything."""
    old = merge(service(adapterMode="static"), {"metadata": {"deletionTimestamp": "x", "finalizers": ["a/b"]}})
    new = merge(old, {"metadata": {"finalizers": None}, "spec": {"adapterMode": "dynamic"}})
    assert told(validate_service(new, old, surroundings())) == [("spec.adapterMode", "AdapterModeImmutable")]


def test_a_static_list_may_be_reordered() -> None:
    """Prevents: an immutable list check fails when only the order is swapped."""
    old = service(adapters=refs("medical", "legal"))
    assert validate_service(service(adapters=refs("legal", "medical")), old, surroundings()).allowed


def test_only_immutable_fields_are_immutable() -> None:
    """Prevents: validation too strict on update; ordinary edits refused."""
    old = service(adapters=refs("medical"))
    edits: dict[str, Any] = {
        "replicas": 3,
        "env": [{"name": "A", "value": "b"}],
        "priorityClassName": "high",
        "resources": {"limits": {"cpu": "8"}},
        "imagePullSecrets": [{"name": "pull"}],
        "minReplicas": 1,
        "maxReplicas": 4,
        "profile": {"name": "another"},
        "caching": {"mode": "Always"},
        "runtimeConfigName": "other",
    }
    for key, value in edits.items():
        verdict = validate_service(service(adapters=refs("medical"), **{key: value}), old, surroundings())
        assert verdict.allowed, key


def test_errors_that_the_old_object_had_are_warnings() -> None:
    """Prevents: a new rule makes old objects un-updatable."""
    old = service(minReplicas=3, maxReplicas=1, env=[{"name": "PROTOCOL", "value": "x"}])
    verdict = validate_service(merge(old, {"spec": {"priorityClassName": "high"}}), old, surroundings())
    assert verdict.allowed
    assert set(warned(verdict)) == {"MinReplicasAboveMax", "EnvReserved"}


def test_a_new_error_of_the_same_kind_is_refused() -> None:
    """Ratcheting holds back only what was there before."""
    old = service(env=[{"name": "PROTOCOL", "value": "x"}])
    new = service(env=[{"name": "PYTHONPATH", "value": "x"}, {"name": "PROTOCOL", "value": "x"}])
    assert told(validate_service(new, old, surroundings())) == [("spec.env[0].name", "EnvReserved")]


@pytest.mark.parametrize("missing", ["profile", "artifact", "config", "everything"])
def test_apply_order_never_refuses(missing: str) -> None:
    """Prevents: cross-object check at admission fails on apply order."""
    spec: dict[str, Any] = {"adapterMode": "dynamic", "adapters": refs("medical")}
    changes: dict[str, dict[str, Any]] = {
        "profile": {"profile": {"name": "no"}},
        "artifact": {"adapters": refs("no")},
        "config": {"runtimeConfigName": "no"},
    }
    world = SnapshotWorld() if missing == "everything" else surroundings()
    verdict = validate_service(service(**{**spec, **changes.get(missing, {})}), None, world)
    assert verdict.allowed
    assert verdict.warnings


def test_what_can_never_work_is_refused_at_once_and_all_of_it() -> None:
    """What can never become valid is refused at once, not reported later in status."""
    world = surroundings([artifact("medical", rank=600), artifact("legal", compatibleWith=["a/b"])])
    new = service(
        adapters=refs("medical", "legal", "qwen3-8b-base"), adapterRuntime={"maxRank": 8}, caching={"mode": "Never"}
    )
    assert told(validate_service(new, None, world)) == [
        ("spec.adapterRuntime.maxRank", "MaxRankInStaticMode"),
        ("spec.adapters[0].name", "AdapterRankAboveCeiling"),
        ("spec.adapters[1].name", "AdapterIncompatible"),
        ("spec.adapters[2].name", "AdapterNotAnAdapter"),
        ("spec.caching.mode", "DedicatedCachingWithAdapters"),
    ]


def test_the_reconciler_reports_what_the_webhook_would_have_reported() -> None:
    """Prevents: failurePolicy Ignore → silently unvalidated."""
    bad = service(adapterMode="dynamic", adapters=refs("medical"))
    world = surroundings([artifact("medical", rank=64)])
    assert judge_stored(AIM_SERVICE, bad, world).errors == validate_service(bad, None, world).errors


def test_an_adapter_of_another_base_is_refused_with_both_names() -> None:
    """Prevents: an adapter does not fit the base, and no message reports it."""
    verdict = validate_service(
        service(adapters=refs("medical")),
        None,
        surroundings([artifact("medical", compatibleWith=["meta-llama/Llama-3.1-8B"])]),
    )
    (error,) = verdict.errors
    for word in ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B", "qwen3-8b-base", "compatibleWith"):
        assert word in error.message


@pytest.mark.parametrize(
    ("config", "origin"),
    [
        ([], "built-in default"),
        (
            [{"kind": "AIMRuntimeConfig", "metadata": {"name": "default"}, "spec": {"adapterRuntime": {"maxRank": 8}}}],
            'AIMRuntimeConfig "default"',
        ),
        (
            [
                {
                    "kind": "AIMClusterRuntimeConfig",
                    "metadata": {"name": "default"},
                    "spec": {"adapterRuntime": {"maxRank": 8}},
                }
            ],
            'AIMClusterRuntimeConfig "default"',
        ),
    ],
)
def test_a_rank_above_the_ceiling_is_refused_and_says_where_the_ceiling_comes_from(config: Any, origin: str) -> None:
    """Prevents: rank > max_lora_rank: engine error or crash."""
    verdict = validate_service(
        service(adapterMode="dynamic", adapters=refs("medical")),
        None,
        surroundings([artifact("medical", rank=64), *config]),
    )
    (error,) = verdict.errors
    assert error.path == "spec.adapters[0].name"
    assert origin in error.detail
    assert "64" in error.detail


def test_lowering_the_ceiling_below_a_rank_is_refused_at_the_adapter() -> None:
    """The error is at the adapter, also when maxRank was lowered."""
    old = service(adapterMode="dynamic", adapters=refs("medical"), adapterRuntime={"maxRank": 64})
    new = merge(old, {"spec": {"adapterRuntime": {"maxRank": 8}}})
    assert told(validate_service(new, old, surroundings())) == [("spec.adapters[0].name", "AdapterRankAboveCeiling")]


def test_a_rank_that_no_engine_supports_is_refused_with_the_list() -> None:
    """Prevents: an engine ends with StopIteration above rank 512."""
    verdict = validate_service(service(adapters=refs("medical")), None, surroundings([artifact("medical", rank=513)]))
    (error,) = verdict.errors
    assert "513" in error.detail
    assert "1, 8, 16, 32, 64, 128, 256, 320, 512" in error.hint


def test_on_the_artifact_such_a_rank_is_a_warning() -> None:
    """The artifact alone breaks no service."""
    verdict = validate(AIM_ARTIFACT, manifest("AIMArtifact", {"spec": {"rank": 1024}}), None, surroundings())
    assert verdict.allowed
    assert "RankAboveHighest" in warned(verdict)


def test_a_ceiling_change_says_what_it_costs() -> None:
    """Prevents: extreme latency once LoRA is on; show the cost before."""
    running = {"status": {"runtime": {"currentReplicas": 3}, "adapterMaxRank": 32}}
    old = merge(service(adapterMode="dynamic"), running)
    new = merge(old, {"spec": {"adapterRuntime": {"maxRank": 512}}})
    text = warned(validate_service(new, old, surroundings()))["CeilingChangeRolls"]
    assert "from 32 to 512 rolls 3 pods (maxSurge 0, maxUnavailable 1)" in text


def test_more_adapters_than_slots_is_a_warning() -> None:
    """Prevents: max_loras head-of-line blocking."""
    names = [f"a{i}" for i in range(9)]
    verdict = validate_service(service(adapters=refs(*names)), None, surroundings())
    assert verdict.allowed
    assert "9 adapters share 8 GPU slots" in warned(verdict)["MoreAdaptersThanSlots"]


def test_an_image_that_cannot_load_adapters_is_a_warning() -> None:
    """Prevents: a mistyped image is found only after a long wait."""
    old_image = {"kind": "AIMClusterProfile", "metadata": {"name": "qwen3-8b-mi300x"}, "spec": {"image": "aim:0.12.3"}}
    verdict = validate_service(service(adapters=refs("medical")), None, surroundings([old_image]))
    assert verdict.allowed
    assert "0.12.3" in warned(verdict)["ImageTooOld"]


def test_the_same_adapter_twice_is_refused() -> None:
    """Prevents: same adapter twice."""
    verdict = validate_service(service(adapters=refs("medical", "medical")), None, surroundings())
    assert told(verdict) == [("spec.adapters[1]", "AdapterDeclaredTwice")]


def test_a_base_without_id_is_known_by_its_source() -> None:
    """Prevents: the base was loaded from a local path, which differs from its name in the config."""
    base = artifact("qwen3-8b-base", modelId=None, sourceUri="hf://Qwen/Qwen3-8B")
    assert validate_service(service(adapters=refs("medical")), None, surroundings([base])).allowed


def test_an_s3_base_without_id_takes_the_id_of_the_source() -> None:
    """A path is never compared with a model id."""
    source = {"sourceUri": "s3://models/qwen3/"}
    profile = {"kind": "AIMClusterProfile", "metadata": {"name": "qwen3-8b-mi300x"}, "spec": {"modelSources": [source]}}
    base = artifact("qwen3-8b-base", sourceUri="s3://models/qwen3/")
    assert validate_service(service(adapters=refs("medical")), None, surroundings([profile, base])).allowed


# -- the other side of a relation -----------------------------------------------------------------------------------


def users(count: int, **spec: Any) -> list[dict[str, Any]]:
    plain: dict[str, Any] = {"profile": {"name": "qwen3-8b-mi300x"}, "adapters": refs("medical"), **spec}
    return [{"kind": "AIMService", "metadata": {"name": f"chat-{i:03}"}, "spec": plain} for i in range(count)]


EDITS: dict[str, tuple[Kind, dict[str, Any], dict[str, Any], str]] = {
    "rank": (AIM_ARTIFACT, {"rank": 16}, {"rank": 64}, "RankEditBreaksServices"),
    "compatibleWith": (
        AIM_ARTIFACT,
        {"compatibleWith": ["Qwen/Qwen3-8B"]},
        {"compatibleWith": ["a/b"]},
        "CompatibilityEditBreaksServices",
    ),
    "maxRank": (
        AIM_RUNTIME_CONFIG,
        {"adapterRuntime": {"maxRank": 32}},
        {"adapterRuntime": {"maxRank": 8}},
        "MaxRankEditBreaksServices",
    ),
    "feature": (AIM_CLUSTER_PROFILE, {"features": ["adapters"]}, {"features": []}, "FeatureRemovalBreaksServices"),
    "a namespace config that hides the cluster's": (
        AIM_RUNTIME_CONFIG,
        {},
        {"adapterRuntime": {"maxRank": 1}},
        "MaxRankEditBreaksServices",
    ),
}


@pytest.mark.parametrize(("kind", "old", "new", "reason"), EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("count", [1, 5, 80])
def test_an_edit_that_breaks_services_names_them(
    kind: Kind, old: dict[str, Any], new: dict[str, Any], reason: str, count: int
) -> None:
    world = surroundings(users(count, adapterMode="dynamic"))
    before, after = (manifest(kind.kind, {"spec": spec}) for spec in (old, new))
    verdict = validate(kind, after, before, world)
    assert verdict.allowed
    text = warned(verdict)[reason]
    assert "chat-000" in text
    assert len(text) <= 120
    assert (" more" in text) == (count > 5) or count == 5


LATE: dict[str, tuple[dict[str, Any], str, str]] = {
    "a rank above the ceiling": ({"rank": 64}, "spec.rank", "rank 64 is above the ceiling of"),
    "another base": ({"compatibleWith": ["a/b"]}, "spec.compatibleWith", "it does not fit the base of"),
    "another parent": (
        {"compatibleWith": None, "parentArtifact": "other"},
        "spec.parentArtifact",
        "it is not the base of",
    ),
    "a model": ({"type": "model", "compatibleWith": None}, "spec.type", "not an adapter, but declared as one by"),
}


@pytest.mark.parametrize(("spec", "path", "words"), LATE.values(), ids=LATE)
def test_an_artifact_that_services_waited_for_names_those_that_cannot_use_it(
    spec: dict[str, Any], path: str, words: str
) -> None:
    """The service came first, with a warning; a bad artifact that is created later names it."""
    plain = manifest("AIMArtifact", {})["spec"]
    new = manifest("AIMArtifact", {"metadata": {"name": "late"}, "spec": merge(plain, spec)})
    waiting = users(2, adapterMode="dynamic", adapters=refs("medical", "late"))
    verdict = validate(AIM_ARTIFACT, new, None, surroundings(waiting))
    assert verdict.allowed
    assert f"{path}: {words} AIMServices chat-000, chat-001" in verdict.warning_texts
    fits = manifest("AIMArtifact", {"metadata": {"name": "late"}, "spec": plain})
    assert not validate(AIM_ARTIFACT, fits, None, surroundings(waiting)).warnings
    there = surroundings([*waiting, {**new, "kind": "AIMArtifact"}])  # as lint sees it: the services say it
    assert words not in " ".join(validate(AIM_ARTIFACT, new, None, there).warning_texts)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("hf://Qwen/Qwen3-8B@main", 'write "Qwen/Qwen3-8B"'),
        ("Qwen/Qwen3-8B@main", 'write "Qwen/Qwen3-8B"'),
        (" Qwen/Qwen3-8B/", 'write "Qwen/Qwen3-8B"'),
        ("/models/Qwen3-8B", "write org/name"),
        ("Qwen3-8B", "write org/name"),
        ("s3://models/qwen", "write org/name"),
        ("x" * 300, "write org/name"),
    ],
)
def test_a_base_named_by_a_path_or_uri_is_a_warning(entry: str, words: str) -> None:
    """The base's local path or URI is not its name, so it fits no base; reported before a service is refused."""
    verdict = validate(
        AIM_ARTIFACT, manifest("AIMArtifact", {"spec": {"compatibleWith": ["a.b/c", entry]}}), None, surroundings()
    )
    assert verdict.allowed
    (text,) = verdict.warning_texts
    assert text.startswith("spec.compatibleWith[1]: no base has the model id")
    assert words in text


def running(count: int) -> list[dict[str, Any]]:
    return [merge(one, {"status": {"runtime": {"currentReplicas": 1}}}) for one in users(count)]


def test_a_new_profile_that_hides_the_clusters_names_the_services_that_it_breaks() -> None:
    name = "FeatureRemovalBreaksServices"
    new = manifest("AIMProfile", {"spec": {"features": None}})
    said = warned(validate(AIM_PROFILE, new, None, surroundings(running(2))))
    assert said[name] == "spec.features: a feature that it lacks is needed by AIMServices chat-000, chat-001"
    assert said["ProfileEditRolls"] == "spec: it rolls the pods of AIMServices chat-000, chat-001"
    same = manifest("AIMProfile", {})
    assert not validate(AIM_PROFILE, same, None, surroundings(running(2))).warnings
    assert name not in warned(validate(AIM_PROFILE, new, None, surroundings([*running(2), new])))


def test_a_profile_that_services_waited_for_names_those_that_cannot_use_it() -> None:
    plain = manifest("AIMProfile", {})["spec"]
    waiting = surroundings(users(1, profile={"name": "late"}))
    for kind in (AIM_PROFILE, AIM_CLUSTER_PROFILE):
        new = manifest(kind.kind, {"metadata": {"name": "late"}, "spec": merge(plain, {"features": None})})
        verdict = validate(kind, new, None, waiting)
        assert verdict.warning_texts == ["spec.features: a feature that it lacks is needed by AIMService chat-000"]


def test_a_base_whose_id_changes_names_its_services() -> None:
    base = {"metadata": {"name": "qwen3-8b-base"}, "spec": {"sourceUri": "hf://Qwen/Qwen3-8B"}}
    world = surroundings(users(2))
    new = manifest("AIMArtifact", merge(base, {"spec": {"modelId": "acme/renamed"}}))
    assert (
        "chat-000, chat-001"
        in warned(validate(AIM_ARTIFACT, new, manifest("AIMArtifact", base), world))["ModelIdEditBreaksServices"]
    )


def test_an_edit_of_what_thousands_use_is_bounded() -> None:
    world = surroundings(users(MOST_SERVICES_JUDGED + 50, adapterMode="dynamic"))
    before, after = (manifest("AIMArtifact", {"spec": {"rank": rank}}) for rank in (16, 64))
    text = warned(validate(AIM_ARTIFACT, after, before, world))["RankEditBreaksServices"]
    assert text.endswith("more+")


def test_a_cluster_profile_that_a_namespace_hides_concerns_no_service_there() -> None:
    own = manifest("AIMProfile", {})
    world = surroundings([*users(1), own])
    before, after = (manifest("AIMClusterProfile", {"spec": {"features": features}}) for features in (["adapters"], []))
    assert not validate(AIM_CLUSTER_PROFILE, after, before, world).warnings
    before, after = (manifest("AIMProfile", {"spec": {"features": features}}) for features in (["adapters"], []))
    assert "FeatureRemovalBreaksServices" in warned(validate(AIM_PROFILE, after, before, world))


# -- settled details ------------------------------------------------------------------------------------------------

SETTLED: dict[str, tuple[dict[str, Any], str, list[tuple[str, str]]]] = {
    "dynamic, no adapter, v1alpha2 and model only": (
        {"profile": None, "model": {"name": "qwen3-8b"}, "adapterMode": "dynamic"},
        "v1alpha2",
        [],
    ),
    "the v1alpha1 example of the source": (
        {"profile": None, "model": {"name": "qwen3-8b"}, "adapterMode": "dynamic", "adapters": refs("medical")},
        "v1alpha1",
        [],
    ),
    "dedicated in dynamic mode without adapters": (
        {"adapterMode": "dynamic", "caching": {"mode": "Never"}},
        "v1alpha2",
        [("spec.caching.mode", "DedicatedCachingWithAdapters")],
    ),
    "an unimplemented field that is empty": (
        {"routing": {}},
        "v1alpha2",
        [("spec.routing", "FieldNotImplemented")],
    ),
    "null counts as absent": ({"routing": None, "autoScaling": None}, "v1alpha2", []),
    "a selector": (
        {"profile": {"name": None, "selector": {}}},
        "v1alpha2",
        [("spec.profile.selector", "FieldNotImplemented")],
    ),
    "both feature tokens: adapters wins": (
        {"adapterMode": "dynamic", "profileOverrides": {"features": ["adapters-scale-only", "adapters"]}},
        "v1alpha2",
        [],
    ),
    "template pipeline is not gated": (
        {"profile": None, "model": {"name": "qwen3-8b"}, "adapters": refs("medical")},
        "v1alpha1",
        [],
    ),
}


@pytest.mark.parametrize(("spec", "version", "expected"), SETTLED.values(), ids=SETTLED)
def test_settled(spec: dict[str, Any], version: str, expected: list[tuple[str, str]]) -> None:
    verdict = validate_service(service(**spec), None, surroundings(), request_version=version)
    assert told(verdict) == expected


def test_a_service_written_as_v1alpha1_can_be_edited_through_v1alpha2() -> None:
    old = service(profile=None, model={"name": "qwen3-8b"}, adapterMode="dynamic", adapters=refs("medical"))
    new = merge(old, {"spec": {"adapters": refs("medical", "legal")}})
    assert validate_service(new, old, surroundings(), request_version="v1alpha2").allowed
    assert judge_stored(AIM_SERVICE, new, surroundings()).errors == []


def test_unimplemented_fields_are_not_reported_beside_another_operator() -> None:
    from rules.seen import Context

    verdict = validate(
        AIM_SERVICE, service(routing={"x": 1}), None, surroundings(), context=Context(admission_only=True)
    )
    assert verdict.allowed
