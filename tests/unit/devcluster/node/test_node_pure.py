"""The pure parts of the process node: resolving, statuses, images, volumes' files, probes' counting, Services."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.view import JsonObject
from devcluster.node.__main__ import closed_to_others, exposed_paths
from devcluster.node.agent import sweep_logs
from devcluster.node.host import Addresses
from devcluster.node.images import Image, ImageTable, parse_images
from devcluster.node.launch import hidden
from devcluster.node.logs_api import Wanted, find_log, parse_request, tail_start
from devcluster.node.payload import File
from devcluster.node.pod import LOST, recall
from devcluster.node.probes import Attempts, Timing
from devcluster.node.resolve import (
    ConfigError,
    PodFacts,
    command_line,
    container_env,
    expand,
    field_value,
    identity,
    resource_value,
)
from devcluster.node.status import Record, Seen, build_status, decide_phase, difference
from devcluster.node.volumes import Owner, PodVolumes, Ready, sub_path, write_payload
from devcluster.service_proxy import Backend, Turns, matches, wanted_listenings

IMAGE = Image(("/bin/entry",), ("default",), {"FROM_IMAGE": "1"}, uid=None, gid=None, working_dir="/", digest="0" * 64)
FACTS = PodFacts("127.65.0.10", "127.0.0.1", {"cpu": "8", "memory": "1Ti"})
NOTHING = Owner(None, None)


def pod(**spec: Any) -> JsonObject:
    meta = {"name": "p", "namespace": "ns", "uid": "u1", "labels": {"app": "x", "a": 'q"\n'}}
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}, "status": {}}


def nothing(_kind: str, _name: str) -> JsonObject | None:
    return None


# -- resolve ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$(A)", "1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(B)", "$(B)"), ("$A $ (A) $(", "$A $ (A) $("), ("", "")],
)
def test_expand(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


@settings(deadline=None)
@given(st.text(alphabet="$()AB x"))
def test_expand_never_raises_and_leaves_texts_without_dollar(text: str) -> None:
    result = expand(text, {"A": "1"})
    if "$" not in text:
        assert result == text


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ["/bin/entry", "default"]),
        ({"args": ["a"]}, ["/bin/entry", "a"]),
        ({"command": ["c"]}, ["c"]),
        ({"command": ["c"], "args": ["a"]}, ["c", "a"]),
    ],
)
def test_command_line(container: JsonObject, expected: list[str]) -> None:
    assert command_line(IMAGE, container, {}) == expected


def test_image_without_command_needs_one() -> None:
    with pytest.raises(ConfigError, match="no command specified"):
        command_line(replace(IMAGE, entrypoint=(), cmd=()), {}, {})


def test_invalid_names_of_variables_are_left_out_of_env_from() -> None:
    secret = {"kind": "Secret", "data": {"GOOD": "eA==", "9bad": "eA==", "tls.crt": "eA=="}}
    container = {"envFrom": [{"secretRef": {"name": "s"}}]}
    env = container_env(pod(), container, IMAGE, FACTS, lambda *_: secret)
    assert env == {"PATH": env["PATH"], "FROM_IMAGE": "1", "GOOD": "x", "tls.crt": "x"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("status.podIP", "127.65.0.10"),
        ("metadata.labels['app']", "x"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'a="q\\"\\n"\napp="x"'),
    ],
)
def test_field_value(path: str, expected: str) -> None:
    assert field_value(pod(), path, FACTS) == expected


def test_unknown_field_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r'fieldPath "spec.nope" is not supported'):
        field_value(pod(), "spec.nope", FACTS)


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu"}, "0"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "1024"),
    ],
    ids=["rounded up", "divisor", "unset request", "unset limit is the node's"],
)
def test_resource_value(ref: JsonObject, expected: str) -> None:
    assert resource_value(pod(), ref, FACTS, {"resources": {"limits": {"cpu": "1500m"}}}) == expected


@pytest.mark.parametrize(
    ("wide", "narrow", "image", "expected"),
    [
        ({}, {}, (None, None), (0, 0, ())),
        ({}, {}, (1000, None), (1000, 1000, ())),
        ({"runAsUser": 5, "fsGroup": 7, "supplementalGroups": [6]}, {}, (1000, None), (5, 0, (6, 7))),
        ({"runAsUser": 5, "runAsGroup": 8}, {"runAsUser": 9}, (None, None), (9, 8, ())),
    ],
    ids=["root", "the image's", "the pod's", "the container's"],
)
def test_identity(
    wide: JsonObject, narrow: JsonObject, image: tuple[int | None, int | None], expected: tuple[Any, ...]
) -> None:
    who = identity(
        pod(securityContext=wide), {"name": "c", "securityContext": narrow}, replace(IMAGE, uid=image[0], gid=image[1])
    )
    assert (who.uid, who.gid, who.groups) == expected


# -- images -------------------------------------------------------------------------------------------------------


def test_exact_image_wins_over_patterns_and_the_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    file.write_text(json.dumps({"a:*": {"entrypoint": ["star"]}, "a:1": {"entrypoint": ["one"], "user": "7:8"}}))
    table = ImageTable(file)
    one, other = table.find("a:1"), table.find("a:2")
    assert one
    assert other
    assert (one.entrypoint, one.uid, one.gid, other.entrypoint) == (("one",), 7, 8, ("star",))
    assert table.find("b:1") is None
    file.write_text(json.dumps({"b:1": {"entrypoint": ["later", "on"]}}))
    assert table.find("b:1") is not None


@pytest.mark.parametrize(
    ("text", "words"), [("{", "no JSON"), ("[]", "object"), ('{"a": 1}', "a: "), ('{"a": {"user": "me"}}', 'user "me"')]
)
def test_broken_image_table_names_the_place(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_images(text, "images.json")


def test_what_containers_must_see_to_run_our_code(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    program = str(tmp_path / "env" / "bin" / "python")
    found = exposed_paths([program], ["/srv/more"])
    assert {str(tmp_path / "env"), "/srv/more", str(Path(__file__).parents[4])} <= set(found)
    assert program not in found


def test_code_that_others_may_not_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = tmp_path / "code" / "aiohttp.py"
    code.parent.mkdir()
    code.touch(mode=0o600)
    monkeypatch.setattr("aiohttp.__file__", str(code))
    assert closed_to_others([str(tmp_path / "code")]) == str(code)
    code.chmod(0o644)
    code.parent.chmod(0o700)  # the exposed directory itself is led around
    assert closed_to_others([str(tmp_path / "code")]) == ""


def test_old_logs_go_but_never_those_of_living_pods(tmp_path: Path) -> None:
    for age, name in enumerate(["living", "a", "b", "c"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (age, age))
    sweep_logs(tmp_path, {tmp_path / "living"}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "c", "living"]


# -- addresses ----------------------------------------------------------------------------------------------------


def test_addresses_are_unique_remembered_and_not_reused_soon() -> None:
    addresses = Addresses("127.65.0.0/27")
    kept = addresses.take("127.65.0.20")
    first = addresses.take()
    addresses.give_back(first)
    taken = [addresses.take() for _ in range(10)]
    assert kept == "127.65.0.20"
    assert kept not in taken
    assert first not in taken
    assert len(set(taken)) == 10
    assert addresses.take("10.0.0.1") != "10.0.0.1"
    for _ in range(
        32 - 10 - 1 - 12
    ):  # the first ten are for people, the last is the broadcast address, twelve are taken
        addresses.take()
    with pytest.raises(RuntimeError, match="no pod address is left"):
        addresses.take()


# -- status -------------------------------------------------------------------------------------------------------


def seen(*records: Record, policy: str = "Always", **fields: Any) -> Seen:
    given: JsonObject = {
        "pod": pod(restartPolicy=policy),
        "records": records,
        "pod_ip": "127.65.0.10",
        "host_ip": "127.0.0.1",
        "start_time": "t0",
        "sandbox_ready": True,
        "stopping": False,
        "verdict": None,
        "extra_conditions": (),
        "now": "t1",
    }
    return Seen(**{**given, **fields})


def running(name: str = "c", **fields: Any) -> Record:
    return Record(name, "i", running_since="t0", **{"started": True, "ready": True, **fields})


def over(code: int, name: str = "c", **fields: Any) -> Record:
    return Record(name, "i", terminated={"exitCode": code}, **fields)


WAITING = Record("c", "i")
PHASES = {
    "nothing started": (seen(WAITING), "Pending"),
    "one of two started": (seen(running(), WAITING), "Pending"),
    "running": (seen(running()), "Running"),
    "crash loop": (seen(Record("c", "i", last_terminated={"exitCode": 1})), "Running"),
    "ended well, restarts always": (seen(over(0)), "Running"),
    "ended well": (seen(over(0), policy="OnFailure"), "Succeeded"),
    "failed, tries again": (seen(over(1), policy="OnFailure"), "Running"),
    "failed for good": (seen(over(0), over(1), policy="Never"), "Failed"),
    "one still runs": (seen(over(1), running(), policy="Never"), "Running"),
    "init failed for good": (seen(over(1, is_init=True), WAITING, policy="Never"), "Failed"),
    "init continues": (seen(running(is_init=True), WAITING, policy="Never"), "Pending"),
    "deleted, ended well": (seen(over(0), stopping=True), "Succeeded"),
    "deleted, killed": (seen(over(137), stopping=True), "Failed"),
    "deleted before it started": (seen(WAITING, stopping=True), "Failed"),
}


@pytest.mark.parametrize(("case", "phase"), PHASES.values(), ids=PHASES)
def test_phase(case: Seen, phase: str) -> None:
    assert decide_phase(case) == phase


def conditions(status: JsonObject) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status["conditions"]}


def test_ready_needs_every_container() -> None:
    assert conditions(build_status(seen(running("a"), running("b")), {}))["Ready"] == "True"
    status = build_status(seen(running("a"), running("b", ready=False)), {})
    assert conditions(status)["Ready"] == "False"
    ready = next(c for c in status["conditions"] if c["type"] == "ContainersReady")
    assert ready["message"] == "containers with unready status: [b]"


def test_readiness_gate_holds_ready_back() -> None:
    gated = seen(running(), pod=pod(readinessGates=[{"conditionType": "lb"}]))
    assert conditions(build_status(gated, {}))["Ready"] == "False"
    opened = build_status(gated, {"conditions": [{"type": "lb", "status": "True"}]})
    assert conditions(opened)["Ready"] == "True"


def test_second_pass_over_the_same_objects_changes_nothing() -> None:
    first = build_status(seen(running()), {})
    assert build_status(seen(running(), now="t2"), first) == first


def test_transition_time_moves_with_the_condition() -> None:
    first = build_status(seen(running(ready=False)), {})
    second = build_status(seen(running(), now="t2"), first)
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert (times["Ready"], times["Initialized"]) == ("t2", "t1")


def test_patch_takes_away_what_is_no_longer_true() -> None:
    old = build_status(seen(running(ready=False), verdict=("Failed", "Deadline", "why")), {})
    patch = difference(old, build_status(seen(running()), old))
    assert (patch["reason"], patch["message"]) == (None, None)
    ready = next(c for c in patch["conditions"] if c["type"] == "Ready")
    assert ready["reason"] is None


def test_recalled_container_that_ran_is_lost() -> None:
    record = Record("c", "i")
    recall(record, {"restartCount": 2, "state": {"running": {"startedAt": "t"}}, "containerID": "process://1"})
    assert record.terminated
    assert (record.restarts, record.terminated["reason"], record.is_running) == (2, LOST["reason"], False)


# -- probes -------------------------------------------------------------------------------------------------------


def test_thresholds() -> None:
    attempts = Attempts(Timing(0, 1, 1, success_threshold=2, failure_threshold=2))
    results = [attempts.add(r) for r in (True, True, True, False, True, False, False, False)]
    assert results == [False, True, False, False, False, False, True, False]
    assert attempts.verdict is False


def test_uncounted_failure_is_forgotten() -> None:
    attempts = Attempts(Timing(0, 1, 1, success_threshold=1, failure_threshold=1))
    assert not attempts.add(False, counted=False)
    assert attempts.verdict is None
    assert attempts.add(True, counted=False)


# -- volumes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failures", [1, 9])
def test_a_directory_that_cannot_be_removed_keeps_no_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Python's rmtree raises in spite of `ignore_errors` when a directory cannot be closed."""
    folder = tmp_path / "pod"
    (folder / "volumes").mkdir(parents=True)
    tries, remove = [0], shutil.rmtree

    def failing(path: Path, **options: Any) -> None:
        tries[0] += 1
        if tries[0] <= failures:
            raise OSError(errno.EBADF, "Bad file descriptor")
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", failing)
    unused: Any = None
    PodVolumes(unused, unused, folder, tmp_path, user="u1").remove()
    assert folder.exists() == (failures == 9)


