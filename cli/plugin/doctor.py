"""Whether aim-adapters works in a cluster: a table of checks over what a user can read there. Pure.

Each check says what holds, or what does not and how to fix it. What a user cannot read is not known, and no fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509

from api import view, words
from api.kinds import AIM_GROUP, AIM_KINDS, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind
from api.view import Json
from cli.plugin.chain import is_held
from cli.plugin.output import BAD, DIM, GOOD, WAIT, Line, line
from webhooks.registration import Expected, bundles_of, problems_of

SERVING_API = ("serving.kserve.io/v1beta1", "inferenceservices")
_EXPIRES_SOON = timedelta(days=3)
_INSTALL = "install the chart (helm upgrade --install aim-adapters …)"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read. A string in place of a value: why it could not be read.

    `served`: group/version → plurals, None: not served. `readiness`: pod → text of its `/readyz`.
    """

    now: datetime
    served: Mapping[str, frozenset[str] | str | None] = field(default_factory=dict)
    configurations: Mapping[Kind, tuple[Json, ...] | str] = field(default_factory=dict)
    pods: tuple[Json, ...] | str = ()
    leases: tuple[Json, ...] | str = ()
    classes: tuple[Json, ...] | str = ()
    readiness: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One line. `good` is None where nothing is known."""

    name: str
    good: bool | None
    detail: str
    fix: str = ""


def place_of(obj: Json) -> str:
    """Return namespace and name of an object, as people write them."""
    return f"{view.namespace_of(obj)}/{view.name_of(obj)}"


def examine(facts: Facts) -> list[Check]:
    """Return all checks in order."""
    return [check for step in _STEPS for check in step(facts)]


def healthy(checks: list[Check]) -> bool:
    """Whether no check found a fault."""
    return all(check.good is not False for check in checks)


def as_view(checks: list[Check]) -> list[dict[str, Any]]:
    """Return the checks for programs."""
    words_of = {True: "ok", False: "failed", None: "unknown"}
    return [
        {"check": check.name, "status": words_of[check.good], "detail": check.detail, "fix": check.fix or None}
        for check in checks
    ]


def as_lines(checks: list[Check]) -> list[Line]:
    """Return the checks for people."""
    signs = {True: ("✓", GOOD), False: ("✖", BAD), None: ("?", WAIT)}
    lines: list[Line] = []
    for check in checks:
        lines.append(line(signs[check.good], f" {check.name}: ", check.detail))
        if check.fix and check.good is not True:
            lines.append(line((f"    {check.fix}", DIM)))
    return lines


# -- the checks -----------------------------------------------------------------------------------------------------


def _kinds(facts: Facts) -> Iterator[Check]:
    for version in ("v1alpha1", "v1alpha2"):
        name, group = f"CRDs {version}", f"{AIM_GROUP}/{version}"
        found = facts.served.get(group)
        if isinstance(found, str):
            yield Check(name, None, found)
            continue
        wanted = {kind.plural for kind in AIM_KINDS if kind.version == version}
        missing = sorted(wanted - (found or frozenset()))
        if missing:
            detail = f"{group} does not serve {', '.join(missing)}"
            yield Check(name, False, detail, f"{_INSTALL}; it contains the CRDs")
        else:
            yield Check(name, True, f"{len(wanted)} kinds are served")


def _webhooks(facts: Facts) -> Iterator[Check]:
    for kind in (VALIDATING_WEBHOOK_CONFIGURATION, MUTATING_WEBHOOK_CONFIGURATION):
        found = facts.configurations.get(kind, ())
        if isinstance(found, str):
            yield Check(kind.kind, None, found)
            continue
        if not found:
            yield Check(kind.kind, False, "there is none: objects are stored without a review", _INSTALL)
        for configuration in found:
            yield from _configuration(kind, configuration, facts.now)


def _configuration(kind: Kind, configuration: Json, now: datetime) -> Iterator[Check]:
    name = f"{kind.kind} {view.name_of(configuration)}"
    problems = problems_of(kind, view.name_of(configuration), configuration, _expected(configuration))
    for problem in problems:
        yield Check(name, False, problem.detail, problem.fix)
    if not problems:
        yield Check(name, True, "covers what is served")
    for bundle in bundles_of(configuration)[:1]:
        yield _bundle(name, bundle, now)


def _expected(configuration: Json) -> Expected:
    """Return what a configuration must say as far as it can be known from outside: its own Service and namespaces."""
    hooks = view.items(configuration, "webhooks")
    service = view.mapping(hooks[0] if hooks else None, "clientConfig", "service")
    selected = [
        name
        for hook in hooks
        for part in view.items(hook, "namespaceSelector", "matchExpressions")
        if view.text(part, "operator") == "In"
        for name in view.strings(part, "values")
    ]
    resources = {
        name for hook in hooks for rule in view.items(hook, "rules") for name in view.strings(rule, "resources")
    }
    return Expected(
        view.text(service, "name") or "",
        view.text(service, "namespace") or "",
        tuple(selected),
        any(kind.plural in resources for kind in AIM_KINDS if not kind.namespaced),
    )


def _bundle(name: str, bundle: bytes, now: datetime) -> Check:
    fix = "look at the certificate checks of the server's /readyz, and at cert-manager where it is used"
    if not bundle.strip():
        return Check(f"{name}, CA", False, "the caBundle is empty: the API server cannot call the webhook", fix)
    try:
        ends = max(certificate.not_valid_after_utc for certificate in x509.load_pem_x509_certificates(bundle))
    except ValueError:
        return Check(f"{name}, CA", False, "the caBundle is not PEM", fix)
    if ends < now:
        return Check(
            f"{name}, CA", False, f"every CA of the caBundle expired, the last one {words.ago(ends, now)}", fix
        )
    if ends - now < _EXPIRES_SOON:
        return Check(f"{name}, CA", False, f"the CA expires {words.ago(ends, now)}", fix)
    return Check(f"{name}, CA", True, f"valid until {words.absolute(ends)}")


def _servers(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.pods, str):
        yield Check("server", None, facts.pods)
        return
    if not facts.pods:
        yield Check("server", False, "no pod of the server exists", _INSTALL)
    for pod in facts.pods:
        place = place_of(pod)
        ready = view.condition(pod, "Ready").get("status") == "True"
        fix = f"kubectl describe pod -n {view.namespace_of(pod)} {view.name_of(pod)}, and its log"
        yield Check(f"server {place}", ready, "ready" if ready else "not ready", "" if ready else fix)
        yield from _reported(place, facts.readiness.get(place, ""))


_REPORTED = re.compile(r"^\[([-!])\] (.*?): (.*)$", re.MULTILINE)


def _reported(place: str, text: str) -> Iterator[Check]:
    """Yield what the server itself reports on /readyz: certificates, watches, objects that are left out."""
    for found in _REPORTED.finditer(text):
        yield Check(f"server {place}, {found[2]}", False, found[3], "see docs/operations.md, Health")


def _leader(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.leases, str):
        yield Check("leader", None, facts.leases)
        return
    for lease in facts.leases:
        holder = view.text(lease, "spec", "holderIdentity")
        renewed = words.parse_time(view.dig(lease, "spec", "renewTime"))
        held = is_held(lease, facts.now)
        since = words.ago(renewed, facts.now) if renewed else "never"
        detail = f"{holder or 'no one'}, renewed {since}"
        fix = "look for errors about the lease in the logs of the replicas; compare the clocks of the nodes"
        yield Check("leader", held, detail, "" if held else fix)


def _kserve(facts: Facts) -> Iterator[Check]:
    found = facts.served.get(SERVING_API[0])
    if isinstance(found, str):
        yield Check("KServe", None, found)
    elif found is None or SERVING_API[1] not in found:
        yield Check("KServe", False, f"{SERVING_API[0]} is not served: services cannot run", "install KServe")
    else:
        yield Check("KServe", True, f"{SERVING_API[0]} is served")


def _storage(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.classes, str):
        yield Check("storage", None, facts.classes)
    elif not facts.classes:
        yield Check("storage", False, "the cluster has no StorageClass", "create one whose volumes are ReadWriteMany")
    else:
        names = ", ".join(sorted(map(view.name_of, facts.classes)))
        yield Check("storage", True, f"StorageClasses: {names} (adapter disks need ReadWriteMany)")


_STEPS: tuple[Callable[[Facts], Iterator[Check]], ...] = (_kinds, _webhooks, _servers, _leader, _kserve, _storage)
