"""Two tenants: nothing that one writes reads or changes the other's namespace, and no shell reads it.

These tests need no cluster: they check verdicts, decisions, rendered objects, and links between objects.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from api import view
from api.job_env import SECRET_VARIABLES, allowed_in_job
from api.jobs import JobResult, StageSpec, SyncSpec, parse_termination_message
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_KINDS,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    CONFIG_MAP,
    INFERENCE_SERVICE,
    JOB,
    POD,
    Kind,
)
from api.models.common import EnvVar, LocalObjectReference
from api.names import ANNOTATION_STAGE_KEY, LABEL_ROLE, ROLE_STAGING, ROLE_SUBTREE_SYNC
from api.view import JsonObject
from devcluster.node.resolve import expand
from disk.job import run_sync
from disk.layout import Layout, UnsafeNameError
from disk.sources.guard import is_refused
from kube.auth import plain_credentials
from kube.client import Client
from reconcile.controllers import Tools, parse_progress, utc_now
from reconcile.jobs import JobPlan, job_credentials, literally, render_job
from reconcile.service.decide import decide
from reconcile.settings import ReconcileSettings
from reconcile.starts import Starts
from reconcile.world import _INDEXES, OURS, make_informers
from rules.environment import PREDICTOR_ENV
from rules.examples import NAMESPACE, judge_example, manifest, scene
from rules.references import Missing, lookup
from rules.registry import Example, Rule, all_rules
from rules.runtime_config import resolve_runtime_config
from rules.seen import Context, see_service
from rules.validate import judge_stored, validate
from rules.world import KIND_BY_NAME
from rules.worlds import SnapshotWorld
from tests.unit.kube.fake_api import FakeApi, serve
from tests.unit.reconcile.model.life import Life
from tests.unit.reconcile.service.scene import BASE, KEY, STAGED, SYNCED, observe

ROOT = Path(__file__).parents[3]
OTHER = "team-b"
ESCAPES = [
    "..",
    ".",
    "../..",
    "/etc",
    f"{OTHER}/medical",
    "../other-uid/medical",
    ".done",
    "a/../../b",
    "a\nb",
    "-x",
    "",
]


def elsewhere(obj: JsonObject) -> JsonObject:
    """Return the same object in the other tenant's namespace."""
    twin = copy.deepcopy(obj)
    twin["metadata"] = {**twin["metadata"], "namespace": OTHER, "uid": "foreign-uid"}
    return twin


# -- by name --------------------------------------------------------------------------------------------------------

TENANT_RULES = [
    pytest.param(entry, kind, which, id=f"{kind}-{entry.name}-{which}")
    for entry in all_rules()
    for kind in entry.kinds
    for which in ("refused", "passes")
    if KIND_BY_NAME[kind].namespaced
]


@pytest.mark.parametrize(("entry", "kind", "which"), TENANT_RULES)
def test_no_verdict_depends_on_another_namespace(entry: Rule, kind: str, which: str) -> None:
    """Judge every example again, with the other tenant's copies of all objects that it refers to, and similar names."""
    example: Example = getattr(entry, which)
    spelt = scene(KIND_BY_NAME[kind], example)
    own = [obj for each in AIM_KINDS for obj in spelt.world.objects(each)]
    copies = [elsewhere(dict(obj)) for obj in own if view.namespace_of(obj)] + [elsewhere(spelt.new)]
    copies += [{**copy, "metadata": {**copy["metadata"], "name": f"{view.name_of(copy)}x"}} for copy in copies]
    beside = SnapshotWorld([*copies, *own])
    context = Context(allowed_images=example.allowed_images)
    if entry.basis.value == "stored":
        verdict = judge_stored(KIND_BY_NAME[kind], spelt.new, beside, context=context)
    else:
        verdict = validate(
            KIND_BY_NAME[kind], spelt.new, spelt.old, beside, request_version=spelt.version, context=context
        )
    alone = judge_example(entry, example, kind)
    assert [str(error) for error in verdict.errors] == [str(error) for error in alone.errors]
    assert verdict.warning_texts == alone.warning_texts


