"""A server that only reconciles starts anew with an allocator that asks for huge pages, where that does something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.allocator import allocator

ROOT = Path(__file__).parents[3]
CHOSEN = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}
ARGUMENTS = ["serve", "--no-admission"]
KERNEL = "always [madvise] never\n"


@pytest.mark.parametrize(
    ("arguments", "env", "library", "kernel", "chosen"),
    [
        (ARGUMENTS, {}, "glibc 2.36", KERNEL, True),
        (ARGUMENTS, {}, "glibc 2.35.1", "[always] madvise never\n", True),
        (["serve"], {}, "glibc 2.36", KERNEL, False),
        (["lint", "--no-admission"], {}, "glibc 2.36", KERNEL, False),
        ([], {}, "glibc 2.36", KERNEL, False),
        (ARGUMENTS, {"PYTHONMALLOC": "debug"}, "glibc 2.36", KERNEL, False),
        (ARGUMENTS, {"GLIBC_TUNABLES": ""}, "glibc 2.36", KERNEL, False),
        (ARGUMENTS, {}, "glibc 2.34", KERNEL, False),
        (ARGUMENTS, {}, "", KERNEL, False),
        (ARGUMENTS, {}, "musl 1.2", KERNEL, False),
        (ARGUMENTS, {}, "glibc 2.36", "always madvise [never]\n", False),
        (ARGUMENTS, {}, "glibc 2.36", "", False),
    ],
)
def test_when_the_allocator_is_another(
    arguments: list[str], env: dict[str, str], library: str, kernel: str, *, chosen: bool
) -> None:
    assert allocator(arguments, env, library, kernel) == (CHOSEN if chosen else {})


def test_the_same_command_line_runs_once_more() -> None:
    """With the variables that were chosen: by these it knows that it is the second one."""
    code = (
        "import json, os, sys; import app.allocator as a;"
        "a._library, a._huge_pages = (lambda: 'glibc 2.36'), (lambda: '[madvise]');"
        "a.start_anew_with_huge_pages(sys.argv[1:]);"
        "print(json.dumps([sys.argv[1:], os.environ['PYTHONMALLOC'], os.environ['GLIBC_TUNABLES'], os.getpid()]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, *ARGUMENTS, "--x=a b"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as started:
        said, _ = started.communicate(timeout=60)
    assert started.returncode == 0
    assert json.loads(said) == [[*ARGUMENTS, "--x=a b"], "malloc", "glibc.malloc.hugetlb=1", started.pid]
