"""Runs the distribution's Chromium, headless, on a page of the console."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-lcd-text",  # pictures without coloured fringes
    "--no-proxy-server",  # only the loopback interface is used
)


def find_chromium() -> str | None:
    """Return the path of Chromium on this machine, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser during a block, with a separate profile folder."""
    executable = find_chromium()
    assert executable is not None, "there is no Chromium here"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable,
            headless=True,
            args=list(ARGUMENTS),
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def browsing(
    browser: Browser, *, scheme: Literal["light", "dark"] = "light", java_script: bool = True, width: int = 1280
) -> AsyncIterator[BrowserContext]:
    """Open a private window during a block."""
    context = await browser.new_context(
        color_scheme=scheme, java_script_enabled=java_script, viewport={"width": width, "height": 900}
    )
    try:
        yield context
    finally:
        await context.close()


async def open_page(context: BrowserContext, address: str, *, live: bool = True) -> Page:
    """Open the console; with `live`, wait until its stream is open."""
    page = await context.new_page()
    await page.goto(address)
    if live:
        await page.wait_for_selector("#live.live")
    return page
