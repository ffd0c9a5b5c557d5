"""The commands inside the Jobs: each ends with a JobResult, exit code 0 or 1, and no traceback.

A Job starts for each adapter, so this module imports little, and reads the arguments of a Job without the library of
the command line. What a Job does not pass (`--help`, `--name value`, a mistake) is left to `disk.cli`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar, get_origin

from api.jobs import (
    TERMINATION_LOG,
    FetchSpec,
    JobResult,
    JobSpec,
    ReapSpec,
    SpecError,
    StageSpec,
    SyncSpec,
    field_types,
    read_spec,
)
from api.reasons import Reason
from api.text import clean_lines, escape_json
from disk.failures import DiskFailure, from_os_error, redact
from disk.fs import Fs
from disk.layout import UnsafeNameError

_SHOWN_ERRORS = 10

_S = TypeVar("_S", bound=JobSpec)


def say(text: str) -> None:
    """Print a text for people. A closed output is not an error."""
    text = clean_lines(text)
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except UnicodeError:  # a terminal that shows only ASCII
        sys.stdout.write(f"{ascii(text)[1:-1]}\n")
        sys.stdout.flush()
    except OSError:
        pass


def run_stage(spec: StageSpec) -> JobResult:
    """Download one adapter, check it and promote it."""
    from disk.stage import Stager, find_staged, stage  # noqa: PLC0415 - lazy: a Job starts for each adapter

    if (staged := find_staged(spec)) is not None:
        return staged
    from disk.download import Pacing  # noqa: PLC0415 - as above
    from disk.progress import Meter, serve_progress  # noqa: PLC0415
    from disk.sources import open_source  # noqa: PLC0415

    say(f"staging {spec.path} for {spec.namespace}/{spec.service} from {spec.source_uri}")
    meter = Meter(say)
    stop = serve_progress(meter, spec.progress_port)
    try:
        return stage(Stager(spec, Fs(), lambda: open_source(spec), meter, Pacing()))
    finally:
        stop()


def run_sync(spec: SyncSpec) -> JobResult:
    """Create the subtree of a service and remove adapters that it does not declare."""
    from disk.sync import sync  # noqa: PLC0415 - lazy, as above

    return sync(spec, Fs())


def run_reap(spec: ReapSpec) -> JobResult:
    """Remove what no existing service needs."""
    from disk.reap import reap  # noqa: PLC0415 - lazy, as above

    return reap(spec, Fs())


def run_fetch(spec: FetchSpec) -> JobResult:
    """Download a base model into its cache."""
    from disk.download import Pacing  # noqa: PLC0415 - lazy, as above
    from disk.fetch import Fetcher, fetch  # noqa: PLC0415
    from disk.progress import Meter, serve_progress  # noqa: PLC0415
    from disk.sources import open_source  # noqa: PLC0415

    say(f"fetching {spec.namespace}/{spec.artifact} from {spec.source_uri}")
    meter = Meter(say)
    stop = serve_progress(meter, spec.progress_port)
    try:
        return fetch(Fetcher(spec, Fs(), lambda: open_source(spec), meter, Pacing()))
    finally:
        stop()


def execute(
    kind: type[_S], values: dict[str, Any], action: Callable[[_S], JobResult], termination_log: str
) -> JobResult:
    """Run a command, report its result and return it. Never raises."""
    key = str(values.get("stage_key") or values.get("sync_key") or "")
    _report_when_stopped(key, termination_log)
    try:
        result = action(read_spec(kind, values))
    except SpecError as error:
        result = _invalid(error).to_result(key)
    except DiskFailure as failure:
        result = failure.to_result(key)
    except UnsafeNameError as error:
        result = DiskFailure(Reason.SPECIFICATION_INVALID, str(error)).to_result(key)
    except OSError as error:
        result = from_os_error(error).to_result(key)
    except MemoryError:
        result = DiskFailure(Reason.INTERNAL_ERROR, "out of memory").to_result(key)
    except Exception as error:  # the last resort: a result, not a traceback
        where = _where(error)
        result = DiskFailure(Reason.INTERNAL_ERROR, f"{type(error).__name__} in {where}").to_result(key)
    report(result, termination_log)
    return result


def report(result: JobResult, termination_log: str) -> None:
    """Print the result for people, and write it for the controller."""
    say(f"{'done' if result.ok else 'failed'}: {result.reason}: {redact(result.message)}")
    for warning in result.warnings:
        say(f"warning: {warning.reason}: {redact(warning.message)}")
    data = result.to_termination_message().encode()
    try:
        # The kubelet mounts this file, so a new file cannot be renamed over it: truncate it and write once.
        fd = os.open(
            termination_log,
            os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | (0 if _is_device(termination_log) else os.O_CREAT),
            0o644,
        )
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
    except OSError:
        say(f"result: {escape_json(data.decode())}")  # without a kubelet, for example in a shell


def _is_device(path: str) -> bool:
    """Return whether the path is in /dev, where this program creates no file when no kubelet did."""
    return os.path.dirname(path) == "/dev"


def _report_when_stopped(key: str, termination_log: str) -> None:
    """On SIGTERM report it and exit at once. The next Job can resume any unfinished work."""

    def stop(number: int, frame: FrameType | None) -> None:
        report(DiskFailure(Reason.INTERRUPTED, f"signal {number}").to_result(key), termination_log)
        os._exit(1)

    try:
        signal.signal(signal.SIGTERM, stop)
    except ValueError:
        return  # not in the main thread, as in tests


def _invalid(error: SpecError) -> DiskFailure:
    """Name the invalid options, without their values."""
    found = error.faults
    more = f" and {len(found) - _SHOWN_ERRORS} more" if len(found) > _SHOWN_ERRORS else ""
    return DiskFailure(Reason.SPECIFICATION_INVALID, "; ".join(found[:_SHOWN_ERRORS]) + more)


def _where(error: BaseException) -> str:
    """Return file and line of an internal error, for the report that the advice asks for."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown location"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


