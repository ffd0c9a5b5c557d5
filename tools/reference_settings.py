"""The page of all settings, from their descriptions: `python -m tools.reference_settings write|verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta

from app.settings import SettingInfo, describe_settings, format_duration
from reconcile.settings import ReconcileSettings
from tools.chart import DERIVED_SETTINGS
from tools.generated import ROOT, Target, run
from tools.markdown import heading, page, table

FIXED = {
    "reaper_idle_period": "How often a disk is swept on which nothing changed.",
    "claim_bind_timeout": "How long a used claim may stay unbound before it is reported as `ClaimUnbound`.",
    "job_ttl": "A net only: finished Jobs are deleted once their result is recorded.",
    "progress_port": "Port on which a running download answers `GET /progress`.",
}
"""Constants of the reconciler that no setting changes, each with a description."""


def render() -> dict[str, str]:
    """Return the page by file name."""
    return {"settings.md": page(_lines())}


def _lines() -> Iterator[str]:
    yield from heading("Settings", "tools.reference_settings", "app/settings.py")
    yield "Settings of `aim-adapters serve`. In the chart they are keys of the value `settings`:"
    yield ""
    yield "<!-- test: values -->"
    yield from ("```yaml", "settings:", "  refreshInterval: 15s", "  logLevel: debug", "```", "")
    yield "Each is also a flag, a variable and a key of the YAML file that `--config` or `$AIMA_CONFIG` names. Flags"
    yield "win over variables, variables over the file, the file over defaults. Durations are written `30s`, `15m`,"
    yield "`1h30m`, `250ms`, or as a number of seconds; lists `a,b`. A setting that cannot be used ends the start with"
    yield "one line for each problem; an unknown `AIMA_` variable is reported and ignored."
    yield "`aim-adapters serve --check` only checks."
    yield ""
    settings = list(describe_settings())
    for group in dict.fromkeys(info.group for info in settings):
        yield from (f"## {group}", "")
        rows = [_row(info) for info in settings if info.group == group]
        yield from table(("key", "flag", "variable", "default", "what it is"), rows)
    yield "\\* In the chart this follows from another value (see the chart's README), so `settings` has no such key."
    yield from ("", "## Fixed numbers", "", "Not settings, for orientation.", "")
    yield from table(("name", "value", "what it is"), _fixed())


def _row(info: SettingInfo) -> tuple[str, ...]:
    key = f"`{info.key}`" + ("\\*" if info.name in DERIVED_SETTINGS else "")
    flag = f"`{info.flag}`" + (f", `--no-{info.flag[2:]}`" if info.is_switch else "")
    words = " | ".join(f"`{choice}`" for choice in info.choices)
    meaning = f"{info.description} One of {words}." if words else info.description
    return key, flag, f"`{info.variable}`", f"`{info.default}`" if info.default else "", meaning


def _fixed() -> Iterator[tuple[str, ...]]:
    """Yield what the reconciler is built with beside the settings."""
    known = {info.name for info in describe_settings()}
    built = ReconcileSettings()
    for entry in fields(ReconcileSettings):
        if entry.name not in known:
            value = getattr(built, entry.name)
            shown = format_duration(value) if isinstance(value, timedelta) else str(value)
            yield f"`{entry.name}`", shown, FIXED.get(entry.name, "")


TARGET = Target("The page of settings", "tools.reference_settings", ROOT / "docs", render)


def main(argv: list[str]) -> int:
    """Write or verify the page; returns the exit status."""
    return run(argv, TARGET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
