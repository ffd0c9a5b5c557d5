"""Bodies that no API server would send, made from ones that it does. Deterministic: a seed makes the same bodies.

`python -m tests.unit.webhooks.fuzz 50000` runs that many and says what it found.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson
from fastapi import FastAPI

from rules.examples import kinds, manifest, scene, surroundings
from rules.registry import all_rules
from rules.world import KIND_BY_NAME
from webhooks.admission import Admission
from webhooks.fast.admission import FastAdmission, make_admission

from .reviews import application, review

_WRONG: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**18,
    1e308,
    "",
    "x" * 300,
    "\x00\u202e\ud7ff",
    [],
    [None],
    {},
    {"": None},
    [[[[]]]],
    {"name": {"name": []}},
)
_KEYS = ("spec", "metadata", "status", "adapters", "kind", "name", "env", "profile", "uid", "operation", "features")


def bodies(count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield (webhook path, body)."""
    rng = random.Random(seed)
    plain = _plain_reviews()
    for _ in range(count):
        envelope = copy.deepcopy(rng.choice(plain))
        for _ in range(rng.randint(0, 4)):
            _spoil(_place(envelope, rng), rng)
        body = json.dumps(envelope).encode()  # orjson stops at a nesting of 254
        if rng.random() < 0.15:
            body = _spoil_bytes(body, rng)
        yield rng.choice(("/validate", "/mutate")), body


def _plain_reviews() -> list[dict[str, Any]]:
    made = [review(manifest(kind.kind, {}), kind=kind) for kind in kinds()]
    for entry in all_rules():
        for example in (entry.refused, entry.passes):
            kind = KIND_BY_NAME[entry.kinds[0]]
            spelt = scene(kind, example)
            made.append(review(spelt.new, spelt.old, kind=kind, version=spelt.version))
    return made


def _place(envelope: dict[str, Any], rng: random.Random) -> Any:
    """Choose what to spoil: mostly a spec, since that is what rules read."""
    request = envelope.get("request")
    chosen = rng.choices(("spec", "oldSpec", "object", "request", "all"), (10, 3, 3, 1, 1))[0]
    if not isinstance(request, dict) or chosen == "all":
        return envelope
    obj = request.get("oldObject" if chosen == "oldSpec" else "object")
    if chosen == "request" or not isinstance(obj, dict):
        return request
    return obj if chosen == "object" else obj.get("spec", obj)


def _spoil(value: Any, rng: random.Random) -> None:
    """Change something somewhere inside a value."""
    while True:
        if isinstance(value, dict) and value:
            key = rng.choice(list(value))
            if not isinstance(value[key], dict | list) or not value[key] or rng.random() < 0.2:
                _spoil_entry(value, key, rng)
                return
            value = value[key]
        elif isinstance(value, list) and value:
            index = rng.randrange(len(value))
            if not isinstance(value[index], dict | list) or not value[index] or rng.random() < 0.2:
                value[index] = copy.deepcopy(rng.choice(_WRONG))
                return
            value = value[index]
        else:
            return


def _spoil_entry(value: dict[str, Any], key: str, rng: random.Random) -> None:
    what = rng.randrange(5)
    if what == 0:
        value.pop(key)
    elif what == 1:
        value[rng.choice(_KEYS)] = copy.deepcopy(rng.choice(_WRONG))
    elif what == 2 and rng.random() < 0.05:
        value.update({f"unknown-{index}": index for index in range(10_000)})
    elif what == 3:
        nested: Any = copy.deepcopy(rng.choice(_WRONG))
        for _ in range(rng.choice((1, 5, 300))):
            nested = {"a": nested} if rng.random() < 0.5 else [nested]
        value[key] = nested
    else:
        value[key] = copy.deepcopy(rng.choice(_WRONG))


def _spoil_bytes(body: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(body) + 1)
    junk = rng.choice((b"\xff", b"NaN", b"\x00", b'{"a":1,"a":2}', b"9" * 400, b"", b'"', b"[" * 2000))
    what = rng.randrange(3)
    if what == 0:
        return body[:place]
    if what == 1:
        return body[:place] + junk + body[place:]
    return body[:place] + junk + body[place + len(junk) :]


async def run(admission: Admission, count: int, seed: int = 0) -> Counter[str]:
    """Send bodies and check each answer; returns how often each kind of answer came.

    Raises: AssertionError with the body that was answered badly.
    """
    seen: Counter[str] = Counter()
    app = application(admission)
    fast = FastAdmission(admission, app)
    for path, body in bodies(count, seed):
        status, reply = await _send(app, path, body)
        try:
            at_once = fast.answer_now(path.encode(), bytearray(body))
            assert (at_once == reply) if status == 200 else (at_once is None), "answered otherwise at once"
            seen[check(status, reply, body)] += 1
        except AssertionError as error:
            raise AssertionError(f"{error}: {path} {body[:2000]!r} -> {status} {reply[:500]!r}") from error
    return seen


def check(status: int, reply: bytes, body: bytes) -> str:
    """Assert that an answer is well-formed; returns its kind."""
    answer = orjson.loads(reply)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert isinstance(response["uid"], str)
    assert isinstance(response["allowed"], bool)
    assert b"Traceback" not in reply
    assert b'File \\"' not in reply
    for warning in response.get("warnings", []):
        assert len(warning) <= 120
    if response["allowed"]:
        assert status == 200
        return "allowed"
    assert response["status"]["code"] in (400, 422), "a rule broke"
    assert status == (400 if response["status"]["code"] == 400 else 200)
    try:
        sent = orjson.loads(body)
        uid = sent["request"]["uid"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        uid = None
    if isinstance(uid, str):
        assert response["uid"] == uid
    return str(response["status"]["code"])


async def _send(app: FastAPI, path: str, body: bytes) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}, receive, send)
    return sent[0]["status"], sent[1]["body"]


def main(arguments: list[str]) -> int:
    """Run as many cases as asked for, with a seed of today or the one given."""
    count = int(arguments[0]) if arguments else 50_000
    seed = int(arguments[1]) if len(arguments) > 1 else int(time.time())
    sys.stdout.write(f"{count} bodies, seed {seed}\n")
    admission = make_admission(surroundings())
    started = time.monotonic()
    seen = asyncio.run(run(admission, count, seed))
    sys.stdout.write(f"{dict(seen)} in {time.monotonic() - started:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
