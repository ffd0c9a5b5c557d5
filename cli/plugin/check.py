"""`check`: what a change does. How it is applied, which pods roll, which ceilings change, what breaks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import orjson

from api import view
from api.accelerators import node_matches, node_selector_terms
from api.kinds import INFERENCE_SERVICE
from api.names import ROLE_STAGING, ROLE_SUBTREE_SYNC
from api.view import Json
from api.words import parse_time
from cli.plugin.output import BAD, BOLD, DIM, GOOD, WAIT, Line, line
from cli.plugin.snapshot import Snapshot
from reconcile.objects import covers
from reconcile.pods import server_started
from reconcile.service.decide import decide
from reconcile.service.facts import ServiceFacts
from reconcile.service.loading import ServerPod
from reconcile.service.plan import make_plan
from reconcile.settings import ReconcileSettings

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


# -- how kubectl would apply a manifest -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Application:
    """The request that `kubectl apply` sends. `manager`: field manager of a server-side apply."""

    how: Literal["create", "merge", "apply"]
    body: Mapping[str, Any]
    manager: str = ""


def plan_apply(manifest: Json, live: Json | None) -> Application:
    """Return how a manifest is applied to the live object.

    - No live object: create.
    - Applied client-side before: kubectl's three-way merge patch. Fields of the last manifest that are not in this one
      are removed; lists are replaced.
    - Applied server-side before: apply with the same field manager.
    - Otherwise: a merge patch with the fields of the manifest.
    """
    if live is None:
        return Application("create", manifest)
    written = view.text(live, "metadata", "annotations", LAST_APPLIED)
    if written is None and (manager := _apply_manager(live)):
        return Application("apply", manifest, manager)
    last = _parse(written)
    patch = {key: three_way(last.get(key), manifest.get(key), live.get(key)) for key in ("spec",)}
    metadata = {
        key: three_way(
            view.dig(last, "metadata", key), view.dig(manifest, "metadata", key), view.dig(live, "metadata", key)
        )
        for key in ("labels", "annotations")
    }
    patch["metadata"] = {key: value for key, value in metadata.items() if value}
    return Application("merge", {key: value for key, value in patch.items() if value})


def _parse(written: str | None) -> Json:
    try:
        found = orjson.loads(written or "{}")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _apply_manager(live: Json) -> str:
    """Return the manager of an earlier server-side apply, kubectl's first; the controllers' own does not count."""
    managers = [
        view.text(entry, "manager") or ""
        for entry in view.items(live, "metadata", "managedFields")
        if view.dig(entry, "operation") == "Apply"
        and not view.dig(entry, "subresource")
        and view.dig(entry, "manager") != "aim-adapters"
    ]
    return "kubectl" if "kubectl" in managers else managers[0] if managers else ""


def three_way(last: Any, new: Any, live: Any) -> Any:
    """Return the merge patch that sets in `live` the fields of `new` and removes those that only `last` has.

    Lists are replaced as a whole.
    """
    if not isinstance(new, Mapping):
        return new
    patch: dict[str, Any] = {}
    known = last if isinstance(last, Mapping) else {}
    there = live if isinstance(live, Mapping) else {}
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(there.get(key), Mapping):
            if inner := three_way(known.get(key), value, there[key]):
                patch[key] = inner
        elif there.get(key) != value:
            patch[key] = value
    return patch | {key: None for key in known if key not in new and key in there}


# -- the effect on a service ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does to one service. `changes`: differences of the pods, in words; empty: no pod rolls."""

    service: str
    created: bool = False
    pods: int = 0
    changes: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()
    ceiling: tuple[int | None, int | None] = (None, None)
    ceiling_origin: str = ""
    adapters_added: tuple[str, ...] = ()
    adapters_removed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    @property
    def quiet(self) -> bool:
        """Whether the change has no effect on the service."""
        same = self.ceiling[0] == self.ceiling[1]
        return not (
            self.created or self.changes or self.scaled or self.adapters_added or self.adapters_removed or self.broken
        ) and (same and not self.fixed)


