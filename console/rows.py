"""The table of services: a row of facts for each, and a row that opens to show its adapters. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from urllib.parse import quote

from api.words import NOTHING, size
from console.bits import badge, bar, reason, reason_first, when
from console.markup import Html, el, html
from console.views import (
    ADAPTER_STATES,
    AdapterView,
    Note,
    ServiceView,
)

COLUMNS = ("Service", "Status", "Mode", "Base model", "Adapters", "Rank ceiling", "Ready", "On disk", "Age")


def row_id(view: ServiceView) -> str:
    """Return the id of a service's rows."""
    return f"s/{quote(view.namespace, safe='')}/{quote(view.name, safe='')}"


def service_rows(view: ServiceView, now: datetime, *, opened: bool = False) -> Html:
    """Return the table body of one service: a row of facts, and a row that opens to show its adapters."""
    loaded = sum(adapter.state == "Loaded" for adapter in view.adapters)
    facts = el(
        "tr",
        el(
            "th",
            el("span", f"{view.namespace}/", class_="ns"),
            el("span", view.name, class_="name"),
            el("span", " paused", class_="tag") if view.paused else None,
            el("span", " being deleted", class_="tag") if view.leaving else None,
            scope="row",
        ),
        el("td", badge(view.status)),
        el("td", view.mode),
        el("td", _base(view), class_="base"),
        el("td", f"{loaded} of {len(view.adapters)} loaded" if view.adapters else "none"),
        el("td", _ceiling(view)),
        el("td", view.replicas.replace("/", " of ") or NOTHING),
        el("td", size(view.own_bytes) if view.own_bytes else NOTHING, class_="number"),
        el("td", when(view.created, now)),
        class_="facts",
    )
    return el("tbody", facts, _more(view, now, opened), id=row_id(view), class_="service")


def _base(view: ServiceView) -> Html:
    if view.base is None:
        return html(view.serves or NOTHING)
    words = [view.base.model_id or view.base.name]
    if view.base.status == "Ready":
        return html(words)
    progress_text = f"{view.base.percentage} %" if view.base.percentage is not None else view.base.status
    progress = bar(view.base.percentage, f"base model {words[0]}") if view.base.percentage is not None else None
    return html(words, el("span", progress, " ", progress_text, class_="progress"))


def _ceiling(view: ServiceView) -> Html:
    if not view.with_adapters:
        return html(NOTHING)
    if view.ceiling is None:
        return html("not known yet")
    asked = f", {view.ceiling_asked} requested" if view.ceiling_asked is not None else ""
    return el("span", f"{view.ceiling}{asked}", title=_origin(view))


def _origin(view: ServiceView) -> str | None:
    return f"from {view.ceiling_origin}" if view.ceiling_origin else None


def _more(view: ServiceView, now: datetime, opened: bool) -> Html:
    inside = html(
        el("ul", [_note(note) for note in view.notes], class_="notes") if view.notes else None,
        _adapter_table(view, now) if view.adapters else el("p", "No adapters are declared.", class_="quiet"),
        el("p", _facts(view), class_="quiet"),
    )
    summary = el("summary", el("span", "Adapters and details of ", view.name, class_="hidden"), _in_short(view))
    details = el("details", summary, el("div", inside, class_="inside"), open=opened)
    return el("tr", el("td", details, colspan=len(COLUMNS)), class_="more")


def _in_short(view: ServiceView) -> Html:
    """Return the line for closed details: each state once, progress, problems."""
    if not view.adapters:
        return html(": no adapters" if not view.notes else f": {view.notes[0].reason}")
    pieces: list[object] = []
    for state in _worst_first(adapter.state for adapter in view.adapters):
        named = [adapter for adapter in view.adapters if adapter.state == state]
        words = ", ".join(_with_percent(adapter) for adapter in named[:3])
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        pieces.append(el("span", badge(state), f" {words}{more}", class_="piece"))
    if view.notes:
        pieces.append(el("span", view.notes[0].reason, class_="piece reason"))
    return html(el("span", ": ", class_="hidden"), pieces)


