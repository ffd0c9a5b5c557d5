"""`status`: the state of a service on one screen. Pure: a snapshot in, a view for programs and lines for people out."""

from __future__ import annotations

from typing import Any

from api.reasons import Reason
from api.view import (
    Json,
    adapter_mode,
    adapter_refs,
    condition,
    declared_rank,
    dig,
    integer,
    items,
    mapping,
    model_id,
    name_of,
    text,
    uses_adapters,
)
from api.words import parse_time
from cli.plugin.output import BAD, BOLD, DIM, WAIT, Cell, Line, columns, head, line, size, state
from cli.plugin.snapshot import Snapshot
from reconcile.jobs import event_time
from rules.rank import SUPPORTED_RANKS
from rules.references import Resolved, Unreadable

_CONDITIONS = ("ConfigValid", "CacheReady", "Adapters", "InferenceServiceReady", "Ready")
_EVENTS_SHOWN = 3


def view(seen: Snapshot) -> dict[str, Any]:
    """Return the state of a service. The format is stable: fields are added, never renamed."""
    service, facts = seen.service, seen.facts
    ceiling = facts.ceiling
    claim = seen.claims.get(seen.disk_claim_name)
    return {
        "namespace": seen.namespace,
        "name": seen.name,
        "status": text(service, "status", "status") or "Pending",
        "mode": adapter_mode(service),
        "pipeline": facts.pipeline.kind,
        "profile": _reference(facts.pipeline.profile),
        "model": text(service, "spec", "model", "name"),
        "replicas": text(service, "status", "runtime", "replicas"),
        "url": text(seen.isvc, "status", "address", "url"),
        "base": _base(seen.base),
        "ceiling": {
            "value": ceiling.value,
            "origin": ceiling.origin or None,
            "asked": ceiling.asked.value if ceiling.deferred or ceiling.invalid_because else None,
            "waitsFor": list(ceiling.unresolved) if ceiling.deferred else [],
        }
        if uses_adapters(service)
        else None,
        "disk": {
            "claim": seen.disk_claim_name or None,
            "phase": text(claim, "status", "phase"),
            "size": text(claim, "status", "capacity", "storage"),
        }
        if uses_adapters(service)
        else None,
        "conditions": [_condition(service, kind) for kind in _CONDITIONS if condition(service, kind)],
        "adapters": [_adapter(seen, entry) for entry in _entries(seen)],
        "events": [_event(event) for event in seen.events[:_EVENTS_SHOWN]],
    }


def _reference(found: object) -> dict[str, Any] | None:
    return {"kind": found.kind.kind, "name": found.name} if isinstance(found, Resolved) else None


def _base(base: Json) -> dict[str, Any] | None:
    if not base:
        return None
    return {
        "name": name_of(base),
        "modelId": model_id(base),
        "status": text(base, "status", "status") or "Pending",
        "size": text(base, "status", "displaySize"),
        "percentage": integer(base, "status", "progress", "percentage"),
    }


def _condition(service: Json, kind: str) -> dict[str, Any]:
    entry = condition(service, kind)
    return {key: entry.get(key) for key in ("type", "status", "reason", "message", "lastTransitionTime")}


def _event(event: Json) -> dict[str, Any]:
    return {
        "time": event_time(event),
        "type": text(event, "type"),
        "reason": text(event, "reason"),
        "message": text(event, "message"),
    }


def _entries(seen: Snapshot) -> list[Json]:
    """Return the declared adapters in order, then those being removed; one without an entry is Pending."""
    reported = {text(entry, "name") or "": mapping(entry) for entry in items(seen.service, "status", "adapters")}
    declared = list(dict.fromkeys(ref.name for ref in adapter_refs(seen.service)))
    entries = [reported.get(name) or {"name": name, "state": "Pending"} for name in declared]
    return entries + [entry for name, entry in reported.items() if name not in declared]


def _adapter(seen: Snapshot, entry: Json) -> dict[str, Any]:
    name = str(entry.get("name"))
    artifact = seen.facts.artifacts.get(name)
    known = artifact is not None and not isinstance(artifact, Unreadable)
    return {
        "name": name,
        "state": entry.get("state"),
        "served": entry.get("adapterPath") or (text(artifact, "status", "adapterPath") if known else None),
        "declaredRank": declared_rank(artifact) if known else None,
        "rank": entry.get("rank"),
        "sizeBytes": integer(entry, "sizeBytes"),
        "base": entry.get("baseModelId"),
        "progress": entry.get("progress"),
        "loadedReplicas": entry.get("loadedReplicas"),
        "attempts": entry.get("attempts"),
        "nextRetryTime": entry.get("nextRetryTime"),
        "lastError": entry.get("lastError"),
        "warnings": [mapping(note) for note in items(entry, "warnings")],
        "since": entry.get("lastObserved"),
    }


