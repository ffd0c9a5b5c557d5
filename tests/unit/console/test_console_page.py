"""What is written into the page: everything that strangers wrote is escaped, nothing secret is there."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from api.reasons import EXPLANATIONS, Reason
from console.markup import Html, el, html
from console.page import Frame, after_rows, before_rows, message_page, sign_in_page
from console.query import Query, parse_query
from console.rows import COLUMNS, service_rows
from tests.console.scene import MIB, NOW, Scene, adapter, service

FRAME = Frame("c.css", "c.js", "c.svg")
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u202e'


class Checker(HTMLParser):
    """Reads a page strictly enough: tags nest, nothing runs, ids are unique."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str | None] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        assert not [name for name in told if name.startswith("on") or name == "style"], told
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag == "script":
            self.scripts.append(told.get("src"))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open
    assert len(checker.ids) == len(set(checker.ids))
    assert set(checker.scripts) <= {"c.js"}
    assert "alert" not in "".join(checker.tags)
    return checker


async def whole(scene: Scene, query: Query | None = None) -> str:
    page = await scene.console.board.page(query or Query())
    rows = [service_rows(view, NOW) for view in page.rows]
    return str(html(before_rows(page, FRAME, "x", NOW), rows, after_rows(page, NOW)))


def hostile_scene() -> Scene:
    scene = Scene()
    scene.base()
    error = f"SourceForbidden: {HOSTILE} https://me:s3cret@hub.example/x?sig=s3cret"
    entries = [
        adapter(HOSTILE, "Failed", lastError=error, warnings=[{"reason": HOSTILE, "message": HOSTILE}]),
        adapter("state", HOSTILE),
    ]
    one = service("team-a", HOSTILE, *entries, status=HOSTILE)
    one["spec"]["env"] = [{"name": "HF_TOKEN", "value": "hf_s3cret"}]
    one["spec"]["profile"] = {"name": HOSTILE}
    one["status"]["runtime"]["replicas"] = HOSTILE
    one["status"]["adapterDiskPersistentVolumeClaim"] = HOSTILE
    one["status"]["conditions"] = [{"type": "ConfigValid", "status": "False", "reason": HOSTILE, "message": HOSTILE}]
    scene.put(one)
    scene.artifact("state")
    scene.refuse(HOSTILE, f"spec.x: Invalid value: {HOSTILE}", 'spec.env[0].value: Invalid value: "hf_s3cret": no')
    scene.tell(HOSTILE, HOSTILE, HOSTILE + " s3://a:s3cret@b/c")
    scene.events.problem = HOSTILE
    return scene


async def test_nothing_of_a_stranger_is_markup_and_nothing_secret_is_shown() -> None:
    scene = hostile_scene()
    for query in (Query(), parse_query(urlencode({"q": HOSTILE}).encode())):
        page = await whole(scene, query)
        checker = check(page)
        assert "s3cret" not in page
        assert "\u202e" not in page
        assert "<script>alert(1)</script>" in checker.text
        assert checker.tags.count("img") == 0


async def test_a_reason_says_in_its_title_what_it_means_and_what_to_do() -> None:
    scene = Scene()
    scene.base()
    scene.put(service("team-a", "gemma", adapter("a", "Failed", lastError="DiskFull: 5 bytes are needed: 3 are free")))
    page = await whole(scene)
    found = EXPLANATIONS[Reason.DISK_FULL]
    assert (
        f'<b title="{found.meaning} What to do: {found.advice}.">DiskFull</b>: 5 bytes are needed: 3 are free' in page
    )


async def test_landmarks_headings_and_a_real_table() -> None:
    scene = Scene()
    scene.base()
    scene.put(service("team-a", "gemma", adapter("a"), adapter("b", "Downloading", progress={"percentage": 43})))
    page = await whole(scene)
    checker = check(page)
    for tag in ("header", "main", "nav", "footer", "h1", "table", "caption", "thead", "details", "summary", "form"):
        assert tag in checker.tags, tag
    assert checker.tags.count("h1") == checker.tags.count("main") == 1
    assert checker.tags.count("label") == 3
    assert 'role="search"' in page
    assert 'href="#services"' in page
    assert '<progress max="100" value="43" aria-label="staging of b">' in page
    assert all(name in checker.text for name in COLUMNS)


async def test_few_services_are_open_and_many_closed() -> None:
    scene = Scene()
    scene.base()
    for number in range(4):
        scene.put(service("team-a", f"gemma-{number}", adapter("a")))
    page = await scene.console.board.page(Query())
    assert "<details open>" in service_rows(page.rows[0], NOW, opened=True)
    assert "<details open>" not in service_rows(page.rows[0], NOW)


STATES = {
    "empty": (Scene, "No AIMService exists yet."),
    "not synced": (lambda: Scene(synced=False), "The caches are still being filled"),
    "no webhooks": (lambda: Scene(admission=False), "serves no admission webhook, so it has no refusals to show"),
    "no reconciler": (lambda: Scene(reconciler=False), "This process runs only admission"),
    "some namespaces": (
        lambda: Scene(namespaces=("team-a", "team-b")),
        "Only these namespaces are watched: team-a, team-b.",
    ),
}


@pytest.mark.parametrize(("make", "words"), STATES.values(), ids=STATES)
async def test_says_what_it_cannot_know(make: type[Scene], words: str) -> None:
    assert words in check(await whole(make())).text


async def test_the_worst_is_shown_first_and_ranks_beside_the_ceiling() -> None:
    scene = Scene()
    scene.base()
    scene.artifact("wide", 16)
    scene.artifact("new", 8)
    moving = {"percentage": 7, "totalBytes": 30 * MIB}
    entries = [adapter("fine"), adapter("wide", "Failed", rank=64), adapter("new", "Downloading", progress=moving)]
    scene.put(service("team-a", "gemma", *entries))
    text = check(await whole(scene)).text
    closed = text[text.index("Adapters and details of gemma") :]
    assert closed.index("wide") < closed.index("new 7 %") < closed.index("fine")
    for words in ("16 of 32", "64 of 32 (declared 16)", "8 of 32 (declared)", "7 % of 30.0 MiB", "2 of 2"):
        assert words in text, words


def test_markup_escapes_all_but_html() -> None:
    assert el("p", "<b>", Html("<i></i>"), ["&", None, 3], title='"', hidden=True, lang=None) == (
        '<p title="&quot;" hidden>&lt;b&gt;<i></i>&amp;3</p>'
    )


def test_plain_pages() -> None:
    check(sign_in_page(FRAME, HOSTILE))
    check(message_page(FRAME, HOSTILE, HOSTILE))
