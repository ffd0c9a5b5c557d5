"""Takes the screenshots of the console: `python -m tests.console.pictures [NAME …]`.

They are in docs/assets/console. Check them after a change of the page.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, expect

from tests.console.browser import browsing, chromium, find_chromium, open_page
from tests.console.png import squeeze
from tests.console.scene import MIB, Scene, adapter, service, stamp

FOLDER = Path(__file__).parents[2] / "docs" / "assets" / "console"
LARGEST_BYTES = 150_000

Prepare = Callable[[Page, Scene], Awaitable[None]]


def one() -> Scene:
    """One service that serves two adapters."""
    scene = Scene()
    scene.base()
    scene.artifact("cs-tone-v3")
    scene.artifact("sql-v2", 8)
    scene.put(service("team-a", "gemma-cs", adapter("cs-tone-v3"), adapter("sql-v2", rank=8, sizeBytes=61 * MIB)))
    scene.tell("gemma-cs", "AdapterDownloaded", "cs-tone-v3: 118 MiB, rank 16", minutes=12)
    scene.tell("gemma-cs", "AdapterLoaded", "sql-v2: listed by 2 of 2 ready pods", minutes=11)
    return scene


def progress() -> Scene:
    """Adapters during their download, and one that is served."""
    scene = one()
    moving = {"percentage": 43, "downloadedBytes": 51 * MIB, "totalBytes": 118 * MIB}
    scene.artifact("legal-v1", 32)
    scene.artifact("triage-v5", 16)
    entries = (
        adapter("cs-tone-v3"),
        adapter("legal-v1", "Downloading", progress=moving, lastObserved=stamp(seconds=40)),
        adapter(
            "triage-v5", "Pending", lastError="WaitingForSubtree: the folder on the disk is being made", attempts=0
        ),
    )
    scene.put(service("team-a", "gemma-legal", *entries, created=stamp(minutes=2)))
    scene.base("team-b", percentage=71)
    scene.put(service("team-b", "gemma-new", adapter("cs-tone-v3", "Pending", attempts=0), status="Pending"))
    return scene


def failed() -> Scene:
    """An adapter that cannot be staged, and one that a server does not load."""
    scene = one()
    scene.artifact("wide-v1")
    scene.artifact("old-base")
    error = (
        "AdapterRankExceedsCeiling: its real rank 64 is above the ceiling 32 that the server starts with; "
        "raise adapterRuntime.maxRank to 64"
    )
    rejected = "AdapterNotListed: staged, but pod gemma-mixed-predictor-7d9 does not list it"
    warning = {"reason": "BaseModelMismatch", "message": 'its own config names "google/gemma-2-27b-it"'}
    entries = (
        adapter("cs-tone-v3"),
        adapter("wide-v1", "Failed", rank=64, attempts=4, lastError=error, nextRetryTime=stamp(minutes=-6)),
        adapter("old-base", "LoadRejected", rank=16, sizeBytes=90 * MIB, lastError=rejected, warnings=[warning]),
    )
    scene.put(service("team-a", "gemma-mixed", *entries, status="Degraded"))
    scene.tell("gemma-mixed", "AdapterFailed", error, bad=True, minutes=3)
    return scene


def refusals() -> Scene:
    """Recent refusals."""
    scene = failed()
    scene.refuse(
        "gemma-cs",
        'spec.adapterMode: Invalid value: "static": is immutable (create another service)',
        reason="AdapterModeImmutable",
        seconds_ago=1900,
        operation="UPDATE",
    )
    scene.refuse(
        "refused",
        'spec.adapters[0].name: Invalid value: "wide": its rank 64 is above the ceiling 32 from AIMRuntimeConfig '
        '"default" (set spec.adapterRuntime.maxRank: 64 on this service, or first raise it in AIMRuntimeConfig '
        '"default")',
        'spec.adapters[2]: Duplicate value: "cs-tone-v3": is declared at spec.adapters[1] already (remove one of them)',
        reason="AdapterRankAboveCeiling AdapterDeclaredTwice",
        seconds_ago=75,
    )
    return scene


def many() -> Scene:
    """Forty services."""
    scene = refusals()
    scene.many(40)
    return scene


def thousands() -> Scene:
    """Five thousand services."""
    scene = Scene()
    scene.many(5_000)
    return scene


async def _nothing(page: Page, scene: Scene) -> None:
    """The page after it opens."""


async def _to_refusals(page: Page, scene: Scene) -> None:
    await page.evaluate("() => document.getElementById('disks').parentElement.scrollIntoView()")


async def _lost(page: Page, scene: Scene) -> None:
    scene.console.close()
    await page.wait_for_selector("#live.lost", timeout=10_000)


async def _second_page(page: Page, scene: Scene) -> None:
    await page.get_by_role("link", name="Page 2", exact=True).click()
    await expect(page.locator("#count")).to_contain_text("51")
    await page.evaluate("() => scrollTo(0, 0)")


async def _open_failed(page: Page, scene: Scene) -> None:
    await page.get_by_role("searchbox", name="Filter").fill("gemma-mixed")
    await expect(page.locator("#table > tbody")).to_have_count(1)


PICTURES: dict[str, tuple[Callable[[], Scene], Literal["light", "dark"], Prepare]] = {
    "empty": (Scene, "light", _nothing),
    "one-service": (one, "light", _nothing),
    "progress": (progress, "light", _nothing),
    "failed-adapter": (failed, "light", _nothing),
    "filter": (many, "light", _open_failed),
    "many": (many, "light", _nothing),
    "refusals": (refusals, "light", _to_refusals),
    "dark": (failed, "dark", _nothing),
    "thousands": (thousands, "light", _second_page),
    "connection-lost": (one, "light", _lost),
}


async def take(browser: Browser, name: str) -> int:
    """Take one picture; returns its size in bytes."""
    make, scheme, prepare = PICTURES[name]
    scene = make()
    async with scene.served() as address, browsing(browser, scheme=scheme) as context:
        page = await open_page(context, address)
        await prepare(page, scene)
        await page.wait_for_timeout(300)
        picture = squeeze(await page.screenshot())
    (FOLDER / f"{name}.png").write_bytes(picture)
    return len(picture)


async def main(names: list[str]) -> int:
    """Take the named pictures, or all."""
    if find_chromium() is None:
        sys.stderr.write("no Chromium here: install the package chromium of the distribution\n")
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        for name in names or PICTURES:
            size = await take(browser, name)
            sys.stdout.write(f"{name}.png: {size:,} bytes\n")
            if size > LARGEST_BYTES:
                sys.stderr.write(f"{name}.png is larger than {LARGEST_BYTES:,} bytes\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
