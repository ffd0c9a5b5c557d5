"""Each setting, metric, reason, event, command and make target is in the pages, and the pages are current."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator

import pytest

from api.reasons import EXPLANATIONS, Reason, anchor
from app.settings import describe_settings
from reconcile.settings import ReconcileSettings
from tests.unit.api.test_reasons import unreal_names
from tests.unit.docs.pages import DOCS, ROOT, all_pages
from tools.generated import Target, drift
from tools.markdown import cell
from tools.reference_commands import describe_commands, describe_targets
from tools.reference_metrics import PREFIX, ROOMS, find_metrics
from tools.reference_reasons import ANSWERS
from tools.reference_settings import FIXED

GENERATORS = (
    "tools.reference_commands",
    "tools.reference_metrics",
    "tools.reference_reasons",
    "tools.reference_settings",
)


def _page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("module", GENERATORS)
def test_generated_pages_are_current(module: str) -> None:
    target: Target = importlib.import_module(module).TARGET
    assert not drift(target, target.directory), f"run `python -m {module} write`"


def test_each_setting_is_on_its_page() -> None:
    page = _page("settings.md")
    for info in describe_settings():
        assert f"`{info.key}`" in page
        assert f"`{info.flag}`" in page
        assert f"`{info.variable}`" in page
        assert cell(info.description) in page


def test_each_fixed_number_is_described() -> None:
    settings = {info.name for info in describe_settings()}
    assert FIXED.keys() == ReconcileSettings.__dataclass_fields__.keys() - settings


def test_each_metric_is_on_its_page() -> None:
    page = _page("metrics.md")
    found = {info.name: info for info in find_metrics()}
    for info in found.values():
        assert info.help.strip(), info.name
        assert f"`{info.name}` | {info.type} |" in page
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for name in re.findall(rf'"({PREFIX}[a-z_]+)"', path.read_text()):
                assert {name, f"{name}_total"} & found.keys(), f"{path}: {name} is in no module that the page looks at"


def test_each_command_and_target_is_on_its_page() -> None:
    page = _page("commands.md")
    for info in describe_commands():
        if not info.is_group:
            assert f"## {info.path}\n" in page
    for target in describe_targets():
        assert f"`make {target}`" in _page("make.md")


def test_each_room_states_its_purpose_and_its_limits() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for room in packages["packages"]:
        words = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
        assert [bool(line) for line in words.splitlines()] == [True, False, True], room


def test_each_make_target_has_a_help() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (\S+)", text, re.MULTILINE))
    assert phony == set(describe_targets())


# -- reasons --------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"^([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)(?=:|$)")
_SPOKEN = {
    "Condition": 2,
    "Gate": 0,
    "EventNote": 1,
    "_last_error": 0,
    "JobResult": None,
}  # call → position of the reason
_TYPES_AND_STATES = """
AdapterDiskReady ArtifactsReady CacheReady CacheStorageReady LoadRejected NotAvailable PredictorReady PodScheduled
"""
_SAID_BY_OTHERS = """
AlreadyExists BackoffLimitExceeded BadAnswer ContainerCreating DeadlineExceeded DisruptionTarget ErrImagePull
NotFound PodFailurePolicy PodInitializing ProvisioningFailed WatchCut
"""  # translated into reasons of aim-adapters, or harmless
_VALUES_AND_NAMES = """
BearerToken DeleteOptions HandlerFault IfNotPresent NoSchedule OnRootMismatch ReadWriteMany RollingUpdate RuntimeDefault
"""
NO_REASONS = frozenset([*_TYPES_AND_STATES.split(), *_SAID_BY_OTHERS.split(), *_VALUES_AND_NAMES.split()])


def _words_of_the_reconciler() -> Iterator[tuple[str, str]]:
    for path in sorted(path for room in ("kube", "reconcile") for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := _WORD.match(node.value)):
                yield found[1], where
            if isinstance(node, ast.Call):
                yield from ((word, where) for word in _reason_of(node))


def _reason_of(call: ast.Call) -> Iterator[str]:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name not in _SPOKEN:
        return
    place = _SPOKEN[name]
    given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    if place is not None:
        given += call.args[place : place + 1]
    for node in given:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield node.value


def test_each_reason_of_the_reconciler_is_explained() -> None:
    known = {*Reason, *NO_REASONS}
    unknown = {word: where for word, where in _words_of_the_reconciler() if word not in known}
    assert not unknown, "make them members of api.reasons.Reason (or list them in NO_REASONS)"


def test_words_that_are_not_reasons_are_still_in_the_code() -> None:
    assert {word for word, _ in _words_of_the_reconciler()} >= NO_REASONS


def test_each_adapter_state_has_its_event() -> None:
    from api.models.service import AdapterStatus

    schema = str(AdapterStatus.model_json_schema(by_alias=True))
    for state in ("Pending", "Downloading", "Downloaded", "Failed", "Deleting", "Loaded", "LoadRejected"):
        assert state in schema
        assert EXPLANATIONS[Reason(f"Adapter{state}")].event_on == "AIMService"


def test_each_reason_is_in_the_index() -> None:
    sections = _sections()
    assert list(sections) == sorted(Reason)
    for reason, found in EXPLANATIONS.items():
        assert cell(found.meaning) in sections[reason]
        assert cell(found.fix) in sections[reason]
    for reason, found in EXPLANATIONS.items():
        if "event" in found.surfaces:
            assert f"[`{reason}`](errors.md#{anchor(reason)})" in _page("events.md")
        if "job" in found.surfaces:
            assert f"[`{reason}`](errors.md#{anchor(reason)})" in _page("reasons.md")


def test_no_two_reasons_of_the_index_are_explained_alike() -> None:
    """Meaning and fix of each are its own, wherever they come from."""
    meanings, fixes = dict[str, str](), dict[str, str]()
    for reason, text in _sections().items():
        meaning = text.strip().partition("\n")[0]
        assert meanings.setdefault(meaning, reason) == reason
        if found := re.search(r"^- \*\*What to do\*\*: (.*)$", text, re.MULTILINE):
            fix = found[1].partition("it is retried automatically")[0]
            waits = fix in ("", "wait; it passes automatically")
            assert waits or fixes.setdefault(fix, reason) == reason
    assert len(meanings) == len(Reason)


def _sections() -> dict[str, str]:
    """The sections of the index of reasons, by their headings."""
    found = _page("errors.md").partition("## All reasons")[2].partition("\n## ")[0]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in found.split("\n### ")[1:]}


def test_messages_without_a_reason_are_explained_by_what_exists() -> None:
    """No fix names a setting, a field or a value of the chart that there is not."""
    of_kubernetes = {"failurePolicy", "timeoutSeconds", "caBundle"}
    for answer in ANSWERS:
        assert not {*unreal_names(answer.means), *unreal_names(answer.fix)} - of_kubernetes, answer.text
    assert len({answer.fix for answer in ANSWERS}) == len({answer.means for answer in ANSWERS}) == len(ANSWERS)


STAND_INS = frozenset({"devcluster.md", "devcluster-sources.md", "kserve-stand-in.md", "process-node.md"})
"""Pages that speak of what other programs say."""


def test_reasons_that_pages_name_exist() -> None:
    """A reason in backquotes on a hand-written page is one that the program uses."""
    known = {*Reason, *NO_REASONS}
    suffixes = (
        "NotFound",
        "Invalid",
        "Exceeded",
        "Immutable",
        "Missing",
        "Refused",
        "Unauthorized",
        "Forbidden",
        "Failed",
    )
    for page in all_pages():
        if page.name in STAND_INS:
            continue
        for word in re.findall(r"`([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)`", page.read_text()):
            if word.endswith(suffixes) or word.startswith(("Source", "Adapter")):
                assert word in known, f"{page.name}: `{word}`"