@pytest.mark.parametrize("kind", [kind for kind in AIM_KINDS if kind.namespaced], ids=lambda kind: kind.kind)
def test_a_name_refers_to_its_own_namespace_only(kind: Kind) -> None:
    foreign: dict[str, Any] = {"kind": kind.kind, "metadata": {"name": "wanted", "namespace": OTHER}, "spec": {}}
    world = SnapshotWorld([foreign])
    for name in ("wanted", f"{OTHER}/wanted", f"../{OTHER}/wanted", f"{OTHER}.wanted", f"wanted.{OTHER}"):
        assert isinstance(lookup(world, (kind,), NAMESPACE, name), Missing)
        # by the indexes of the server's caches
        informers = make_informers(cast("Any", None))
        informers[kind].store({**foreign, "metadata": {**foreign["metadata"], "resourceVersion": "1"}})
        assert informers[kind].get(NAMESPACE, name) is None


def test_an_adapter_of_another_namespace_is_not_found() -> None:
    service = manifest(
        "AIMService", {"spec": {"adapterMode": "dynamic", "adapters": [{"name": "theirs", "kind": "AIMArtifact"}]}}
    )
    profile = manifest("AIMClusterProfile", {})
    theirs = elsewhere(manifest("AIMArtifact", {"metadata": {"name": "theirs"}}))
    seen = see_service(service, SnapshotWorld([profile, theirs, service]))
    assert seen.artifacts == {"theirs": None}