def _worst_first(states: Iterable[str]) -> list[str]:
    """Return the states that occur, once each: failures, then what is in progress, then what is done."""
    order = {state: place for place, state in enumerate(reversed(ADAPTER_STATES))}
    return sorted(set(states), key=lambda state: (order.get(state, -1), state))


def _with_percent(adapter: AdapterView) -> str:
    return f"{adapter.name} {adapter.percentage} %" if _moving(adapter) else adapter.name


def _moving(adapter: AdapterView) -> bool:
    return adapter.percentage is not None and adapter.state == "Downloading"


def _note(note: Note) -> Html:
    return el("li", reason(note.reason), f": {note.message}" if note.message else "")


def _facts(view: ServiceView) -> Html:
    facts: list[object] = []
    if view.serves:
        facts.append(f"Serves {view.serves}. ")
    if view.ceiling is not None and view.ceiling_origin:
        facts.append(f"Rank ceiling {view.ceiling}, {_origin(view)}. ")
    if view.claim:
        facts.append(f"Adapter disk {view.claim}.")
    return html(facts)


_ADAPTER_COLUMNS = ("Adapter", "State", "Rank", "Size", "Progress", "Loaded on", "Tries", "State since")


def _adapter_table(view: ServiceView, now: datetime) -> Html:
    head = el("tr", [el("th", name, scope="col") for name in _ADAPTER_COLUMNS])
    caption = el("caption", f"Adapters of {view.namespace}/{view.name}", class_="hidden")
    rows = [_adapter_rows(view, adapter, now) for adapter in view.adapters]
    return el("div", el("table", caption, el("thead", head), el("tbody", rows), class_="adapters"), class_="wide")


def _adapter_rows(view: ServiceView, adapter: AdapterView, now: datetime) -> Html:
    facts = el(
        "tr",
        el("th", adapter.name, el("span", " leaving", class_="tag") if adapter.leaving else None, scope="row"),
        el("td", badge(adapter.state)),
        el("td", _rank(adapter, view.ceiling)),
        el("td", size(adapter.size), class_="number"),
        el("td", _progress(adapter)),
        el("td", _loaded(adapter, view.ready)),
        el("td", adapter.attempts if adapter.attempts is not None else NOTHING, class_="number"),
        el("td", when(adapter.since, now)),
    )
    lines: list[object] = []
    if adapter.error:
        again = (
            el("span", " (next try ", when(adapter.next_try, now), ")", class_="quiet") if adapter.next_try else None
        )
        lines.append(el("li", reason_first(adapter.error), again))
    lines += [el("li", "Warning: ", reason(note.reason), f": {note.message}") for note in adapter.warnings]
    if not lines:
        return facts
    bad = "bad" if adapter.state in ("Failed", "LoadRejected") else ""
    return html(
        facts, el("tr", el("td", el("ul", lines, class_=f"notes {bad}".strip()), colspan=len(_ADAPTER_COLUMNS)))
    )


def _rank(adapter: AdapterView, ceiling: int | None) -> str:
    rank = adapter.rank if adapter.rank is not None else adapter.declared
    if rank is None:
        return NOTHING
    words = f"{rank} of {ceiling}" if ceiling is not None else str(rank)
    if adapter.rank is None:
        return f"{words} (declared)"
    return words if adapter.declared in (None, adapter.rank) else f"{words} (declared {adapter.declared})"


def _progress(adapter: AdapterView) -> Html:
    if not _moving(adapter) or adapter.percentage is None:
        return html(NOTHING)
    of = f" of {size(adapter.total)}" if adapter.total else ""
    return el("span", bar(adapter.percentage, f"staging of {adapter.name}"), f" {adapter.percentage} %{of}")


def _loaded(adapter: AdapterView, ready: int | None) -> str:
    if adapter.loaded is None:
        return NOTHING
    return f"{adapter.loaded} of {ready}" if ready is not None else str(adapter.loaded)
