"""What a kubelet does with containers: command lines, environment, exit codes, messages, restarts, deletion."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from api.view import JsonObject
from tests.cluster.node.conftest import World, is_ready, restarts, waiting_state
from tests.waiting import until

pytestmark = pytest.mark.cluster


async def test_exit_code_zero_is_completed(world: World) -> None:
    await world.pod("ok", "true")
    state = await world.ended("ok")
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    pod = await world.kube.get(world.path("pods", "ok"))
    assert pod["status"]["phase"] == "Succeeded"
    ready = next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("sh -c 'kill -9 $$$$'; exit $?", 137)])
async def test_exit_code_is_reported(world: World, script: str, code: int) -> None:
    await world.pod("bad", "sh", "-c", script)
    state = await world.ended("bad")
    assert (state["exitCode"], state["reason"]) == (code, "Error")
    assert (await world.kube.get(world.path("pods", "bad")))["status"]["phase"] == "Failed"


async def test_a_start_is_quick(world: World) -> None:
    await world.pod("warm", "true")
    await world.ended("warm")
    began = time.monotonic()
    await world.pod("quick", "true")
    await world.ended("quick")
    assert time.monotonic() - began < 3.0  # 0.3 s on an idle machine; includes scheduling and other load


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "entry default"),
        ({"args": ["mine"]}, "entry mine"),
        ({"command": ["/bin/echo", "own"]}, "own"),
        (
            {"command": ["/bin/echo"], "args": ["$(A)-$$(A)-$(NONE)"], "env": [{"name": "A", "value": "x"}]},
            "x-$(A)-$(NONE)",
        ),
    ],
    ids=["entry point and its arguments", "args replace", "command replaces both", "references"],
)
async def test_command_line(world: World, fields: JsonObject, expected: str) -> None:
    await world.pod("cmd", image="printer:1", **fields)
    assert (await world.ended("cmd"))["exitCode"] == 0
    assert world.log("cmd").strip() == expected


async def test_unknown_image_is_errimagepull_then_backoff_and_starts_once_known(world: World) -> None:
    await world.pod("img", image="acme/nowhere:9")
    state = await world.waiting("img", "ImagePullBackOff")
    assert "acme/nowhere:9" in state["message"]
    assert "acme/nowhere:9" in (await world.event("img", "Failed"))["message"]


async def test_unknown_program_is_a_start_error(world: World) -> None:
    await world.pod("noprog", "no-such-program")
    state = await world.ended("noprog")
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    assert '"no-such-program": executable file not found in $PATH' in state["message"]


async def test_termination_message_is_read_and_cut_at_4096_bytes(world: World) -> None:
    await world.pod("msg", "sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x > /dev/termination-log")
    assert (await world.ended("msg"))["message"] == "x" * 4096


async def test_termination_message_of_any_user_on_a_read_only_root(world: World) -> None:
    context = {"runAsUser": 4711, "readOnlyRootFilesystem": True}
    await world.pod("own", "sh", "-c", "echo hi > /out/why", securityContext=context, terminationMessagePath="/out/why")
    assert (await world.ended("own"))["message"] == "hi\n"


async def test_termination_message_falls_back_to_the_log_on_error(world: World) -> None:
    policy = "FallbackToLogsOnError"
    await world.pod("fb", "sh", "-c", "echo the end; exit 1", terminationMessagePolicy=policy)
    await world.pod("fine", "sh", "-c", "echo the end", terminationMessagePolicy=policy)
    assert (await world.ended("fb"))["message"] == "the end\n"
    assert "message" not in await world.ended("fine")


async def test_never_does_not_restart_and_on_failure_does(world: World) -> None:
    await world.pod("once", "sh", "-c", "exit 1")
    await world.pod("again", "sh", "-c", "exit 1", pod={"restartPolicy": "OnFailure"})
    await world.ended("once")
    pod = await world.until("pods", "again", lambda p: restarts(p) >= 2)
    assert pod["status"]["phase"] == "Running"
    once = (await world.kube.get(world.path("pods", "once")))["status"]["containerStatuses"][0]
    assert once["restartCount"] == 0


async def test_crash_loop_backs_off_and_keeps_the_last_state(world: World) -> None:
    await world.pod("loop", "sh", "-c", "echo life; exit 7", pod={"restartPolicy": "Always"})
    pod = await world.until("pods", "loop", lambda p: waiting_state(p).get("reason") == "CrashLoopBackOff")
    status = pod["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert status["restartCount"] >= 1
    assert status["state"]["waiting"]["message"].startswith("back-off ")
    assert not is_ready(pod)
    assert "life" in world.log("loop", 0)
    assert "life" in world.log("loop", 1)
    await world.event("loop", "BackOff")


async def test_init_containers_run_in_order_before_the_others(world: World) -> None:
    volume: dict[str, Any] = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    inits = [
        {"name": n, "image": "shell:1", "command": ["sh", "-c", f"echo {n} >> /v/order; sleep 0.1"], **volume}
        for n in ("one", "two")
    ]
    await world.pod(
        "inits", "cat", "/v/order", pod={"initContainers": inits, "volumes": [{"name": "v", "emptyDir": {}}]}, **volume
    )
    await world.ended("inits")
    assert world.log("inits") == "one\ntwo\n"
    pod = await world.kube.get(world.path("pods", "inits"))
    assert [s["ready"] for s in pod["status"]["initContainerStatuses"]] == [True, True]


async def test_failed_init_container_fails_a_pod_that_never_restarts(world: World) -> None:
    init = {"name": "i", "image": "shell:1", "command": ["sh", "-c", "exit 4"]}
    await world.pod("initbad", "true", pod={"initContainers": [init]})
    pod = await world.until("pods", "initbad", lambda p: p["status"]["phase"] == "Failed")
    assert waiting_state(pod)["reason"] == "PodInitializing"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4


async def test_sidecar_runs_next_to_the_container_and_ends_with_the_pod(world: World) -> None:
    volume: dict[str, Any] = {"volumeMounts": [{"name": "e", "mountPath": "/e"}]}
    sidecar = {
        "name": "side",
        "image": "shell:1",
        "restartPolicy": "Always",
        "command": ["sh", "-c", "trap 'echo bye; exit 0' TERM; touch /e/up; while :; do sleep 0.1; done"],
        **volume,
    }
    pod = {"initContainers": [sidecar], "volumes": [{"name": "e", "emptyDir": {}}]}
    await world.pod("car", "sh", "-c", "while [ ! -e /e/up ]; do sleep 0.05; done", pod=pod, **volume)
    await world.ended("car")
    await until(lambda: world.log("car", container="side") == "bye\n")


async def test_deadline_of_the_pod(world: World) -> None:
    await world.pod("late", "sleep", "60", pod={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 0})
    pod = await world.until("pods", "late", lambda p: p["status"]["phase"] == "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"


async def test_deletion_sends_sigterm_and_waits_for_the_end(world: World) -> None:
    script = "trap 'echo got it; sleep 0.3; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await world.pod("polite", "sh", "-c", script, pod={"terminationGracePeriodSeconds": 20})
    await world.running("polite")
    await world.logged("polite", "up")
    began = time.monotonic()
    await world.kube.delete(world.path("pods", "polite"))
    await world.vanished("pods", "polite")
    assert 0.25 < time.monotonic() - began < 15
    assert world.log("polite") == "up\ngot it\n"


async def test_deletion_kills_after_the_grace(world: World) -> None:
    await world.pod("deaf", "sh", "-c", "trap '' TERM; sleep 60", pod={"terminationGracePeriodSeconds": 1})
    await world.running("deaf")
    began = time.monotonic()
    await world.kube.delete(world.path("pods", "deaf"))
    await world.vanished("pods", "deaf")
    assert 0.9 < time.monotonic() - began < 15


async def test_deletion_with_no_grace_shortens_a_running_one(world: World) -> None:
    await world.pod("deaf", "sh", "-c", "trap '' TERM; sleep 60", pod={"terminationGracePeriodSeconds": 60})
    await world.running("deaf")
    await world.kube.delete(world.path("pods", "deaf"))
    await world.until("pods", "deaf", lambda p: "deletionTimestamp" in p["metadata"])
    await world.kube.delete(world.path("pods", "deaf"), {"gracePeriodSeconds": 1})
    await world.vanished("pods", "deaf", seconds=6)


async def test_pre_stop_runs_before_sigterm(world: World) -> None:
    script = "trap 'cat /tmp/hook; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook ran > /tmp/hook"]}}}
    await world.pod("hook", "sh", "-c", script, pod={"terminationGracePeriodSeconds": 10}, lifecycle=hook)
    await world.running("hook")
    await world.logged("hook", "up")
    await world.kube.delete(world.path("pods", "hook"))
    await world.vanished("pods", "hook")
    assert world.log("hook") == "up\nhook ran\n"


async def test_a_killed_container_leaves_no_process(world: World) -> None:
    await world.pod("kids", "sh", "-c", "setsid sleep 987654 & sleep 987654", pod={"terminationGracePeriodSeconds": 0})
    await world.running("kids")
    await world.kube.delete(world.path("pods", "kids"))
    await world.vanished("pods", "kids")
    await until(lambda: not _processes_with("987654"), 10)


async def test_hostname_and_own_address_in_the_container(world: World) -> None:
    code = (
        "import os, socket; name = socket.gethostname();"
        "print(name, socket.gethostbyname(name) == os.environ['AIM_DEV_POD_IP'])"
    )
    await world.pod("host", image="python:1", args=["-c", code])
    await world.ended("host")
    assert world.log("host") == "host True\n"


async def test_kubectl_logs(world: World) -> None:
    await world.pod("talk", "sh", "-c", "for i in 1 2 3; do echo line $i; done")
    await world.ended("talk")
    path = world.path("pods", "talk") + "/log"
    assert await world.kube.text(path) == "line 1\nline 2\nline 3\n"
    assert await world.kube.text(path, {"tailLines": 1}) == "line 3\n"


async def test_following_a_log_ends_with_the_container(world: World) -> None:
    await world.pod("talk", "sh", "-c", "echo a; sleep 1; echo b")
    await world.running("talk")
    text = await world.kube.text(world.path("pods", "talk") + "/log", {"follow": True})
    assert text == "a\nb\n"


def _processes_with(word: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if word.encode() in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue
    return found
