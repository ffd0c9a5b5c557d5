"""The hub stand-in against the real huggingface_hub client: what it serves, refuses, and does on demand."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import HfApi, HfFileSystem, get_hf_file_metadata, hf_hub_download, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import disable_progress_bars

from devcluster.sources.faults import RuleError, parse_rule
from devcluster.sources.hub import HubServer, running_hub
from devcluster.sources.server import CONTROL_HEADER

TOKEN = "hf_goodtoken"
OTHER = "hf_othertoken"
WEIGHTS = bytes(range(256)) * 800  # 204800 bytes: LFS by its name
CONFIG = b'{"peft_type": "LORA", "r": 8}'

disable_progress_bars()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    repo = tmp_path / "hub" / "acme" / "lora"
    (repo / "sub folder").mkdir(parents=True)
    (repo / "adapter_config.json").write_bytes(CONFIG)
    (repo / "adapter_model.safetensors").write_bytes(WEIGHTS)
    (repo / "sub folder" / "größe+1.txt").write_text("unicode")
    return tmp_path / "hub"


@pytest.fixture
def hub(root: Path) -> Iterator[HubServer]:
    with running_hub(root, token=[TOKEN, OTHER]) as server:
        yield server


@pytest.fixture
def api(hub: HubServer) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=TOKEN)


@pytest.fixture
def snapshot(hub: HubServer, tmp_path: Path) -> Callable[..., Path]:
    def download(repo: str = "acme/lora", token: str | bool = TOKEN, **options: Any) -> Path:
        cache = tmp_path / "cache"
        return Path(snapshot_download(repo, endpoint=hub.endpoint, token=token, cache_dir=cache, **options))

    return download


@pytest.fixture
def fetch(hub: HubServer, tmp_path: Path) -> Callable[..., bytes]:
    """One file through hf_hub_download, always from the server."""

    def download(file: str = "adapter_model.safetensors", repo: str = "acme/lora", **options: Any) -> bytes:
        known: dict[str, Any] = {"token": TOKEN, "cache_dir": tmp_path / "cache", "force_download": True}
        return Path(str(hf_hub_download(repo, file, endpoint=hub.endpoint, **(known | options)))).read_bytes()

    return download


def settings(root: Path, repo: str = "acme/lora", **values: Any) -> None:
    (root / repo).mkdir(parents=True, exist_ok=True)
    (root / repo / ".hub.json").write_text(json.dumps(values))


# what is served


def test_snapshot_brings_every_file_and_its_revision(snapshot: Callable[..., Path], api: HfApi) -> None:
    got = snapshot()
    assert {str(p.relative_to(got)): p.read_bytes() for p in got.rglob("*") if p.is_file()} == {
        "adapter_config.json": CONFIG,
        "adapter_model.safetensors": WEIGHTS,
        "sub folder/größe+1.txt": b"unicode",
    }
    assert got.name == api.model_info("acme/lora").sha


def test_a_token_never_reaches_the_other_origin(snapshot: Callable[..., Path], hub: HubServer) -> None:
    snapshot()
    by_site = {(r["site"], r["identity"]) for r in hub.requests()}
    assert by_site == {("hub", "token-1"), ("cdn", "signed-link")}
    assert TOKEN not in json.dumps(hub.requests())


def test_metadata_of_large_and_small_files(hub: HubServer) -> None:
    large = get_hf_file_metadata(
        hf_hub_url("acme/lora", "adapter_model.safetensors", endpoint=hub.endpoint), token=TOKEN
    )
    small = get_hf_file_metadata(hf_hub_url("acme/lora", "adapter_config.json", endpoint=hub.endpoint), token=TOKEN)
    assert (large.etag, large.size) == (hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS))
    assert large.location.startswith(hub.url_of("cdn") + "/")
    git = hashlib.sha1(b"blob %d\0" % len(CONFIG) + CONFIG).hexdigest()
    assert (small.etag, small.size, small.xet_file_data) == (git, len(CONFIG), None)
    assert small.location.startswith(hub.endpoint + "/")


def test_git_ids_are_those_of_git(root: Path, api: HfApi, tmp_path: Path) -> None:
    repo = root / "acme" / "plain"
    (repo / "a").mkdir(parents=True)
    (repo / "a" / "b.txt").write_text("b")
    (repo / "a.txt").write_text("a")

    def git(*arguments: str) -> str:
        env = os.environ | {"GIT_DIR": str(tmp_path / "git"), "GIT_WORK_TREE": str(repo)}
        done = subprocess.run(["git", *arguments], cwd=repo, env=env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    git("add", "a", "a.txt")
    tree = {e.path: e for e in api.list_repo_tree("acme/plain", recursive=True)}
    for line in git("ls-files", "-s").splitlines():
        meta, _, path = line.partition("\t")
        assert tree[path].blob_id == meta.split()[1]  # type: ignore[union-attr]
    assert tree["a"].tree_id == git("write-tree", "--prefix=a/")  # type: ignore[union-attr]


def test_model_info_with_and_without_file_metadata(api: HfApi) -> None:
    plain = api.model_info("acme/lora")
    assert [s.rfilename for s in plain.siblings or []] == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "sub folder/größe+1.txt",
    ]
    assert (plain.private, plain.gated, plain.library_name) == (False, False, "peft")
    weights = (api.model_info("acme/lora", files_metadata=True).siblings or [])[1]
    assert weights.size == len(WEIGHTS)
    assert weights.lfs is not None
    assert weights.lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()


def test_tree_paths_refs_and_commits(api: HfApi, root: Path) -> None:
    (root / "acme" / "lora@v1").mkdir()
    (root / "acme" / "lora@v1" / "old.txt").write_text("old")
    assert [e.path for e in api.list_repo_tree("acme/lora")] == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "sub folder",
    ]
    assert [e.path for e in api.list_repo_tree("acme/lora", "sub folder")] == ["sub folder/größe+1.txt"]
    found = api.get_paths_info("acme/lora", ["sub folder", "adapter_config.json", "missing"], expand=True)
    assert [(type(e).__name__, e.path) for e in found] == [
        ("RepoFolder", "sub folder"),
        ("RepoFile", "adapter_config.json"),
    ]
    refs = {b.name: b.target_commit for b in api.list_repo_refs("acme/lora").branches}
    assert refs == {r: api.model_info("acme/lora", revision=r).sha for r in ("main", "v1")}
    assert [c.commit_id for c in api.list_repo_commits("acme/lora", revision="v1")] == [refs["v1"]]
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree("acme/lora", "nowhere"))


def test_a_large_tree_comes_in_pages(root: Path, api: HfApi, hub: HubServer) -> None:
    many = root / "acme" / "many"
    many.mkdir()
    for number in range(1203):
        (many / f"{number:05}.txt").write_text(str(number))
    assert len(list(api.list_repo_tree("acme/many", recursive=True))) == 1203
    assert [r["operation"] for r in hub.requests()] == ["tree", "tree"]


def test_hf_file_system_lists_and_reads_parts(hub: HubServer) -> None:
    fs = HfFileSystem(endpoint=hub.endpoint, token=TOKEN, skip_instance_cache=True)
    assert sorted(str(p).rpartition("/")[2] for p in fs.ls("acme/lora", detail=False)) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "sub folder",
    ]
    with fs.open("acme/lora/adapter_model.safetensors", "rb", block_size=1000) as stream:
        stream.seek(1000)
        assert stream.read(16) == WEIGHTS[1000:1016]
    ranged = [r for r in hub.requests() if r["site"] == "cdn"]
    assert ranged
    assert all(r["status"] == 206 and r["identity"] == "signed-link" for r in ranged)


def test_a_new_organisation_and_changed_files_are_seen_at_once(root: Path, api: HfApi) -> None:
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("newcomer/first")
    (root / "newcomer" / "first").mkdir(parents=True)
    (root / "newcomer" / "first" / "a.json").write_text("1")
    before = api.model_info("newcomer/first").sha
    (root / "newcomer" / "first" / "a.json").write_text("22")
    after = api.model_info("newcomer/first").sha
    assert before != after
    (root / "newcomer" / "first" / "a.json").write_text("1")
    assert api.model_info("newcomer/first").sha == before  # the same content is the same revision


def test_named_revisions_and_their_commit_ids(root: Path, api: HfApi, fetch: Callable[..., bytes]) -> None:
    for folder, text in {"lora@v1.0": "one", "lora@refs%2Fpr%2F1": "pr", f"lora@{'a' * 40}": "pinned"}.items():
        (root / "acme" / folder).mkdir()
        (root / "acme" / folder / "which.txt").write_text(text)
    assert fetch("which.txt", revision="v1.0") == b"one"
    assert fetch("which.txt", revision="refs/pr/1") == b"pr"
    assert fetch("which.txt", revision="a" * 40) == b"pinned"
    assert api.model_info("acme/lora", revision="a" * 40).sha == "a" * 40
    assert fetch("which.txt", revision=api.model_info("acme/lora", revision="v1.0").sha) == b"one"
    assert all("@" not in m.id for m in api.list_models())


def test_a_pinned_revision_serves_what_did_not_change(root: Path, api: HfApi, fetch: Callable[..., bytes]) -> None:
    pinned = api.model_info("acme/lora").sha
    (root / "acme" / "lora" / "more.txt").write_text("more")
    assert api.model_info("acme/lora").sha != pinned
    assert fetch("adapter_config.json", revision=pinned) == CONFIG
    with pytest.raises(RemoteEntryNotFoundError):
        fetch("more.txt", revision=pinned)
    (root / "acme" / "lora" / "adapter_config.json").write_text("{}")
    with pytest.raises(RevisionNotFoundError):
        fetch("adapter_config.json", revision=pinned)


def test_hidden_names_are_not_files(root: Path, api: HfApi, fetch: Callable[..., bytes]) -> None:
    settings(root, private=True)
    (root / "acme" / "lora" / ".hub-notes").write_text("x")
    (root / "acme" / "lora" / ".gitattributes").write_text("x")
    names = api.list_repo_files("acme/lora")
    assert ".gitattributes" in names
    assert not [n for n in names if n.startswith(".hub")]
    with pytest.raises(RemoteEntryNotFoundError):
        fetch(".hub.json")


def test_nothing_outside_of_the_root_is_served(root: Path, api: HfApi, hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    repo = root / "acme" / "lora"
    (repo / "out.txt").symlink_to(tmp_path / "secret.txt")
    (repo / "loop").symlink_to(repo)
    (repo / "inside.txt").symlink_to(repo / "adapter_config.json")
    os.mkfifo(repo / "pipe")
    names = api.list_repo_files("acme/lora")
    assert "inside.txt" in names
    assert not {"out.txt", "pipe"} & set(names)
    for path in (
        "/acme/lora/resolve/main/out.txt",
        "/acme/lora/resolve/main/..%2F..%2F..%2Fsecret.txt",
        "/..%2F/x/resolve/main/secret.txt",
        "/acme/..%2F../resolve/main/secret.txt",
    ):
        got = httpx.get(hub.endpoint + path, headers={"Authorization": f"Bearer {TOKEN}"}, follow_redirects=True)
        assert got.status_code == 404, path
        assert "secret" not in got.text


def test_hostile_names_can_be_served_through_aliases(root: Path, api: HfApi) -> None:
    settings(root, aliases={"../evil.json": "adapter_config.json", "/etc/abs.json": "adapter_config.json"})
    assert {"../evil.json", "/etc/abs.json"} <= set(api.list_repo_files("acme/lora"))


# ranges


def cdn_link(hub: HubServer, file: str = "adapter_model.safetensors") -> str:
    head = httpx.head(f"{hub.endpoint}/acme/lora/resolve/main/{file}", headers={"Authorization": f"Bearer {TOKEN}"})
    assert head.status_code == 302
    return head.headers["Location"]


RANGES = {
    "a middle": ("bytes=10-19", 206, WEIGHTS[10:20], "bytes 10-19/204800"),
    "to the end": ("bytes=204790-", 206, WEIGHTS[204790:], "bytes 204790-204799/204800"),
    "a suffix": ("bytes=-5", 206, WEIGHTS[-5:], "bytes 204795-204799/204800"),
    "beyond the end": ("bytes=204790-999999", 206, WEIGHTS[204790:], "bytes 204790-204799/204800"),
    "nothing of it": ("bytes=204800-", 416, None, "bytes */204800"),
    "several": ("bytes=0-1,3-4", 200, WEIGHTS, None),
    "another unit": ("rows=1-2", 200, WEIGHTS, None),
    "backwards": ("bytes=9-3", 200, WEIGHTS, None),
}


@pytest.mark.parametrize(("header", "status", "body", "content_range"), RANGES.values(), ids=RANGES)
def test_ranges(hub: HubServer, header: str, status: int, body: bytes | None, content_range: str | None) -> None:
    got = httpx.get(cdn_link(hub), headers={"Range": header})
    assert (got.status_code, got.headers.get("Content-Range")) == (status, content_range)
    assert body is None or got.content == body


def test_resume_with_if_range_starts_over_when_the_content_changed(hub: HubServer) -> None:
    link = cdn_link(hub)
    etag = httpx.head(link).headers["ETag"]
    ranged = {"Range": "bytes=100-"}
    assert httpx.get(link, headers=ranged | {"If-Range": etag}).status_code == 206
    assert httpx.get(link, headers=ranged | {"If-Range": '"another"'}).status_code == 200
    assert httpx.get(link, headers={"If-None-Match": etag}).status_code == 304


def test_a_link_is_bound_to_its_content_and_signature(hub: HubServer, root: Path) -> None:
    link = cdn_link(hub)
    assert httpx.get(link).status_code == 200
    assert httpx.get(link.replace("Expires=1", "Expires=2")).status_code == 403
    assert httpx.get(link, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 400
    assert hub.requests()[-1]["identity"] == "leaked-token"
    (root / "acme" / "lora" / "adapter_model.safetensors").write_bytes(b"other")
    assert httpx.get(link).status_code == 404


def test_the_client_resumes_a_cut_transfer(root: Path, hub: HubServer, fetch: Callable[..., bytes]) -> None:
    # the client library writes in steps of 10 MiB and resumes behind the last whole one
    step, content = 10 << 20, os.urandom(12 << 20)
    (root / "acme" / "lora" / "big.safetensors").write_bytes(content)
    hub.set_faults([{"match": "*/big.safetensors", "cut_after_bytes": 11 << 20, "times": 1}])
    assert fetch("big.safetensors") == content
    sent = [(r["range"], r["status"], r["bytes"], r["complete"]) for r in hub.requests() if r["site"] == "cdn"]
    assert sent == [("", 200, 11 << 20, False), (f"bytes={step}-", 206, 2 << 20, True)]


# who may read what


ACCESS: dict[str, tuple[dict[str, Any], str | bool, type[Exception] | None, int]] = {
    "public, no token": ({}, False, None, 0),
    "public, wrong token": ({}, "hf_wrong", HfHubHTTPError, 401),
    "private, no token": ({"private": True}, False, RepositoryNotFoundError, 401),
    "private, wrong token": ({"private": True}, "hf_wrong", HfHubHTTPError, 401),
    "private, good token": ({"private": True}, TOKEN, None, 0),
    "private, another's token": ({"private": True, "allowed_tokens": [TOKEN]}, OTHER, RepositoryNotFoundError, 404),
    "private, a token of its own": ({"private": True, "allowed_tokens": ["hf_own"]}, "hf_own", None, 0),
    "gated, no token": ({"gated": True}, False, GatedRepoError, 401),
    "gated, wrong token": ({"gated": True}, "hf_wrong", HfHubHTTPError, 401),
    "gated, not accepted": ({"gated": True, "allowed_tokens": [TOKEN]}, OTHER, GatedRepoError, 403),
    "gated, accepted": ({"gated": "auto", "allowed_tokens": [TOKEN]}, TOKEN, None, 0),
    "disabled": ({"disabled": True}, TOKEN, DisabledRepoError, 403),
}


@pytest.mark.parametrize(("values", "token", "error", "status"), ACCESS.values(), ids=ACCESS)
def test_access(
    root: Path,
    hub: HubServer,
    tmp_path: Path,
    values: dict[str, Any],
    token: str | bool,
    error: type[HfHubHTTPError] | None,
    status: int,
) -> None:
    settings(root, **values)

    def download() -> str:
        # resolved first and downloaded at that revision: the client itself hides some errors behind its cache look-up
        sha = HfApi(endpoint=hub.endpoint, token=token).model_info("acme/lora").sha
        return hf_hub_download(
            "acme/lora",
            "adapter_config.json",
            revision=sha,
            endpoint=hub.endpoint,
            token=token,
            cache_dir=tmp_path / "c",
        )

    if error is None:
        assert Path(download()).read_bytes() == CONFIG
        return
    with pytest.raises(HfHubHTTPError) as caught:
        download()
    assert (type(caught.value), caught.value.response.status_code) == (error, status)
    assert "hf_" not in caught.value.response.text


def test_gated_metadata_is_public_as_on_the_real_hub(root: Path, hub: HubServer) -> None:
    settings(root, gated=True)
    assert HfApi(endpoint=hub.endpoint, token=False).model_info("acme/lora").gated == "manual"


NOT_THERE = {
    "repository": ("acme/nothing", "main", "x", RepositoryNotFoundError),
    "revision": ("acme/lora", "v9", "x", RevisionNotFoundError),
    "commit": ("acme/lora", "b" * 40, "x", RevisionNotFoundError),
    "file": ("acme/lora", "main", "x", RemoteEntryNotFoundError),
}


@pytest.mark.parametrize(("repo", "revision", "file", "error"), NOT_THERE.values(), ids=NOT_THERE)
def test_what_is_not_there(
    fetch: Callable[..., bytes], repo: str, revision: str, file: str, error: type[HfHubHTTPError]
) -> None:
    with pytest.raises(error) as caught:
        fetch(file, repo, revision=revision, force_download=False)
    assert caught.value.response.status_code == 404


def test_whoami_auth_check_and_existence(api: HfApi, root: Path) -> None:
    assert api.whoami()["name"] == "user-1"
    with pytest.raises(HfHubHTTPError):
        api.whoami(token="hf_wrong")
    api.auth_check("acme/lora")
    settings(root, gated=True)
    with pytest.raises(GatedRepoError):
        api.auth_check("acme/lora", token=False)
    assert api.repo_exists("acme/lora")
    assert not api.repo_exists("acme/none")
    assert api.file_exists("acme/lora", "adapter_config.json")
    assert not api.file_exists("acme/lora", "none")


def test_a_moved_repository_is_followed(root: Path, snapshot: Callable[..., Path]) -> None:
    settings(root, "acme/old-name", moved_to="acme/lora")
    assert (snapshot("acme/old-name") / "adapter_config.json").read_bytes() == CONFIG


def test_unreadable_settings_are_an_error_not_an_open_door(root: Path, api: HfApi) -> None:
    (root / "acme" / "lora" / ".hub.json").write_text('{"privat": true}')
    with pytest.raises(HfHubHTTPError, match=r"unknown field 'privat'"):
        api.model_info("acme/lora")


def test_only_the_methods_of_the_api(hub: HubServer) -> None:
    assert httpx.delete(f"{hub.endpoint}/api/models/acme/lora").status_code == 405
    assert httpx.post(f"{hub.endpoint}/acme/lora/resolve/main/a", content=b"x").status_code == 405


# faults


STATUS_FAULTS = {
    "unauthorised": ({"status": 401}, HfHubHTTPError, "Invalid credentials"),
    "forbidden": ({"status": 403}, HfHubHTTPError, "403 Forbidden"),
    "gated": ({"status": 403, "code": "GatedRepo"}, GatedRepoError, "gated"),
    "not found": ({"status": 404}, RepositoryNotFoundError, "Repository Not Found"),
    "entry": (
        {"status": 404, "code": "EntryNotFound", "message": "no such file"},
        RemoteEntryNotFoundError,
        "no such file",
    ),
    "rate limited": ({"status": 429, "retry_after": 7}, HfHubHTTPError, "Retry after 7 seconds"),
    "broken": ({"status": 500}, HfHubHTTPError, "500"),
    "overloaded": ({"status": 503, "retry_after": 3}, HfHubHTTPError, "503"),
}


@pytest.mark.parametrize(("fault", "error", "text"), STATUS_FAULTS.values(), ids=STATUS_FAULTS)
def test_status_faults(hub: HubServer, api: HfApi, fault: dict[str, Any], error: type[Exception], text: str) -> None:
    hub.set_faults([{"operation": "model_info", "times": 1, **fault}])
    with pytest.raises(error, match=text) as caught:
        api.model_info("acme/lora")
    assert isinstance(caught.value, HfHubHTTPError)
    retry_after = caught.value.response.headers.get("Retry-After")
    assert retry_after == (str(fault["retry_after"]) if "retry_after" in fault else None)
    assert api.model_info("acme/lora").id == "acme/lora"  # times: 1


def test_the_client_waits_out_a_rate_limit(hub: HubServer, fetch: Callable[..., bytes]) -> None:
    hub.set_faults([{"operation": "cdn", "method": "GET", "status": 429, "retry_after": 0, "times": 1}])
    assert fetch() == WEIGHTS
    assert [r["status"] for r in hub.requests() if r["site"] == "cdn"] == [429, 200]


def test_drop_closes_without_an_answer(hub: HubServer) -> None:
    hub.set_faults([{"match": "/api/*", "drop": True, "only_nth": 2}])
    url = f"{hub.endpoint}/api/models/acme/lora"
    assert httpx.get(url).status_code == 200
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(url)
    assert httpx.get(url).status_code == 200
    assert [(r["status"], r["fault"]) for r in hub.requests()] == [(200, ""), (0, "drop"), (200, "")]


def read_into(got: bytearray, response: httpx.Response) -> None:
    for chunk in response.iter_raw():
        got += chunk


CUTS = {"close": (False, httpx.RemoteProtocolError), "reset": (True, httpx.ReadError)}


@pytest.mark.parametrize(("reset", "error"), CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("at", [0, 1, 70_000, 204_799])
def test_a_cut_ends_after_exactly_this_many_bytes(hub: HubServer, at: int, reset: bool, error: type[Exception]) -> None:
    hub.set_faults([{"operation": "cdn", "cut_after_bytes": at, "reset": reset}])
    got = bytearray()
    with httpx.stream("GET", cdn_link(hub)) as response:
        assert response.headers["Content-Length"] == str(len(WEIGHTS))
        with pytest.raises(error):
            read_into(got, response)
    assert len(got) == at or reset
    assert got == WEIGHTS[: len(got)]
    assert hub.requests()[-1]["bytes"] == at


def test_a_lying_server_flips_one_byte(hub: HubServer, fetch: Callable[..., bytes]) -> None:
    hub.set_faults([{"match": "*/adapter_model.safetensors", "corrupt_byte_at": 150_000, "times": 1}])
    link = cdn_link(hub)
    assert httpx.get(link, headers={"Range": "bytes=0-99"}).content == WEIGHTS[:100]  # outside: the rule waits
    got = httpx.get(link, headers={"Range": "bytes=100000-"}).content
    wrong = [i for i, (a, b) in enumerate(zip(got, WEIGHTS[100_000:], strict=True)) if a != b]
    assert wrong == [50_000]
    assert fetch() == WEIGHTS


@pytest.mark.parametrize("by", [-10, 10])
def test_wrong_length_is_a_clean_answer_of_another_size(hub: HubServer, fetch: Callable[..., bytes], by: int) -> None:
    hub.set_faults([{"operation": "cdn", "wrong_length": by}])
    got = httpx.get(cdn_link(hub))
    assert len(got.content) == len(WEIGHTS) + by
    with pytest.raises(OSError, match="Consistency check failed"):
        fetch()


def test_ignore_range_answers_with_the_whole_file(hub: HubServer) -> None:
    hub.set_faults([{"operation": "cdn", "ignore_range": True, "times": 1}])
    link = cdn_link(hub)
    assert httpx.get(link).content == WEIGHTS  # without a range there is nothing to ignore
    got = httpx.get(link, headers={"Range": "bytes=1000-"})
    assert (got.status_code, got.content, got.headers.get("Content-Range")) == (200, WEIGHTS, None)
    assert httpx.get(link, headers={"Range": "bytes=1000-"}).status_code == 206


def test_slow_and_delay_take_their_time(hub: HubServer) -> None:
    hub.set_faults([{"operation": "cdn", "slow_bytes_per_second": 1_000_000}])
    began = time.monotonic()
    assert httpx.get(cdn_link(hub)).content == WEIGHTS
    assert 0.15 < time.monotonic() - began < 2
    hub.set_faults([{"operation": "model_info", "delay": 0.3}])
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{hub.endpoint}/api/models/acme/lora", timeout=0.1)
    assert httpx.get(f"{hub.endpoint}/api/models/acme/lora", timeout=5).status_code == 200


def test_a_server_that_is_down_has_its_own_reason(tmp_path: Path, root: Path) -> None:
    with running_hub(root, token=TOKEN) as hub:
        endpoint = hub.endpoint
    with pytest.raises(LocalEntryNotFoundError, match="ConnectError"):
        snapshot_download("acme/lora", endpoint=endpoint, token=TOKEN, cache_dir=tmp_path / "c")


def test_the_fault_file_is_read_again_when_it_changes(root: Path, tmp_path: Path) -> None:
    faults = tmp_path / "faults.json"
    with running_hub(root, token=TOKEN, faults_file=str(faults)) as hub:
        url = f"{hub.endpoint}/api/models/acme/lora"
        assert httpx.get(url).status_code == 200
        faults.write_text('{"rules": [{"status": 500}]}')
        assert httpx.get(url).status_code == 500
        faults.write_text('{"rules": [{"status"')  # half-written: the old rules stay
        assert httpx.get(url).status_code == 500
        assert str(faults) in httpx.get(f"{hub.endpoint}/_faults", headers={CONTROL_HEADER: TOKEN}).json()["fileError"]
        faults.unlink()
        assert httpx.get(url).status_code == 200


def test_control_endpoints_need_the_secret(hub: HubServer) -> None:
    headers = {CONTROL_HEADER: TOKEN}
    assert httpx.get(f"{hub.endpoint}/_health").status_code == 200
    for path in ("/_faults", "/_requests"):
        assert httpx.get(hub.endpoint + path).status_code == 403
        assert httpx.get(hub.endpoint + path, headers={CONTROL_HEADER: "wrong"}).status_code == 403
    posted = httpx.post(f"{hub.endpoint}/_faults", headers=headers, json={"rules": [{"status": 503, "times": 1}]})
    assert posted.json()["rules"] == [{"status": 503, "times": 1, "seen": 0, "fired": 0}]
    assert httpx.get(f"{hub.endpoint}/api/models/acme/lora").status_code == 503
    bad = httpx.post(f"{hub.endpoint}/_faults", headers=headers, json={"rules": [{"stats": 503}]})
    assert (bad.status_code, "rules[0].stats" in bad.json()["error"]) == (400, True)
    httpx.delete(f"{hub.endpoint}/_faults", headers=headers)
    assert httpx.get(f"{hub.endpoint}/api/models/acme/lora").status_code == 200
    listed = httpx.get(f"{hub.endpoint}/_requests?since=1", headers=headers).json()["requests"]
    assert [(r["n"], r["status"], r["identity"]) for r in listed] == [(2, 200, "anonymous")]


BAD_RULES = {
    "no action": ({"match": "*"}, "no action"),
    "unknown field": ({"sttus": 500}, "unknown field"),
    "wrong type": ({"status": "500"}, "not int"),
    "a bool is not a number": ({"times": True, "status": 500}, "not int"),
    "unsupported status": ({"status": 299}, "299"),
    "status and body": ({"status": 500, "cut_after_bytes": 1}, "exclude"),
    "no object": (["status"], "object"),
}


@pytest.mark.parametrize(("rule", "text"), BAD_RULES.values(), ids=BAD_RULES)
def test_bad_rules_are_refused(rule: object, text: str) -> None:
    with pytest.raises(RuleError, match=text):
        parse_rule(rule)


# as a program


def test_as_a_program(root: Path, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    read, write = os.pipe()
    command = [sys.executable, "-m", "devcluster.sources.hub", "--root", str(root), "--requests-file", str(log)]
    with subprocess.Popen(
        [*command, "--ready-fd", str(write)],
        stdout=subprocess.PIPE,
        pass_fds=[write],
        env=os.environ | {"HUB_TOKEN": TOKEN},
    ) as process:
        os.close(write)
        with os.fdopen(read) as stream:
            ready = json.loads(stream.readline())
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == ready
        assert ready["pid"] == process.pid
        got = httpx.get(f"{ready['endpoint']}/acme/lora/resolve/main/adapter_model.safetensors", follow_redirects=True)
        assert got.content == WEIGHTS
        process.terminate()
        assert process.wait(5) == 0
    assert [json.loads(line)["site"] for line in log.read_text().splitlines()] == ["hub", "cdn"]


async def test_in_the_loop_of_a_test(root: Path) -> None:
    async with HubServer(root, token=TOKEN) as hub, httpx.AsyncClient() as client:
        got = await client.get(
            f"{hub.endpoint}/acme/lora/resolve/main/adapter_model.safetensors", follow_redirects=True
        )
    assert got.content == WEIGHTS