def test_files_are_swapped_whole(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    assert write_payload(volume, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)}, NOTHING)
    assert not write_payload(volume, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)}, NOTHING)
    before = os.readlink(volume / "..data")
    assert (volume / "a").read_bytes() == b"1"
    assert os.readlink(volume / "a") == "..data/a"
    assert (volume / "d" / "b").stat().st_mode & 0o777 == 0o600
    assert write_payload(volume, {"a": File(b"3", 0o644)}, NOTHING)
    assert os.readlink(volume / "..data") != before
    assert (volume / "a").read_bytes() == b"3"
    assert sorted(p.name for p in volume.iterdir() if not p.name.startswith("..")) == ["a"]
    assert len(list(volume.iterdir())) == 3  # the old directory is gone


def test_reader_of_the_old_file_keeps_it(tmp_path: Path) -> None:
    write_payload(tmp_path / "v", {"a": File(b"old", 0o644)}, NOTHING)
    with (tmp_path / "v" / "a").open("rb") as stream:
        write_payload(tmp_path / "v", {"a": File(b"new", 0o644)}, NOTHING)
        assert stream.read() == b"old"


def test_token_is_for_its_user_only(tmp_path: Path) -> None:
    write_payload(tmp_path / "v", {"token": File(b"t", 0o644, is_token=True)}, Owner(None, os.geteuid()))
    assert (tmp_path / "v" / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("wanted", "words"), [("none", "does not exist"), ("../out", "leads outside"), ("sly", "outside")]
)
def test_sub_path_refusals(tmp_path: Path, wanted: str, words: str) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    (tmp_path / "out").mkdir()
    (volume / "sly").symlink_to(tmp_path / "out")
    with pytest.raises(ConfigError, match=words):
        sub_path(Ready(volume, False), wanted, mount={"name": "m"}, container="c")


