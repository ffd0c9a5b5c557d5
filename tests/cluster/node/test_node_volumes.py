"""What a kubelet does with volumes, environment and users."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from api.view import JsonObject
from tests.cluster.node.conftest import World
from tests.waiting import until

pytestmark = pytest.mark.cluster


def claim_volume(name: str, **fields: Any) -> JsonObject:
    return {"name": name, "persistentVolumeClaim": {"claimName": name, **fields}}


async def test_claim_is_a_directory_of_its_namespace(world: World) -> None:
    folder = await world.claim("disk")
    (folder / "in").write_text("from outside\n")
    mounts = [{"name": "disk", "mountPath": "/data"}]
    await world.pod(
        "p",
        "sh",
        "-c",
        "cat /data/in; echo inside > /data/out",
        pod={"volumes": [claim_volume("disk")]},
        volumeMounts=mounts,
    )
    assert (await world.ended("p"))["exitCode"] == 0
    assert world.log("p") == "from outside\n"
    assert (folder / "out").read_text() == "inside\n"


async def test_missing_sub_path_blocks_the_container_until_it_exists(world: World) -> None:
    folder = await world.claim("disk")
    mounts = [{"name": "disk", "mountPath": "/adapters", "subPath": "uid-1", "readOnly": True}]
    await world.pod("p", "ls", "/adapters", pod={"volumes": [claim_volume("disk")]}, volumeMounts=mounts)
    state = await world.waiting("p", "CreateContainerConfigError")
    assert 'subPath "uid-1" does not exist' in state["message"]
    assert "subPath" in (await world.event("p", "Failed"))["message"]
    assert not (folder / "uid-1").exists()
    (folder / "uid-1" / "one").mkdir(parents=True)
    assert (await world.ended("p"))["exitCode"] == 0
    assert world.log("p") == "one\n"


async def test_sub_path_may_not_lead_outside_by_a_symlink(world: World) -> None:
    folder = await world.claim("disk")
    (folder / "sly").symlink_to("/etc")
    mounts = [{"name": "disk", "mountPath": "/x", "subPath": "sly"}]
    await world.pod("p", "true", pod={"volumes": [claim_volume("disk")]}, volumeMounts=mounts)
    assert "outside" in (await world.waiting("p", "CreateContainerConfigError"))["message"]


async def test_only_the_sub_path_is_seen_and_new_entries_show_up(world: World) -> None:
    folder = await world.claim("disk")
    (folder / "mine").mkdir()
    (folder / "other").mkdir()
    script = "ls /v; echo looked; while [ ! -e /v/late ]; do sleep 0.05; done; ls /v"
    mounts = [{"name": "disk", "mountPath": "/v", "subPath": "mine", "readOnly": True}]
    await world.pod("p", "sh", "-c", script, pod={"volumes": [claim_volume("disk")]}, volumeMounts=mounts)
    await world.running("p")
    await world.logged("p", "looked")  # the write can precede the first read of the shell
    (folder / "new").mkdir()
    (folder / "new").rename(folder / "mine" / "late")
    assert (await world.ended("p"))["exitCode"] == 0
    assert world.log("p") == "looked\nlate\n"


@pytest.mark.parametrize("where", ["mount", "volume"])
async def test_read_only_is_enforced_even_for_root(world: World, where: str) -> None:
    await world.claim("disk")
    mount = {"name": "disk", "mountPath": "/data", "readOnly": where == "mount"}
    volume = claim_volume("disk", readOnly=where == "volume")
    await world.pod("p", "touch", "/data/x", pod={"volumes": [volume]}, volumeMounts=[mount])
    assert (await world.ended("p"))["exitCode"] != 0
    assert "Read-only file system" in world.log("p")


async def test_read_only_root_leaves_volumes_writable(world: World) -> None:
    script = "touch /tmp/x; touch /x; touch /usr/x; touch /scratch/x && echo written"
    await world.pod(
        "p", "sh", "-c", script,
        pod={"volumes": [{"name": "s", "emptyDir": {}}]},
        volumeMounts=[{"name": "s", "mountPath": "/scratch"}],
        securityContext={"readOnlyRootFilesystem": True, "runAsUser": 1000},
    )  # fmt: skip
    assert (await world.ended("p"))["exitCode"] == 0
    assert world.log("p").count("Read-only file system") == 3
    assert world.log("p").endswith("written\n")


async def test_writable_root_is_the_containers_own_and_never_the_hosts(world: World) -> None:
    await world.pod("p", "sh", "-c", "touch /tmp/aim-dev-x /aim-dev-x && ls /tmp; touch /usr/aim-dev-x")
    await world.ended("p")
    assert "aim-dev-x" in world.log("p")
    assert not any(map(os.path.exists, ("/tmp/aim-dev-x", "/aim-dev-x", "/usr/aim-dev-x")))


async def test_mount_paths_that_the_host_lacks(world: World) -> None:
    paths = [
        "/workspace/cache/acme/tiny",
        "/etc/aim-adapters/tls",
        "/var/run/x",
        "/usr/local/share/deep/er",
        "/dev/shm",
    ]
    volumes = [{"name": f"v{n}", "emptyDir": {}} for n in range(len(paths))]
    mounts = [{"name": f"v{n}", "mountPath": path} for n, path in enumerate(paths)]
    script = " && ".join(f"touch {path}/here" for path in paths) + " && ls /usr/bin/env /etc/passwd"
    await world.pod("p", "sh", "-c", script, pod={"volumes": volumes}, volumeMounts=mounts)
    assert (await world.ended("p"))["exitCode"] == 0, world.log("p")


async def test_volume_inside_another_volume(world: World) -> None:
    outer = await world.claim("outer")
    inner = await world.claim("inner")
    mounts = [{"name": "inner", "mountPath": "/c/models/in"}, {"name": "outer", "mountPath": "/c"}]
    volumes = [claim_volume("outer"), claim_volume("inner")]
    await world.pod(
        "p", "sh", "-c", "echo a > /c/a; echo b > /c/models/in/b", pod={"volumes": volumes}, volumeMounts=mounts
    )
    assert (await world.ended("p"))["exitCode"] == 0, world.log("p")
    assert (outer / "a").exists()
    assert (inner / "b").exists()


async def test_empty_dir_is_shared_within_the_pod_and_deleted_with_it(world: World) -> None:
    other = {
        "name": "d", "image": "shell:1", "volumeMounts": [{"name": "e", "mountPath": "/e"}],
        "command": ["sh", "-c", "while [ ! -e /e/x ]; do sleep 0.05; done; cat /e/x"],
    }  # fmt: skip
    one = {**other, "name": "c", "command": ["sh", "-c", "echo shared > /e/x"]}
    pod = {"containers": [one, other], "volumes": [{"name": "e", "emptyDir": {"medium": "Memory"}}]}
    made = await world.pod("p", pod=pod)
    await world.ended("p")
    folder = world.node.folder / "pods" / made["metadata"]["uid"]
    await until(lambda: not folder.exists())
    assert world.log("p", container="d") == "shared\n"


async def test_pod_waits_for_its_claim(world: World) -> None:
    await world.pod(
        "p", "true", pod={"volumes": [claim_volume("later")]}, volumeMounts=[{"name": "later", "mountPath": "/x"}]
    )
    await asyncio.sleep(0.5)  # the scheduler itself holds a pod whose claim is missing
    assert (await world.kube.get(world.path("pods", "p")))["status"]["phase"] == "Pending"
    await world.claim("later")
    assert (await world.ended("p"))["exitCode"] == 0


async def test_missing_secret_volume_is_a_failed_mount_and_heals(world: World) -> None:
    volumes = [{"name": "s", "secret": {"secretName": "tls"}}]
    await world.pod("p", "cat", "/s/key", pod={"volumes": volumes}, volumeMounts=[{"name": "s", "mountPath": "/s"}])
    assert 'secret "tls" not found' in (await world.event("p", "FailedMount"))["message"]
    await world.secret("tls", key="value")
    assert (await world.ended("p"))["exitCode"] == 0
    assert world.log("p") == "value"


async def test_secret_volume_follows_its_secret_in_place(world: World) -> None:
    await world.secret("tls", crt="old")
    script = "readlink /s/crt; cat /s/crt; while grep -q old /s/crt; do sleep 0.05; done; cat /s/crt"
    volumes = [{"name": "s", "secret": {"secretName": "tls", "defaultMode": 0o440}}]
    await world.pod("p", "sh", "-c", script, pod={"volumes": volumes}, volumeMounts=[{"name": "s", "mountPath": "/s"}])
    await world.running("p")
    await world.kube.patch(world.path("secrets", "tls"), {"stringData": {"crt": "new"}})
    assert (await world.ended("p"))["exitCode"] == 0
    assert world.log("p") == "..data/crt\noldnew"


async def test_items_modes_and_optional_sources(world: World) -> None:
    await world.secret("s", a="1", b="2")
    projected = {
        "sources": [
            {"secret": {"name": "s", "items": [{"key": "a", "path": "deep/er", "mode": 0o400}]}},
            {"secret": {"name": "absent", "optional": True}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]
    }
    script = "cd /p; ls; stat -L -c %a deep/er; cat labels; touch x"
    await world.pod(
        "p", "sh", "-c", script,
        pod={"volumes": [{"name": "p", "projected": projected}]}, volumeMounts=[{"name": "p", "mountPath": "/p"}],
    )  # fmt: skip
    await world.ended("p")
    assert world.log("p").startswith('deep\nlabels\n400\napp="p"')
    assert "Read-only file system" in world.log("p")


async def test_config_map_file_by_sub_path(world: World) -> None:
    await world.put("configmaps", {"kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"f.yaml": "x: 1\n"}})
    mounts = [{"name": "c", "mountPath": "/opt/app/f.yaml", "subPath": "f.yaml"}]
    await world.pod(
        "p",
        "cat",
        "/opt/app/f.yaml",
        pod={"volumes": [{"name": "c", "configMap": {"name": "cm"}}]},
        volumeMounts=mounts,
    )
    assert (await world.ended("p"))["exitCode"] == 0, world.log("p")
    assert world.log("p") == "x: 1\n"


async def test_environment(world: World) -> None:
    await world.secret("creds", token="s3cret")
    await world.put("configmaps", {"kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": "v", "l": "w"}})
    env = [
        {"name": "PLAIN", "value": "a"},
        {"name": "REF", "value": "$(PLAIN)/$(TOKEN)/$(UNKNOWN)"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "token"}}},
        {"name": "LATER", "value": "$(TOKEN)"},
        {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": True}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]
    await world.pod(
        "p", "env", env=env, envFrom=[{"prefix": "CM_", "configMapRef": {"name": "cm"}}],
        resources={"limits": {"memory": "1Gi", "cpu": "1"}},
    )  # fmt: skip
    await world.ended("p")
    found = dict(line.split("=", 1) for line in world.log("p").splitlines())
    ours = {k: found.get(k) for k in ("PLAIN", "REF", "TOKEN", "LATER", "GONE", "NODE", "APP", "MEM", "CM_k", "CM_l")}
    assert ours == {
        "PLAIN": "a", "REF": "a/$(TOKEN)/$(UNKNOWN)", "TOKEN": "s3cret", "LATER": "s3cret", "GONE": None,
        "NODE": "aim-dev-0", "APP": "p", "MEM": "1024", "CM_k": "v", "CM_l": "w",
    }  # fmt: skip
    assert found["AIM_DEV_POD_IP"].startswith("127.")
    assert set(found) - set(ours) == {
        "PATH", "HOME", "HOSTNAME", "PWD", "AIM_DEV_POD_IP",
        "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS",
    } - ({"PWD"} - set(found))  # fmt: skip


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ({"secretKeyRef": {"name": "none", "key": "k"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, 'configmap "none" not found'),
        ({"secretKeyRef": {"name": "some", "key": "k"}}, "couldn't find key k in Secret {ns}/some"),
    ],
    ids=["secret", "config map", "key"],
)
async def test_missing_environment_source_is_a_config_error(world: World, ref: JsonObject, words: str) -> None:
    await world.secret("some", other="x")
    await world.pod("p", "true", env=[{"name": "A", "valueFrom": ref}])
    state = await world.waiting("p", "CreateContainerConfigError")
    assert state["message"] == words.format(ns=world.namespace)


async def test_container_starts_once_its_secret_is_there(world: World) -> None:
    await world.pod(
        "p", "sh", "-c", "echo $A", env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    )
    await world.waiting("p", "CreateContainerConfigError")
    await world.secret("s", k="here")
    assert (await world.ended("p"))["exitCode"] == 0
    assert world.log("p") == "here\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="other users and groups need root")
async def test_run_as_user_and_groups(world: World) -> None:
    folder = await world.claim("disk")
    context = {"runAsUser": 4711, "runAsGroup": 4712, "fsGroup": 4713}
    await world.pod(
        "p", "sh", "-c", "id -u; id -g; id -G; umask; touch /d/mine",
        pod={"volumes": [claim_volume("disk")], "securityContext": context},
        volumeMounts=[{"name": "disk", "mountPath": "/d"}],
    )  # fmt: skip
    assert (await world.ended("p"))["exitCode"] == 0, world.log("p")
    assert world.log("p") == "4711\n4712\n4712 4713\n0022\n"
    found = (folder / "mine").stat()
    assert (found.st_uid, found.st_gid) == (4711, 4713)


@pytest.mark.skipif(os.geteuid() != 0, reason="other users and groups need root")
async def test_file_modes_hold_for_other_users(world: World) -> None:
    await world.secret("s", k="v")
    volumes = [{"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}}]
    mounts = [{"name": "s", "mountPath": "/s"}]
    user = {"securityContext": {"runAsUser": 1000}, "volumes": volumes}
    group = {"securityContext": {"runAsUser": 1000, "fsGroup": 2000}, "volumes": volumes}
    await world.pod("shut", "cat", "/s/k", pod=user, volumeMounts=mounts)
    await world.pod("open", "cat", "/s/k", pod=group, volumeMounts=mounts)
    assert (await world.ended("shut"))["exitCode"] != 0
    assert (await world.ended("open"))["exitCode"] == 0


async def test_non_root_is_demanded_and_root_refused(world: World) -> None:
    await world.pod("image", "true", securityContext={"runAsNonRoot": True})
    await world.pod("asked", "true", securityContext={"runAsNonRoot": True, "runAsUser": 1000})
    await world.pod("from-image", image="python:1", args=["-c", "pass"], securityContext={"runAsNonRoot": True})
    state = await world.waiting("image", "CreateContainerConfigError")
    assert "runAsNonRoot and image will run as root" in state["message"]
    assert (await world.ended("asked"))["exitCode"] == 0
    assert (await world.ended("from-image"))["exitCode"] == 0


async def test_aim_adapters_runs_as_another_user_on_a_read_only_root(world: World) -> None:
    code = "import os, sys, devcluster.by_path, cli.program; print(os.getuid(), sys.flags.isolated)"
    context = {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    await world.pod("p", image="python:1", args=["-c", code], securityContext=context)
    assert (await world.ended("p"))["exitCode"] == 0, world.log("p")
    assert world.log("p") == "1000 0\n"


async def test_service_account_token_works_and_can_be_refused(world: World) -> None:
    code = """
import json, os, ssl, urllib.request
base = "/var/run/secrets/kubernetes.io/serviceaccount"
token = open(base + "/token").read()
body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
url = "https://%s:%s/apis/authentication.k8s.io/v1/selfsubjectreviews" % (
    os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
answer = urllib.request.urlopen(request, context=ssl.create_default_context(cafile=base + "/ca.crt"))
print(json.load(answer)["status"]["userInfo"]["username"], open(base + "/namespace").read())
"""
    await world.pod("p", image="python:1", args=["-c", code], pod={"automountServiceAccountToken": True})
    await world.pod("none", "ls", "/var/run/secrets")
    assert (await world.ended("p"))["exitCode"] == 0, world.log("p")
    assert world.log("p") == f"system:serviceaccount:{world.namespace}:default {world.namespace}\n"
    assert (await world.ended("none"))["exitCode"] != 0


async def test_working_directory_is_made(world: World) -> None:
    await world.pod("p", "pwd", workingDir="/srv/new")
    await world.ended("p")
    assert world.log("p") == "/srv/new\n"