def test_no_field_of_a_spec_takes_a_namespace() -> None:
    for path in sorted((ROOT / "chart" / "files" / "crds").glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        for version in crd["spec"]["versions"]:
            spec = version["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
            found = [name for name in _property_names(spec) if "namespace" in name.lower()]
            assert not found, f"{path.name} {version['name']}: {found}"


def _property_names(schema: JsonObject) -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        yield name
        yield from _property_names(inner)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _property_names(schema[word])


# -- by forged owner ------------------------------------------------------------------------------------------------


def tools_over(*objects: tuple[Kind, JsonObject]) -> Tools:
    """Return the tools of the controllers, over caches with these objects."""
    informers = make_informers(cast("Any", None))
    for number, (kind, obj) in enumerate(objects, 1):
        informers[kind].store({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(number)}})
    absent = cast("Any", None)
    return Tools(informers, absent, absent, absent, absent, absent, Starts(absent, utc_now))


@pytest.mark.parametrize("kind", [JOB, CONFIG_MAP, INFERENCE_SERVICE, POD], ids=lambda kind: kind.kind)
def test_an_owner_reference_reaches_no_other_namespace(kind: Kind) -> None:
    """A tenant writes the UID of another tenant's service into its own object."""
    service = {"metadata": {"name": "chat", "namespace": NAMESPACE, "uid": "service-uid"}}
    owners = [{"apiVersion": AIM_SERVICE.api_version, "kind": "AIMService", "name": "chat", "uid": "service-uid"}]
    labels = dict([OURS.split("=", 1)])
    mine, forged = (
        {
            "metadata": {
                "name": "x",
                "namespace": where,
                "uid": f"x-{where}",
                "labels": labels,
                "ownerReferences": owners,
            }
        }
        for where in (NAMESPACE, OTHER)
    )
    found = tools_over((kind, mine), (kind, forged)).owned(kind, service)
    assert [view.namespace_of(obj) for obj in found] == [NAMESPACE]


def test_a_forged_job_cannot_report_an_adapter_of_another_tenant_as_staged() -> None:
    service = {"metadata": {"name": "chat", "namespace": NAMESPACE, "uid": "service-uid"}}
    owner = {"kind": "AIMService", "name": "chat", "uid": "service-uid"}
    head = {"namespace": OTHER, "labels": {LABEL_ROLE: ROLE_STAGING}}
    job = {"metadata": {**head, "name": "j", "uid": "j", "ownerReferences": [owner]}}
    job["metadata"]["annotations"] = {ANNOTATION_STAGE_KEY: KEY}
    said = JobResult(ok=True, reason="AdapterStaged", key=KEY, digest="sha256:evil").to_termination_message()
    state = {"terminated": {"exitCode": 0, "message": said}}
    pod = {
        "metadata": {**head, "name": "p", "uid": "p", "ownerReferences": [{"kind": "Job", "name": "j", "uid": "j"}]},
        "status": {"containerStatuses": [{"name": "disk", "state": state}]},
    }
    assert tools_over((JOB, job), (POD, pod)).jobs(service, ROLE_STAGING) == ()
    own = tools_over((JOB, {"metadata": {**job["metadata"], "namespace": NAMESPACE}}), (POD, pod)).jobs(
        service, ROLE_STAGING
    )
    assert [(found.key, found.result) for found in own] == [(KEY, None)], "a pod of another namespace speaks for no Job"


CLUSTER_WIDE = re.compile(r"^(any-|uid$|image$)")


def test_every_index_key_contains_its_namespace() -> None:
    """Except keys from cluster kinds, and keys with a UID that the API server assigned."""
    everything: JsonObject = {
        "metadata": {
            "name": "n",
            "namespace": OTHER,
            "uid": "u",
            "labels": {"serving.kserve.io/inferenceservice": "i"},
        },
        "spec": {
            "adapters": [{"name": "a", "kind": "AIMArtifact"}],
            "profile": {"name": "p"},
            "model": {"name": "m", "image": "i"},
            "template": {"name": "t"},
            "sourceUri": "hf://a/b",
            "parentArtifact": "b",
            "profileName": "p",
            "modelName": "m",
        },
        "status": {"cache": {"profileCacheRef": {"name": "c"}}, "adapterDiskPersistentVolumeClaimUid": "d"},
    }
    everything["metadata"]["ownerReferences"] = [{"uid": "o"}]
    for kind, indexes in _INDEXES.items():
        for name, words in indexes.items():
            if kind.namespaced and not CLUSTER_WIDE.match(name):
                assert all(word.startswith(f"{OTHER}/") or word == OTHER for word in words(everything)), (kind, name)


# -- by env ---------------------------------------------------------------------------------------------------------

NAMES_A_PLACE = re.compile(r"(^|_)(FILE|PATH|DIR|DIRECTORY|FOLDER|HOME|CACHE|BUNDLE|PRELOAD|PROCESS|COMMAND)(_|$)")
CLIENTS = {"AWS_": ("botocore", "boto3", "s3transfer", "awscrt"), "HF_": ("huggingface_hub",)}


@pytest.mark.parametrize("prefix", CLIENTS)
def test_no_variable_of_the_clients_that_names_a_path_is_allowed(prefix: str) -> None:
    """Reads the names from the installed clients, so that the variables of a new release are checked too."""
    found = set()
    for package in CLIENTS[prefix]:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        for path in Path(spec.origin).parent.rglob("*.py"):
            found |= set(re.findall(rf"""['"]({prefix}[A-Z0-9_]+)['"]""", path.read_text(errors="replace")))
    assert len(found) > 20, "the clients' variables are not found"
    assert not [name for name in sorted(found) if NAMES_A_PLACE.search(name) and allowed_in_job(name)]


def test_no_request_is_reported_to_a_host_that_a_tenant_chooses() -> None:
    assert not [name for name in ("AWS_CSM_ENABLED", "AWS_CSM_HOST", "AWS_CSM_PORT") if allowed_in_job(name)]


FORMS = [
    {"secretKeyRef": {"name": "s", "key": "k", "namespace": OTHER}},
    {"configMapKeyRef": {"name": "s", "key": "k", "namespace": OTHER}},
    {"fileKeyRef": {"path": "/adapter-disk/x", "volumeName": "adapters", "key": "k"}},
    {"hostRef": {"path": "/etc/shadow"}},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: next(iter(form)))
def test_a_variable_takes_its_value_from_its_own_namespace_or_pod(form: JsonObject) -> None:
    """This model generates the schema of the kinds: the API server prunes or refuses other fields."""
    with pytest.raises(ValidationError):
        EnvVar.model_validate({"name": "X", "valueFrom": form})


def test_env_cannot_override_the_paths_and_addresses_of_the_model_server() -> None:
    hostile = [{"name": name, "value": "/elsewhere"} for name in sorted(PREDICTOR_ENV | {"AIM_ADAPTER_SOURCE"})]
    life = Life()
    life.adapter("a")
    life.service(adapters=["a"])
    life.settle()
    before = _env_of(life)
    life.edit(env=hostile)
    life.settle()
    after = _env_of(life)
    ours = {name: entry for name, entry in before.items() if name.startswith("AIM_")}
    assert ours
    assert {name: after[name] for name in ours} == ours
    assert not [name for name in after if name.startswith("AIM_ADAPTER_") and name not in ours]


def _env_of(life: Life) -> dict[str, JsonObject]:
    assert life.isvc is not None
    return {entry["name"]: entry for entry in life.isvc["spec"]["predictor"]["containers"][0]["env"]}


# -- by secret reference, pull secret, runtime config ---------------------------------------------------------------


def hostile_life() -> Life:
    """Run services in which every field that can name an object uses the other tenant's names."""
    life = Life()
    keys = {"mode": "static", "credentialsSecretRef": {"name": f"{OTHER}/keys"}}
    s3 = {"auth": keys, "tls": {"caBundleRef": {"kind": "Secret", "name": "their-ca", "key": "ca.crt"}}}
    env = [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "their-token", "key": "t"}}}]
    life.config(artifact={"s3": s3}, env=env, imagePullSecrets=[{"name": "their-pull"}])
    life.adapter("a", uri=f"s3://bucket/../{OTHER}/$(HF_TOKEN)/")
    spec = life.store.objects[("AIMArtifact", "a")]["spec"]
    life.store.edit(AIM_ARTIFACT, "a", {**spec, "env": env, "imagePullSecrets": [{"name": "their-pull-too"}]})
    life.service(adapters=["a"], env=env, imagePullSecrets=[{"name": "pull-3"}], serviceAccountName="their-account")
    life.passes()
    for _ in range(4):
        life.run_jobs("model-fetch")
        life.run_jobs(ROLE_SUBTREE_SYNC)
        life.passes()
    return life


