"""Hostile text in every field of every kind: no output holds a character or a line that a reader's machine acts on.

The oracle uses the Unicode database and the parsers of CI systems as they are documented, not `api.text`.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import re
import sys
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from api import text
from api.errors import Cause, FieldError, FieldWarning
from api.jobs import JobResult, Note, parse_termination_message
from api.kinds import AIM_KINDS, AIM_SERVICE, INFERENCE_SERVICE, Kind
from api.names import ROLE_STAGING
from api.reasons import Reason
from api.schema import object_schema
from app.logs import JsonFormatter, LogfmtFormatter
from cli.lint import report
from cli.lint.document import parse
from cli.lint.judge import Collected, judge
from cli.lint.report import Summary
from cli.plugin import access, check, live, output, status, why
from cli.plugin.output import Shape, as_text, dump
from cli.plugin.render import rehearse, summary, to_yaml
from cli.program import cli
from console.words import harmless
from disk.failures import DiskFailure, redact
from disk.job import say
from kube.errors import ApiError, Denied, Forbidden, Invalid, NotFound, Unreachable
from kube.events import EventRecorder
from reconcile.conditions import Condition, render_conditions, told_in
from reconcile.jobs import read_job
from reconcile.service.decide import decide as decide_service
from reconcile.service.facts import ServiceFacts
from reconcile.shell import ApplyRefusedError
from rules.examples import kinds, manifest, surroundings
from rules.verdict import warning_texts
from tests.console.scene import Scene as ConsoleScene
from tests.console.scene import adapter as console_adapter
from tests.console.scene import service as console_service
from tests.unit.cli.plugin.scene import Scene, job
from tests.unit.console.test_console_page import whole
from tests.unit.reconcile.model.life import START, Life
from tests.unit.reconcile.service.test_service_report import deployment, running, with_verdict
from tests.unit.webhooks.reviews import review
from webhooks.admission import Admission
from webhooks.review import Malformed, parse_review

HOSTILE = (
    "\n::error::a\r\n  ::set-env name=A::b\x1b[31m##[error]c ##vso[task.complete]d ##teamcity[e]"
    "\x00\x07\x7f\x85\x9b\u2028::error::f\u2029\u200b\u200e\u202e\u2066\u061c\ufeff\U000e0041\ue000\u034f\ufe0f\u3164"
)
SURROGATES = "\ud800\udcff"
_ACTED_ON = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_SHAPELESS = set("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {chr(code) for code in range(0xFE00, 0xFE10)}
# actions/runner, ActionCommand: `::` after white space, `##[` anywhere; Azure and TeamCity: the words after `##`
_COMMAND = re.compile(r"^\s*::|##(?:vso|teamcity)?\[")


def unsafe(shown: str, kept: str = "") -> list[str]:
    """Return the characters of a text that a terminal acts on or that have no shape."""
    found = (c for c in set(shown) if c not in kept and (unicodedata.category(c) in _ACTED_ON or c in _SHAPELESS))
    return sorted(map(ascii, found))


def commands(shown: str) -> list[str]:
    """Return the lines of an output that a CI system takes as commands."""
    return [line for line in re.split(r"[\r\n\x85\u2028\u2029]", shown) if _COMMAND.search(line)]


def check_line(shown: object, where: str = "") -> None:
    """Check a text that is shown on one line, maybe at its beginning behind other words."""
    assert isinstance(shown, str), where
    assert not unsafe(shown), (where, shown)
    assert not re.search(r"##(?:vso|teamcity)?\[", shown), (where, shown)


def check_output(shown: str, where: str = "") -> None:
    """Check a whole output of several lines."""
    assert not unsafe(shown, "\n\t"), (where, shown)
    assert not commands(shown), (where, commands(shown))


def every_text(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all strings of a value with their paths, and the keys of its mappings."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}.(key)", str(key)
            yield from every_text(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from every_text(inner, f"{path}[{number}]")


# -- a hostile text in one place after the other --------------------------------------------------------------------

Place = tuple[str | int, ...]
KEY = "\0key"  # stands for a key of a free mapping


def places_of(schema: dict[str, Any], place: Place = ()) -> Iterator[Place]:
    """Yield the places of a schema that can hold a text: each leaf of any type, each key and value of a mapping."""
    if "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from places_of(inner, (*place, name))
    elif "items" in schema:
        yield (*place, 0)
        yield from places_of(schema["items"], (*place, 0))
    elif "additionalProperties" in schema:
        yield from places_of(schema["additionalProperties"], (*place, KEY))
    elif schema.get("type") == "object" or "type" not in schema:
        yield (*place, KEY)
        yield (*place, "name")
        yield place
    else:
        yield place


METADATA: list[Place] = [
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "generateName"),
    ("metadata", "uid"),
    ("metadata", "labels", KEY),
    ("metadata", "annotations", KEY),
    ("metadata", "finalizers", 0),
    ("metadata", "ownerReferences", 0, "name"),
    ("metadata", "creationTimestamp"),
    ("metadata", "managedFields", 0, "manager"),
]


def all_places(kind: Kind) -> list[Place]:
    schema = object_schema(kind)["properties"]
    found = [place for part in ("spec", "status") if part in schema for place in places_of(schema[part], (part,))]
    return [*METADATA, *found, ("spec", HOSTILE), ("kind",), ("apiVersion",)]


def poisoned(obj: dict[str, Any], place: Place, value: str = HOSTILE) -> dict[str, Any]:
    """Return a copy of an object with a hostile text in one place; what is missing on the way is made."""
    new: Any = copy.deepcopy(obj)
    here = new
    for step, after in zip(place, (*place[1:], None), strict=True):
        step_ = value if step == KEY else step
        inner: Any = value if after is None else [] if isinstance(after, int) else {}
        if isinstance(step_, int):
            if not here:
                here.append(inner)
            elif after is None or not isinstance(here[0], type(inner)):
                here[0] = inner
            here = here[0]
        else:
            if after is None or not isinstance(here.get(step_), type(inner)):
                here[step_] = inner
            here = here[step_]
    assert isinstance(new, dict)
    return new


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of all leaves of an object that exists."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*place, number))
    else:
        yield place


def put(obj: dict[str, Any], place: Place, value: str = HOSTILE) -> dict[str, Any]:
    """Return a copy with a hostile text instead of a leaf."""
    new: Any = copy.deepcopy(obj)
    here = new
    for step in place[:-1]:
        here = here[step]
    here[place[-1]] = value
    assert isinstance(new, dict)
    return new


def test_the_oracle_sees_what_it_looks_for() -> None:
    assert len(unsafe(HOSTILE + SURROGATES)) > 20
    assert len(commands(HOSTILE)) == 3
    assert not unsafe("AIMService team/chat: „é“ 数 …")
    assert set(kinds()) == set(AIM_KINDS)
    assert sum(len(all_places(kind)) for kind in AIM_KINDS) > 500


# -- the one function -----------------------------------------------------------------------------------------------


@given(st.text())
def test_any_text_becomes_safe_and_settles(given_text: str) -> None:
    shown = text.clean(given_text)
    check_line(shown)
    assert text.clean(shown) == shown
    line = text.clean_line(given_text)
    check_output(line)
    assert "\n" not in line
    assert text.clean_line(line) == line
    lines = text.clean_lines(given_text)
    check_output(lines)
    assert text.clean_lines(lines) == lines
    check_line(text.quoted(given_text, 120))
    assert text.is_clean(line) == (text.clean(line) == line)
    text.well_formed(given_text).encode()


@given(st.text(), st.integers(1, 60))
def test_a_cut_text_is_as_long_as_allowed_and_says_that_it_is_cut(given_text: str, limit: int) -> None:
    shown, whole_text = text.clean(given_text, limit), text.clean(given_text)
    assert len(shown) <= limit
    assert shown == whole_text if len(whole_text) <= limit else shown.endswith("…")
    assert text.clean(shown, limit) == shown


@given(st.text(), st.text())
def test_two_quoted_values_never_look_the_same(one: str, other: str) -> None:
    limit = 12 * max(len(one), len(other)) + 1
    assert (text.quoted(one, limit) == text.quoted(other, limit)) == (one == other)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_formats_for_programs_hold_the_data_as_they_are(value: Any) -> None:
    shown = text.dump_json(value, 2)
    check_output(shown)
    assert json.loads(shown) == value


@given(st.recursive(st.text(st.characters(exclude_categories=["Cs"])), st.lists, max_leaves=4))
def test_yaml_holds_the_data_as_they_are(value: Any) -> None:
    shown = output.dump_yaml({"key": value, "beside": [value, {str(value)[:90] or "x": value}]})
    check_output(shown)
    assert yaml.safe_load(shown)["key"] == value


@pytest.mark.parametrize("shape", [Shape.JSON, Shape.YAML])
def test_hostile_text_survives_the_formats_for_programs(shape: Shape) -> None:
    shown = dump({HOSTILE: [HOSTILE, f"a long text {'x ' * 60}{HOSTILE}"], "b": "x " * 50 + "::error::y"}, shape)
    check_output(shown)
    back = json.loads(shown) if shape is Shape.JSON else yaml.safe_load(shown)
    assert back[HOSTILE][0] == HOSTILE
    assert back["b"].endswith("::error::y")


def test_printable_text_is_not_changed() -> None:
    for plain in (
        "AIMService team/chat is ready",
        "Größe 数学 ✔ 12\u202f345",
        "  indented",
        "a  b",
        r"\x1b",
        "::1",
        "",
    ):
        assert text.clean(plain) == plain


def test_the_form_of_what_is_replaced() -> None:
    assert text.clean("a\x1b[31m\u202e\U000e0041b") == r"a\x1b[31m\u202e\U000e0041b"
    assert text.clean("a\n\tb\u2028c") == "a b c"
    assert text.clean_lines("::error::x\r\n\ty\rz") == "\\x3a:error::x\n\ty\\rz"
    assert text.clean("x ##vso[y] ##[z] # ## a") == r"x \x23#vso[y] \x23#[z] # ## a"
    assert text.clean_line("  ::error::x") == r"  \x3a:error::x"
    assert text.quoted("a\\\n ##[x", 20) == r"a\\\n \x23#[x"


def test_the_cost_is_linear_in_the_text() -> None:
    """A text of the greatest size that a server accepts costs milliseconds, whatever it holds."""
    for unit in ("a", "é", "\x1b", "\n ", "##", "##a", "::", "\n::", " ", "\u202e a", "#"):
        long = unit * (1_000_000 // len(unit))
        for act in (text.clean, text.clean_line, text.clean_lines, text.escape_json):
            began = time.process_time()
            act(long)
            assert time.process_time() - began < 1.0, (ascii(unit), act.__name__)
        began = time.process_time()
        text.clean(long, 120)
        assert time.process_time() - began < 0.1, ascii(unit)


# -- admission, lint and render -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)
def test_answers_of_admission_are_clean(kind: Kind) -> None:
    admission = Admission(surroundings())
    plain = manifest(kind.kind, {})
    escaped = 0
    for place in all_places(kind):
        new = poisoned(plain, place)
        for old in (None, plain):
            read = parse_review(orjson.dumps(review(new, old, kind=kind)))
            assert not isinstance(read, Malformed)
            reply = admission.validate(read)
            response = orjson.loads(reply if isinstance(reply, bytes) else admission._answer(read, reply))["response"]
            for path, shown in every_text({key: response.get(key) for key in ("status", "warnings")}):
                check_line(shown, f"{place} {path}")
            escaped += r"\x1b" in str(response)
    assert escaped >= 2, "the hostile text reached no message"


def test_a_review_that_cannot_be_read_is_answered_in_clean_words() -> None:
    plain = manifest("AIMService", {})
    for place in leaves(review(plain, plain)):
        body = put(review(plain, plain), place)
        read = parse_review(orjson.dumps(body))
        if isinstance(read, Malformed):
            check_line(read.detail)
        elif not read.judged:
            answer = Admission(surroundings())._not_judged("validate", read)
            for _, shown in every_text(orjson.loads(answer)["response"].get("warnings")):
                check_line(shown, str(place))


def linted(documents: str, file: str, *, is_json: bool = True) -> Summary:
    found, problems = parse(documents, is_json=is_json)
    collected = Collected()
    collected.add(file, found, problems, "team")
    return Summary(1, len(collected.manifests), 0, judge(collected, surroundings()), (f"note: {file}",))


def check_lint(one: Summary, where: str) -> None:
    shown = report.to_text(one)
    check_output(shown, where)
    assert len(shown.splitlines()) <= len(one.findings) + 3, where
    check_output(report.to_text(one, lambda style, words: f"<{style}>{words}</>"), where)
    github = report.to_github(one)
    assert not unsafe(github, "\n"), where
    assert len(github.splitlines()) == len(one.findings), where
    for line in github.splitlines():
        assert re.fullmatch(r"::(?:error|warning) file=[^:,\r\n]*,line=\d+,col=\d+,title=[^:,]*::[^\r\n]*", line), line
        assert not re.search(r"##(?:vso|teamcity)?\[", line), where
    for dumped in (report.to_json(one), report.to_sarif(one, "1.0")):
        check_output(dumped, where)
        json.loads(dumped)


@pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)
def test_lint_is_clean_in_all_formats(kind: Kind) -> None:
    plain = manifest(kind.kind, {})
    findings = 0
    for place in all_places(kind):
        one = linted(orjson.dumps(poisoned(plain, place)).decode(), "a.json")
        check_lint(one, str(place))
        findings += len(one.findings)
    assert findings > 20, "the hostile text was found nowhere"


def test_lint_is_clean_about_files_with_hostile_names_and_contents() -> None:
    wrong = orjson.dumps(poisoned(manifest("AIMService", {}), ("spec", "adapterMode"))).decode()
    for file in (HOSTILE, f"{SURROGATES}.json", "::error::x", " ::warning file=a::b"):
        check_lint(linted(wrong, file), ascii(file))
    as_yaml = f"# Source: chart/{HOSTILE[:20]}\nkind: AIMService\napiVersion: aim.eai.amd.com/v1alpha2\n"
    for body in (
        f"metadata: {{name: {json.dumps(HOSTILE)}}}",
        f"'a{HOSTILE}: [",
        "a: *\x1b",
        "? \x85",
        "\x00",
        "a: !\x1b",
    ):
        check_lint(linted(as_yaml + body, "a.yaml", is_json=False), ascii(body))


def test_render_is_clean() -> None:
    objects = [dict(obj) for kind in AIM_KINDS for obj in surroundings().objects(kind)]
    declared = [{"name": "medical", "kind": "AIMArtifact"}]
    service = manifest("AIMService", {"spec": {"adapterMode": "dynamic", "adapters": declared}})
    carried = 0
    for number, obj in enumerate([service, *objects]):
        others = [one for index, one in enumerate([service, *objects]) if index != number]
        specs = {part: obj[part] for part in ("metadata", "spec")}
        found = all_places(AIM_SERVICE) if number == 0 else [*leaves(specs), ("metadata", "labels", KEY)]
        for place in found:
            made, _, _ = rehearse([*others, poisoned(obj, place)], START)
            shown = to_yaml(made)
            check_output(shown, f"{obj['kind']} {place}")
            check_output(as_text(output.columns([*summary(made)])), f"{obj['kind']} {place}")
            carried += r"\x1b" in shown
    assert carried >= 3, "no made object holds the hostile text"


ARGUMENT = HOSTILE.replace("\0", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["render", "-f", "FILE"],
        ["render", "-f", "FILE", "-o", "json"],
        ["render", "-f", "FILE", "-o", "table"],
        ["lint", "FILE"],
        ["lint", "--explain", f"Re{ARGUMENT[15:]}".replace(":", "")],
        ["lint", "--assume", ARGUMENT, "FILE"],
        ["lint", f"missing{ARGUMENT}"],
        ["render", "-f", f"missing{ARGUMENT}"],
    ],
    ids=["render", "render-json", "render-table", "lint", "explain", "assume", "lint-missing", "render-missing"],
)
def test_commands_print_clean_lines(arguments: list[str], tmp_path: Path) -> None:
    service = manifest(
        "AIMService", {"metadata": {"annotations": {HOSTILE: HOSTILE}}, "spec": {"adapterMode": HOSTILE}}
    )
    artifact = manifest(
        "AIMArtifact", {"metadata": {"name": HOSTILE}, "spec": {"sourceUri": HOSTILE, HOSTILE: HOSTILE}}
    )
    folder = tmp_path / ARGUMENT.replace("/", "")[:60]
    folder.mkdir()
    for number, obj in enumerate((service, artifact)):
        (folder / f"{number}.json").write_bytes(orjson.dumps(obj))
    done = CliRunner().invoke(cli, [str(folder) if word == "FILE" else word for word in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    check_output(done.stdout)
    check_output(done.stderr)
    assert r"\x1b" in done.stdout + done.stderr or r"\u001b" in done.stdout + done.stderr


# -- what the controllers write -------------------------------------------------------------------------------------

_WORDS = ("message", "lastError", "reason")


def check_status(obj: dict[str, Any], where: str) -> None:
    """Check the texts of a status that are written for people."""
    for path, shown in every_text(obj.get("status") or {}, "status"):
        if path.rpartition(".")[2] in _WORDS:
            check_line(shown, f"{where} {path}")


def test_conditions_and_events_are_clean_whatever_the_objects_around_hold() -> None:
    """Poison every field of every object of a cluster at work: also what KServe, kubelets, Jobs and users write."""
    life = Life(features=["adapters"])
    life.adapter("medical")
    life.adapter("legal", rank=64)
    life.service("dynamic", ["medical", "legal", "absent"], adapterRuntime={"maxRank": 16})
    life.settle()
    before = {address: copy.deepcopy(obj) for address, obj in life.store.objects.items()}
    reached = 0
    for (kind_name, name), obj in before.items():
        for place in leaves({part: obj[part] for part in ("spec", "status") if part in obj}):
            life.store.objects.clear()
            life.store.objects.update(copy.deepcopy(before))
            life.store.objects[(kind_name, name)] = put(obj, place)
            life.store.version += 1
            life.cluster.events.clear()
            for kind, address in life.cluster.addresses():
                decided = life.cluster.decide(kind, address)
                assert decided is not None
                where = f"{kind_name} {place} → {kind.kind} {address}"
                written = {"status": dict(decided[1].status)}
                own = (kind.kind, address) == (kind_name, name)
                if not (own and place[0] == "status"):  # what it keeps of its own status was written by others
                    check_status(written, where)
                reached += r"\x1b" in str(written) or r"\\x1b" in str(written)
    assert reached > 20, "the hostile text reached no status"


def words_of_others() -> Iterator[ServiceFacts]:
    """Yield services whose conditions quote KServe, a kubelet, a scheduler or the API server."""
    waiting = {
        "name": "kserve-container",
        "image": HOSTILE,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": HOSTILE}},
    }
    ended = {"terminated": {"exitCode": 1, "reason": HOSTILE, "message": HOSTILE}}
    crashed = {"name": "kserve-container", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": HOSTILE}
    place = {"name": "chat-abc", "namespace": "team-llm"}
    for pod_status in (
        {"containerStatuses": [waiting]},
        {"containerStatuses": [crashed | {"lastState": ended}]},
        {"conditions": [unscheduled]},
    ):
        silent = replace(
            running(), deployment=deployment(0), predictor_pods=({"metadata": place, "status": pod_status},)
        )
        yield with_verdict(silent, "False")
    yield with_verdict(replace(running({"replicas": 2}), deployment=deployment(1, 2)), "False", "x", HOSTILE)
    yield with_verdict(replace(running(), deployment=deployment(0)), "False", HOSTILE, HOSTILE)
    yield replace(running(), refusal=HOSTILE)


def test_conditions_that_quote_others_are_clean() -> None:
    refused = ApplyRefusedError(INFERENCE_SERVICE, "chat", Denied(400, HOSTILE, HOSTILE))
    for seen in words_of_others():
        found = dict(decide_service(seen).status)
        check_status({"status": found}, str(seen.predictor_pods or seen.isvc))
        assert r"\x1b" in next(one["message"] for one in found["conditions"] if one["type"] == "InferenceServiceReady")
        check_status({"status": told_in(found, "Ready", refused.words)}, "a refusal")


def test_jobs_that_do_not_start_or_say_nothing_are_reported_in_clean_words() -> None:
    (made, pod) = job(ROLE_STAGING, "u", waiting="CreateContainerConfigError")
    (found,) = pod["status"]["containerStatuses"]
    found["state"]["waiting"]["message"] = HOSTILE
    check_line(read_job(made, [pod]).blocked_by)
    found["state"] = {"waiting": {"reason": "ContainerCreating"}}
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": HOSTILE, "message": HOSTILE}]
    check_line(read_job(made, [pod]).blocked_by)
    found["state"] = {"terminated": {"exitCode": 1, "reason": HOSTILE, "message": "not a result"}}
    made["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": HOSTILE, "message": HOSTILE}]}
    result = read_job(made, [pod]).result
    assert result is not None
    check_line(result.message)
    assert r"\x1b" in result.message


def test_conditions_are_clean_and_cut() -> None:
    (one,) = render_conditions(
        {},
        [Condition("Ready", "False", Reason.CONFIG_INVALID, HOSTILE * 1000)],
        generation=1,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    check_line(one["message"])
    assert len(one["message"]) == 32768
    told = told_in({"conditions": [one | {"message": "before"}]}, "Ready", HOSTILE)
    check_line(told["conditions"][0]["message"])
    assert told["conditions"][0]["message"].startswith("before; ")


def test_events_are_clean_and_cut() -> None:
    recorder = EventRecorder(client=None)  # type: ignore[arg-type]
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "uid": "c"}}
    for message in (HOSTILE, HOSTILE * 100, "é" * 2000, SURROGATES):
        recorder.record(obj, "Warning", "Failed", message)
    for series in recorder._waiting:
        body = recorder._body(series)
        check_line(body["message"])
        assert 0 < len(body["message"].encode()) <= 1024
    assert len(recorder._waiting) == 4


def test_results_of_jobs_are_clean() -> None:
    result = JobResult(
        ok=False,
        reason=f"Disk{HOSTILE}",
        message=HOSTILE,
        digest=HOSTILE,
        revision=HOSTILE,
        base_model_id=HOSTILE,
        removed=[HOSTILE],
        warnings=[Note(reason=HOSTILE, message=HOSTILE)],
    )
    read = parse_termination_message(msgspec.json.encode(result).decode())
    assert read is not None
    for path, shown in every_text(msgspec.to_builtins(msgspec.structs.replace(read, key=""))):
        check_line(shown, path)


def test_errors_and_warnings_are_clean() -> None:
    error = FieldError(f"spec.x[{HOSTILE}]", Reason.VALUE_NOT_SUPPORTED, Cause.INVALID, HOSTILE, HOSTILE, HOSTILE)
    for shown in (str(error), error.message, str(FieldWarning(HOSTILE, Reason.VALUE_NOT_SUPPORTED, HOSTILE))):
        check_line(shown)
    assert FieldError("a", Reason.VALUE_NOT_SUPPORTED, Cause.INVALID, "b", [HOSTILE]).message.startswith(
        "Invalid value"
    )
    (warning,) = warning_texts([FieldWarning("spec", Reason.VALUE_NOT_SUPPORTED, HOSTILE)])
    check_line(warning)


# -- log lines ------------------------------------------------------------------------------------------------------


class _Hostile:
    """An object whose text is hostile."""

    def __str__(self) -> str:
        return HOSTILE

    __repr__ = __str__


def record(**extra: object) -> logging.LogRecord:
    try:
        try:
            raise ValueError(HOSTILE)
        except ValueError as error:
            raise ApiError(500, HOSTILE, HOSTILE + SURROGATES) from error
    except ApiError:
        trace = sys.exc_info()
    made = logging.LogRecord(f"x{HOSTILE}", logging.WARNING, "f", 1, "%s", (HOSTILE,), trace)
    made.__dict__.update(extra)
    return made


EXTRA: dict[str, object] = {
    "error": HOSTILE,
    HOSTILE: "a key",
    "surrogates": SURROGATES,
    "object": _Hostile(),
    "list": [HOSTILE, {HOSTILE: _Hostile()}],
    "plain": "\x1b",
    "bytes": HOSTILE.encode(),
    "number": 3,
}


@pytest.mark.parametrize("extra", [EXTRA, {"number": 3}], ids=["hostile", "plain"])
def test_log_lines_are_clean(extra: dict[str, object]) -> None:
    as_json = JsonFormatter().format(record(**extra))
    check_output(as_json)
    assert "\n" not in as_json
    fields = json.loads(as_json)
    assert fields["message"] == HOSTILE
    assert fields["number"] == 3
    for_people = LogfmtFormatter().format(record(**extra))
    check_output(for_people)
    head = for_people.splitlines()[0]
    assert "number=3" in head
    assert "WARNING" in head
    assert "Traceback" in for_people.splitlines()[1]


# -- the plugin -----------------------------------------------------------------------------------------------------


def scenes() -> Iterator[tuple[str, Scene]]:
    """Yield the healthy scene with one leaf of one of its objects poisoned at a time."""
    plain = Scene()
    plain.jobs = job(ROLE_STAGING, "u-service", '{"ok": false, "reason": "DiskFull", "message": "full"}')
    holders: list[tuple[str, Any]] = [
        (name, getattr(plain, name))
        for name in ("service", "profile", "base", "sql", "caches", "claims", "jobs", "pods", "leases")
    ]
    for name, holder in holders:
        for place in leaves(holder):
            scene = copy.deepcopy(plain)
            setattr(scene, name, put({"x": holder}, ("x", *place))["x"])
            yield f"{name} {place}", scene
    for place in all_places(AIM_SERVICE):
        if place[0] == "status":
            scene = copy.deepcopy(plain)
            scene.service = poisoned(plain.service, place)
            yield f"service {place}", scene


def test_status_and_why_are_clean_whatever_the_cluster_holds() -> None:
    shown_somewhere = 0
    for where, scene in scenes():
        seen = scene.snapshot()
        walks = why.walk(seen)
        one = as_text(why.as_lines(seen, walks)) + as_text(status.lines(seen))
        views, rows = status.overview([scene.service])
        one += as_text(rows)
        check_output(one, where)
        for value in (why.as_view(seen, walks), status.view(seen), views):
            for shape in (Shape.JSON, Shape.YAML):
                check_output(dump(value, shape), where)
        shown_somewhere += r"\x1b" in one
    assert shown_somewhere > 30, "the hostile text was shown nowhere"


def test_check_is_clean() -> None:
    judged = check.Judged(HOSTILE, HOSTILE, "refused", (HOSTILE,), (HOSTILE,))
    effect = check.Effect(
        HOSTILE, True, 2, (HOSTILE,), (HOSTILE,), (16, 32), HOSTILE, (HOSTILE,), (HOSTILE,), (HOSTILE,), (HOSTILE,)
    )
    for made in (check.Report((judged,), (effect,), (HOSTILE,)), check.Report((), (effect,), (HOSTILE,))):
        check_output(as_text(check.as_lines(made)))
        for shape in (Shape.JSON, Shape.YAML):
            check_output(dump(check.as_view(made), shape))


@pytest.mark.parametrize(
    "error",
    [
        access.ProblemError(HOSTILE),
        Unreachable(0, "Unreachable", HOSTILE),
        Forbidden(403, "Forbidden", HOSTILE),
        NotFound(404, "NotFound", HOSTILE),
        Denied(400, HOSTILE, f'admission webhook "x" denied the request: AIMService.a "{HOSTILE}" is invalid: b'),
        Invalid(422, "", f"::error::{HOSTILE}"),
        RuntimeError(HOSTILE + SURROGATES),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failures_of_commands_are_one_clean_line(error: Exception) -> None:
    out = io.StringIO()
    with redirect_stderr(out):
        access.report(error)
        access.print_warning(HOSTILE)
        access.print_error(HOSTILE)
    check_output(out.getvalue())
    assert out.getvalue().count("\n") == 3


class _Terminal(io.StringIO):
    """An output that is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def on_terminal() -> Iterator[_Terminal]:
    """Use a terminal for both outputs: it gets escape sequences for colours and the cursor, but none of the text."""
    made = _Terminal()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(made), redirect_stderr(made):
        patch.delenv("NO_COLOR", raising=False)
        patch.setenv("TERM", "xterm")
        yield made


