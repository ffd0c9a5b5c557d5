"""View models in, HTML out. Pure.

A page is made of parts with an id each: what the live stream replaces one by one when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from html import escape
from urllib.parse import quote

from console.board import Page, Summary
from console.markup import Child, Html, el, html
from console.query import ALL, PAGE_SIZES, STAGING, TROUBLE, Query
from console.views import (
    ADAPTER_STATES,
    SERVICE_STATES,
    AdapterView,
    DiskView,
    EventView,
    Note,
    RefusalView,
    ServiceView,
)
from console.words import DASH, absolute, ago, size, stamp

# A state's look: shape and tone. The word stands beside it always, so that no meaning hangs on shape or colour.
_LOOKS: Mapping[str, tuple[str, str]] = {
    "Running": ("●", "good"),
    "Loaded": ("●", "good"),
    "Downloaded": ("◕", "good"),
    "Ready": ("●", "good"),
    "Starting": ("◔", "wait"),
    "Downloading": ("◔", "wait"),
    "Pending": ("○", "wait"),
    "Deleting": ("◌", "wait"),
    "Degraded": ("▲", "warn"),
    "LoadRejected": ("✕", "bad"),
    "Failed": ("✕", "bad"),
}
_WORDS = {"LoadRejected": "Load rejected"}
_OPEN_UP_TO = 3  # so many services are shown with their adapters open
COLUMNS = ("Service", "Status", "Mode", "Base model", "Adapters", "Rank ceiling", "Ready", "On disk", "Age")


@dataclass(frozen=True, slots=True)
class Frame:
    """Addresses around a page. `signed_in`: its visitor has a token and can sign out; `base` leads to /console."""

    css: str
    js: str
    icon: str
    signed_in: bool = False
    base: str = ""


# -- small things -----------------------------------------------------------------------------------------------------


def when(moment: datetime | None, now: datetime) -> Html:
    """Return a time: how long ago, the absolute one in its title; the page's script keeps the words fresh."""
    if moment is None:
        return html(DASH)
    return el("time", ago(moment, now), datetime=stamp(moment), title=absolute(moment))


def badge(state: str) -> Html:
    """Return a state with its shape."""
    shape, tone = _LOOKS.get(state, ("○", "wait"))
    word = _WORDS.get(state, state)
    return el("span", el("span", shape, class_="shape", aria_hidden="true"), " ", word, class_=f"state {tone}")


def bar(percentage: int, label: str) -> Html:
    """Return a progress bar; its text stands beside it."""
    return el("progress", f"{percentage} %", max=100, value=percentage, aria_label=label)


def count(number: int) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def row_id(view: ServiceView) -> str:
    """Return the id of a service's rows."""
    return f"s/{quote(view.namespace, safe='')}/{quote(view.name, safe='')}"


# -- services ---------------------------------------------------------------------------------------------------------


def service_rows(view: ServiceView, now: datetime, *, opened: bool = False) -> Html:
    """Return the table body of one service: a row of facts, and a row that opens into its adapters."""
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
        el("td", view.replicas.replace("/", " of ") or DASH),
        el("td", size(view.own_bytes) if view.own_bytes else DASH, class_="number"),
        el("td", when(view.created, now)),
        class_="facts",
    )
    return el("tbody", facts, _more(view, now, opened), id=row_id(view), class_="service")


def _base(view: ServiceView) -> Html:
    if view.base is None:
        return html(view.serves or DASH)
    words = [view.base.model_id or view.base.name]
    if view.base.status == "Ready":
        return html(words)
    told = f"{view.base.percentage} %" if view.base.percentage is not None else view.base.status
    progress = bar(view.base.percentage, f"base model {words[0]}") if view.base.percentage is not None else None
    return html(words, el("span", progress, " ", told, class_="progress"))


def _ceiling(view: ServiceView) -> Html:
    if not view.with_adapters:
        return html(DASH)
    if view.ceiling is None:
        return html("not known yet")
    asked = f", {view.ceiling_asked} asked for" if view.ceiling_asked is not None else ""
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
    """The line that is read while the details are closed: each state once, what is on its way, what went wrong."""
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
    """The states that there are, once each: failures, then what is on its way, then what is done."""
    order = {state: place for place, state in enumerate(reversed(ADAPTER_STATES))}
    return sorted(set(states), key=lambda state: (order.get(state, -1), state))


