"""The start of the program: it imports the command line late, so that Ctrl-C during the import shows no traceback."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # exit code of a program that Ctrl-C ended, as shells report it


def main() -> None:
    """Run the command line."""
    try:
        from cli.program import run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
