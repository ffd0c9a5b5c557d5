"""Asks engines about every recipe, compares with preflight, and writes the record (`make test-engine`).

Usage: python -m tests.engine.run [VERSION=PYTHON ...]; without a version only what preflight says is written again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.engine.recipes import CEILING, recipes, write, write_base
from tests.engine.record import RECORD, disagreements, judge, load, versions

ASK = Path(__file__).with_name("ask.py")
_SECONDS = 1800  # for one engine; it takes about 80


def ask(python: str, base: Path, adapters: Path, home: Path) -> dict[str, dict[str, Any]]:
    """Ask one engine about every adapter. Raises: CalledProcessError, TimeoutExpired."""
    out = home / "verdicts.json"
    environment = {**os.environ, "HOME": str(home)}
    argv = [python, str(ASK), str(base), str(adapters), str(CEILING), str(out)]
    subprocess.run(argv, check=True, cwd=home, env=environment, stdout=subprocess.DEVNULL, timeout=_SECONDS)
    said: dict[str, dict[str, Any]] = json.loads(out.read_text())
    return said


def main(argv: list[str]) -> int:
    """Run; return 1 when preflight and an engine disagree."""
    entries = load()["adapters"] if RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        base, adapters = Path(folder, "base"), Path(folder, "adapters")
        write_base(base)
        made = dict(enumerate(recipes()))
        fresh: dict[str, Any] = {}
        for number, recipe in made.items():
            digest = write(recipe, adapters / f"{number:04}")
            known = entries.get(recipe.name, {})
            engines = known.get("engines", {}) if known.get("digest") == digest else {}
            fresh[recipe.name] = {"digest": digest, "engines": engines}
        for argument in argv:
            version, _, python = argument.partition("=")
            home = Path(folder, f"home-{version}")
            home.mkdir()
            began = time.monotonic()
            said = ask(python, base, adapters, home)
            for number, recipe in made.items():
                fresh[recipe.name]["engines"][version] = said[f"{number:04}"]["verdict"]
            counts = Counter(one["verdict"] for one in said.values())
            print(f"vLLM {version}: {dict(counts)} in {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
        problems = 0
        newest = versions({"adapters": fresh})[0]
        for number, recipe in made.items():
            judged = judge(recipe, adapters / f"{number:04}", base)
            entry = fresh[recipe.name]
            entry["preflight"] = judged.reason
            entry["warnings"] = list(judged.warnings)
            for problem in disagreements(recipe, judged, entry["engines"], newest):
                problems += 1
                print(f"{recipe.name}: {problem}")  # noqa: T201 - the output of the command
    RECORD.write_text(json.dumps({"seed": 17, "ceiling": CEILING, "adapters": fresh}, indent=1) + "\n")
    print(f"{len(made)} adapters, {len(versions({'adapters': fresh}))} engines, {problems} disagreements")  # noqa: T201
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
