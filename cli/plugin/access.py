"""How a command reaches the cluster, and how it reports failures: one clear line, a documented exit code."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from api.text import clean, clean_line

if TYPE_CHECKING:
    from kube.client import Client

T = TypeVar("T")

OK = 0
FOUND = 1  # a problem was found, or the change was refused
FAILED = 2  # wrong usage, not found, or the cluster did not answer


class ProblemError(Exception):
    """A problem to report in one line, with an exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel="Cluster")


@dataclass(frozen=True, slots=True)
class Access:
    """The cluster and the namespace of a command: a group of options."""

    namespace: Annotated[
        str | None, _option("-n", "--namespace", help="Namespace; default: that of the kubeconfig's context.")
    ] = None
    kubeconfig: Annotated[
        str | None, _option("--kubeconfig", help="Kubeconfig; default: $KUBECONFIG, then ~/.kube/config.")
    ] = None
    context: Annotated[
        str | None, _option("--context", help="Context of the kubeconfig; default: the current one.")
    ] = None

    @property
    def place(self) -> str:
        """The namespace: the given one, else the context's, else `default`."""
        return self.namespace or context_namespace(self.kubeconfig, self.context) or "default"


def context_namespace(kubeconfig: str | None, context: str | None) -> str | None:
    """Return the namespace that a kubeconfig's context names, or None. Unreadable files are skipped."""
    import yaml

    for path in (kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep):
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as file:
                content = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        except (OSError, yaml.YAMLError, UnicodeDecodeError):
            continue
        if not isinstance(content, dict):
            continue
        wanted = context or content.get("current-context")
        for entry in content.get("contexts") or ():
            if isinstance(entry, dict) and entry.get("name") == wanted:
                namespace = (entry.get("context") or {}).get("namespace")
                return namespace if isinstance(namespace, str) and namespace else None
    return None


def run(access: Access, action: Callable[[Client], Awaitable[T]]) -> T:
    """Run an action with a client of the cluster. Raises: typer.Exit after a failure was printed."""

    async def go() -> T:
        from kube.client import Client

        async with await Client.connect(access.kubeconfig, access.context) as client:
            heard: list[str] = []
            client.heard = heard
            try:
                return await action(client)
            finally:
                for text in dict.fromkeys(warning_text(header) for header in heard):
                    print_warning(text)

    return run_and_report(go())


_HEADER = re.compile(r'^\d{3} \S+ "((?:[^"\\]|\\.)*)"')


def warning_text(header: str) -> str:
    """Return the text of a Warning header (`299 - "text"`), empty for one of another form. Source: RFC 9111, 5.5."""
    found = _HEADER.match(header)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


def run_and_report(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; a failure is printed as one line. Raises: typer.Exit."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        raise typer.Exit(report(error)) from None


def report(error: BaseException) -> int:
    """Print an error in one line; return the exit code."""
    line, code = describe(error)
    _print(line)
    return code


def describe(error: BaseException) -> tuple[str, int]:
    """Return the line and the exit code for an error; an unexpected one gets a line too, never a traceback."""
    from kube.auth import NoCredentials
    from kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable

    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, ProblemError):
        return f"error: {error}", error.code
    if isinstance(error, NoCredentials):
        return f"error: {error}", FAILED
    if isinstance(error, Unreachable):
        said = clean(error.message)
        return f"error: the cluster does not answer: {said} (check --kubeconfig, --context, the network)", FAILED
    if isinstance(error, Unauthorized):
        return "error: the cluster rejects the credentials (401); log in again", FAILED
    if isinstance(error, Forbidden):
        return f"error: not allowed (403): {clean(error.message)}", FAILED
    if isinstance(error, NotFound):
        return f"error: not found: {clean(error.message)}", FAILED
    if isinstance(error, ApiError):
        return _refusal(error), FOUND
    said = clean(str(error))
    return f"error: {type(error).__name__}: {said} (a bug in aim-adapters: please report it)", FAILED


_WEBHOOK = re.compile(r'^admission webhook "[^"]+" denied the request: ')
_INVALID = re.compile(r'^(\w+)(?:\.[\w.-]+)? ("[^"]*" is invalid: )')


def _refusal(error: Any) -> str:
    """Return a refusal of the API server as kubectl prints it."""
    text = _WEBHOOK.sub("", clean(error.message))
    if _INVALID.match(text):
        return _INVALID.sub(r"The \1 \2", text)
    return f"Error from server ({error.reason or error.status}): {text}"


def print_warning(text: str) -> None:
    """Print a warning of the API server as kubectl does."""
    if text:
        _print(f"Warning: {clean(text)}")


def print_error(text: str) -> None:
    """Print an error to standard error."""
    _print(f"error: {text}")


def _print(line: str) -> None:
    """Print one line to standard error; a closed pipe is not a failure."""
    try:
        sys.stderr.write(f"{clean_line(line)}\n")
        sys.stderr.flush()
    except OSError:
        pass