def rendered_by(life: Life) -> list[JsonObject]:
    """Return all objects that the reconciler created."""
    made = [obj for kind in (JOB, INFERENCE_SERVICE, CONFIG_MAP) for obj in life.store.all(kind)]
    assert {obj["kind"] for obj in made} >= {"Job", "InferenceService"}
    return made


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every (path, value) of an object."""
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, f"{path}[]")


def test_every_reference_of_a_rendered_object_is_a_bare_name() -> None:
    """A name in a pod refers to the pod's own namespace unless it has a namespace field."""
    for obj in rendered_by(hostile_life()):
        assert view.namespace_of(obj) == NAMESPACE
        for path, value in walk(obj.get("spec", {})):
            assert not path.lower().endswith("namespace"), path
            if path.endswith(("secretKeyRef", "configMapKeyRef")):
                assert set(value) <= {"name", "key", "optional"}
            if path.endswith("imagePullSecrets[]"):
                assert set(value) == {"name"}


def test_no_rendered_pod_reaches_its_host_or_the_api_server() -> None:
    for obj in rendered_by(hostile_life()):
        for path, value in walk(obj.get("spec", {})):
            word = path.rpartition(".")[2]
            assert word not in {"hostPath", "hostNetwork", "hostPID", "hostIPC", "hostPort", "privileged", "csi"}, path
            if word == "automountServiceAccountToken":
                assert value is False
            if word == "volumes[]":
                assert set(value) <= {"name", "emptyDir", "persistentVolumeClaim", "secret", "configMap"}, path