# -- Services -----------------------------------------------------------------------------------------------------


def service(**spec: Any) -> JsonObject:
    given = {"clusterIP": "127.64.0.9", "selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "http"}]}
    return {"metadata": {"name": "s", "namespace": "ns", "uid": "u"}, "spec": given | spec}


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        ({}, [("127.64.0.9", 80, "http")]),
        ({"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}, [("127.64.0.9", 80, 80)]),
        ({"clusterIP": "None"}, []),
        ({"clusterIP": "10.0.0.1"}, []),
        ({"selector": None}, []),
    ],
    ids=["named port", "TCP only", "headless", "not on loopback", "no selector"],
)
def test_where_a_service_is_listened_on(spec: JsonObject, places: list[tuple[str, int, int | str]]) -> None:
    assert [(one.address, one.port, one.target) for one in wanted_listenings(service(**spec))] == places


def test_ports_by_name_and_number() -> None:
    backend = Backend("127.65.0.1", [{"ports": [{"name": "http", "containerPort": 8000}]}])
    assert [backend.port(t) for t in ("http", 9, "9", "none")] == [8000, 9, 9, None]


def test_selectors() -> None:
    assert matches({"a": "1"}, {"a": "1", "b": "2"})
    assert not matches({"a": "1"}, {"a": "2"})
    assert not matches({}, {"a": "1"})


def test_turns_reach_everyone() -> None:
    turns = Turns()
    backends = [Backend(str(n), []) for n in range(3)]
    assert {turns.order(backends)[0].ip for _ in range(3)} == {"0", "1", "2"}
    assert turns.order([]) == []


# -- logs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/containerLogs/ns/p/c?follow=true&tailLines=5", Wanted("ns", "p", "c", follow=True, tail_lines=5)),
        ("/containerLogs/ns/p/c?previous=true&limitBytes=9", Wanted("ns", "p", "c", previous=True, limit_bytes=9)),
        ("/containerLogs/../p/c", None),
        ("/containerLogs/ns/%2e%2e%2fx/c", None),
        ("/exec/ns/p/c", None),
        ("/", None),
    ],
)
def test_log_requests(target: str, expected: Wanted | None) -> None:
    assert parse_request(target) == expected


