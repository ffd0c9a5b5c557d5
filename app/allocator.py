"""Starts a server that only reconciles anew, with an allocator that asks for huge pages.

The first minutes of such a server are page faults and look-ups of pages of 4 KiB: `app.memory` moves later what has
come to stay. Memory that glibc maps (2.35 and later) lies on pages of 2 MiB from the beginning where it is told to at
the start of the program (`glibc.malloc.hugetlb`: The GNU C Library manual, Memory Allocation Tunables), and Python
leaves small objects to it with `PYTHONMALLOC=malloc`. Reviews would be slower for that: a server with admission starts
as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence

_TUNABLES, _PYTHON = "GLIBC_TUNABLES", "PYTHONMALLOC"
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_FIRST_GLIBC = (2, 35)


def start_anew_with_huge_pages(arguments: Sequence[str]) -> None:
    """Replace this process by one of the same command line with another allocator; returns where that is no use."""
    chosen = allocator(arguments, os.environ, _library(), _huge_pages())
    if chosen:
        with contextlib.suppress(OSError):  # it works as it is, if slower
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **chosen})  # noqa: S606


def allocator(arguments: Sequence[str], env: Mapping[str, str], library: str, huge_pages: str) -> dict[str, str]:
    """Return the variables that are to be set; none where somebody has chosen, or where they would do nothing.

    Args: `library` as in "glibc 2.36"; `huge_pages` as the kernel says it: "always [madvise] never".
    """
    if list(arguments[:1]) != ["serve"] or "--no-admission" not in arguments or {_TUNABLES, _PYTHON} & env.keys():
        return {}
    name, _, version = library.partition(" ")
    parts = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if name != "glibc" or parts < _FIRST_GLIBC or not any(mode in huge_pages for mode in ("[always]", "[madvise]")):
        return {}
    return {_TUNABLES: "glibc.malloc.hugetlb=1", _PYTHON: "malloc"}


def _library() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # another system, another library
        return ""


def _huge_pages() -> str:
    try:
        with open(_HUGE_PAGES, encoding="ascii") as file:  # pathlib takes longer to load than all of this
            return file.read()
    except OSError:
        return ""
