"""Where the program starts: it loads the command line late, so that Ctrl-C during the loading shows no traceback."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # what shells give to a program that Ctrl-C ended


def main() -> None:
    """Run the command line."""
    try:
        from cli.program import run  # noqa: PLC0415 - see above

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
