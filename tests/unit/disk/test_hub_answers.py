"""Each error that the hub documents, sent by a server to the real client: reason, retry, and the hub's own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from api.reasons import EXPLANATIONS, Reason
from disk.failures import DiskFailure
from disk.sources import open_source
from tests.unit.disk.test_hostile_servers import Behaviour, Hostile, answer, serve
from tests.unit.disk.world import stage_spec

__all__ = ["serve"]
Serve = Callable[[Behaviour], Hostile]

ANSWERS = [
    (401, "GatedRepo", "Access to model acme/x is restricted", "SourceGated"),
    (403, "GatedRepo", "Access to model acme/x is restricted", "SourceGated"),
    (404, "RepoNotFound", "Repository not found", "SourceRepositoryNotFound"),
    (404, "RevisionNotFound", "Invalid rev id: v9", "SourceRevisionNotFound"),
    (401, "", "Invalid credentials in Authorization header", "SourceUnauthorized"),
    (403, "", "Forbidden: pass `create_pr=1`", "SourceForbidden"),
    (403, "", "Access to this resource is disabled.", "SourceForbidden"),
    (429, "", "We had to rate limit your IP", "SourceRateLimited"),
    (500, "", "Internal Error - we are working hard on it", "SourceServerError"),
    (504, "", "", "SourceServerError"),
    (400, "", "Bad request", "SourceResponseInvalid"),
]


def failure() -> DiskFailure:
    with pytest.raises(DiskFailure) as caught:
        open_source(stage_spec(Path("/nowhere"), "u1", "a", source_uri="hf://acme/x")).list_files()
    return caught.value


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: f"{case[0]} {case[1] or case[2]}")
def test_each_answer(case: tuple[int, str, str, str], serve: Serve) -> None:
    status, code, message, reason = case
    fields = [f"X-Error-Code: {code}"] if code else []
    fields += [f"X-Error-Message: {message}"] if message else []
    serve(lambda path, headers, send: send(answer(f"{status} No", b"{}", *fields, "Retry-After: 7")))
    found = failure()
    assert found.reason == reason
    assert found.retriable == EXPLANATIONS[Reason(reason)].retriable
    assert code in found.detail
    assert message in found.detail
    assert found.retry_after == (7 if found.retriable else None)


def test_a_web_page_is_not_a_hub(serve: Serve) -> None:
    """HF_ENDPOINT leads to a login page."""
    page = b"<!doctype html><html><body>Sign in</body></html>"
    serve(lambda path, headers, send: send(answer("200 OK", page, "Content-Type: text/html")))
    assert failure().reason == "SourceNotAnApi"


def test_long_words_of_a_hub_are_cut_and_cleaned(serve: Serve) -> None:
    serve(lambda path, headers, send: send(answer("403 No", b"{}", "X-Error-Message: " + "very long " * 500)))
    assert len(failure().detail) < 500
