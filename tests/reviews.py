"""A steady stream of reviews through the API server, for tests of what must not disturb it: sent, failed, how slow."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from api.kinds import AIM_ARTIFACT
from kube.client import Client
from kube.errors import ApiError, Denied, Unreachable

LONG = os.environ.get("AIM_TEST_LONG") == "1"
_AT_ONCE = 48
_WRONG_EVERY = 5  # so many reviews apart one is of an object that must be refused


@dataclass(frozen=True, slots=True)
class Failure:
    """A review that was not answered as the rules say. `at`: time.monotonic() when it was sent; `seconds` it took."""

    at: float
    seconds: float
    unreachable: bool  # the API server itself gave no answer
    status: int
    text: str

    @property
    def retryable(self) -> bool:
        """Whether a client may simply try again: the API server says 500 (a webhook was not called) or nothing."""
        return self.unreachable or self.status in (429, 500, 503, 504)


@dataclass
class Stream:
    """Sends dry-run creations at a fixed rate while in its `with` block, from a thread of its own.

    Each fifth is of an object that our rules refuse. It is paced by the clock, not by the answers: a slow answer does
    not lower the rate, until `_AT_ONCE` are open.
    """

    kubeconfig: Path
    rate: float  # per second
    namespace: str = "default"
    sent: int = 0
    answered: int = 0
    failed: list[Failure] = field(default_factory=list)
    slowest: float = 0.0  # seconds
    elapsed: float = 0.0  # seconds from the first review to the last answer
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._crash: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        self.more(3)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "reviews do not end"

    def more(self, count: int, seconds: float = 60) -> None:
        """Wait until so many more reviews were answered."""
        wanted, deadline = self.answered + count, time.monotonic() + seconds
        while self.answered < wanted:
            assert self._crash is None, f"the stream of reviews broke: {self._crash!r}"
            assert time.monotonic() < deadline, f"{self.answered} reviews answered, {self.failed[-1:]}"
            time.sleep(0.02)

    def summary(self, what: str) -> str:
        """Return the figures as one line, for the test's output."""
        rate = self.sent / self.elapsed if self.elapsed else 0.0
        return (
            f"{what}: {self.sent} reviews sent ({rate:.0f}/s), {len(self.failed)} failed, slowest {self.slowest:.2f} s"
        )

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._crash = error
            raise

    async def _run(self) -> None:
        places = asyncio.Semaphore(_AT_ONCE)
        begun = time.monotonic()
        async with await Client.connect(str(self.kubeconfig), within=30) as client, asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                await asyncio.sleep(max(0.0, begun + self.sent / self.rate - time.monotonic()))
                await places.acquire()
                group.create_task(self._one(client, self.sent, places.release))
                self.sent += 1
        self.elapsed = time.monotonic() - begun

    async def _one(self, client: Client, number: int, release: Callable[[], None]) -> None:
        wrong = number % _WRONG_EVERY == 0
        begun = time.monotonic()
        found: ApiError | None = None
        try:
            await client.create(AIM_ARTIFACT, self._artifact(number, wrong=wrong), dry_run=True)
        except ApiError as error:
            found = error
        finally:
            release()
        seconds = time.monotonic() - begun
        self.slowest = max(self.slowest, seconds)
        self.answered += 1
        as_it_should = found is None
        if wrong:
            as_it_should = isinstance(found, Denied) and "spec.compatibleWith" in found.message
        if not as_it_should:
            text = str(found) if found is not None else "admitted, though it is wrong"
            status = found.status if found is not None else 201
            self.failed.append(Failure(begun, seconds, isinstance(found, Unreachable), status, text[:500]))

    def _artifact(self, number: int, *, wrong: bool) -> dict[str, Any]:
        spec = {
            "type": "adapter",
            "modelId": "acme/tone",
            "sourceUri": "s3://a-bucket/tone/",
            "compatibleWith": [] if wrong else ["acme/llama"],
        }
        metadata = {"name": f"reviewed-{number}", "namespace": self.namespace}
        return {"apiVersion": AIM_ARTIFACT.api_version, "kind": AIM_ARTIFACT.kind, "metadata": metadata, "spec": spec}