def _with_percent(adapter: AdapterView) -> str:
    return f"{adapter.name} {adapter.percentage} %" if _moving(adapter) else adapter.name


def _moving(adapter: AdapterView) -> bool:
    return adapter.percentage is not None and adapter.state == "Downloading"


def _note(note: Note) -> Html:
    return el("li", el("b", note.reason), f": {note.message}" if note.message else "")


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
        el("td", adapter.attempts if adapter.attempts is not None else DASH, class_="number"),
        el("td", when(adapter.since, now)),
    )
    told: list[object] = []
    if adapter.error:
        again = (
            el("span", " (next try ", when(adapter.next_try, now), ")", class_="quiet") if adapter.next_try else None
        )
        told.append(el("li", adapter.error, again))
    told += [el("li", "Warning: ", el("b", note.reason), f": {note.message}") for note in adapter.warnings]
    if not told:
        return facts
    bad = "bad" if adapter.state in ("Failed", "LoadRejected") else ""
    return html(facts, el("tr", el("td", el("ul", told, class_=f"notes {bad}".strip()), colspan=len(_ADAPTER_COLUMNS))))


def _rank(adapter: AdapterView, ceiling: int | None) -> str:
    rank = adapter.rank if adapter.rank is not None else adapter.declared
    if rank is None:
        return DASH
    words = f"{rank} of {ceiling}" if ceiling is not None else str(rank)
    if adapter.rank is None:
        return f"{words} (declared)"
    return words if adapter.declared in (None, adapter.rank) else f"{words} (declared {adapter.declared})"


def _progress(adapter: AdapterView) -> Html:
    if not _moving(adapter) or adapter.percentage is None:
        return html(DASH)
    of = f" of {size(adapter.total)}" if adapter.total else ""
    return el("span", bar(adapter.percentage, f"staging of {adapter.name}"), f" {adapter.percentage} %{of}")


def _loaded(adapter: AdapterView, ready: int | None) -> str:
    if adapter.loaded is None:
        return DASH
    return f"{adapter.loaded} of {ready}" if ready is not None else str(adapter.loaded)


# -- parts ------------------------------------------------------------------------------------------------------------


def summary_part(summary: Summary, query: Query) -> Html:
    """Return the numbers over all services; each leads to the services that it counts."""

    def link(state: str, words: object) -> Html:
        chosen = "true" if state == query.state and state else None
        target = Query(state=state, size=query.size).at(1) or "?"
        return el("a", words, href=target, data_state=state, aria_current=chosen)

    services = [el("li", link(state, html(badge(state), f" {count(number)}"))) for state, number in summary.by_status]
    adapters = [
        el("li", link(f"adapter-{state}", html(badge(state), f" {count(number)}")))
        for state, number in summary.by_state
    ]
    attention = "Nothing needs attention" if not summary.trouble else f"{count(summary.trouble)} need attention"
    if summary.trouble == 1:
        attention = "1 needs attention"
    return html(
        el("div", el("p", plural(summary.services, "service"), class_="big"), el("ul", services), class_="card"),
        el("div", el("p", plural(summary.adapters, "adapter"), class_="big"), el("ul", adapters), class_="card"),
        el(
            "div",
            el("p", _on_disks(summary), class_="big"),
            el("p", link(TROUBLE, attention) if summary.trouble else attention, class_="quiet"),
            class_="card",
        ),
    )


def _on_disks(summary: Summary) -> str:
    if not summary.disks:
        return "No adapter disk in use"
    return f"{size(summary.used)} on {plural(summary.disks, 'adapter disk')}"


