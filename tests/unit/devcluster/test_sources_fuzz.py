"""Whatever bytes arrive, the sources answer with an error of their protocol: never 500, never a hang, never a file."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from devcluster.sources.hub import running_hub
from devcluster.sources.s3 import running_s3

SEED = 20_240
ROUNDS = 400
PIECES = [
    "acme", "lora", "resolve", "main", "api", "models", "tree", "revision", "paths-info", "a.json", "adapters", "..",
    ".", "", "%2e%2e", "%2F", "%00", "%FF", "%", "%zz", "ü", "\x7f", "+", "a" * 300, "resolve-cache", "refs", "@", "_x",
]  # fmt: skip
QUERIES = [
    "list-type=2", "prefix=%FF", "max-keys=-1", "max-keys=x", "continuation-token=%00", "uploads", "uploadId=..%2F",
    "partNumber=0", "X-Amz-Signature=1", "X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Expires=x", "recursive=maybe",
    "cursor=!!", "cursor=LTE%3D", "expand=1", "delimiter=", "encoding-type=gzip", "Expires=1&Signature=x", "=", "&&",
]  # fmt: skip
HEADERS = [
    "Authorization: Bearer hf_good", "Authorization: Bearer", "Authorization: \xff", "Authorization: AWS4-HMAC-SHA256 ",
    "Authorization: AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=host, Signature=00", "Range: bytes=-0",
    "Range: bytes=99999999999999999999-", "Range: bytes=\xb2-", "Range: -", "If-Range: x", "If-None-Match: *",
    "X-Amz-Date: 20240101T000000Z", "x-amz-content-sha256: x", "Content-MD5: x", "If-Modified-Since: never",
]  # fmt: skip
METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"]


def random_request(rng: random.Random, host: str) -> bytes:
    path = "/" + "/".join(rng.choice(PIECES) for _ in range(rng.randint(0, 7)))
    query = "&".join(rng.choice(QUERIES) for _ in range(rng.randint(0, 3)))
    lines = [
        f"{rng.choice(METHODS)} {path}{'?' if query else ''}{query} HTTP/1.1",
        f"Host: {host}",
        "Connection: close",
    ]
    lines += {line.partition(":")[0]: line for line in rng.choices(HEADERS, k=3)}.values()
    return "\r\n".join([*lines, "Content-Length: 0", "", ""]).encode("latin-1")


def exchange(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(request)
        answer = bytearray()
        while chunk := sock.recv(65536):
            answer += chunk
    return bytes(answer)


@pytest.mark.parametrize("kind", ["hub", "s3"])
def test_random_requests(tmp_path: Path, kind: str) -> None:
    rng = random.Random(SEED)
    (tmp_path / "secret").write_text("SECRET-CONTENT")
    for folder in ("acme/lora", "adapters"):
        (tmp_path / "root" / folder).mkdir(parents=True)
        (tmp_path / "root" / folder / "a.json").write_text("{}")
    root = tmp_path / "root"
    (root / "adapters" / ".s3meta.json").write_text('{"public": true}')  # unsigned requests get past the door
    running = (
        running_hub(root, token="hf_good") if kind == "hub" else running_s3(root, access_key="AK", secret_key="SK")
    )
    seen: dict[int, int] = {}
    with running as server:
        for number in range(ROUNDS):
            site = rng.choice(list(server.ports))
            request = random_request(rng, rng.choice(["127.0.0.1", "adapters.s3.localhost", "[", "a..b:x", ""]))
            answer = exchange(server.ports[site], request)
            status = int(answer.split(b" ", 2)[1])
            seen[status] = seen.get(status, 0) + 1
            assert status != 500, (SEED, number, request)
            assert b"SECRET-CONTENT" not in answer, (SEED, number, request)
    assert len(seen) >= 4, seen  # it does not end at the first check
    assert sorted(p.name for p in root.iterdir()) == ["acme", "adapters"]
