"""What `status`, `rank`, `disk`, `inspect` and `watch` show; the columns that they share."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from api.reasons import JOB_REASONS, Reason
from cli.plugin import disk_command, status
from cli.plugin.edit import wait_for_adapters, wait_for_ceiling, wait_for_removal, wait_for_retry
from cli.plugin.live import Following, differences
from cli.plugin.output import Shape, as_text, columns, dump, size
from cli.program import cli
from disk.failures import DiskFailure
from tests.unit.cli.plugin.scene import Scene, base, claim, entry, service

FIXTURES = Path(__file__).parents[4] / "tests" / "fixtures" / "adapters"

SCREEN = """\
team/chat   Degraded   dynamic
  profile    AIMClusterProfile p
  base       Qwen/Q (base): Ready
  ceiling    rank 32 (built-in default)
  disk       disk 50Gi Bound
  replicas   2/2

ADAPTER   STATE    RANK              SIZE       PROGRESS         LOADED   TRIES   BASE   SINCE
sql       Failed   20 (declared 16)  12.0 MiB   40 % of 1.0 KiB  2/2      3       -      60m
  SourceUnauthorized: 401 (next try in 5m)
  warning: AdapterIsPickle: a pickle
med       Loaded   16                12.0 MiB   -                2/2      1       -      60m
"""


def spoilt() -> Scene:
    scene = Scene()
    scene.status["status"] = "Degraded"
    scene.adapter(
        state="Failed",
        rank=20,
        lastError="SourceUnauthorized: 401",
        attempts=3,
        nextRetryTime="2024-05-01T12:05:00Z",
        progress={"percentage": 40, "totalBytes": 1024},
        warnings=[{"reason": "AdapterIsPickle", "message": "a pickle"}],
    )
    return scene


def squeezed(text: str) -> list[list[str]]:
    """Lines as words: the layout is columns' own matter."""
    return [row.split() for row in text.splitlines()]


def test_the_screen() -> None:
    assert squeezed(as_text(status.lines(spoilt().snapshot()))) == squeezed(SCREEN)


def test_conditions_that_are_not_true_are_shown() -> None:
    scene = Scene()
    scene.say("Adapters", "False", "AdapterConfigInvalid", "sql does not fit")
    assert "Adapters: AdapterConfigInvalid: sql does not fit" in as_text(status.lines(scene.snapshot()))


def test_a_deferred_ceiling_says_what_it_waits_for() -> None:
    scene = Scene(sql=None)
    scene.status["adapterMaxRank"] = 64
    text = as_text(status.lines(scene.snapshot()))
    assert "rank 64 (status.adapterMaxRank); requested: 32, waits for sql" in text


def test_the_view_is_json_and_yaml() -> None:
    view = status.view(spoilt().snapshot())
    assert json.loads(dump(view, Shape.JSON)) == view
    assert yaml.safe_load(dump(view, Shape.YAML)) == view
    assert [one["state"] for one in view["adapters"]] == ["Failed", "Loaded"]


def test_an_adapter_without_an_entry_is_pending_and_a_removed_one_is_shown() -> None:
    scene = Scene()
    scene.status["adapters"] = [entry("old", state="Deleting")]
    view = status.view(scene.snapshot())
    assert [(one["name"], one["state"]) for one in view["adapters"]] == [
        ("sql", "Pending"),
        ("med", "Pending"),
        ("old", "Deleting"),
    ]


def test_the_overview_names_the_trouble() -> None:
    views, rows = status.overview([spoilt().service, service() | {"metadata": {"name": "b", "namespace": "a"}}])
    assert [(one["namespace"], one["name"], one["trouble"]) for one in views] == [
        ("a", "b", None),
        ("team", "chat", "sql: SourceUnauthorized"),
    ]
    assert len(rows) == 3


def test_ranks() -> None:
    scene = Scene()
    assert scene.sql is not None
    scene.sql["spec"]["rank"] = 64
    text = as_text(status.rank_lines(scene.snapshot()))
    assert "ceiling 32 (built-in default)" in text
    assert ["sql", "64", "16", "no"] in squeezed(text)
    assert ["med", "16", "16", "yes"] in squeezed(text)


def test_disks_count_equal_contents_once() -> None:
    one, two = Scene().service, Scene().service
    two["metadata"] = two["metadata"] | {"name": "chat2"}
    foreign = Scene().service
    foreign["metadata"] = foreign["metadata"] | {"name": "chat3"}
    foreign["status"]["adapterDiskPersistentVolumeClaim"] = "another"
    found = base()
    found["status"]["lastReap"] = {"message": "2 would go (dry run: nothing was removed)", "reclaimedBytes": 5 * 2**20}
    (disk,) = disk_command.view([found], [one, two, foreign], {("team", "disk"): claim("disk")})
    assert disk["usedBytes"] == 2 * 12 * 2**20
    assert len(disk["adapters"]) == 4
    text = as_text(disk_command.lines([disk]))
    assert "in use: 24.0 MiB   reclaimable: 5.0 MiB" in text
    assert as_text(disk_command.lines([])) == "no adapter disk found\n"


