"""Forks from a small process: to fork a test worker of 300 MB takes 10 ms, to fork this one takes 1 ms."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[3]


class SmallProcess:
    """A process that forks a child for each call and reports how the child ended."""

    def __enter__(self) -> Self:
        """Start the process."""
        argv = [sys.executable, "-m", "tests.unit.disk.small"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process: it ends with its input."""
        self._process.communicate(timeout=60)

    def call(self, function: Callable[..., object], *args: str | int) -> int:
        """Call a function of a module in a child; return the child's wait status: exit code 1 after an exception."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function.__module__, function.__name__, args]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _fork(function: Callable[..., object], args: list[str | int]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(2, 1)  # the answers go through the pipe at 1
            function(*args)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def main() -> None:
    """Answer each line of the standard input: a module, a function and its arguments."""
    for line in sys.stdin:
        module, name, args = json.loads(line)
        status = _fork(getattr(importlib.import_module(module), name), args)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
