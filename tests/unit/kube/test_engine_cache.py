"""Cache and indexes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.cache import Cache, drop_managed_fields, is_newer


def obj(name: str, *colours: str, namespace: str = "ns") -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "colours": list(colours)}


def colours(item: dict[str, Any]) -> list[str]:
    return list(item["colours"])


def names(cache: Cache, colour: str) -> list[str]:
    return [item["metadata"]["name"] for item in cache.by_index("colour", colour)]


def test_an_index_follows_each_change() -> None:
    cache = Cache({"colour": colours})
    cache.put(obj("b", "red"))
    cache.put(obj("a", "red", "blue"))
    assert names(cache, "red") == ["a", "b"]
    cache.put(obj("a", "blue"))
    assert names(cache, "red") == ["b"]
    cache.remove(("ns", "b"))
    assert names(cache, "red") == []
    assert names(cache, "blue") == ["a"]


def test_an_unknown_index_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Cache().by_index("colour", "red")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from(["x", "y", "z"]), max_size=3))))
def test_an_index_says_what_a_scan_says(puts: list[tuple[str, list[str]]]) -> None:
    cache = Cache({"colour": colours})
    for name, words in puts:
        cache.put(obj(name, *words)) if words else cache.remove(("ns", name))
    for word in "xyz":
        scan = sorted(o["metadata"]["name"] for o in cache.items() if word in o["colours"])
        assert names(cache, word) == scan


def test_items_of_one_namespace() -> None:
    cache = Cache()
    cache.put(obj("a", namespace="one"))
    cache.put(obj("a", namespace="two"))
    assert len(list(cache.items("one"))) == 1
    assert len(list(cache.items())) == len(cache) == 2


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("abc", "9", True), ("abc", "abc", False)],
)
def test_versions_compare_as_numbers_and_unknown_ones_count_as_newer(version: str, than: str, newer: bool) -> None:
    assert is_newer(version, than) is newer


def test_no_cache_keeps_managed_fields() -> None:
    item = {"metadata": {"name": "a", "managedFields": [1], "annotations": {"a": "b"}}}
    assert drop_managed_fields(item) == {"metadata": {"name": "a", "annotations": {"a": "b"}}}


def test_an_index_distinguishes_one_key_from_many() -> None:
    cache = Cache({"colour": colours})
    for name in "abc":
        cache.put(obj(name, "red", "red"))
    cache.put(obj("b", "red", "blue"))
    assert names(cache, "red") == ["a", "b", "c"]
    for name, left in (("b", ["a", "c"]), ("a", ["c"]), ("c", [])):
        cache.remove(("ns", name))
        assert names(cache, "red") == left
    assert cache._indexes == {"colour": {}}, "nothing is kept of what is gone"