# -- for people -----------------------------------------------------------------------------------------------------


def lines(seen: Snapshot) -> list[Line]:
    """Return the screen."""
    shown = view(seen)
    out = [line((f"{shown['namespace']}/{shown['name']}", BOLD), "   ", state(shown["status"]), f"   {shown['mode']}")]
    out += columns(_facts(shown), indent=2)
    out += [_condition_line(entry) for entry in _worth_showing(shown["conditions"])]
    if shown["adapters"]:
        out += [line(""), *_table(shown, seen)]
    if shown["events"]:
        out += [line(""), line(("newest events", DIM))]
        out += columns([_event_row(event, seen) for event in shown["events"]], indent=2)
    if seen.unreadable:
        out.append(line((f"not allowed to read: {', '.join(sorted(seen.unreadable))}", WAIT)))
    return out


def _facts(shown: dict[str, Any]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    profile = shown["profile"]
    if profile:
        rows.append([("profile", DIM), f"{profile['kind']} {profile['name']}"])
    elif shown["model"]:
        rows.append([("model", DIM), shown["model"]])
    if (base := shown["base"]) is not None:
        percent = f", {base['percentage']} %" if base["percentage"] not in (None, 100) else ""
        extra = f"{base['modelId'] or '-'} ({base['name']}): {base['status']}{percent}"
        rows.append([("base", DIM), extra])
    if (ceiling := shown["ceiling"]) is not None:
        rows.append([("ceiling", DIM), _ceiling_words(ceiling)])
    if (disk := shown["disk"]) is not None:
        words = f"{disk['claim']} {disk['size'] or ''} {disk['phase'] or ''}".split() if disk["claim"] else ["none yet"]
        rows.append([("disk", DIM), " ".join(words)])
    rows.append(
        [("replicas", DIM), f"{shown['replicas'] or 'none yet'}" + (f"   {shown['url']}" if shown["url"] else "")]
    )
    return rows


def _ceiling_words(ceiling: dict[str, Any]) -> str:
    if ceiling["value"] is None:
        return "not known yet"
    words = f"rank {ceiling['value']} ({ceiling['origin']})"
    if ceiling["asked"] not in (None, ceiling["value"]):
        waits = f", waits for {', '.join(ceiling['waitsFor'])}" if ceiling["waitsFor"] else ""
        words += f"; requested: {ceiling['asked']}{waits}"
    return words


def _worth_showing(conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conditions with information of their own: not those that repeat another one (Gated, Ready)."""
    own = [entry for entry in conditions if entry["type"] != "Ready" and entry["reason"] != Reason.GATED]
    first = {entry["message"]: entry for entry in reversed(own) if entry["message"]}  # the same words are shown once
    shown = [
        entry
        for entry in own
        if (entry["status"] != "True" or entry["message"]) and first.get(entry["message"], entry) is entry
    ]
    bad = any(entry["status"] != "True" for entry in shown)
    rest = [entry for entry in conditions if entry not in own and entry["status"] != "True"]
    return shown if bad else shown + rest[-1:]


def _condition_line(entry: dict[str, Any]) -> Line:
    style = "" if entry["status"] == "True" else BAD if entry["reason"] == Reason.ADAPTER_CONFIG_INVALID else WAIT
    message = f": {entry['message']}" if entry["message"] else ""
    return line("  ", (f"{entry['type']}: {entry['reason']}", style), message)


def _table(shown: dict[str, Any], seen: Snapshot) -> list[Line]:
    rows: list[list[Cell]] = [head("ADAPTER", "STATE", "RANK", "SIZE", "PROGRESS", "LOADED", "TRIES", "BASE", "SINCE")]
    total = integer(seen.service, "status", "runtime", "currentReplicas")
    for entry in shown["adapters"]:
        progress = mapping(entry["progress"])
        percent = progress.get("percentage")
        loaded = entry["loadedReplicas"]
        rows.append(
            [
                entry["name"],
                state(entry["state"]),
                _rank_words(entry),
                size(entry["sizeBytes"]),
                f"{percent} % of {size(integer(progress, 'totalBytes'))}" if percent is not None else "-",
                f"{loaded}/{total if total is not None else '?'}" if loaded is not None else "-",
                str(entry["attempts"] or "-"),
                entry["base"] or "-",
                age(entry["since"], seen),
            ]
        )
    table = columns(rows)
    out = table[:1]
    for entry, row in zip(shown["adapters"], table[1:], strict=True):
        out.append(row)
        if entry["lastError"]:
            again = f" (next try in {wait})" if (wait := until(entry["nextRetryTime"], seen)) not in ("-", "0s") else ""
            out.append(
                line("  ", (entry["lastError"], BAD if entry["state"] in ("Failed", "LoadRejected") else WAIT), again)
            )
        out += [
            line("  ", (f"warning: {note.get('reason')}: {note.get('message')}", WAIT)) for note in entry["warnings"]
        ]
    return out


def _rank_words(entry: dict[str, Any]) -> str:
    real, declared = entry["rank"], entry["declaredRank"]
    if real is None:
        return f"({declared})" if declared is not None else "-"
    return f"{real}" if declared in (None, real) else f"{real} (declared {declared})"


def _event_row(event: dict[str, Any], seen: Snapshot) -> list[Cell]:
    style = WAIT if event["type"] == "Warning" else ""
    return [age(event["time"], seen), (event["reason"] or "", style), event["message"] or ""]


def age(moment: object, seen: Snapshot) -> str:
    """Return how long ago something was, as kubectl prints ages."""
    then = parse_time(moment)
    return duration((seen.now - then).total_seconds()) if then is not None else "-"


def until(moment: object, seen: Snapshot) -> str:
    """Return the time until something."""
    then = parse_time(moment)
    return duration(max(0.0, (then - seen.now).total_seconds())) if then is not None else "-"


def duration(seconds: float) -> str:
    """Return a duration as kubectl prints it: the largest unit of which there are two."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def overview(services: list[Json]) -> tuple[list[dict[str, Any]], list[Line]]:
    """Return one row per service: for `status` without a name."""
    rows: list[list[Cell]] = [
        head("NAMESPACE", "SERVICE", "STATUS", "MODE", "ADAPTERS", "CEILING", "REPLICAS", "TROUBLE")
    ]
    views = []
    for service in sorted(services, key=lambda one: (dig(one, "metadata", "namespace") or "", name_of(one))):
        trouble = _trouble(service)
        one = {
            "namespace": dig(service, "metadata", "namespace"),
            "name": name_of(service),
            "status": text(service, "status", "status") or "Pending",
            "mode": adapter_mode(service),
            "adapters": text(service, "status", "adapterSummary"),
            "ceiling": integer(service, "status", "adapterMaxRank"),
            "replicas": text(service, "status", "runtime", "replicas"),
            "trouble": trouble,
        }
        views.append(one)
        cells = [one["namespace"] or "", one["name"], state(one["status"]), one["mode"], one["adapters"] or "-"]
        rows.append([*cells, str(one["ceiling"] or "-"), one["replicas"] or "-", trouble or ""])
    return views, columns(rows)


def _trouble(service: Json) -> str | None:
    """Return in one word why a service is not fully served, None if it is."""
    for entry in items(service, "status", "adapters"):
        if dig(entry, "state") in ("Failed", "LoadRejected"):
            return f"{dig(entry, 'name')}: {(text(entry, 'lastError') or '').partition(':')[0]}"
    ready = condition(service, "Ready")
    return str(ready.get("reason")) if ready.get("status") == "False" else None


# -- ranks ----------------------------------------------------------------------------------------------------------


def rank_view(seen: Snapshot) -> dict[str, Any]:
    """Return ceiling and ranks for programs."""
    shown = view(seen)
    return {
        "ceiling": shown["ceiling"],
        "adapters": [{key: one[key] for key in ("name", "declaredRank", "rank", "state")} for one in shown["adapters"]],
    }


def rank_lines(seen: Snapshot) -> list[Line]:
    """Return ceiling and ranks for people."""
    shown = rank_view(seen)
    ceiling = shown["ceiling"] or {}
    value = ceiling.get("value")
    out = [line("ceiling ", (str(value or "not known yet"), BOLD), f" ({ceiling.get('origin') or '-'})")]
    if ceiling.get("asked") is not None:
        out.append(line(f"requested: {ceiling['asked']}"))
    rows: list[list[Cell]] = [head("ADAPTER", "DECLARED", "REAL", "FITS")]
    for one in shown["adapters"]:
        highest = max(one["declaredRank"] or 0, one["rank"] or 0)
        fits: Cell = "-" if value is None or not highest else "yes" if highest <= value else ("no", BAD)
        rows.append([one["name"], str(one["declaredRank"] or "-"), str(one["rank"] or "-"), fits])
    return [*out, *(columns(rows) if shown["adapters"] else []), line((f"supported: {SUPPORTED_RANKS}", DIM))]
