"""Hooks of the documentation site: pages outside of docs/, links out of docs/, and a check for remote resources.

In the repository, a page links to a file outside of `docs/` by its path, so that the link works there. On the site, the
target of such a link becomes a page (those in `PAGES`), a file below `files/`, or plain text (a folder).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "chart/README.md": "project/chart.md",
    "examples/README.md": "project/examples.md",
    "README.md": "index.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_FROM_ELSEWHERE = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*\shref=\"(?:https?:)?//"
)
_FENCE = re.compile(r"(^\s*```.*?^\s*```\s*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside of docs/."""
    for source, place in PAGES.items():
        if place != "index.md" and (ROOT / source).exists():
            files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite links out of docs/ so that they work on the site; code blocks do not change."""
    place = page.file.src_uri
    outside = {target: source for source, target in PAGES.items()}
    origin = outside[place] if place in outside and place != "index.md" else f"docs/{place}"

    def moved(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        shown = _target(wanted, config, files)
        if shown is None:
            return words
        return f"[{words}]({posixpath.relpath(shown, PurePosixPath(place).parent.as_posix())}{anchor})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.lstrip().startswith("```") else _LINK.sub(moved, part) for part in parts)


def _target(wanted: str, config: Any, files: Files) -> str | None:
    """Return the place on the site of a path in the repository, None for a folder."""
    if wanted in PAGES:
        return PAGES[wanted]
    if wanted.startswith("docs/"):
        return wanted.removeprefix("docs/")
    if (ROOT / wanted).is_dir():
        return None
    if not (ROOT / wanted).is_file():
        return wanted  # mkdocs reports the missing file
    target = f"files/{wanted}"
    if target not in files.src_uris:
        files.append(File.generated(config, target, abs_src_path=str(ROOT / wanted)))
    return target


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that loads anything from another host."""
    if found := _FROM_ELSEWHERE.search(output):
        raise PluginError(
            f"{page.file.src_uri}: the page loads from another host: {output[found.start() : found.end() + 60]}"
        )
    return output