def count_part(page: Page) -> Html:
    """Return which services are shown."""
    if not page.ready:
        return html("The cluster is still being read.")
    if not page.matches:
        return html("There are no services yet." if page.query.open else "No service fits this filter.")
    last = page.first + len(page.rows) - 1
    kind = "service" if page.query.open else "matching service"
    if page.matches == len(page.rows):
        return html(plural(page.matches, kind))
    return html(f"{count(page.first)}{DASH}{count(last)} of ", plural(page.matches, kind))


def empty_part(page: Page) -> Html:
    """Return what stands in the place of the table's rows when there are none."""
    if page.rows or not page.ready:
        return html()
    if not page.query.open:
        return html(el("p", "No service fits this filter. ", el("a", "Show all services", href="?")))
    return html(
        el("p", "No AIMService exists yet.", class_="big"),
        el("p", "Once one is applied, it appears here by itself, with its adapters and what they are waiting for."),
    )


def pager_part(page: Page) -> Html:
    """Return the links to other pages."""
    if page.pages == 1:
        return html()
    here = min(page.query.page, page.pages)
    wanted = sorted({1, *range(max(1, here - 2), min(page.pages, here + 2) + 1), page.pages})
    links: list[object] = [_pager_link(page, here - 1, "Previous")] if here > 1 else []
    before = 0
    for number in wanted:
        if number - before > 1:
            links.append(el("li", "…", class_="quiet"))
        links.append(_pager_link(page, number, str(number), current=number == here))
        before = number
    if here < page.pages:
        links.append(_pager_link(page, here + 1, "Next"))
    return el("ul", links)


def _pager_link(page: Page, number: int, words: str, *, current: bool = False) -> Html:
    label = f"Page {words}" if words.isdigit() else f"{words} page"
    href = page.query.at(number) or "?"
    link = el("a", words, href=href, data_page=number, aria_label=label, aria_current="page" if current else None)
    return el("li", link)


def disks_part(page: Page) -> Html:
    """Return the fullest adapter disks."""
    if not page.disks:
        return el("p", "No adapter disk is in use yet.", class_="quiet")
    caption = "Adapter disks, the fullest first; equal contents lie on a disk once."
    if page.all_disks > len(page.disks):
        caption = f"The fullest {len(page.disks)} of {count(page.all_disks)} adapter disks."
    if not page.query.open:
        caption += " Only those of matching services are shown."
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", [el("th", name, scope="col") for name in ("Claim", "In use", "Services")])),
        el("tbody", [_disk_row(disk) for disk in page.disks]),
    )


def _disk_row(disk: DiskView) -> Html:
    percent = min(100, round(100 * disk.used / disk.capacity)) if disk.capacity else None
    name = f"{disk.namespace}/{disk.claim}"
    in_use: list[object] = [size(disk.used)]
    if disk.capacity:
        share = f"{percent} %" if percent or not disk.used else "less than 1 %"
        in_use = [bar(percent or 0, f"disk {name}"), f" {share}: {size(disk.used)} of {size(disk.capacity)}"]
    unbound = el("span", f" {disk.phase}", class_="tag") if disk.phase not in ("", "Bound") else None
    return el(
        "tr",
        el("th", el("span", f"{disk.namespace}/", class_="ns"), disk.claim, unbound, scope="row"),
        el("td", in_use),
        el("td", count(disk.services), class_="number"),
    )


def refusals_part(page: Page, now: datetime) -> Html:
    """Return the refusals that admission gave of late, newest first."""
    if page.refusals is None:
        return el("p", "This process serves no admission webhook: it cannot know refusals.", class_="quiet")
    if not page.refusals:
        return el("p", "Nothing was refused by this replica since it started.", class_="quiet")
    return el("ol", [_refusal(refusal, now) for refusal in page.refusals], class_="log")


def _refusal(refusal: RefusalView, now: datetime) -> Html:
    verb = {"CREATE": "not created", "UPDATE": "not changed"}.get(refusal.operation, refusal.operation.lower())
    place = f"{refusal.namespace}/" if refusal.namespace else ""
    errors = [el("li", el("b", note.reason), " ", note.message) for note in refusal.errors]
    if refusal.more:
        errors.append(el("li", f"and {plural(refusal.more, 'more error')}"))
    if not errors:
        errors.append(el("li", "A check of aim-adapters failed; the log of this replica has the cause."))
    return el(
        "li",
        el(
            "p", when(refusal.at, now), " ", el("b", f"{refusal.kind} {place}{refusal.name or '(no name)'}"), f" {verb}"
        ),
        el("ul", errors, class_="notes"),
    )