def test_columns_do_not_pad_the_last_cell() -> None:
    assert as_text(columns([["a", "bb", "c"], ["aaa", ("b", "red"), "cc"]])) == "a     bb   c\naaa   b    cc\n"


SIZES = {"none": (None, "-"), "bytes": (12, "12 B"), "KiB": (2048, "2.0 KiB"), "GiB": (3 * 2**30, "3.0 GiB")}


@pytest.mark.parametrize(("count", "text"), SIZES.values(), ids=SIZES)
def test_sizes(count: int | None, text: str) -> None:
    assert size(count) == text


# -- watch and waits ------------------------------------------------------------------------------------------------


def test_differences_are_shown_once() -> None:
    old, new = service(), service()
    new["status"]["status"] = "Degraded"
    new["status"]["adapters"] = [entry("sql", state="Failed", lastError="DiskFull: no")]
    assert differences(old, new) == [
        "team/chat Running → Degraded",
        "team/chat adapter sql Loaded → Failed: DiskFull: no",
        "team/chat adapter med removed",
    ]
    assert differences(new, new) == []


def test_following_keeps_a_picture() -> None:
    following = Following()
    following.take(spoilt().service)
    text = as_text(following.lines())
    assert "SourceUnauthorized" in text
    assert "  team/chat   sql" in text
    following.take(spoilt().service, gone=True)
    assert following.services == {}
    assert following.changes[-1] == "team/chat deleted"


def test_waiting_for_adapters() -> None:
    loaded = wait_for_adapters(service(), ["sql", "med"])
    assert (loaded.done, loaded.failed) == (True, False)
    failing = wait_for_adapters(spoilt().service, ["sql"])
    assert (failing.done, failing.failed) == (False, True)
    assert "SourceUnauthorized" in failing.says
    stopped = service()
    stopped["status"]["runtime"] = {}
    stopped["status"]["adapters"][0]["state"] = "Downloaded"
    assert wait_for_adapters(stopped, ["sql"]).done
    stopped["status"]["runtime"] = {"currentReplicas": 1}
    assert not wait_for_adapters(stopped, ["sql"]).done
    assert not wait_for_adapters(service(), ["unknown"]).done


def test_waiting_for_a_removal_and_a_ceiling() -> None:
    assert not wait_for_removal(service(), ["sql"]).done
    assert wait_for_removal(service(), ["x"]).done
    assert wait_for_ceiling(service(), 32).done
    assert not wait_for_ceiling(service(), 64).done


# -- inspect --------------------------------------------------------------------------------------------------------


def inspect(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["inspect", *args])
    return done.exit_code, done.output


def inspected(name: str, *args: str) -> tuple[int, Any]:
    code, text = inspect(str(FIXTURES / name), "-o", "json", *args)
    return code, json.loads(text)


FOLDERS: dict[str, tuple[str, tuple[str, ...], int, str | None, int | None]] = {
    "a plain one": ("llama-r8-qv", (), 0, None, 8),
    "a rank pattern counts": ("llama-rank-pattern", (), 0, None, 32),
    "above the ceiling": ("llama-rank-pattern", ("--max-rank", "16"), 1, "AdapterRankExceedsCeiling", 32),
    "a git-LFS pointer": ("damaged-lfs-pointer", (), 1, "AdapterIsLfsPointer", 16),
    "truncated": ("damaged-weights-truncated", (), 1, "AdapterWeightsTruncated", 16),
    "no weights": ("damaged-no-weights", (), 1, "AdapterWeightsMissing", 8),
    "DoRA": ("llama-r8-dora", (), 1, "AdapterUsesDora", None),
    "a pickle": ("llama-r8-bin", (), 0, None, 8),
    "a refused pickle": ("llama-r8-bin", ("--no-pickle",), 1, "AdapterPickleRefused", 8),
    "another base": ("llama-r8-qv", ("--base", "a/b", "--strict-base"), 1, "AdapterBaseMismatch", 8),
}


@pytest.mark.parametrize(("name", "args", "code", "reason", "rank"), FOLDERS.values(), ids=FOLDERS)
def test_folders(name: str, args: tuple[str, ...], code: int, reason: str | None, rank: int | None) -> None:
    exit_code, view = inspected(name, *args)
    assert exit_code == code
    assert (view["problem"]["reason"] if view["problem"] else None) == reason
    assert view["rank"] == rank
    assert view["sizeBytes"] > 0