def test_a_terminal_gets_clean_pieces() -> None:
    with on_terminal() as terminal:
        output.show([output.line((f"{HOSTILE}[bold]x[/nope]", "bold red"), HOSTILE, " beside")])
    shown = terminal.getvalue()
    assert not unsafe(re.sub(r"\x1b\[[\d;]*m", "", shown), "\n")
    assert shown.count("\n") == 1
    assert "[bold]x[/nope]" in shown
    assert not re.search(r"##(?:vso|teamcity)?\[", shown)


def test_what_a_command_waits_for_is_not_markup() -> None:
    """A message with brackets ends no command, and formats nothing."""
    with on_terminal() as terminal, live._ticker("adapter sql") as note:
        note(f"[bold]x[/nope] {HOSTILE}")
        time.sleep(0.3)  # a frame is drawn every 80 ms
    shown = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", terminal.getvalue())
    assert "[bold]x[/nope]" in shown
    assert not unsafe(shown, "\r\n")


def test_what_a_command_waits_for_is_a_clean_line_in_a_log() -> None:
    out = io.StringIO()
    with redirect_stderr(out), live._ticker("adapter sql") as note:
        note(HOSTILE)
        note("next")
    check_output(out.getvalue())
    assert out.getvalue().count("\n") == 2


# -- the console ----------------------------------------------------------------------------------------------------


