"""Reads the next pieces of a stream while the last one is hashed and written."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

_DEPTH = 4  # pieces of about 1 MiB each, held in memory
_STOP_SECONDS = 0.1
_END_SECONDS = 90.0  # longer than any read of a client can take


class _Failed:
    """The error that ended the stream early."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


@contextlib.contextmanager
def read_ahead(pieces: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """Iterate over `pieces` in a separate thread, at most a few pieces ahead.

    An error of the stream reaches the consumer after the pieces before it. When the consumer stops early, the thread
    ends before this function returns, so no other thread reads the connection while it is closed.
    """
    waiting: queue.Queue[bytes | _Failed | None] = queue.Queue(_DEPTH)
    stop = threading.Event()

    def put(item: bytes | _Failed | None) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put(item, timeout=_STOP_SECONDS)
                return

    def read() -> None:
        try:
            for piece in pieces:
                put(piece)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:  # passed to the consumer, whatever it is
            put(_Failed(error))

    def consume() -> Iterator[bytes]:
        while (item := waiting.get()) is not None:
            if isinstance(item, _Failed):
                raise item.error
            yield item

    thread = threading.Thread(target=read, name="read-ahead", daemon=True)
    thread.start()
    try:
        yield consume()
    finally:
        stop.set()
        thread.join(_END_SECONDS)