def test_a_pull_secret_is_a_bare_name() -> None:
    with pytest.raises(ValidationError):
        LocalObjectReference.model_validate({"name": "pull", "namespace": OTHER})


def test_the_runtime_config_of_another_namespace_has_no_effect() -> None:
    theirs = {
        "kind": "AIMRuntimeConfig",
        "metadata": {"name": "default", "namespace": OTHER},
        "spec": {"env": [{"name": "HF_TOKEN", "value": "theirs"}], "adapterRuntime": {"maxRank": 512}},
    }
    shared = {
        "kind": "AIMClusterRuntimeConfig",
        "metadata": {"name": "default"},
        "spec": {"adapterRuntime": {"maxRank": 8}},
    }
    config = resolve_runtime_config(SnapshotWorld([theirs, shared]), NAMESPACE)
    assert config.scope == "Cluster"
    assert config.spec == {"adapterRuntime": {"maxRank": 8}}


def test_a_secret_of_a_cluster_config_is_read_in_the_tenants_own_namespace() -> None:
    """The Job does not get a Secret with that name from the release's namespace or another tenant's."""
    life = Life()
    env = [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "shared-token", "key": "t"}}}]
    life.make(AIM_CLUSTER_RUNTIME_CONFIG, {"spec": {"env": env}})
    life.adapter("a")
    life.service(adapters=["a"])
    for _ in range(4):
        life.passes()
        life.run_jobs("model-fetch")
        life.run_jobs(ROLE_SUBTREE_SYNC)
    (job,) = life.jobs(ROLE_STAGING)
    assert view.namespace_of(job) == NAMESPACE
    entry = next(e for e in job["spec"]["template"]["spec"]["containers"][0]["env"] if e["name"] == "HF_TOKEN")
    assert entry["valueFrom"] == {"secretKeyRef": {"name": "shared-token", "key": "t"}}


# -- by endpoint ----------------------------------------------------------------------------------------------------

METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "fe80::1",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
]


@pytest.mark.parametrize("address", METADATA)
def test_no_job_connects_to_cloud_metadata_whatever_endpoint_is_set(address: str) -> None:
    assert is_refused(address)
    assert not is_refused("64:ff9b::808:808")


def test_the_server_connects_to_pods_only_and_follows_no_redirect() -> None:
    """It uses addresses of pods in the object's namespace, no redirect, no proxy, no credential, a bounded answer."""
    source = (ROOT / "kube" / "poll.py").read_text()
    assert source.count("_http().") == source.count("_http().get(url, allow_redirects=False)") == 1
    assert source.count("aiohttp.ClientSession(") == 1
    assert "cookie_jar=aiohttp.DummyCookieJar()" in source
    assert "trust_env" not in source  # aiohttp reads proxies and .netrc of the environment only with trust_env
    assert "MAX_BYTES" in source
    for room in ("webhooks", "rules", "certs"):
        for path in (ROOT / room).rglob("*.py"):
            for library in ("httpx", "aiohttp.ClientSession"):
                assert library not in path.read_text(), f"{path}: admission connects only to the API server"


# -- by path --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in ESCAPES if path])
def test_a_forged_adapter_path_creates_no_job(path: str) -> None:
    """A user with rights on the status writes another path for an adapter."""
    forged = {"kind": "AIMArtifact", "metadata": {"name": "medical"}, "status": {"adapterPath": path}}
    spec = {"adapterMode": "dynamic", "adapters": [{"name": "medical", "kind": "AIMArtifact"}]}
    seen = observe({"spec": spec, "status": {**SYNCED}}, forged)
    decision = decide(seen)
    assert "AdapterPathInvalid" in {error.reason for error in seen.errors}
    for kind, obj in (*decision.create, *decision.apply):
        assert kind != JOB or path not in [arg.partition("=")[2] for arg in _args(dict(obj))], obj


