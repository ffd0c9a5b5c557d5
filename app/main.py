"""Where the program starts: it loads the command line late, so that Ctrl-C during the loading shows no traceback."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # what shells give to a program that Ctrl-C ended


def main() -> None:
    """Run the command line."""
    try:
        if sys.argv[1:2] == ["serve"]:
            from app.allocator import start_anew_with_huge_pages  # noqa: PLC0415

            start_anew_with_huge_pages(sys.argv[1:])
        from app.cli import run  # noqa: PLC0415 - see above

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
