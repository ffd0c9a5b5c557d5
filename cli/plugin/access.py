"""How a command reaches the cluster, and how its failures are told: one clear line, a documented exit code."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from kube.client import Client

T = TypeVar("T")

OK = 0
FOUND = 1  # something is wrong with what was asked about, or was refused
FAILED = 2  # wrong usage, nothing there, or the cluster did not answer

NAMESPACE_HELP = "Namespace; else the one of the kubeconfig's context."
KUBECONFIG_HELP = "Kubeconfig; else $KUBECONFIG, else ~/.kube/config."
CONTEXT_HELP = "Context of the kubeconfig; else its current one."


class ProblemError(Exception):
    """Something to tell in one line, with an exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Access:
    """Where the cluster is, and the namespace that is meant."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None

    @property
    def place(self) -> str:
        """The namespace: as given, else the context's, else `default`."""
        return self.namespace or context_namespace(self.kubeconfig, self.context) or "default"


def context_namespace(kubeconfig: str | None, context: str | None) -> str | None:
    """Return the namespace that a kubeconfig's context names, or None. Unreadable files count as saying nothing."""
    import yaml  # noqa: PLC0415 - only commands that ask a cluster

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
    """Run something with a client of the cluster. Raises: typer.Exit after telling what went wrong."""

    async def go() -> T:
        from kube.client import Client  # noqa: PLC0415 - only commands that ask a cluster

        async with await Client.connect(access.kubeconfig, access.context) as client:
            heard: list[str] = []
            client.heard = heard
            try:
                return await action(client)
            finally:
                for text in dict.fromkeys(warning_text(header) for header in heard):
                    print_warning(text)

    return told(go())


_HEADER = re.compile(r'^\d{3} \S+ "((?:[^"\\]|\\.)*)"')


def warning_text(header: str) -> str:
    """Return the text of a Warning header (`299 - "text"`), empty for one of another form. Source: RFC 9111, 5.5."""
    found = _HEADER.match(header)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


def told(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; tell failures in one line. Raises: typer.Exit."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        line, code = tell(error)
        print_error(line)
        raise typer.Exit(code) from None


def tell(error: BaseException) -> tuple[str, int]:
    """Return the line and exit code for an error; one that we did not expect is told too, never as a traceback."""
    from kube.auth import NoCredentials  # noqa: PLC0415 - as above
    from kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable  # noqa: PLC0415

    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, ProblemError):
        return str(error), error.code
    if isinstance(error, NoCredentials):
        return str(error), FAILED
    if isinstance(error, Unreachable):
        return (
            f"the cluster does not answer: {one_line(error.message)} (check --kubeconfig, --context, the network)",
            FAILED,
        )
    if isinstance(error, Unauthorized):
        return "the cluster does not accept the credentials (401); log in again", FAILED
    if isinstance(error, Forbidden):
        return f"not allowed (403): {one_line(error.message)}", FAILED
    if isinstance(error, NotFound):
        return f"not found: {one_line(error.message)}", FAILED
    if isinstance(error, ApiError):
        return f"the cluster refused: {one_line(error.message or error.reason)}", FOUND
    return f"{type(error).__name__}: {one_line(str(error))} (a fault of this program: please report it)", FAILED


def one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def print_warning(text: str) -> None:
    """Print what the API server warned of, as kubectl does."""
    if text:
        try:
            sys.stderr.write(f"Warning: {one_line(text)}\n")
            sys.stderr.flush()
        except OSError:
            pass


def print_error(line: str) -> None:
    """Print one line to standard error; a reader that went away is no reason to fail."""
    try:
        sys.stderr.write(f"error: {line}\n")
        sys.stderr.flush()
    except OSError:
        pass