def test_newest_log_and_the_one_before(tmp_path: Path) -> None:
    for name in ("c-0.log", "c-9.log", "c-10.log", "c-x-3.log"):
        (tmp_path / name).touch()
    found = [find_log(tmp_path, "c", previous=p) for p in (False, True)]
    assert [f and f.name for f in found] == ["c-10.log", "c-9.log"]
    assert find_log(tmp_path, "c-x", previous=True) is None


@settings(deadline=None)
@given(st.lists(st.binary().map(lambda b: b.replace(b"\r", b"").replace(b"\n", b"")), max_size=8), st.integers(0, 10))
def test_tail_keeps_whole_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], count: int) -> None:
    file = tmp_path_factory.getbasetemp() / "tail.log"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    wanted = b"".join(line + b"\n" for line in (lines[-count:] if count else []))
    assert file.read_bytes()[tail_start(file, count) :] == wanted


def test_what_is_below_a_volume_is_shown_again_on_top_of_it(tmp_path: Path) -> None:
    """A checkout below /tmp stays readable in a pod that mounts a volume at /tmp."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    parts = [part for part in str(tmp_path).split("/") if part]
    below = hidden([str(checkout), "/usr/bin", str(tmp_path / "absent")], [parts, ["adapters"]])
    assert below == [(str(checkout), [*parts, "checkout"])]
    assert hidden([str(checkout)], [["adapters"]]) == []
