"""What was asked and what was sent: one entry per request, without secrets, for tests that prove things by it."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import IO, Any


@dataclass(slots=True)
class Entry:
    """One request. `bytes` counts what went to the socket as body, so a cut answer shows how far it came."""

    n: int = 0  # running number, from 1
    time: float = field(default_factory=time.time)  # start, seconds since the epoch
    seconds: float = 0.0
    site: str = ""  # hub, cdn, s3
    operation: str = ""
    method: str = ""
    path: str = ""  # decoded, in S3 always /BUCKET/KEY
    query: str = ""  # without signatures
    range: str = ""  # the Range header as sent
    status: int = 0  # 0: closed without an answer
    code: str = ""  # X-Error-Code or S3 error code
    bytes: int = 0
    complete: bool = False  # all announced bytes were written
    identity: str = ""  # anonymous, token-1, invalid, signed-link, an access key; never a secret
    fault: str = ""  # what the rule did
    agent: str = ""  # User-Agent


class Journal:
    """The last entries in memory, and all of them as JSON lines if a file is given. Safe for threads."""

    def __init__(self, path: str | None = None, keep: int = 100_000) -> None:
        self._entries: deque[Entry] = deque(maxlen=keep)
        self._lock = threading.Lock()
        self._count = 0
        self._stream: IO[str] | None = open(path, "a", encoding="utf-8", buffering=1) if path else None  # noqa: SIM115 - closed by close()

    def add(self, entry: Entry) -> None:
        """Number the entry and keep it."""
        with self._lock:
            self._count += 1
            entry.n = self._count
            self._entries.append(entry)
            if self._stream is not None:
                self._stream.write(json.dumps(asdict(entry)) + "\n")

    def since(self, number: int = 0) -> list[dict[str, Any]]:
        """Return the entries with a number above `number`, oldest first."""
        with self._lock:
            return [asdict(e) for e in self._entries if e.n > number]

    def clear(self) -> None:
        """Forget the entries; numbering continues."""
        with self._lock:
            self._entries.clear()

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
