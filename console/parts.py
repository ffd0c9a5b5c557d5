"""The parts around the table, each with an id. The live stream replaces each one when it changes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from api.words import NOTHING, size
from console.bits import badge, bar, count, plural, reason, when
from console.board import Page, Summary
from console.markup import Html, el, html
from console.query import TROUBLE, Query
from console.views import (
    DiskView,
    EventView,
    RefusalView,
)

_OPEN_UP_TO = 3  # up to this many services are shown with their adapters open


def summary_part(summary: Summary, query: Query) -> Html:
    """Return the numbers over all services; each is a link to the services that it counts."""

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
        return html("The caches are still being filled.")
    if not page.matches:
        return html("There are no services yet." if page.query.open else "No service matches this filter.")
    last = page.first + len(page.rows) - 1
    kind = "service" if page.query.open else "matching service"
    if page.matches == len(page.rows):
        return html(plural(page.matches, kind))
    return html(f"{count(page.first)}{NOTHING}{count(last)} of ", plural(page.matches, kind))


def empty_part(page: Page) -> Html:
    """Return what is shown instead of rows when there are none."""
    if page.rows or not page.ready:
        return html()
    if not page.query.open:
        return html(el("p", "No service matches this filter. ", el("a", "Show all services", href="?")))
    return html(
        el("p", "No AIMService exists yet.", class_="big"),
        el("p", "A service appears here automatically once it is applied, with the state of its adapters."),
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
    caption = "Adapter disks, the fullest first. Equal contents are stored once per disk."
    if page.all_disks > len(page.disks):
        caption = f"The fullest {len(page.disks)} of {count(page.all_disks)} adapter disks."
    if not page.query.open:
        caption += " Only disks of matching services are shown."
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
    """Return the recent refusals of admission, newest first."""
    if page.refusals is None:
        return el("p", "This process serves no admission webhook, so it has no refusals to show.", class_="quiet")
    if not page.refusals:
        return el("p", "This replica has refused nothing since its start.", class_="quiet")
    return el("ol", [_refusal(refusal, now) for refusal in page.refusals], class_="log")


def _refusal(refusal: RefusalView, now: datetime) -> Html:
    verb = {"CREATE": "not created", "UPDATE": "not changed"}.get(refusal.operation, refusal.operation.lower())
    place = f"{refusal.namespace}/" if refusal.namespace else ""
    errors = [el("li", reason(note.reason), " ", note.message) for note in refusal.errors]
    if refusal.more:
        errors.append(el("li", f"and {plural(refusal.more, 'more error')}"))
    if not errors:
        errors.append(el("li", "A check of aim-adapters failed. The log of this replica has the cause."))
    return el(
        "li",
        el(
            "p", when(refusal.at, now), " ", el("b", f"{refusal.kind} {place}{refusal.name or '(no name)'}"), f" {verb}"
        ),
        el("ul", errors, class_="notes"),
    )


def events_part(page: Page, now: datetime) -> Html:
    """Return the newest events of aim-adapters."""
    if page.events_problem and not page.events:
        return el("p", f"Events cannot be shown: {page.events_problem}", class_="quiet")
    if not page.events:
        return el("p", "There are no recent events.", class_="quiet")
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
            reason(event.reason),
            f" {event.kind} {place}{event.name}{times}",
        ),
        el("p", event.message, class_="said") if event.message else None,
    )


def notices_part(page: Page) -> Html:
    """Return why the page may be incomplete or out of date."""
    notices = list(page.problems)
    if not page.ready:
        notices.insert(0, "The caches are still being filled. Services appear as they are read.")
    return el("ul", [el("li", words) for words in notices], class_="banner") if notices else html()


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
    """Return the values behind each part: a part is sent again when these differ."""
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
    """Return whether services are shown with their adapters open: only where there are few."""
    return page.matches <= _OPEN_UP_TO