class _Texts(HTMLParser):
    """Collects texts and values of attributes as a browser sees them, character references resolved."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for _, value in attrs if value]


async def test_the_console_is_clean() -> None:
    plain = console_service("team-a", "gemma", console_adapter("tone", "Failed", lastError="DiskFull: x"))
    plain["status"]["conditions"] = [{"type": "ConfigValid", "status": "False", "reason": "A", "message": "b"}]
    shown_somewhere = 0
    for place in [*leaves(plain), *(place for place in all_places(AIM_SERVICE) if place[0] == "status")]:
        if place[0] in ("kind", "apiVersion"):
            continue
        scene = ConsoleScene()
        scene.base()
        scene.artifact("tone")
        scene.put(put(plain, place) if place in set(leaves(plain)) else poisoned(plain, place))
        scene.refuse(HOSTILE, f"spec.{HOSTILE}: Invalid value", reason=HOSTILE.split(maxsplit=1)[0])
        scene.tell(HOSTILE, HOSTILE, HOSTILE)
        scene.events.problem = HOSTILE
        page = await whole(scene)
        assert not unsafe(page, "\n"), place
        texts = _Texts()
        texts.feed(page)
        for shown in texts.found:
            assert not unsafe(shown, "\n"), (place, shown)
        shown_somewhere += page.count(r"\x1b")
    assert shown_somewhere > 50


# -- disk Jobs ------------------------------------------------------------------------------------------------------


def test_what_jobs_print_is_clean() -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        say(f"staging {HOSTILE}{SURROGATES}")
        say(f"::error::{HOSTILE}")
    check_output(out.getvalue())
    for shown in (
        redact(HOSTILE),
        str(DiskFailure(Reason.DISK_FULL, HOSTILE)),
        DiskFailure(Reason.DISK_FULL, HOSTILE).message,
    ):
        check_line(shown)


# -- credentials ----------------------------------------------------------------------------------------------------

SECRET = "s3cretS3CRETs3cret"


@pytest.mark.parametrize("cut_at", range(0, 2400, 7))
def test_no_cut_shows_a_part_of_a_credential(cut_at: int) -> None:
    """Texts are masked before they are cut: the part by which a credential is recognized may follow the cut."""
    for credential in (
        f"https://user:{SECRET}@hub.example/x",
        f"https://{SECRET}@hub.example/x",
        f"https://hub.example/x?token={SECRET}&X-Amz-Signature={SECRET}",
        f'spec.env[0].value: Invalid value: "{SECRET}": is invalid',
    ):
        long = f"{'x' * cut_at} {credential} {'y' * 4000}"
        query = f"https://h.example/?{'q' * cut_at} {credential} {'y' * 4000}"  # masking shortens it
        for shown in (harmless(long), harmless(query), harmless(long, 60)):
            assert SECRET[:6] not in shown, cut_at
        if "env[" not in credential:
            assert SECRET[:6] not in redact(long), cut_at


@pytest.mark.parametrize("length", range(90, 125))
def test_a_value_that_was_cut_shows_no_part_of_a_credential_on_the_console(length: int) -> None:
    """Errors show 120 characters of a value; the cut may fall into the credentials of its address."""
    uri = f"s3://{'u' * (length - 10)}:{SECRET}@bucket/x"
    error = FieldError("spec.sourceUri", Reason.VALUE_NOT_SUPPORTED, Cause.INVALID, "is invalid", uri)
    assert SECRET[:4] not in harmless(str(error))


# -- one function, no others ----------------------------------------------------------------------------------------


def test_no_other_module_cleans_texts() -> None:
    root = Path(__file__).parents[3]
    rooms = ("api", "rules", "kube", "webhooks", "reconcile", "disk", "certs", "console", "app", "cli")
    found = [
        str(path.relative_to(root))
        for room in rooms
        for path in sorted((root / room).rglob("*.py"))
        if re.search(r"isprintable|unicode_escape|unicodedata|\[\^\\x20|\\u202e", path.read_text())
    ]
    # the two others judge the name of a file and of a variable, and show nothing
    assert sorted(found) == ["api/text.py", "disk/layout.py", "rules/environment.py"]
