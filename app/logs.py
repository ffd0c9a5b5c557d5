"""Log lines: a constant text with keys, as JSON for programs or logfmt for a terminal."""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import orjson

from api.text import clean, clean_lines, dump_json, escape_json, is_clean

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_QUIET = (
    "uvicorn",
    "uvicorn.error",
    "uvicorn.access",
    "httpcore",
    "botocore",
    "urllib3",
    "asyncio",
    "aiohttp",
)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, then the record's own keys.

    Characters that a terminal or a CI system acts on are escapes of JSON: the data stay as they are.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a value that JSON cannot express is shown as text."""
        fields = _fields(record)
        try:
            return escape_json(orjson.dumps(fields, default=str, option=orjson.OPT_NON_STR_KEYS).decode())
        except TypeError:  # a lone surrogate
            return dump_json(fields)


class LogfmtFormatter(logging.Formatter):
    """`time level message key=value …`, the stack below, for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = _fields(record)
        stack = fields.pop("stack", None)
        clock, level, logger, message = (clean(str(fields.pop(key))) for key in ("time", "level", "logger", "message"))
        pairs = "".join(f" {clean(str(key))}={_quote(value)}" for key, value in fields.items())
        line = f"{clock[11:23]} {level.upper():7} {message}{pairs}" + ("" if level == "info" else f" [{logger}]")
        return f"{line}\n{clean_lines(stack.rstrip())}" if isinstance(stack, str) else line


def set_up_logging(level: str, form: Literal["auto", "json", "logfmt"], *, stream: TextIO | None = None) -> None:
    """Send all log lines of the process to `stream` (stderr) in one form. Libraries log warnings and above."""
    stream = stream or sys.stderr
    as_json = form == "json" or (form == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if as_json else LogfmtFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])
    for name in _QUIET:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(logging.WARNING, _LEVELS[level]))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    moment = datetime.fromtimestamp(record.created, UTC)
    fields: dict[str, Any] = {
        "time": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    fields |= {key: value for key, value in vars(record).items() if key not in _OWN and key not in fields}
    if record.exc_info and record.exc_info[0] is not None:
        fields["stack"] = "".join(traceback.format_exception(*record.exc_info))
    return fields


def _quote(value: object) -> str:
    text = str(value)
    plain = text and is_clean(text) and not any(c in text for c in ' "=')
    return text if plain else dump_json(text)
