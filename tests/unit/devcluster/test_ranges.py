"""Address ranges: who holds which, and what is remembered."""

import socket
from pathlib import Path

import pytest

from devcluster.ranges import AddressRange, NoRangeError, free_ports, may_bind, reserve


def folder(root: Path, name: str) -> Path:
    path = root / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_a_range_is_a_pair_of_networks_and_a_hundred_ports() -> None:
    second = AddressRange(1)
    assert str(second.services) == "127.66.0.0/16"
    assert str(second.pods) == "127.67.0.0/16"
    assert (second.ports.start, len(second.ports)) == (20100, 100)


def test_every_range_stays_inside_loopback_and_below_the_ephemeral_ports(tmp_path: Path) -> None:
    last = AddressRange(89)
    assert last.services.is_loopback
    assert last.pods.is_loopback
    assert last.ports.stop <= 32768


def test_two_clusters_get_different_ranges_and_a_closed_one_is_free_again(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    one = reserve(folder(tmp_path, "one"), lock_dir=locks)
    two = reserve(folder(tmp_path, "two"), lock_dir=locks)
    assert (one.range.index, two.range.index) == (0, 1)
    one.close()
    one.close()
    with reserve(folder(tmp_path, "one"), lock_dir=locks) as again:
        assert again.range.index == 0
    two.close()


def test_a_stopped_cluster_keeps_its_range_while_others_are_unused(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    reserve(folder(tmp_path, "stopped"), lock_dir=locks).close()
    with reserve(folder(tmp_path, "new"), lock_dir=locks) as other:
        assert other.range.index == 1
    with reserve(folder(tmp_path, "stopped"), preferred=0, lock_dir=locks) as again:
        assert again.range.index == 0


def test_a_range_whose_folder_is_gone_is_taken_before_one_of_a_stopped_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devcluster.ranges._COUNT", 2)
    locks = tmp_path / "locks"
    reserve(folder(tmp_path, "stopped"), lock_dir=locks).close()
    gone = folder(tmp_path, "gone")
    reserve(gone, lock_dir=locks).close()
    gone.rmdir()
    with reserve(folder(tmp_path, "new"), lock_dir=locks) as taken:
        assert taken.range.index == 1
    gone.mkdir()
    with (
        reserve(folder(tmp_path, "new"), lock_dir=locks),
        reserve(folder(tmp_path, "newer"), lock_dir=locks) as taken,
    ):
        assert taken.range.index == 0  # nothing else was left


def test_a_range_in_use_is_refused_with_its_holder_and_the_way_out(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    holder = folder(tmp_path, "holder")
    with reserve(holder, lock_dir=locks), pytest.raises(NoRangeError) as caught:
        reserve(folder(tmp_path, "other"), preferred=0, lock_dir=locks)
    assert str(holder) in str(caught.value)
    assert "--fresh" in str(caught.value)


def test_all_ranges_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devcluster.ranges._COUNT", 1)
    locks = tmp_path / "locks"
    with reserve(folder(tmp_path, "one"), lock_dir=locks), pytest.raises(NoRangeError, match="all 1 address ranges"):
        reserve(folder(tmp_path, "two"), lock_dir=locks)


def test_ports_prefer_what_was_used_before_and_avoid_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devcluster.ranges.may_bind", lambda _, port: port != 20000)
    free = free_ports(range(20000, 20020), ["a", "b"], {"a": 20000, "b": 20005})
    assert free == {"a": 20001, "b": 20005}


def test_a_port_with_a_listener_is_taken() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        assert not may_bind("127.0.0.1", busy.getsockname()[1])


def test_no_free_port() -> None:
    with pytest.raises(NoRangeError, match="no free port"):
        free_ports(range(20000, 20000), ["a"], {})
