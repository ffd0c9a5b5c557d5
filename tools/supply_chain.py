"""The reports of `make audit` and `make sbom`, made from the output of pip-audit and cyclonedx-py and from the lock.

pip-audit succeeds even when it cannot check a package. This module gives that case an exit status of its own.
cyclonedx-py does not know the dependencies between the lines of a lock. This module adds them from the `# via` lines.
It uses the standard library only, because it runs in the environment of those programs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VULNERABLE, UNKNOWN = 1, 3  # exit statuses; 2 is a wrong call
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)")
_VIA = re.compile(r"^    # (?:via )?(?:  )?(?P<name>[A-Za-z0-9._-]+)(?: \(.*\))?$")
_MOST_SHOWN = 5
ROOT_REF = "root-component"


@dataclass(slots=True)
class Pin:
    """A line of the lock: version, and who asks for it (names in plain form)."""

    version: str
    via: list[str] = field(default_factory=list)


def plain(name: str) -> str:
    """Return a package's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> dict[str, Pin]:
    """Return the pins of a lock by plain name, in its order."""
    pins: dict[str, Pin] = {}
    current: Pin | None = None
    for line in text.splitlines():
        if found := _PIN.match(line):
            current = pins.setdefault(plain(found["name"]), Pin(found["version"]))
        elif current is not None and (found := _VIA.match(line)) and found["name"] not in {"via", "-c"}:
            current.via.append(plain(found["name"]))
    return pins


# -- audit ----------------------------------------------------------------------------------------------------------


def judge_audit(report: Mapping[str, Any] | None, why: str = "") -> tuple[int, list[str]]:
    """Return exit status and lines to print for pip-audit's JSON report.

    Args: `report` is None when there is none: then `why` is the last thing that the program said.
    0: every package was asked about, nothing is known · 1: vulnerable · 3: some could not be asked about.
    """
    if report is None:
        return UNKNOWN, [f"nothing was audited: {why or 'pip-audit wrote no report'}"]
    packages = report.get("dependencies") or []
    skipped = [entry for entry in packages if entry.get("skip_reason")]
    found = [
        f"{entry['name']} {entry['version']}: {_told(one)}" for entry in packages for one in entry.get("vulns") or []
    ]
    lines = [*found]
    if skipped:
        names = ", ".join(entry["name"] for entry in skipped[:_MOST_SHOWN])
        more = f" and {len(skipped) - _MOST_SHOWN} more" if len(skipped) > _MOST_SHOWN else ""
        lines.append(f"NOT AUDITED: {len(skipped)} of {len(packages)} packages ({names}{more}):")
        lines.append(
            f"  the vulnerability service knows nothing of them or cannot be reached ({skipped[0]['skip_reason']})"
        )
    asked = len(packages) - len(skipped)
    lines.append(f"{asked} of {len(packages)} packages asked about, {len(found)} known vulnerabilities")
    return VULNERABLE if found else UNKNOWN if skipped or not packages else 0, lines


def _told(vulnerability: Mapping[str, Any]) -> str:
    fixed = ", ".join(vulnerability.get("fix_versions") or ()) or "none"
    return f"{vulnerability['id']} (fixed in: {fixed})"


# -- bill of materials ----------------------------------------------------------------------------------------------


def add_dependencies(bom: dict[str, Any], pins: Mapping[str, Pin], root: str) -> dict[str, Any]:
    """Return the bill of materials with who depends on whom, and one line of description for each component.

    Args: `root` is the name of the main component, as the lock's `# via` lines spell it.
    Raises: ValueError when a pin has no component or no checksum.
    """
    components = {plain(entry["name"]): entry for entry in bom["components"]}
    if missing := sorted(pins.keys() - components.keys()):
        raise ValueError(f"no component for {', '.join(missing)}")
    refs = {name: f"pkg:pypi/{name}@{pin.version}" for name, pin in pins.items()} | {plain(root): ROOT_REF}
    depends: dict[str, list[str]] = {ref: [] for ref in refs.values()}
    for name, pin in pins.items():
        entry = components[name]
        if not any(reference.get("hashes") for reference in entry.get("externalReferences") or ()):
            raise ValueError(f"no checksum for {name}")
        entry["bom-ref"] = refs[name]
        entry["description"] = "locked by checksum in requirements.lock"
        for parent in pin.via:
            if parent in refs:
                depends[refs[parent]].append(refs[name])
    graph = [{"ref": ref, **({"dependsOn": sorted(on)} if on else {})} for ref, on in sorted(depends.items())]
    return {**bom, "dependencies": graph}


# -- command --------------------------------------------------------------------------------------------------------


def _audit(report: Path, log: Path) -> int:
    said = [line for line in log.read_text().splitlines() if line.strip()] if log.exists() else []
    try:
        found = json.loads(report.read_text())
    except (OSError, ValueError):
        found = None
    status, lines = judge_audit(found, said[-1] if said else "")
    _say(lines)
    if status == UNKNOWN:
        _say([f"exit status {UNKNOWN}: run it again where the service can be reached"])
    return status


def _sbom(path: Path, lock: Path, root: str) -> int:
    bom = add_dependencies(json.loads(path.read_text()), read_lock(lock.read_text()), root)
    path.write_text(json.dumps(bom, indent=2, sort_keys=True) + "\n")
    _say([f"{path}: {len(bom['components'])} components, each with checksums"])
    return 0


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


def main(argv: list[str]) -> int:
    """`audit REPORT LOG` or `sbom FILE LOCK ROOT`; returns the exit status."""
    match argv:
        case ["audit", report, log]:
            return _audit(Path(report), Path(log))
        case ["sbom", path, lock, root]:
            return _sbom(Path(path), Path(lock), root)
    _say([main.__doc__ or ""])
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