def events_part(page: Page, now: datetime) -> Html:
    """Return our own newest events."""
    if page.events_problem and not page.events:
        return el("p", f"Events cannot be shown: {page.events_problem}", class_="quiet")
    if not page.events:
        return el("p", "No event was told of late.", class_="quiet")
    return el("ol", [_event(event, now) for event in page.events], class_="log")


def _event(event: EventView, now: datetime) -> Html:
    times = f" ({event.count} times)" if event.count > 1 else ""
    warning = html(el("span", el("span", "▲", aria_hidden="true"), " Warning", class_="state warn"), " ")
    place = f"{event.namespace}/" if event.namespace else ""
    return el(
        "li",
        el(
            "p",
            when(event.at, now),
            " ",
            warning if event.bad else None,
            el("b", event.reason),
            f" {event.kind} {place}{event.name}{times}",
        ),
        el("p", event.message, class_="said") if event.message else None,
    )


def notices_part(page: Page) -> Html:
    """Return why what is shown may be incomplete or old."""
    told = list(page.problems)
    if not page.ready:
        told.insert(0, "The cluster is still being read; services appear as they are found.")
    return el("ul", [el("li", words) for words in told], class_="banner") if told else html()


PARTS: Mapping[str, Callable[[Page, datetime], Html]] = {
    "notices": lambda page, now: notices_part(page),
    "summary": lambda page, now: summary_part(page.summary, page.query),
    "count": lambda page, now: count_part(page),
    "empty": lambda page, now: empty_part(page),
    "pager": lambda page, now: pager_part(page),
    "disks": lambda page, now: disks_part(page),
    "refusals": refusals_part,
    "events": events_part,
}


def part_views(page: Page) -> dict[str, object]:
    """Return what each part is made of: a part is sent again when this differs."""
    shown = (page.matches, page.pages, page.first, len(page.rows), page.query, page.ready)
    return {
        "notices": (page.problems, page.ready),
        "summary": (page.summary, page.query),
        "count": shown,
        "empty": shown,
        "pager": shown,
        "disks": (page.disks, page.all_disks, page.query.open),
        "refusals": page.refusals,
        "events": (page.events, page.events_problem),
    }


def opened(page: Page) -> bool:
    """Whether services are shown with their adapters open: where there are few."""
    return page.matches <= _OPEN_UP_TO


# -- whole pages ------------------------------------------------------------------------------------------------------

_OPENING = '<!doctype html>\n<html lang="en">'
_STATE_CHOICES = (
    (ALL, "All services"),
    (TROUBLE, "Needs attention"),
    (STAGING, "Adapters on their way"),
    *((state, f"Service {state}") for state in SERVICE_STATES),
    *((f"adapter-{state}", f"An adapter {_WORDS.get(state, state)}") for state in ADAPTER_STATES),
)


def _filter_form(query: Query) -> Html:
    states = [el("option", words, value=value, selected=value == query.state) for value, words in _STATE_CHOICES]
    sizes = [el("option", number, value=number, selected=number == query.size) for number in sorted(PAGE_SIZES)]
    return el(
        "form",
        el("label", "Filter", for_="q"),
        el(
            "input",
            type="search",
            id="q",
            name="q",
            value=query.words,
            maxlength=100,
            autocomplete="off",
            placeholder="service, model, adapter",
            spellcheck="false",
        ),
        el("label", "State", for_="state"),
        el("select", states, id="state", name="state"),
        el("label", "Per page", for_="size"),
        el("select", sizes, id="size", name="size"),
        el("button", "Show", type="submit", id="show"),
        id="filter",
        role="search",
        aria_label="Services",
    )


def _head(frame: Frame, title: str, *, script: bool) -> Html:
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("link", rel="icon", href=frame.icon, type="image/svg+xml"),
        el("link", rel="stylesheet", href=frame.css),
        el("script", src=frame.js, defer=True) if script else None,
    )


