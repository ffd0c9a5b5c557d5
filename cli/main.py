"""The start of the program: it imports the command line late, so that Ctrl-C during the import shows no traceback."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # exit code of a program that Ctrl-C ended, as shells report it
_WRONG_USAGE = 2
_CHECKOUT_ONLY = (
    'error: "dev" runs only in a checkout: the wheel and the image do not contain the development cluster'
    ' (fix: clone the repository, run "make setup", then ".venv/bin/aim-adapters dev")\n'
)


def _run_job() -> int | None:
    """Run a command with the arguments of a Job without the command line's library; None for other arguments."""
    from disk.job import run_plain

    return run_plain(sys.argv[2:])


def main() -> None:
    """Run the command line."""
    try:
        if sys.argv[1:2] == ["disk"] and (code := _run_job()) is not None:
            sys.exit(code)
        from cli.program import run

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
