"""What `disk/sources/internals.py` uses of libraries is still there and has the effect that the sources need.

A failure here means that a release of botocore, httpx2 or huggingface_hub changed its internals: adapt that file, then
raise the upper bound in pyproject.toml.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import httpx2
import pytest
from botocore import UNSIGNED
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ClientError

from disk.sources import internals

ROOT = Path(__file__).resolve().parents[3]

PRIVATE = re.compile(r"(?<![\w.])(?!self\b|cls\b|os\b|super\b)[a-z]\w*(?:\(\))?\._[a-z]\w*")


class Raw(io.BytesIO):
    """The connection of a response; counts how often it is read."""

    reads = 0

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """Yield the rest of the body."""
        self.reads += 1
        yield self.read()


class Session:
    """An HTTP session that sends nothing and returns one response."""

    def __init__(self, raw: Raw, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.sent: list[Any] = []
        self._answer = (status, headers or {}, raw)

    def send(self, request: Any) -> AWSResponse:
        """Return the response, unread when that was requested."""
        self.sent.append((request.method, request.url, request.stream_output))
        internals.take_as_stream(request)
        status, headers, raw = self._answer
        return AWSResponse(request.url, status, HTTPHeaders.from_dict(headers), raw)


def client(session: Session) -> Any:
    """Return a client whose requests end at `session`."""
    config = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
    made = botocore.session.get_session().create_client("s3", "us-east-1", config=config)
    internals.replace_session(made, lambda own: session if hasattr(own, "send") and hasattr(own, "close") else None)
    return made


def test_all_requests_of_a_botocore_client_go_through_the_session() -> None:
    session = Session(Raw(b"<ListBucketResult><Name>b</Name></ListBucketResult>"))
    assert client(session).list_objects_v2(Bucket="b")["Name"] == "b"
    assert [(method, stream) for method, _, stream in session.sent] == [("GET", False)]


def test_botocore_marks_the_requests_for_files() -> None:
    raw = Raw(b"weights")
    session = Session(raw, headers={"content-length": "7"})
    body = client(session).get_object(Bucket="b", Key="k")["Body"]
    assert session.sent[0][2] is True
    assert (raw.reads, body.read()) == (0, b"weights")


def test_botocore_takes_a_kept_body_as_read() -> None:
    raw = Raw(b"never read")
    response = AWSResponse("http://b", 200, HTTPHeaders(), raw)
    internals.keep_body(response, b"kept")
    assert (response.content, response.text, raw.reads) == (b"kept", "kept", 0)


def test_httpx2_takes_a_kept_body_as_read() -> None:
    def read_in_advance(response: httpx2.Response) -> None:
        internals.keep_body(response, b"".join(response.iter_bytes()) + b" kept")

    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=iter([b"a", b"b"])))
    with httpx2.Client(transport=transport, event_hooks={"response": [read_in_advance]}) as http:
        assert http.get("http://hub/").content == b"ab kept"


def test_a_redirected_bucket_is_not_looked_up_again() -> None:
    """Without the hook botocore asks HeadBucket for the region, is redirected again, and so on without end."""
    answer = b"<Error><Code>PermanentRedirect</Code></Error>"
    session = Session(Raw(answer), 301, {"x-amz-bucket-region": "eu-central-1"})
    made = client(session)
    made.meta.events.register("before-call.s3.HeadBucket", internals.count_as_redirected)
    with pytest.raises(ClientError):
        made.head_bucket(Bucket="b")
    assert len(session.sent) == 1


def test_the_hub_library_has_its_headers_and_client_factory() -> None:
    from huggingface_hub import get_session, set_client_factory
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented, not exported

    made = httpx2.Client()
    set_client_factory(lambda: made)
    try:
        assert get_session() is made
    finally:
        set_client_factory(httpx2.Client)
    headers = build_hf_headers(token="hf_x", library_name="aim-adapters")
    assert headers["authorization"] == "Bearer hf_x"
    assert "aim-adapters" in json.dumps(headers)


def test_no_other_file_of_the_room_uses_private_names_of_libraries() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "disk").rglob("*.py")
        if path != Path(internals.__file__)
        for name in PRIVATE.findall(path.read_text())
    }
    assert not found
