"""Faults on demand: rules for which request fails, and how. Pure except the fault file's look-up."""

from __future__ import annotations

import fnmatch
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

STATUSES: Final = (400, 401, 403, 404, 405, 408, 409, 412, 416, 429, 500, 501, 502, 503, 504)


class RuleError(ValueError):
    """A rule that cannot be read; its text names the field."""


@dataclass(slots=True)
class Rule:
    """One rule. All conditions must hold; the first rule that holds is the one that acts.

    Rules with an action on the body look only at answers that carry a file; the others look at every request.
    """

    # conditions
    match: str = "*"  # glob on the decoded path: /ORG/NAME/resolve/main/FILE, /BUCKET/KEY
    method: str = "*"  # GET, HEAD, …
    operation: str = "*"  # glob on the operation's name: resolve, cdn, tree, GetObject, ListObjectsV2, …
    only_nth: int | None = None  # only the Nth request that meets the conditions, from 1
    times: int | None = None  # act at most this many times
    # actions on the whole request
    delay: float = 0.0  # seconds before the answer
    drop: bool = False  # close the connection without an answer
    status: int | None = None
    code: str = ""  # S3 error code or hub X-Error-Code instead of the usual one of the status
    message: str = ""
    retry_after: int | None = None  # seconds
    # actions on a file's bytes
    cut_after_bytes: int | None = None  # close the connection after this many bytes of the answer
    reset: bool = False  # with cut_after_bytes: end with a TCP reset instead of a clean close
    corrupt_byte_at: int | None = None  # flip the byte at this offset of the file
    slow_bytes_per_second: int | None = None
    wrong_length: int | None = None  # serve this many bytes more (zeros) or fewer, with a matching Content-Length
    ignore_range: bool = False  # answer a Range request with 200 and the whole file
    # what happened so far
    seen: int = field(default=0, compare=False)
    fired: int = field(default=0, compare=False)

    @property
    def on_body(self) -> bool:
        """Whether the rule acts on a file's bytes."""
        return (
            self.cut_after_bytes is not None
            or self.corrupt_byte_at is not None
            or self.slow_bytes_per_second is not None
            or self.wrong_length is not None
            or self.ignore_range
        )

    def meets(self, path: str, method: str, operation: str) -> bool:
        """Whether a request meets the conditions, counters aside."""
        return (
            fnmatch.fnmatchcase(path, self.match)
            and self.method in ("*", method)
            and fnmatch.fnmatchcase(operation, self.operation)
        )

    def fire(self) -> bool:
        """Count one request that met the conditions and say whether the rule acts on it."""
        self.seen += 1
        if self.only_nth is not None and self.seen != self.only_nth:
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        self.fired += 1
        return True

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that differ from the default, and the two counters."""
        shown = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return shown | {"seen": self.seen, "fired": self.fired}


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "match": (str,),
    "method": (str,),
    "operation": (str,),
    "code": (str,),
    "message": (str,),
    "delay": (int, float),
    "drop": (bool,),
    "reset": (bool,),
    "ignore_range": (bool,),
}


def parse_rule(raw: object, where: str = "rule") -> Rule:
    """Read one rule from JSON data.

    Raises: RuleError naming the field, for unknown fields, wrong types and a status that no source answers.
    """
    if not isinstance(raw, dict):
        raise RuleError(f"{where}: must be an object")
    known = {f.name for f in fields(Rule)} - {"seen", "fired"}
    for name, value in raw.items():
        if name not in known:
            raise RuleError(f"{where}.{name}: unknown field; known are {', '.join(sorted(known))}")
        wanted = _TYPES.get(name, (int,))
        if value is not None and (not isinstance(value, wanted) or (bool not in wanted and isinstance(value, bool))):
            raise RuleError(f"{where}.{name}: {value!r} is not {' or '.join(t.__name__ for t in wanted)}")
    rule = Rule(**{name: value for name, value in raw.items() if value is not None})
    if rule.status is not None and rule.status not in STATUSES:
        raise RuleError(f"{where}.status: {rule.status} is not supported; supported: {', '.join(map(str, STATUSES))}")
    if rule.status is not None and rule.on_body:
        raise RuleError(f"{where}: a status and an action on the body exclude each other")
    if rule.status is None and not rule.on_body and not rule.drop and rule.delay <= 0:
        raise RuleError(f"{where}: has no action (delay, drop, status, cut_after_bytes, …)")
    return rule


def parse_rules(raw: object) -> list[Rule]:
    """Read rules from JSON data: a list, or an object with `rules`.

    Raises: RuleError.
    """
    listed = raw.get("rules") if isinstance(raw, dict) else raw
    if not isinstance(listed, list):
        raise RuleError("rules: must be a list of objects")
    return [parse_rule(item, f"rules[{index}]") for index, item in enumerate(listed)]


class Faults:
    """The rules of one server: those of its file, re-read when it changes, then those that were posted."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._from_file: list[Rule] = []
        self._posted: list[Rule] = []
        self._lock = threading.Lock()
        self.file_error = ""  # why the file's current content is not in force

    def set(self, rules: Sequence[Rule | dict[str, Any]]) -> None:
        """Replace the posted rules.

        Raises: RuleError.
        """
        parsed = [r if isinstance(r, Rule) else parse_rule(r, f"rules[{i}]") for i, r in enumerate(rules)]
        with self._lock:
            self._posted = parsed

    def rules(self) -> list[Rule]:
        """Return all rules in force, the file's first."""
        with self._lock:
            self._reload()
            return [*self._from_file, *self._posted]

    def at_start(self, path: str, method: str, operation: str) -> Rule | None:
        """Return the rule that acts on this request as a whole, counting it."""
        with self._lock:
            self._reload()
            for rule in (*self._from_file, *self._posted):
                if not rule.on_body and rule.meets(path, method, operation) and rule.fire():
                    return rule
        return None

    def at_body(self, path: str, method: str, operation: str, *, start: int, count: int, partial: bool) -> Rule | None:
        """Return the rule that acts on an answer with these bytes of a file, counting it.

        Args: start and count of the bytes about to be sent; whether the answer is 206. A cut behind their end, a
        corrupt byte outside of them or an ignored range that is none could not be noticed: such a rule waits.
        """
        with self._lock:
            for rule in (*self._from_file, *self._posted):
                if not rule.on_body or not rule.meets(path, method, operation):
                    continue
                if rule.ignore_range and not partial:
                    continue
                if rule.cut_after_bytes is not None and rule.cut_after_bytes >= count:
                    continue
                if rule.corrupt_byte_at is not None and not start <= rule.corrupt_byte_at < start + count:
                    continue
                if rule.fire():
                    return rule
        return None

    def _reload(self) -> None:
        if self._path is None:
            return
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return
            with open(self._path, encoding="utf-8") as stream:
                self._from_file = parse_rules(json.load(stream))
            self._stamp, self.file_error = stamp, ""
        except FileNotFoundError:
            self._stamp, self._from_file, self.file_error = None, [], ""
        except (OSError, ValueError) as error:  # half-written: the old rules stay until it can be read
            self.file_error = f"{self._path}: {error}"