def test_a_folder_is_judged_as_a_source_is(tmp_path: Path) -> None:
    """Files below it count: an adapter one level down is reported with the place where it is."""
    shutil.copytree(FIXTURES / "llama-r8-qv", tmp_path / "checkpoint-20")
    code, text = inspect(str(tmp_path))
    assert code == 1
    assert "AdapterLayoutNested: adapter_config.json is not at the top level but in: checkpoint-20" in text


def test_inspect_for_people() -> None:
    code, text = inspect(str(FIXTURES / "llama-r8-qv"))
    assert code == 0
    assert "can be served" in text
    assert ["rank", "8", "(needs", "a", "ceiling", "of", "8)"] in squeezed(text)
    assert ["targets", "q_proj,", "v_proj"] in squeezed(text)


def test_inspect_lists_all_problems_and_names_the_option() -> None:
    code, view = inspected("llama-rank-pattern", "--max-rank", "16", "--base", "a/b")
    assert (code, view["problem"]["detail"]) == (1, "rank 32 is above --max-rank 16")
    assert "AdapterBaseMismatch" in [one["reason"] for one in view["warnings"]]


def test_inspect_shows_another_base_model_although_it_can_be_served() -> None:
    code, text = inspect(str(FIXTURES / "llama-r8-qv"), "--base", "a/b")
    assert code == 0
    assert "can be served, but was trained on another base model" in text


def test_inspect_promises_no_retry() -> None:
    failure = DiskFailure(Reason.SOURCE_DNS_FAILED, "the name of s3.example could not be resolved")
    assert failure.message == f"{failure.problem}; it is retried automatically"
    assert not [reason for reason in JOB_REASONS if "retried" in DiskFailure(reason, "it failed").problem]


WRONG = {"no such folder": ("/nonexistent",), "a bad URI": ("hf://x",), "another scheme": ("http://x/y",)}


@pytest.mark.parametrize("args", WRONG.values(), ids=WRONG)
def test_inspect_says_what_is_wrong_in_one_line(args: tuple[str, ...]) -> None:
    code, text = inspect(*args)
    assert (code, len(text.splitlines())) == (2, 1)
    assert text.startswith("error: ")


RETRIES: dict[str, tuple[dict[str, Any], dict[str, Any], bool, tuple[bool, bool]]] = {
    # entry before, entry now, restage → done, failed
    "staged before, and nothing was to do": ({}, {}, False, (True, False)),
    "a restage that has not begun": ({}, {}, True, (False, False)),
    "a restage that ended": ({}, {"attempts": 2}, True, (True, False)),
    "a failure of before": (
        {"state": "Failed", "lastError": "DiskFull: x"},
        {"state": "Failed", "lastError": "DiskFull: x"},
        False,
        (False, False),
    ),
    "another failure": (
        {"state": "Failed", "lastError": "DiskFull: x"},
        {"state": "Failed", "lastError": "DiskFull: x", "attempts": 2},
        False,
        (False, True),
    ),
    "fixed": ({"state": "Failed", "lastError": "DiskFull: x"}, {"attempts": 2}, False, (True, False)),
    "refused by a rule: no Job will change that": (
        {"state": "Failed", "lastError": "AdapterIncompatible: x"},
        {"state": "Failed", "lastError": "AdapterIncompatible: x"},
        False,
        (False, True),
    ),
}


@pytest.mark.parametrize(("before", "now", "restage", "expected"), RETRIES.values(), ids=RETRIES)
def test_waiting_for_another_try(
    before: dict[str, Any], now: dict[str, Any], restage: bool, expected: tuple[bool, bool]
) -> None:
    old, new = Scene(), Scene()
    old.adapter(**before)
    new.adapter(**now)
    waited = wait_for_retry(new.service, ["sql"], old.service, restage=restage)
    assert (waited.done, waited.failed) == expected


def test_the_same_words_are_shown_once() -> None:
    """Two conditions report an invalid adapter; a requested ceiling that is in force is not shown again."""
    scene = Scene()
    for kind in ("ConfigValid", "Adapters"):
        scene.say(kind, "False", "AdapterConfigInvalid", "spec.adapters[0].name: its rank is too large")
    scene.adapter(state="Failed", lastError="AdapterRankAboveCeiling: x", nextRetryTime="2024-05-01T11:59:00Z")
    scene.spec["adapterRuntime"] = {"maxRank": 32}
    text = as_text(status.lines(scene.snapshot()))
    assert text.count("its rank is too large") == 1
    assert "requested" not in text
    assert "next try" not in text
