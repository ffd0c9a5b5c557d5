"""What this room uses of client libraries beyond their documentation, all of it in this file.

A new release of a library can change it without notice. `tests/unit/disk/test_library_internals.py` fails when that
happens, and `pyproject.toml` bounds the versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def replace_session(client: Any, wrap: Callable[[Any], Any]) -> None:
    """Make a botocore client send its requests by `wrap(session)`, where `session` is its own HTTP session."""
    endpoint = client._endpoint
    endpoint.http_session = wrap(endpoint.http_session)


def take_as_stream(request: Any) -> bool:
    """Have botocore leave the body of the response unread; return whether it would have done so anyway."""
    is_file = bool(request.stream_output)
    request.stream_output = True
    return is_file


def keep_body(response: Any, body: bytes) -> None:
    """Store the body in a response of botocore or httpx2: the library then takes it as read, and reads no more."""
    response._content = body


def count_as_redirected(params: dict[str, Any], **_: Any) -> None:
    """A botocore hook: do not look up the region of a bucket again, so that redirects cannot form a loop."""
    params["context"].setdefault("s3_redirect", {})["redirected"] = True
