"""Cached objects in, what is shown out: a table of states, and any JSON at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.query import Query, parse_query
from console.views import BaseView, brief, event_view, service_view, used_bytes
from rules.worlds import SnapshotWorld
from tests.console.scene import MIB, Scene, adapter, service

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def shown(one: dict[str, Any], scene: Scene | None = None) -> Any:
    world = scene.world if scene is not None else SnapshotWorld([one])
    return service_view(one, world)


def test_a_loaded_adapter() -> None:
    scene = Scene()
    scene.base()
    scene.artifact("cs-tone-v3", 8)
    view = shown(service("team-a", "gemma", adapter("cs-tone-v3")), scene)
    (one,) = view.adapters
    assert (one.state, one.rank, one.declared, one.loaded, view.ready) == ("Loaded", 16, 8, 2, 2)
    assert (view.ceiling, view.ceiling_origin) == (32, 'AIMRuntimeConfig "default"')
    assert view.base == BaseView("gemma-3-27b-it-cache", "google/gemma-3-27b-it", "Ready", None)


def test_a_declared_adapter_without_status_is_pending_and_a_removed_one_leaves() -> None:
    one = service("team-a", "gemma", adapter("new"), adapter("old", "Deleting"))
    one["status"]["adapters"] = one["status"]["adapters"][1:]
    one["spec"]["adapters"] = one["spec"]["adapters"][:1]
    view = shown(one)
    assert [(a.name, a.state, a.leaving) for a in view.adapters] == [
        ("new", "Pending", False),
        ("old", "Deleting", True),
    ]
    assert brief(one).adapters == ("Pending", "Deleting")


def test_progress_is_a_percentage_whatever_is_written() -> None:
    progress = {"percentage": 400, "downloadedBytes": 3, "totalBytes": 0}
    (one,) = shown(service("team-a", "gemma", adapter("a", "Downloading", progress=progress))).adapters
    assert (one.percentage, one.total) == (100, None)


def test_conditions_show_what_is_missing_and_echoes_are_left_out() -> None:
    conditions = [
        {"type": "InferenceServiceReady", "status": "False", "reason": "Gated", "message": "waits"},
        {"type": "CacheReady", "status": "False", "reason": "CachesNotReady", "message": "base: 3 %"},
        {"type": "ConfigValid", "status": "True", "reason": "ConfigValid"},
    ]
    view = shown(service("team-a", "gemma", conditions=conditions))
    assert [note.reason for note in view.notes] == ["CachesNotReady"]


TROUBLE = {
    "running": (service("a", "b", adapter("x")), False, False),
    "staging": (service("a", "b", adapter("x", "Downloading")), False, True),
    "waiting": (service("a", "b", adapter("x", "Pending"), status="Pending"), False, True),
    "an adapter failed": (service("a", "b", adapter("x", "Failed")), True, False),
    "a pod does not load": (service("a", "b", adapter("x", "LoadRejected"), status="Degraded"), True, False),
    "the service failed": (service("a", "b", status="Failed"), True, False),
}


@pytest.mark.parametrize(("one", "trouble", "staging"), TROUBLE.values(), ids=TROUBLE)
def test_trouble(one: dict[str, Any], trouble: bool, staging: bool) -> None:
    found = brief(one)
    assert (found.trouble, found.staging) == (trouble, staging)


def test_equal_contents_count_once_per_disk() -> None:
    one, other = service("a", "b", adapter("x"), adapter("y")), service("a", "c", adapter("x"))
    assert used_bytes([brief(one), brief(other)]) == 2 * 118 * MIB


@given(JSON, JSON, JSON)
def test_any_object_can_be_shown(spec: Any, status: Any, metadata: Any) -> None:
    one = {
        "kind": "AIMService",
        "apiVersion": "aim.eai.amd.com/v1alpha2",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }
    brief(one)
    shown(one)
    event_view({"metadata": metadata, "involvedObject": spec, "message": status, "count": status})


@given(JSON, JSON)
def test_any_adapter_entry_can_be_shown(entry: Any, progress: Any) -> None:
    one = service("team-a", "gemma", adapter("x"))
    one["status"]["adapters"] = [entry, {"name": "x", "state": entry, "progress": progress, "warnings": entry}]
    brief(one)
    shown(one)


QUERIES = {
    b"": Query(),
    b"q=Gemma++27b&state=Failed&page=3&size=100": Query("gemma 27b", "Failed", 3, 100),
    b"state=<script>&page=-4&size=7": Query(),
    b"page=99999999999&size=1000": Query(size=100),
    b"q=%FF%00&page=2": Query("\ufffd", page=2),
    b"&&&=&q": Query(),
    b"q=" + b"x" * 3000: Query("x" * 100),
}


@pytest.mark.parametrize(("query_string", "query"), QUERIES.items(), ids=lambda value: repr(value)[:40])
def test_queries(query_string: bytes, query: Query) -> None:
    assert parse_query(query_string) == query


@given(st.binary(max_size=300))
def test_any_query_string_is_a_query(query_string: bytes) -> None:
    query = parse_query(query_string)
    assert parse_query(query.at(query.page)[1:].encode()) == query


def test_filters() -> None:
    found = brief(service("team-a", "gemma-cs", adapter("sql-v2", "Failed")))
    kept = ["", "gemma", "team-a/gemma", "sql cs", "mi300x"]
    assert [words for words in [*kept, "other", "gemma other"] if Query(words).matcher()(found)] == kept
    states = ["", "Running", "Failed", "attention", "staging", "adapter-Failed", "adapter-Loaded"]
    fitting = [state for state in states if Query(state=state).matcher()(found)]
    assert fitting == ["", "Running", "attention", "adapter-Failed"]