def before_rows(page: Page, frame: Frame, stamp_of_page: str, now: datetime) -> Html:
    """Return a whole page up to the rows of its services."""

    def part(name: str, **attributes: object) -> Html:
        return el("div", PARTS[name](page, now), id=name, **attributes)

    live = el(
        "p",
        el("span", "This page shows one moment; reload it for another.", id="live-words"),
        " ",
        el("button", "Try now", type="button", id="retry", hidden=True),
        id="live",
        role="status",
    )
    sign_out = (
        el("form", el("button", "Sign out", type="submit"), method="post", action="console/sign-out")
        if frame.signed_in
        else None
    )
    head = el("tr", [el("th", name, scope="col") for name in COLUMNS])
    opening = el("a", "Skip to the services", class_="skip", href="#services")
    summary_head = el("h2", "In short", id="summary-h", class_="hidden")
    return html(
        Html(_OPENING),
        _head(frame, "Adapters by service", script=True),
        Html(f'<body data-stamp="{escape(stamp_of_page)}">'),
        opening,
        el("header", el("h1", "Adapters by service"), live, sign_out),
        Html("<main>"),
        part("notices"),
        el("section", summary_head, part("summary"), aria_labelledby="summary-h"),
        Html('<section id="services" aria-labelledby="services-h" tabindex="-1">'),
        el("div", el("h2", "Services", id="services-h"), _filter_form(page.query), part("count"), class_="bar"),
        el("p", id="said", class_="hidden", role="status"),
        Html('<div class="wide"><table id="table"><caption class="hidden">Services and their adapters</caption>'),
        el("thead", head),
    )


def after_rows(page: Page, now: datetime) -> Html:
    """Return a whole page from the end of its services on."""

    def part(name: str) -> Html:
        return el("div", PARTS[name](page, now), id=name)

    def section(name: str, title: str, *children: Child) -> Html:
        return el("section", el("h2", title, id=f"{name}-h"), children, part(name), aria_labelledby=f"{name}-h")

    gaps = [el("li", words) for words in page.gaps]
    where = f" Shown by replica {page.replica}." if page.replica else ""
    return html(
        Html("</table></div>"),
        part("empty"),
        el("nav", part("pager"), aria_label="Pages of services"),
        Html("</section>"),
        section("disks", "Adapter disks"),
        el(
            "div",
            section("refusals", "Recent refusals"),
            section("events", "Recent events"),
            class_="two",
        ),
        Html("</main>"),
        el(
            "footer",
            el(
                "p",
                "Read only. Times are shown as this page's clock sees them; hover over one for the time in UTC.",
                where,
            ),
            el("ul", gaps) if gaps else None,
        ),
        Html("</body></html>\n"),
    )


def sign_in_page(frame: Frame, problem: str = "") -> Html:
    """Return the page that asks for a token. Args: `problem`: why the last one was not taken."""
    form = el(
        "form",
        el("p", problem, class_="banner", role="alert") if problem else None,
        el("label", "Bearer token", for_="token"),
        el("input", type="password", id="token", name="token", required=True, autocomplete="off", autofocus=True),
        el("button", "Sign in", type="submit"),
        method="post",
        action=f"{frame.base}console/sign-in",
    )
    hint = el(
        "p",
        "A token of an account that may GET /console, for example: ",
        el("code", "kubectl create token ACCOUNT --duration 1h"),
        class_="quiet",
    )
    return _plain(frame, "Sign in", form, hint)


def message_page(frame: Frame, title: str, *paragraphs: str) -> Html:
    """Return a page that says why there is nothing to see."""
    return _plain(frame, title, [el("p", words) for words in paragraphs])


def _plain(frame: Frame, title: str, *children: object) -> Html:
    main = el("main", el("section", el("h1", title), children, class_="card sign-in"))
    return html(
        Html(_OPENING),
        _head(frame, f"{title} {DASH} adapters by service", script=False),
        el("body", main),
        Html("</html>\n"),
    )
