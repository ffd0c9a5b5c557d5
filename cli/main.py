"""Where the program starts: it loads the command line late, so that Ctrl-C during the loading shows no traceback."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # what shells give to a program that Ctrl-C ended
_WRONG_USAGE = 2
_CHECKOUT_ONLY = (
    'error: "dev" runs only in a checkout: the wheel and the image do not contain the development cluster'
    ' (fix: clone the repository, run "make setup", then ".venv/bin/aim-adapters dev")\n'
)


def main() -> None:
    """Run the command line."""
    try:
        from cli.program import run  # noqa: PLC0415 - see above

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name != "devcluster":
            raise
        sys.stderr.write(_CHECKOUT_ONLY)
        sys.exit(_WRONG_USAGE)


if __name__ == "__main__":
    main()
