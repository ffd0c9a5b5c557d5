"""The distribution's Chromium, headless, on a page of the console."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import BrowserContext, Page, async_playwright

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
    "--no-proxy-server",  # only the loopback interface is asked
)
WIDE = {"width": 1280, "height": 900}


def find_chromium() -> str | None:
    """Return the path of a Chromium of this machine, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def browsing(
    *, scheme: str = "light", java_script: bool = True, scale: float = 1
) -> AsyncIterator[BrowserContext]:
    """Run a browser around a block, with a profile folder of its own."""
    executable = find_chromium()
    assert executable is not None, "there is no Chromium here"
    with tempfile.TemporaryDirectory(prefix="aim-console-") as folder:
        async with async_playwright() as playwright:
            context = await playwright.chromium.launch_persistent_context(
                folder,
                executable_path=executable,
                headless=True,
                args=list(ARGUMENTS),
                viewport=WIDE,  # type: ignore[arg-type]
                device_scale_factor=scale,
                color_scheme=scheme,  # type: ignore[arg-type]
                java_script_enabled=java_script,
                env={"HOME": folder, "PATH": "/usr/bin:/bin"},
            )
            try:
                yield context
            finally:
                await context.close()


async def open_page(context: BrowserContext, address: str, *, live: bool = True) -> Page:
    """Open the console; with `live` wait until its stream is."""
    page = context.pages[0] if context.pages else await context.new_page()
    await page.goto(address)
    if live:
        await page.wait_for_selector("#live.live")
    return page
