"""Packages the chart with the real helm, which is built when it is missing: `python -m tools.package_chart FOLDER`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from devcluster.binaries import HELM_MODULE, ensure_programs
from devcluster.progress import Progress
from tools.generated import ROOT


def main(argv: list[str]) -> int:
    """Write the package into a folder; return the exit status of helm."""
    (folder,) = argv
    programs = asyncio.run(ensure_programs(Progress(lambda _: None), (HELM_MODULE,)))
    Path(folder).mkdir(parents=True, exist_ok=True)
    argv = [str(programs["helm"]), "package", str(ROOT / "chart"), "--destination", folder]
    return subprocess.run(argv, check=False).returncode  # noqa: S603 - a program of the cache, arguments of the Makefile


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