@dataclass(frozen=True, slots=True)
class Judged:
    """One manifest: the answer of the server and of the rules. `place`: its file:line."""

    subject: str
    place: str
    outcome: Literal["created", "changed", "unchanged", "refused"]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report."""

    judged: tuple[Judged, ...] = ()
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def good(self) -> bool:
        """Whether everything is accepted and nothing breaks."""
        return not any(one.errors for one in self.judged) and not any(one.broken for one in self.effects)


def observe(seen: Snapshot, settings: ReconcileSettings) -> ServiceFacts:
    """Return the input of the controller's decision. The adapters that servers list are not known here."""
    plan = make_plan(seen.facts.pipeline, seen.service)
    nodes = None
    if seen.nodes is not None and plan is not None and plan.accelerator_model and plan.gpus:
        terms = node_selector_terms(plan.accelerator_model, plan.partitioning)
        nodes = sum(1 for node in seen.nodes if node_matches(view.mapping(node, "metadata", "labels"), terms))
    return ServiceFacts(
        facts=seen.facts,
        now=seen.now,
        settings=settings,
        errors=seen.errors,
        caches=seen.caches,
        disk_claim=seen.claims.get(seen.disk_claim_name),
        sync_jobs=tuple(seen.jobs_of(ROLE_SUBTREE_SYNC, seen.service)),
        stage_jobs=tuple(seen.jobs_of(ROLE_STAGING, seen.service)),
        isvc=seen.isvc,
        deployment=seen.deployment,
        predictor_pods=tuple(seen.predictor_pods),
        pods=tuple(
            ServerPod(view.name_of(pod), since, started=server_started(pod))
            for pod in seen.predictor_pods
            if (since := _ready_since(pod))
        ),
        config_maps=seen.config_maps,
        pool_nodes=nodes,
    )


def _ready_since(pod: Json) -> Any:
    for entry in view.items(pod, "status", "conditions"):
        if view.dig(entry, "type") == "Ready" and view.dig(entry, "status") == "True":
            return parse_time(view.dig(entry, "lastTransitionTime"))
    return None


def effect(before: Snapshot | None, after: Snapshot, settings: ReconcileSettings | None = None) -> Effect:
    """Return what happens to a service when the cluster's objects change from `before` to `after`.

    `before` is None for a service that the change creates.
    """
    changes, scaled = _pod_changes(before, after, settings or ReconcileSettings())
    old, new = _adapters(before), _adapters(after)
    had, has = _errors(before), _errors(after)
    ceiling = before.facts.ceiling.value if before is not None else None
    return Effect(
        service=f"{after.namespace}/{after.name}",
        created=before is None,
        pods=view.integer(after.deployment, "status", "replicas") or 0,
        changes=tuple(changes),
        scaled=tuple(scaled),
        ceiling=(ceiling, after.facts.ceiling.value),
        ceiling_origin=after.facts.ceiling.origin,
        adapters_added=tuple(name for name in new if name not in old),
        adapters_removed=tuple(name for name in old if name not in new),
        broken=tuple(sorted(has - had)),
        fixed=tuple(sorted(had - has)),
    )


def _pod_changes(before: Snapshot | None, after: Snapshot, settings: ReconcileSettings) -> tuple[list[str], list[str]]:
    """Return the differences of the pods, and of their number, that this change causes.

    The server's own settings are not known here, so the wanted object may differ from the live one without any change.
    Those differences are subtracted.
    """
    changes, scaled = predictor_changes(after.isvc, _wanted(after, settings))
    if before is not None:
        anyway, _ = predictor_changes(before.isvc, _wanted(before, settings))
        changes = [change for change in changes if change not in anyway]
    return changes, scaled


def _adapters(seen: Snapshot | None) -> list[str]:
    return [ref.name for ref in view.adapter_refs(seen.service)] if seen is not None else []


def _errors(seen: Snapshot | None) -> set[str]:
    return {str(error) for error in seen.errors} if seen is not None else set()


def _wanted(seen: Snapshot, settings: ReconcileSettings) -> Json | None:
    """Return the InferenceService that the controller applies."""
    return {kind.kind: obj for kind, obj in decide(observe(seen, settings)).apply}.get(INFERENCE_SERVICE.kind)


_SCALE = frozenset({"minReplicas", "maxReplicas"})


def predictor_changes(live: Json | None, wanted: Json | None) -> tuple[list[str], list[str]]:
    """Return the differences of the pods, and of their number, in words. Values of a user's variables are not shown."""
    if live is None or wanted is None:
        return [], []
    have, want = view.mapping(live, "spec", "predictor"), view.mapping(wanted, "spec", "predictor")
    scaled = [
        f"{key} {have.get(key)} → {want[key]}" for key in sorted(_SCALE & want.keys()) if have.get(key) != want[key]
    ]
    changes = [key for key in sorted(want.keys() - _SCALE - {"containers"}) if not covers(have.get(key), want[key])]
    old, new = _container(have), _container(want)
    changes += _env_changes(view.items(old, "env"), view.items(new, "env"))
    for key in sorted(new.keys() - {"env", "name"}):
        if not covers(old.get(key), new[key], quantities=key == "resources"):
            shown = f" {old.get(key)} → {new[key]}" if isinstance(new[key], str) else ""
            changes.append(f"{key}{shown}")
    return changes, scaled


