"""Whether the API server asks this server: what is wrong with its webhook configurations. Pure.

Without them, or with others, the API server stores objects that no rule has seen, and no one notices.
Source: docs/contract.md, Admission; Kubernetes API, ValidatingWebhookConfiguration.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from api import view
from api.kinds import AIM_KINDS, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind
from api.view import Json
from webhooks.review import MUTATE_PATH, VALIDATE_PATH

PATHS = {VALIDATING_WEBHOOK_CONFIGURATION: VALIDATE_PATH, MUTATING_WEBHOOK_CONFIGURATION: MUTATE_PATH}
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_OPERATIONS = ("CREATE", "UPDATE")


class Trouble(StrEnum):
    """What can be wrong with a configuration; a label of a metric."""

    MISSING = "Missing"
    ELSEWHERE = "Elsewhere"
    RULES = "RulesIncomplete"
    NAMESPACES = "NamespacesExcluded"
    NOT_TRUSTED = "NotTrusted"


@dataclass(frozen=True, slots=True)
class Expected:
    """What the configurations must say.

    `service` and `namespace`: of the Service of the webhooks; `namespaces`: those that are served, empty: all;
    `cluster_kinds`: whether cluster-scoped kinds are reviewed.
    """

    service: str
    namespace: str
    namespaces: tuple[str, ...] = ()
    cluster_kinds: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and what to do about it."""

    trouble: Trouble
    detail: str
    fix: str

    def __str__(self) -> str:
        return f"{self.detail}; {self.fix}"


_RESTORE = "install the chart again (helm upgrade --install), which restores it"


def problems_of(kind: Kind, name: str, configuration: Json | None, expected: Expected) -> list[Problem]:
    """Return what is wrong with a configuration of that kind and name; None: it does not exist."""
    subject = f"{kind.kind} {name}"
    if configuration is None:
        return [Problem(Trouble.MISSING, f"{subject} does not exist: objects are stored without a review", _RESTORE)]
    hooks = [hook for hook in view.items(configuration, "webhooks") if _leads_here(hook, PATHS[kind], expected)]
    if not hooks:
        where = f"Service {expected.namespace}/{expected.service} at {PATHS[kind]}"
        return [Problem(Trouble.ELSEWHERE, f"no webhook of {subject} leads to {where}", _RESTORE)]
    found: list[Problem] = []
    if kind == VALIDATING_WEBHOOK_CONFIGURATION and (missing := _not_reviewed(hooks, expected)):
        detail = f"{subject} does not cover {', '.join(missing)}"
        found.append(Problem(Trouble.RULES, detail, _RESTORE))
    if kind == VALIDATING_WEBHOOK_CONFIGURATION and not any(_covers_namespaces(hook, expected) for hook in hooks):
        detail = f"the selectors of {subject} exclude namespaces that are served"
        found.append(Problem(Trouble.NAMESPACES, detail, _RESTORE))
    return found


def bundles_of(configuration: Json | None) -> list[bytes]:
    """Return the CA bundle of each webhook, in PEM; empty for one that has none."""
    return [_bundle(hook) for hook in view.items(configuration, "webhooks")]


def not_trusted(kind: Kind, name: str, why: str) -> Problem:
    """Return the problem of a CA bundle that does not verify the certificate of this server."""
    detail = f"the caBundle of {kind.kind} {name} does not verify the serving certificate ({why})"
    fix = "let cert-manager inject the CA, or set certificates.caBundle to the CA of the certificate"
    return Problem(Trouble.NOT_TRUSTED, detail, fix)


def _leads_here(hook: Any, path: str, expected: Expected) -> bool:
    client = view.mapping(hook, "clientConfig")
    if url := view.text(client, "url"):  # outside of the cluster: a development setup
        return url.split("?")[0].rstrip("/").endswith(path)
    service = view.mapping(client, "service")
    return (
        view.text(service, "name") == expected.service
        and view.text(service, "namespace") == expected.namespace
        and (view.text(service, "path") or "/") == path
    )


def _not_reviewed(hooks: Sequence[Any], expected: Expected) -> list[str]:
    """Return the kinds whose creations or updates are not covered, as `plural (OPERATION)`."""
    rules = [rule for hook in hooks for rule in view.items(hook, "rules")]
    missing = []
    for kind in AIM_KINDS:
        if not kind.namespaced and not expected.cluster_kinds:
            continue
        gaps = [operation for operation in _OPERATIONS if not any(_covers(rule, kind, operation) for rule in rules)]
        if gaps:
            missing.append(f"{kind.plural} ({', '.join(gaps)})")
    return missing


def _covers(rule: Any, kind: Kind, operation: str) -> bool:
    wanted = (("operations", operation), ("apiGroups", kind.group), ("resources", kind.plural))
    versions = view.strings(rule, "apiVersions")
    return all({value, "*"} & set(view.strings(rule, field)) for field, value in wanted) and bool(
        {kind.version, "*"} & set(versions)
    )


def _covers_namespaces(hook: Any, expected: Expected) -> bool:
    """Whether no selector of a webhook excludes a namespace that is served, apart from a list of exceptions."""
    if view.mapping(hook, "objectSelector"):
        return False
    selector = view.mapping(hook, "namespaceSelector")
    if view.mapping(selector, "matchLabels"):
        return False
    return all(_lets_through(part, expected.namespaces) for part in view.items(selector, "matchExpressions"))


def _lets_through(part: Any, namespaces: Iterable[str]) -> bool:
    if view.text(part, "key") != _NAMESPACE_LABEL:
        return False
    values, served = set(view.strings(part, "values")), set(namespaces)
    if view.text(part, "operator") == "NotIn":
        return not (served & values)
    return view.text(part, "operator") == "In" and bool(served) and served <= values


def _bundle(hook: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(view.text(hook, "clientConfig", "caBundle") or "", validate=True)
    except (ValueError, binascii.Error):
        return b""
