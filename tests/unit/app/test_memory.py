"""Long-lived objects are hidden from the collector and moved onto huge pages; addresses and contents stay."""

import asyncio
import contextlib
import ctypes
import gc
import mmap
import sys
from pathlib import Path

import pytest

from api.kinds import POD
from app import hugepages, memory
from app.hugepages import anonymous_ranges, use_huge_pages
from kube.informer import Informer

HUGE = 2 << 20
MAPS = """\
00400000-00a00000 rw-p 00000000 00:00 0                                  [heap]
00b00000-01500000 rw-p 00000000 00:00 0
02000000-02200000 r--p 00000000 00:00 0
03000000-03400000 rw-s 00000000 00:00 0
04000000-04400000 rw-p 00000000 fe:00 1234                               /usr/lib/a b.so
05000000-05400000 rw-p 00000000 00:00 0                                  [stack]
06000000-06100000 rw-p 00000000 00:00 0
07ffffff-08ffffff ---p 00000000 00:00 0

no line
"""


def test_ranges_are_private_writable_without_a_file_and_of_whole_pages() -> None:
    assert list(anonymous_ranges(MAPS, HUGE)) == [(0x400000, 0xA00000), (0xC00000, 0x1400000)]


def huge_bytes_at(address: int) -> int:
    """Return how much of the mapping at an address is on huge pages, as the kernel counts it."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside and first == "AnonHugePages:":
            return int(line.split()[1]) * 1024
    return 0


def can_collapse() -> bool:
    """Return whether this kernel puts memory onto huge pages when it is asked to."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError):
        release = tuple(int(part) for part in Path("/proc/sys/kernel/osrelease").read_text().split(".")[:2])
        return release >= (6, 1) and hugepages._huge_page_size() == HUGE
    return False


@pytest.mark.skipif(not can_collapse(), reason="this kernel has no huge pages of 2 MiB to ask for (Linux 6.1 has)")
def test_what_is_in_use_moves_and_what_is_not_stays_unused() -> None:
    area = mmap.mmap(-1, 4 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    first = -base % HUGE
    area[first : first + HUGE] = bytes(range(256)) * (HUGE // 256)  # in use as a whole
    area[first + HUGE] = 7  # one byte of the next

    for _ in range(20):  # the kernel may want to be asked again while it makes room
        assert use_huge_pages() >= 0
        if huge_bytes_at(base + first) == HUGE:
            break
    assert huge_bytes_at(base + first) == HUGE
    assert area[first : first + HUGE] == bytes(range(256)) * (HUGE // 256)
    assert area[first + HUGE] == 7


@pytest.mark.parametrize("setting", ["always madvise [never]", "rubbish", None])
def test_an_administrator_who_says_never_and_a_system_without_are_left_alone(
    setting: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        (tmp_path / "enabled").write_text(setting)
    monkeypatch.setattr(hugepages, "_SETTINGS", tmp_path)
    monkeypatch.setattr(hugepages, "_MAPS", tmp_path / "not read")

    assert use_huge_pages() == 0


async def test_memory_is_moved_when_something_changed_in_calm_moments(
    monkeypatch: pytest.MonkeyPatch, pods: Informer
) -> None:
    moves: list[int] = []
    monkeypatch.setattr(memory, "use_huge_pages", lambda: moves.append(pods.changes) or 0)
    monkeypatch.setattr(memory, "_CALM_SECONDS", 0.05)
    monkeypatch.setattr(memory, "_MOVE_SECONDS", 0.0)
    before = gc.get_threshold(), gc.get_freeze_count()

    tending = asyncio.create_task(memory.tend_memory([pods], huge_pages=True))
    await asyncio.sleep(0.05)
    assert moves == []  # not before caches are filled
    pods.settled.set()
    for change in range(2):
        await asyncio.sleep(0.3)
        assert len(moves) == change + 1
        assert gc.get_freeze_count() > before[1]
        pods.store({"metadata": {"namespace": "team", "name": f"pod-{change}", "resourceVersion": str(change + 1)}})

    for change in range(3000):  # a flood
        if change % 10 == 0:
            await asyncio.sleep(0.001)
        pods.store({"metadata": {"namespace": "team", "name": "pod-0", "resourceVersion": str(change + 10)}})
    assert len(moves) <= 3  # what comes with the flood waits for its end
    await asyncio.sleep(0.3)
    assert moves[-1] == pods.changes

    tending.cancel()
    await asyncio.gather(tending, return_exceptions=True)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before[0], 0)


@pytest.fixture
def pods() -> Informer:
    """Return an informer that does not run."""
    return Informer(None, POD)  # type: ignore[arg-type] # never asks its client