def _container(predictor: Json) -> Json:
    containers = view.items(predictor, "containers")
    return view.mapping(containers[0]) if containers else {}


def _by_name(env: Iterable[Any]) -> dict[str, Json]:
    """Return the variables by name. Typed clients write an absent value as an empty one, so both are the same."""
    return {
        str(view.dig(entry, "name")): {key: value for key, value in view.mapping(entry).items() if value != ""}
        for entry in env
    }


def _env_changes(old: Iterable[Any], new: Iterable[Any]) -> list[str]:
    before, after = _by_name(old), _by_name(new)
    words = []
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        own = name.startswith("AIM_")
        was, becomes = view.text(before.get(name), "value"), view.text(after.get(name), "value")
        if name not in before:
            words.append(f"env {name}" + (f" = {becomes}" if own else "") + " is new")
        elif name not in after:
            words.append(f"env {name} is removed")
        else:
            words.append(f"env {name} {was} → {becomes}" if own and was and becomes else f"env {name} changes")
    return words


# -- output ---------------------------------------------------------------------------------------------------------

_WORDS = {
    "created": ("would be created", GOOD),
    "changed": ("would be changed", WAIT),
    "unchanged": ("unchanged", DIM),
    "refused": ("would be refused", BAD),
}


def as_view(report: Report) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "accepted": not any(one.errors for one in report.judged),
        "good": report.good,
        "objects": [_lists(asdict(one)) for one in report.judged],
        "services": [_effect(one) for one in report.effects],
        "notes": list(report.notes),
    }


def _lists(found: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _effect(one: Effect) -> dict[str, Any]:
    found = _lists(asdict(one))
    before, after = found.pop("ceiling")
    return found | {"rolls": bool(one.changes) and one.pods > 0, "ceilingBefore": before, "ceilingAfter": after}


def as_lines(report: Report) -> list[Line]:
    """Return the report for people: the objects, then the blast radius."""
    out = [found for one in report.judged for found in _judged(one)]
    loud = [one for one in report.effects if not one.quiet]
    if not any(one.errors for one in report.judged):
        out += [line(""), line(("blast radius", BOLD))]
        out += [found for one in loud for found in _blast(one)]
        if not loud:
            out.append(line("  ", ("no pod rolls, no ceiling changes, nothing breaks", GOOD)))
    return out + [line((note, DIM)) for note in report.notes]


def _judged(one: Judged) -> list[Line]:
    words, style = _WORDS[one.outcome]
    out = [line(f"{one.subject} ", (words, style), (f"   {one.place}", DIM))]
    out += [line("  ", ("error: ", BAD), text) for text in one.errors]
    out += [line("  ", ("warning: ", WAIT), text) for text in one.warnings]
    return out


def _blast(one: Effect) -> list[Line]:
    return [
        line(f"  AIMService {one.service}", (" (new)" if one.created else "", GOOD)),
        *_pod_lines(one),
        *_ceiling_lines(one),
        *_adapter_lines(one),
        *(line("    ", ("breaks: ", BAD), text) for text in one.broken),
        *(line("    ", ("fixes: ", GOOD), text) for text in one.fixed),
    ]


def _pod_lines(one: Effect) -> Iterator[Line]:
    if one.changes and one.pods:
        pods = "1 pod rolls" if one.pods == 1 else f"{one.pods} pods roll"
        yield line("    ", (pods, WAIT), f": {', '.join(one.changes)}")
    elif one.changes:
        yield line(f"    the server starts with: {', '.join(one.changes)}")
    elif not one.created:
        yield line("    ", ("no pod rolls", GOOD))
    if one.scaled:
        yield line(f"    replicas: {', '.join(one.scaled)}")


def _ceiling_lines(one: Effect) -> Iterator[Line]:
    before, after = one.ceiling
    if one.created and after is not None:
        yield line(f"    rank ceiling {after} ({one.ceiling_origin})")
    elif before != after:
        yield line(f"    rank ceiling {before or 'none'} → {after or 'none'} ({one.ceiling_origin})")


def _adapter_lines(one: Effect) -> Iterator[Line]:
    if one.adapters_added:
        yield line(f"    staged: {', '.join(one.adapters_added)}")
    if one.adapters_removed and not one.created:
        yield line(f"    unloaded: {', '.join(one.adapters_removed)}")
