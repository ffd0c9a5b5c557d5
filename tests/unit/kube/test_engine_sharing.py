"""Equal parts of cached objects are one."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import sharing
from kube.sharing import Sharing

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.floats(0, 2) | st.sampled_from(("", "a", "1", "true")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=12,
)


def _service(name: str, *claims: str) -> dict[str, Any]:
    container = {"name": "server", "env": [{"name": "MODE", "value": "dynamic"}], "args": ["--fast", name]}
    spec = {"predictor": {"containers": [container], "volumes": [{"claim": claim} for claim in claims]}}
    parsed: dict[str, Any] = orjson.loads(orjson.dumps({"metadata": {"name": name}, "spec": spec}))
    return parsed


def test_what_is_equal_is_kept_once() -> None:
    known, first, second = Sharing(), _service("a", "x", "y"), _service("b", "x")
    for obj in (first, second):
        known.share(obj)
    assert (first, second) == (_service("a", "x", "y"), _service("b", "x"))
    left, right = (obj["spec"]["predictor"] for obj in (first, second))
    assert left["containers"][0]["env"] is right["containers"][0]["env"]
    assert left["volumes"][0] is right["volumes"][0]
    assert left["containers"][0] is not right["containers"][0]
    assert left["containers"][0]["args"][1] is first["metadata"]["name"], "words too"


@given(st.lists(st.dictionaries(st.sampled_from(("metadata", "spec", "status")), _JSON), max_size=6))
def test_objects_say_what_they_said(objects: list[dict[str, Any]]) -> None:
    known, shared = Sharing(), copy.deepcopy(objects)
    for obj in shared:
        known.share(obj)
    assert list(map(orjson.dumps, shared)) == list(map(orjson.dumps, objects)), "1 and 1.0 and true are not one"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST_PARTS", 50)
    known = Sharing()
    for number in range(500):
        known.share(_service(f"s{number}", f"c{number}"))
        assert len(known._known) < 80
    known.share({"spec": {"large": {"word": "x" * 5_000}}})
    assert max(map(len, known._known)) <= 5_000
    assert not any(isinstance(part, bytes) and len(part) > sharing.LARGEST_PART for part in known._known)
