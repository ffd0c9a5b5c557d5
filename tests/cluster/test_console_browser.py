"""The console in the distribution's Chromium: live, by keyboard, light and dark, and without JavaScript."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from console.routes import Limits
from tests.console import pictures
from tests.console.browser import browsing, chromium, find_chromium, open_page
from tests.console.scene import MIB, Scene, adapter, service

pytestmark = [
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium here: install the distribution's chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

expect.set_options(timeout=20_000)  # milliseconds: a busy machine must not fail the test


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests."""
    async with chromium() as found:
        yield found


def complaints(page: Page) -> list[str]:
    """Collect errors of the page from now on, also refusals by its policy."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def moving(percentage: int) -> dict[str, Any]:
    """Return the entry of an adapter during its download."""
    progress = {"percentage": percentage, "totalBytes": 100 * MIB}
    return adapter("legal-v1", "Downloading", progress=progress)


async def test_shows_changes_and_keeps_the_visitors_state(browser: Browser) -> None:
    scene = pictures.one()
    for number in range(3):
        scene.put(service("team-a", f"other-{number}", adapter("cs-tone-v3")))
    async with scene.served() as address, browsing(browser) as context:
        page = await context.new_page()
        found = complaints(page)
        await page.goto(address)
        await expect(page.locator("#live-words")).to_have_text("Live")
        row = page.locator("tbody.service", has_text="gemma-cs")
        await row.locator("summary").click()
        await expect(row.get_by_role("row", name="sql-v2")).to_contain_text("8 of 32")
        await row.locator("summary").focus()
        scene.change("team-a", "gemma-cs", lambda one: one["status"]["adapters"].append(moving(43)))
        bar = row.get_by_role("progressbar", name="staging of legal-v1")
        await expect(bar).to_have_attribute("value", "43")
        await expect(row.get_by_role("row", name="legal-v1")).to_contain_text("43 % of 100 MiB")
        scene.change("team-a", "gemma-cs", lambda one: one["status"]["adapters"].__setitem__(2, moving(80)))
        await expect(bar).to_have_attribute("value", "80")
        await expect(row.locator("details")).to_have_attribute("open", "")
        assert await row.locator("summary").evaluate("node => node === document.activeElement")
        scene.put(service("team-a", "brand-new", adapter("cs-tone-v3", "Pending"), status="Pending"))
        await expect(page.locator("tbody.service").first).to_contain_text("brand-new")
        await expect(page.locator("#summary")).to_contain_text("5 services")
        scene.refuse("bad", "spec.rank: Invalid value: <b>64</b>")
        await expect(page.locator("#refusals")).to_contain_text("<b>64</b>")
        assert found == []


async def test_filter_pages_and_keyboard(browser: Browser) -> None:
    scene = Scene()
    scene.many(300)
    async with scene.served() as address, browsing(browser) as context:
        page = await open_page(context, address)
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the services")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#services")).to_be_focused()
        for _ in range(20):  # past the filter to the first service
            await page.keyboard.press("Tab")
            if await page.evaluate("() => document.activeElement.tagName === 'SUMMARY'"):
                break
        outline = "() => getComputedStyle(document.activeElement).outlineStyle"
        assert await page.evaluate(outline) == "solid"
        await page.keyboard.press("Enter")
        await expect(page.locator("tbody.service").first.locator("details")).to_have_attribute("open", "")
        await page.get_by_role("link", name="Page 2", exact=True).click()
        await expect(page.locator("#count")).to_contain_text("51")
        await expect(page.locator("#services")).to_be_focused()
        await page.get_by_label("Filter").fill("gemma-029")
        await expect(page.locator("tbody.service")).to_have_count(10)
        await expect(page.locator("#said")).to_have_text("10 matching services")
        assert page.url.endswith("?q=gemma-029")
        await page.get_by_label("State").select_option("attention")
        await expect(page.locator("tbody.service")).to_have_count(1)
        await page.reload()
        await expect(page.locator("tbody.service")).to_have_count(1)
        await expect(page.get_by_label("Filter")).to_have_value("gemma-029")
        await page.get_by_label("Filter").fill("nothing like it")
        await page.get_by_role("link", name="Show all services").click()
        await expect(page.locator("tbody.service")).to_have_count(50)


async def test_a_lost_connection_is_reported_and_restored(browser: Browser) -> None:
    async with browsing(browser) as context:
        async with pictures.one().served() as address:
            page = await open_page(context, address)
        port = int(address.split(":")[2].partition("/")[0])
        await expect(page.locator("#live")).to_contain_text("Connection lost", timeout=15_000)
        await expect(page.locator("tbody.service")).to_have_count(1)
        async with pictures.failed().served(port):
            await page.get_by_role("button", name="Try now").click()
            await expect(page.locator("#live-words")).to_have_text("Live")
            await expect(page.locator("tbody.service")).to_have_count(2)
            await expect(page.get_by_role("button", name="Try now")).to_be_hidden()


async def test_without_javascript(browser: Browser) -> None:
    scene = Scene()
    scene.many(120)
    async with scene.served() as address, browsing(browser, java_script=False) as context:
        page = await open_page(context, address, live=False)
        await expect(page.locator("tbody.service")).to_have_count(50)
        await expect(page.locator("#live")).to_contain_text("is a snapshot")
        await page.locator("summary").first.click()
        await expect(page.get_by_role("table", name="Adapters of team-00/gemma-0000")).to_be_visible()
        await page.get_by_label("Filter").fill("gemma-0005")
        await page.get_by_role("button", name="Show").click()
        await expect(page.locator("tbody.service")).to_have_count(1)
        await expect(page.locator("#filter input")).to_have_value("gemma-0005")


async def _refuse(token: str) -> int:
    return 401


async def test_signing_in(browser: Browser) -> None:
    scene = Scene(console_access="token", limits=Limits(recheck=0.5))
    scene.put(service("team-a", "gemma", adapter("x")))
    async with scene.served() as address, browsing(browser) as context:
        page = await open_page(context, address, live=False)
        await page.get_by_label("Bearer token").fill("bad-token")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("not valid")
        await page.get_by_label("Bearer token").fill("good-token")
        await page.keyboard.press("Enter")
        await expect(page.locator("#live-words")).to_have_text("Live")
        await expect(page.locator("tbody.service")).to_have_count(1)
        assert await page.evaluate("() => document.cookie") == ""
        check, scene.console._check = scene.console._check, _refuse  # the token expires while its page is open
        await expect(page.get_by_label("Bearer token")).to_be_visible()
        scene.console._check = check
        await page.goto(address)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Bearer token")).to_be_visible()


LOOKS = {
    "refusals, light": (pictures.refusals, "light", 1280),
    "refusals, dark": (pictures.refusals, "dark", 1280),
    "progress, dark, on a telephone": (pictures.progress, "dark", 390),
    "empty, light": (Scene, "light", 1280),
}


@pytest.mark.parametrize(("make", "scheme", "width"), LOOKS.values(), ids=LOOKS)
async def test_accessibility_rules(
    browser: Browser, make: type[Scene], scheme: Literal["light", "dark"], width: int
) -> None:
    scene = make()
    async with scene.served() as address, browsing(browser, scheme=scheme, width=width) as context:
        page = await open_page(context, address)
        await check_rules(page)
        if make is pictures.refusals and scheme == "light":
            scene.console.close()
            await expect(page.locator("#live")).to_contain_text("Connection lost", timeout=15_000)
            await check_rules(page)


async def check_rules(page: Page) -> None:
    """Fail if the page breaks any rule of axe."""
    results = await Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
