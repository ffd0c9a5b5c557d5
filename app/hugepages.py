"""Moves the memory that the process uses onto huge pages.

Between two reviews at 200 a second other programs use the core. Then the address of each of the hundreds of small pages
that a review touches is looked up again, which is most of a review's time on a virtual machine. With pages of 2 MiB a
few look-ups suffice.

Source: Linux, Documentation/admin-guide/mm/transhuge.rst; madvise(2): MADV_COLLAPSE since 6.1, MADV_HUGEPAGE.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterator
from pathlib import Path

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_MAPS = Path("/proc/self/maps")
_ADVISE, _COLLAPSE = getattr(mmap, "MADV_HUGEPAGE", 14), 25
_FULL = 7 / 8  # of a huge page that is in use already: the rest of it is additional memory


def use_huge_pages() -> int:
    """Move memory in use onto huge pages where the system allows it; returns how many bytes are there now.

    Memory keeps its addresses and contents. Takes about 3 ms per MiB the first time and almost nothing afterwards; safe
    in another thread. Does nothing where an administrator has set `never`, or on a system without huge pages.
    """
    size = _huge_page_size()
    if not size:
        return 0
    libc = ctypes.CDLL(None)  # its calls release the interpreter's lock
    moved = 0
    for start, end in anonymous_ranges(_MAPS.read_text(), size):
        for at in _filled(libc, start, end, size):
            begun = time.perf_counter()
            if libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), _COLLAPSE) == 0:
                moved += size
                time.sleep(time.perf_counter() - begun)  # a thread that waits for this memory comes first
            else:  # an older kernel collapses it later, in the background
                libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), _ADVISE)
    return moved


def _huge_page_size() -> int:
    try:
        if "[never]" in (_SETTINGS / "enabled").read_text():
            return 0
        return int((_SETTINGS / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0


def anonymous_ranges(maps: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of writable private memory without a file, cut to whole pages of `size` bytes.

    `maps` is a text as of proc_pid_maps(5); lines of another form are skipped.
    """
    for line in maps.splitlines():
        addresses, access, _, _, _, *name = [*line.split(maxsplit=5), *([""] * 5)][:6]
        if access[:2] != "rw" or access[3:4] != "p" or name[0] not in ("", "[heap]"):
            continue
        first, _, last = addresses.partition("-")
        start, end = -(-int(first, 16) // size) * size, int(last, 16) // size * size
        if start < end:
            yield start, end


def _filled(libc: ctypes.CDLL, start: int, end: int, size: int) -> Iterator[int]:
    """Yield the addresses of the huge pages of a range that are mostly in use."""
    small = size // mmap.PAGESIZE
    resident = (ctypes.c_ubyte * ((end - start) // mmap.PAGESIZE))()
    if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(end - start), resident) != 0:
        return  # the range does not exist any more
    for number in range((end - start) // size):
        if sum(flag & 1 for flag in resident[number * small : (number + 1) * small]) >= small * _FULL:
            yield start + number * size
