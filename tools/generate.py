"""Every generated file of a checkout, in one process: `python -m tools.generate write` or `verify`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tools import (
    chart,
    crds,
    reference_adapters,
    reference_bounds,
    reference_commands,
    reference_metrics,
    reference_objects,
    reference_reasons,
    reference_rules,
    reference_settings,
)
from tools.generated import Target, run

TARGETS: tuple[Target, ...] = tuple(
    module.TARGET
    for module in (
        chart,
        crds,
        reference_objects,
        reference_rules,
        reference_adapters,
        reference_bounds,
        reference_commands,
        reference_metrics,
        reference_reasons,
        reference_settings,
    )
)


def main(argv: Sequence[str], targets: Sequence[Target] = TARGETS) -> int:
    """Write or verify every target, also after one that is not current; return the highest exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description="Generate every file.")
    parser.add_argument("action", choices=("write", "verify"))
    action = parser.parse_args(argv).action
    return max(run([action], target) for target in targets)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