@pytest.mark.parametrize("path", [path for path in ESCAPES if path])
def test_a_forged_entry_of_the_services_status_names_no_other_directory(path: str, tmp_path: Path) -> None:
    """A sync keeps this path while the artifact is missing: it must be a name in the service's own subtree."""
    spec = {"adapterMode": "dynamic", "adapters": [{"name": "gone", "kind": "AIMArtifact"}]}
    entry = {**STAGED, "name": "gone", "adapterPath": path}
    decision = decide(observe({"spec": spec, "status": {"adapters": [entry]}}))
    for kind, obj in decision.create:
        if kind == JOB and ROLE_SUBTREE_SYNC in str(obj["metadata"]["labels"]):
            declared = [arg.partition("=")[2] for arg in _args(dict(obj)) if arg.startswith("--declared=")]
            assert path not in declared or not _syncs(tmp_path, declared)


def _syncs(root: Path, declared: list[str]) -> bool:
    disk = root / "disk"
    disk.mkdir()
    try:
        spec = SyncSpec(
            disk=str(disk), namespace="n", service="s", service_uid="u", generation=1, sync_key="k", declared=declared
        )
        return run_sync(spec).ok
    except UnsafeNameError:
        return False


def _args(job: JsonObject) -> list[str]:
    return list(job["spec"]["template"]["spec"]["containers"][0]["args"])


