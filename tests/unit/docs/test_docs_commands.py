"""Every command in the pages exists: sub-commands and flags, make targets, kubectl verbs and kinds, files."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache

import pytest

from api import kinds
from tests.unit.docs.pages import ROOT, SHELL, Command, all_blocks, commands
from tools.chart import read_values
from tools.crds import SHORT_NAMES
from tools.reference_commands import CommandInfo, describe_commands, describe_targets

_KUBECTL_VERBS = """
annotate apply auth cordon create delete describe diff drain edit exec explain get label logs patch port-forward
rollout scale top uncordon version wait
"""
KUBECTL_VERBS = frozenset(_KUBECTL_VERBS.split())
_CORE_KINDS = """
aim all certificate clusterrole clusterrolebinding cm configmap configmaps crd crds customresourcedefinition
customresourcedefinitions deploy deployment deployments event events inferenceservice inferenceservices
inferenceservices.serving.kserve.io issuer isvc job jobs lease leases mutatingwebhookconfiguration
mutatingwebhookconfigurations namespace namespaces networkpolicy node nodes ns pdb pod poddisruptionbudget pods pv
pvc replicaset role rolebinding rs sa sc secret secrets service serviceaccount services storageclass svc
validatingwebhookconfiguration validatingwebhookconfigurations volumesnapshot
"""
CORE_KINDS = frozenset(_CORE_KINDS.split())
HELM_VERBS = frozenset(
    ["install", "upgrade", "rollback", "uninstall", "template", "lint", "show", "status", "history", "list", "get"]
)
_OTHERS = """
. alias awk aws base64 cat cd chmod cp curl date diff do docker done echo etcdctl export fi for git grep head if jq
kill kustomize ls mkdir mv openssl pip podman promtool python python3 sed sleep sort source tail tar tee test then
twine umask uv velero watch while xargs
"""
OTHERS = frozenset(_OTHERS.split())
BLOCKS = list(all_blocks(*SHELL))


def _all() -> Iterator[Command]:
    for block in BLOCKS:
        yield from commands(block)


@cache
def _infos() -> dict[str, CommandInfo]:
    return {info.path: info for info in describe_commands()}


@cache
def _our_kinds() -> frozenset[str]:
    spelt: set[str] = set()
    for kind in kinds.AIM_KINDS:
        spelt |= {kind.kind.lower(), f"{kind.kind.lower()}s", kind.plural, SHORT_NAMES[kind]}
    return frozenset(spelt | {f"{word}.{kinds.AIM_GROUP}" for word in spelt})


def test_there_are_commands() -> None:
    found = [command.words[0] for command in _all()]
    assert {"make", "kubectl", "helm", "aim-adapters"} <= set(found)


@pytest.mark.parametrize(
    "command", list(_all()), ids=lambda command: f"{command.where}: {' '.join(command.words)}"[:90]
)
def test_a_command_exists(command: Command) -> None:
    program, words = command.words[0], list(command.words[1:])
    match program:
        case "aim-adapters":
            _check_ours(words, command)
        case "kubectl" if "aim-adapters" in words[:1]:
            _check_ours(words[1:], command)
        case "kubectl":
            _check_kubectl(words, command)
        case "make":
            targets = [word for word in words if "=" not in word]
            assert set(targets) <= set(describe_targets()), command
        case "helm":
            _check_helm(words, command)
        case "python" | "python3" if words[:1] == ["-m"]:
            assert importlib.util.find_spec(words[1]), command
        case _:
            assert program in OTHERS or program.startswith(("./", ".venv/", "/")), command


def _check_ours(words: list[str], command: Command) -> None:
    path = "aim-adapters"
    while words and f"{path} {words[0]}" in _infos():
        path = f"{path} {words.pop(0)}"
    info = _infos()[path]
    if info.is_group and path != "aim-adapters" and not info.flags - {"--help"} and words:
        info = _infos().get(f"{path} show", info)  # `disk` alone shows
    assert path != "aim-adapters" or (words and words[0].startswith("--")), f"no such command: {command}"
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in info.flags, f"{path} has no {word}: {command}"
        elif re.fullmatch(r"-[A-Za-z]", word):
            assert word in info.flags, f"{path} has no {word}: {command}"


def _check_kubectl(words: list[str], command: Command) -> None:
    plain = _without_flags(words, valued={"-n", "--namespace", "--kubeconfig", "--context"})
    assert plain, command
    verb, *rest = plain
    assert verb in KUBECTL_VERBS, command
    rest = [word for word in rest if not word.startswith("-")]
    if verb == "rollout":
        rest = rest[1:]
    if verb == "create" and rest[:1] in (["secret"], ["configmap"], ["namespace"], ["token"]):
        return
    if verb in {"get", "describe", "delete", "wait", "annotate", "label", "patch", "rollout", "logs"} and rest:
        for kind in rest[0].partition("/")[0].split(","):
            known = kind.lower() in CORE_KINDS | _our_kinds()
            assert known or verb == "logs" or "-f" in words, f"no such kind {kind}: {command}"
    for number, word in enumerate(words[:-1]):
        if word in {"-f", "--filename"}:
            _check_file(words[number + 1], command)


def _check_file(name: str, command: Command) -> None:
    page = command.where.partition(":")[0]
    titled = {block.title for block in all_blocks("yaml") if block.page == page}
    shown = {
        block.text.split("\n", 1)[0].removeprefix("# ").strip() for block in all_blocks("yaml") if block.page == page
    }
    named = name in titled | shown or name in {"-", "SUBSTITUTED"} or name.startswith(("$", "/", "http"))
    placeholder = page in {
        "docs/commands.md",
        "docs/kubectl-plugin.md",
        "docs/lint.md",
        "README.md",
        "docs/operations.md",
    }
    assert named or placeholder or (ROOT / name).exists() or name.startswith("examples/"), f"no file {name}: {command}"


@cache
def _values() -> frozenset[str]:
    return frozenset(value.path for value in read_values((ROOT / "chart" / "values.yaml").read_text()))


def _check_helm(words: list[str], command: Command) -> None:
    assert words, command
    assert words[0] in HELM_VERBS, command
    for number, word in enumerate(words[:-1]):
        if word in {"--set", "--set-string"}:
            for pair in re.sub(r"\{[^}]*\}", "", words[number + 1]).split(","):
                path = pair.partition("=")[0]
                known = path in _values() or path.startswith(("settings.", "clusterRuntimeConfig.spec"))
                assert known or any(path.startswith(f"{each}.") for each in _values()), f"no value {path}: {command}"


def _without_flags(words: list[str], valued: set[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in valued:
            skip = True
        elif not (word.startswith("-") and not kept):
            kept.append(word)
    return kept
