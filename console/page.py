"""Whole pages: view models in, HTML out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from html import escape

from api.words import NOTHING
from console.bits import WORDS
from console.board import Page
from console.markup import Child, Html, el, html
from console.parts import PARTS
from console.query import ALL, PAGE_SIZES, STAGING, TROUBLE, Query
from console.rows import COLUMNS
from console.views import (
    ADAPTER_STATES,
    SERVICE_STATES,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """Addresses in a page. `signed_in`: the visitor has a token and can sign out; `base` leads to /console."""

    css: str
    js: str
    icon: str
    signed_in: bool = False
    base: str = ""


_OPENING = '<!doctype html>\n<html lang="en">'
_STATE_CHOICES = (
    (ALL, "All services"),
    (TROUBLE, "Needs attention"),
    (STAGING, "Adapters in progress"),
    *((state, f"Service {state}") for state in SERVICE_STATES),
    *((f"adapter-{state}", f"An adapter {WORDS.get(state, state)}") for state in ADAPTER_STATES),
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
        el("span", "This page is a snapshot. Reload it to update.", id="live-words"),
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
    summary_head = el("h2", "Summary", id="summary-h", class_="hidden")
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
                "Read-only. Times are relative to the clock of the browser; point at one to see it in UTC.",
                where,
            ),
            el("ul", gaps) if gaps else None,
        ),
        Html("</body></html>\n"),
    )


def sign_in_page(frame: Frame, problem: str = "") -> Html:
    """Return the page that asks for a token. Args: `problem`: why the last one was not accepted."""
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
    """Return a page with only a message."""
    return _plain(frame, title, [el("p", words) for words in paragraphs])


def _plain(frame: Frame, title: str, *children: object) -> Html:
    main = el("main", el("section", el("h1", title), children, class_="card sign-in"))
    return html(
        Html(_OPENING),
        _head(frame, f"{title} {NOTHING} adapters by service", script=False),
        el("body", main),
        Html("</html>\n"),
    )