@pytest.mark.parametrize("path", ESCAPES)
def test_no_name_leaves_a_services_subtree(path: str, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    makes: list[Callable[[], Path]] = [
        lambda: layout.live("uid", path),
        lambda: layout.subtree(path),
        lambda: layout.done("uid", path),
    ]
    for make in makes:
        with pytest.raises(UnsafeNameError):
            make()


def test_a_model_server_sees_only_its_own_subtree_read_only() -> None:
    life = hostile_life()
    assert life.isvc is not None
    predictor = life.isvc["spec"]["predictor"]
    uid = life.chat["metadata"]["uid"]
    for mount in predictor["containers"][0]["volumeMounts"]:
        assert ".." not in mount.get("subPath", "").split("/")
        assert ".." not in mount["mountPath"].split("/")
        if mount["mountPath"] == "/workspace/adapters":
            assert mount["subPath"] == uid
        assert mount.get("readOnly") is True or mount["mountPath"] == "/dev/shm"


def test_claims_in_an_artifacts_status_stay_in_its_namespace() -> None:
    """A forged claim name refers to the pod's own namespace; a foreign disk lacks the marker of aim-adapters."""
    forged = {**BASE, "status": {**BASE["status"], "adapterPersistentVolumeClaim": f"{OTHER}/their-disk"}}
    decision = decide(observe({"spec": {"adapterMode": "dynamic"}}, forged))
    for _, obj in (*decision.create, *decision.apply):
        assert view.namespace_of(obj) == NAMESPACE
        claims = [v["claimName"] for path, v in walk(obj) if path.endswith("persistentVolumeClaim")]
        assert all("/" not in claim or claim == f"{OTHER}/their-disk" for claim in claims)  # refused by the API server


# -- by shell -------------------------------------------------------------------------------------------------------

SHELL_LIKE = [
    "$(HF_TOKEN)",
    "$$(HF_TOKEN)",
    "$",
    "$$",
    "$(",
    "`id`",
    "$(id)",
    "; rm -rf /",
    "a b",
    "'\"",
    "%s",
    "{{.}}",
]


@pytest.mark.parametrize("text", SHELL_LIKE)
def test_the_kubelet_passes_on_the_written_text(text: str) -> None:
    assert expand(literally(text), {"HF_TOKEN": "hf_secret", "id": "x"}) == text


@given(st.text(st.sampled_from("$()AB{}`\\ \n;"), max_size=30))
def test_the_kubelet_passes_on_any_text(text: str) -> None:
    assert expand(literally(text), {"A": "1", "B": "2", "AB": "3", "": "4"}) == text


def test_expansion_puts_no_credential_on_a_command_line() -> None:
    """A kubelet starts the Jobs of hostile objects with exactly the arguments of the specification."""
    life = hostile_life()
    (job,) = life.jobs(ROLE_STAGING)
    env = {"HF_TOKEN": "the-value-of-a-secret", "AWS_SECRET_ACCESS_KEY": "another"}
    argv = [expand(arg, env) for arg in _args(job)]
    assert not [arg for arg in argv if "the-value-of-a-secret" in arg]
    assert f"--source-uri=s3://bucket/../{OTHER}/$(HF_TOKEN)/" in argv


@pytest.mark.parametrize("role", ["stage", "fetch"])
def test_expansion_puts_no_credential_into_the_environment_of_a_job(role: str) -> None:
    """An endpoint of `http://$(AWS_SECRET_ACCESS_KEY).invalid` would show the key as a host in the status."""
    endpoint = "http://$(AWS_SECRET_ACCESS_KEY).invalid"
    secret = {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "key"}}}
    proxy = {"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "proxy"}}}
    config = {"env": [secret, proxy, {"name": "HF_ENDPOINT", "value": endpoint}]}
    plan = JobPlan(
        name="job",
        role=ROLE_STAGING,
        owner_kind=AIM_SERVICE,
        owner={"metadata": {"name": "chat", "namespace": "team-llm", "uid": "u"}},
        command=role,
        args=[],
        key="k",
        deadline=timedelta(minutes=1),
        credentials=job_credentials(config, "hf://acme/medical-lora"),
    )
    (container,) = render_job(plan, ReconcileSettings())["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry for entry in container["env"]}
    assert expand(env["HF_ENDPOINT"]["value"], {"AWS_SECRET_ACCESS_KEY": "the-key"}) == endpoint
    assert env[SECRET_VARIABLES]["value"] == "HTTPS_PROXY", "the other is a credential by its name"
    assert not allowed_in_job(SECRET_VARIABLES), "no tenant sets it"


def test_jobs_run_aim_adapters_and_model_servers_their_own_program() -> None:
    for obj in rendered_by(hostile_life()):
        for path, value in walk(obj.get("spec", {})):
            assert not path.endswith(("command", "lifecycle", "exec")), path
            if path.endswith("containers[].args"):
                assert obj["kind"] == "Job"
                assert value[0] == "disk"


RUNS_PROGRAMS = {"subprocess", "pty", "commands", "pexpect", "sh"}
ALSO = {
    ("os", "system"),
    ("os", "popen"),
    ("asyncio", "create_subprocess_shell"),
    ("asyncio", "create_subprocess_exec"),
}
UNPACKS_CODE = {"pickle", "marshal", "shelve"}
UNSAFE = {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize(
    "room", ["api", "rules", "kube", "webhooks", "reconcile", "disk", "certs", "console", "app", "cli"]
)
def test_the_product_starts_no_program_and_evaluates_no_text(room: str) -> None:
    """Code in the image passes no text to a shell or an interpreter."""
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
                assert not _is_dangerous(node), f"{path}:{node.lineno}"


def _is_dangerous(node: ast.Import | ast.ImportFrom | ast.Call) -> bool:
    if not isinstance(node, ast.Call):
        names = {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        return bool(RUNS_PROGRAMS & {name.partition(".")[0] for name in names} or UNPACKS_CODE & names)
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if (function.value.id, function.attr) in ALSO:
            return True
    elif isinstance(function, ast.Name) and function.id in UNSAFE:
        return True
    return any(keyword.arg == "shell" for keyword in node.keywords)


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess",
        "from subprocess import run",
        "import pickle",
        "os.system('x')",
        "asyncio.create_subprocess_exec('x')",
        "eval('x')",
        "run('x', shell=True)",
    ],
)
def test_the_search_finds_calls(text: str) -> None:
    (statement,) = ast.parse(text).body
    node = statement.value if isinstance(statement, ast.Expr) else statement
    assert isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
    assert _is_dangerous(node)


def test_the_chart_starts_no_shell() -> None:
    for path in (ROOT / "chart" / "templates").iterdir():
        assert not re.search(r"(?m)^\s*-?\s*(command|lifecycle|exec):|\bsh -c\b", path.read_text()), path.name


# -- by message -----------------------------------------------------------------------------------------------------


def test_a_message_of_another_image_is_one_plain_line() -> None:
    said = json.dumps(
        {"ok": False, "reason": "X\n\x1b[2J" * 99, "message": "first\nlevel=error msg=forged \x1b[31mred\u202e"}
    )
    result = parse_termination_message(said)
    assert result is not None
    assert result.message.isprintable()
    assert result.reason.isprintable()
    assert len(result.reason) <= 128


@pytest.mark.parametrize("field", ["sizeBytes", "reclaimedBytes", "rank"])
def test_numbers_of_another_image_break_no_status(field: str) -> None:
    assert parse_termination_message(json.dumps({"ok": True, "reason": "X", field: 2**63})) is None
    assert parse_progress({"downloadedBytes": 2**63, "totalBytes": 1}) is None


def test_a_refusal_shows_no_control_characters() -> None:
    service = manifest("AIMService", {"spec": {"adapterMode": "dynamic", "runtimeConfigName": "a\nb\x1b[31m"}})
    artifact = manifest("AIMArtifact", {"spec": {"sourceUri": "s3://\x1b[31m/\n"}})
    for kind, obj in ((AIM_SERVICE, service), (AIM_ARTIFACT, artifact)):
        verdict = validate(kind, obj, None, SnapshotWorld([]), request_version=kind.version)
        for text in (*map(str, verdict.errors), *verdict.warning_texts):
            assert text.isprintable(), repr(text)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "http://x/y",
        "hf://user:pw@a/b",
        "s3://key:secret@bucket/",
        "hf://a/../b",
        "hf://a/b/../c",
        "hf://a",
    ],
)
def test_a_source_is_a_hub_or_a_bucket_without_credentials(uri: str) -> None:
    artifact = manifest("AIMArtifact", {"spec": {"sourceUri": uri}})
    verdict = validate(AIM_ARTIFACT, artifact, None, SnapshotWorld([]), request_version="v1alpha1")
    assert not verdict.allowed, f"{uri} is admitted"


def test_the_target_of_a_job_has_no_default() -> None:
    """The controller always sets where a Job writes: these arguments are required."""
    required = {field.name for field in msgspec.structs.fields(StageSpec) if field.required}
    assert required >= {"namespace", "service_uid", "artifact_uid", "path", "stage_key", "source_uri"}


TRAVERSALS = [f"../../{OTHER}/aimruntimeconfigs/default", "..", ".", "", "a/b", "%2e%2e", "%2e%2e%2f", "a/../../x"]


@pytest.mark.parametrize("name", TRAVERSALS)
async def test_no_name_can_redirect_a_live_read(name: str) -> None:
    """A refusal that depends on an object is confirmed with a live read, under the name that the tenant wrote."""
    api = FakeApi()
    async with serve(api) as server, Client(plain_credentials(server)) as client:
        assert await client.find(AIM_RUNTIME_CONFIG, NAMESPACE, name) is None
        assert api.requests == []
        assert await client.find(AIM_RUNTIME_CONFIG, NAMESPACE, "a?limit=1#b c") is None
        ((_, path),) = api.requests
    assert path == f"/apis/aim.eai.amd.com/v1alpha1/namespaces/{NAMESPACE}/aimruntimeconfigs/a%3Flimit%3D1%23b%20c"