class Command(NamedTuple):
    """One command: its specification, what it does, and its line of help."""

    kind: type[JobSpec]
    action: Callable[[Any], JobResult]
    help: str


COMMANDS = {
    "stage": Command(
        StageSpec, run_stage, "Download one adapter, check it, and promote it into the subtree of a service."
    ),
    "sync": Command(
        SyncSpec, run_sync, "Create the subtree of a service and remove adapters that it no longer declares."
    ),
    "reap": Command(ReapSpec, run_reap, "Remove what no existing service needs."),
    "fetch": Command(FetchSpec, run_fetch, "Download a base model into its cache claim."),
}


def is_list(kind: type[JobSpec], field: str) -> bool:
    """Whether the option of a field may be repeated."""
    return get_origin(field_types(kind)[field]) is list


def run_command(name: str, values: dict[str, Any], termination_log: str) -> int:
    """Run a command; return the exit code."""
    command = COMMANDS[name]
    return 0 if execute(command.kind, values, command.action, termination_log).ok else 1


def run_plain(arguments: Sequence[str]) -> int | None:
    """Run a command whose arguments all are `--name=value`, as those of a Job; return the exit code.

    Return None, and do nothing, for anything else.
    """
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        return None
    values: dict[str, Any] = {}
    log = TERMINATION_LOG
    for argument in arguments[1:]:
        flag, separator, value = argument.partition("=")
        field = flag.removeprefix("--").replace("-", "_")
        if not separator or f"--{field.replace('_', '-')}" != flag:
            return None
        if field == "termination_log":
            log = value
        elif field not in field_types(command.kind):
            return None
        elif is_list(command.kind, field):
            values.setdefault(field, []).append(value)
        else:
            values[field] = value
    return run_command(arguments[0], values, log)


def main() -> None:
    """Run one command, by the arguments of this process."""
    code = run_plain(sys.argv[1:])
    if code is None:
        from disk.cli import cli  # noqa: PLC0415 - for people only

        cli()
    sys.exit(code)


if __name__ == "__main__":
    main()
