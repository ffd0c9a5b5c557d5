"""Self-managed certificates: several replicas over one small cluster, through years of clock time."""

from __future__ import annotations

import asyncio
import base64
import copy
import functools
import logging
import os
import random
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs.pem import Pair, fingerprint_of, is_signed_by, parse_bundle, parse_certificate
from certs.serve import ServingCertificate
from certs.store import BUNDLE, COMING_KEY, ISSUER_KEY, Lives, SelfManaged, Unavailable, read_secret
from tests.unit.certs.tls import close, connect, echo_server, shown

DAY = timedelta(days=1)
NAMES = frozenset({"svc", "svc.ns", "svc.ns.svc"})


class World:
    """The API server's part: a Secret with a resource version, two webhook configurations."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.version = 0
        self.bundles: dict[str, list[bytes]] = {"validating": [b"", b""], "mutating": [b""]}
        self.names = NAMES
        self.down = False
        self.writes = 0

    def _gate(self) -> None:
        if self.down:
            raise Unavailable("the API server is away")

    async def fetch_secret(self) -> dict[str, Any] | None:
        self._gate()
        await asyncio.sleep(0)
        return copy.deepcopy(self.secret)

    async def create_secret(self, data: dict[str, bytes]) -> bool:
        self._gate()
        await asyncio.sleep(0)
        if self.secret is not None:
            return False
        self._store(data)
        return True

    async def replace_secret(self, secret: dict[str, Any], data: dict[str, bytes]) -> bool:
        self._gate()
        await asyncio.sleep(0)
        if self.secret is None or secret["metadata"] != self.secret["metadata"]:
            return False
        self._store(data)
        return True

    async def fetch_bundles(self) -> list[tuple[str, list[bytes]]]:
        self._gate()
        return [(name, list(bundles)) for name, bundles in self.bundles.items()]

    async def write_bundle(self, configuration: str, bundle: bytes) -> None:
        self._gate()
        self.bundles[configuration] = [bundle] * len(self.bundles[configuration])

    async def fetch_names(self) -> frozenset[str]:
        self._gate()
        return self.names

    async def wait_for_change(self, seconds: float) -> None:
        await asyncio.sleep(0)

    def _store(self, data: dict[str, bytes]) -> None:
        self.writes += 1
        self.version += 1
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.secret = {"metadata": {"resourceVersion": str(self.version)}, "data": encoded}

    def data(self, key: str) -> bytes:
        assert self.secret is not None
        return base64.b64decode(self.secret["data"].get(key, ""))


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


def replica(world: World, clock: Clock | None = None, lives: Lives | None = None) -> SelfManaged:
    clock = clock or Clock()
    return SelfManaged(world, ServingCertificate(now=clock), now=clock, lives=lives)


@functools.cache
def verifies(leaf: bytes, bundle: bytes) -> bool:
    """Does one of the bundle's authorities vouch for the leaf?"""
    certificate = parse_certificate(leaf)
    return any(is_signed_by(certificate, ca) for ca in parse_bundle(bundle))


def leaf_is_trusted(world: World, served: Pair) -> bool:
    """Would the API server, which knows only the bundles, accept this leaf?"""
    return all(verifies(served.certificate, bundle) for bundles in world.bundles.values() for bundle in bundles)


async def test_the_first_look_makes_everything_and_the_second_writes_nothing() -> None:
    world = World()
    first = replica(world)
    await first.look()
    assert world.writes == 1
    assert first._serving.usable
    before = copy.deepcopy((world.secret, world.bundles))
    await first.look()
    assert (world.secret, world.bundles) == before


async def test_keys_are_in_no_log_line_and_on_no_disk(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def loading(self: ssl.SSLContext, certificate: str, key: str) -> None:
        places.extend(os.readlink(path) for path in (certificate, key))
        load(self, certificate, key)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loading)
    caplog.set_level(logging.DEBUG)
    world, clock = World(), Clock()
    one = replica(world, clock)
    for _ in range(3):  # with renewals and a damaged Secret
        await one.look()
        clock.now += 400 * DAY
        assert world.secret is not None
        world.secret["data"][BUNDLE] = base64.b64encode(b"damaged").decode()
    assert caplog.records
    logged = "".join(str(vars(entry)) for entry in caplog.records)
    assert "PRIVATE KEY" not in logged
    key = world.data(ISSUER_KEY).decode().splitlines()[1]
    assert key not in logged
    assert len(places) >= 2
    assert all(place.startswith("/memfd:") for place in places)


async def test_replicas_that_start_together_make_one_authority() -> None:
    world = World()
    replicas = [replica(world) for _ in range(5)]
    await asyncio.gather(*(each.look() for each in replicas))
    assert world.writes == 1
    assert len({each._serving.fingerprint for each in replicas}) == 1
    assert len(parse_bundle(world.data(BUNDLE))) == 1


async def test_the_api_server_trusts_what_is_served() -> None:
    world = World()
    first = replica(world)
    await first.look()
    async with echo_server(first._serving.context) as port:
        _, writer = await connect(port, world.bundles["validating"][0])
        assert shown(writer) == first._serving.fingerprint
        await close(writer)


@pytest.mark.parametrize("damage", [b"", b"somebody else's"])
async def test_a_bundle_changed_by_someone_else_is_healed(damage: bytes) -> None:
    world = World()
    first = replica(world)
    await first.look()
    good = world.bundles["validating"][0]
    world.bundles["validating"][1] = damage
    await first.look()
    assert world.bundles["validating"] == [good, good]
    assert world.writes == 1


async def test_a_deleted_secret_is_made_again_and_trusted() -> None:
    world = World()
    first = replica(world)
    await first.look()
    world.secret = None
    await first.look()
    assert first._serving._pair is not None
    assert leaf_is_trusted(world, first._serving._pair)


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt", "ca.key"])
async def test_a_damaged_secret_is_repaired(key: str) -> None:
    world = World()
    first = replica(world)
    await first.look()
    assert world.secret is not None
    world.secret["data"][key] = "bm90aGluZw=="
    world.version += 1
    world.secret["metadata"]["resourceVersion"] = str(world.version)
    await first.look()
    assert first._serving._pair is not None
    assert leaf_is_trusted(world, first._serving._pair)
    read = read_secret(world.secret)
    assert read is not None
    assert read.stored.leaf is not None


async def test_a_lost_authority_key_keeps_the_old_authority_trusted() -> None:
    """Other replicas still serve a leaf of it until they look."""
    world = World()
    first, second = replica(world), replica(world)
    await first.look()
    await second.look()
    assert world.secret is not None
    world.secret["data"].pop("ca.key")
    await first.look()
    assert second._serving._pair is not None
    assert leaf_is_trusted(world, second._serving._pair)


async def test_a_new_name_brings_a_new_leaf_and_releases_side_by_side_do_not_fight() -> None:
    world = World()
    old, new = replica(world), replica(world)
    await old.look()
    world.names = NAMES | {"10.0.0.7"}
    await new.look()
    assert world.writes == 2
    world.names = NAMES | {"other.example"}
    await old.look()
    world.names = NAMES | {"10.0.0.7"}
    await new.look()
    assert world.writes == 3


async def test_an_api_server_that_is_away_leaves_the_old_leaf_in_service() -> None:
    world = World()
    first = replica(world)
    await first.look()
    world.down = True
    with pytest.raises(Unavailable):
        await first.look()
    assert first._serving.usable


async def test_years_pass_and_no_handshake_would_fail() -> None:
    """Three replicas of which each sleeps through many looks, clocks minutes apart, four years in steps of a day:
    at each moment each replica's leaf is trusted by every bundle, and no authority is made twice."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    world = World()
    lives = Lives(authority=365 * DAY, leaf=90 * DAY)
    clocks = [Clock() for _ in range(3)]
    clocks[1].now += timedelta(minutes=20)
    clocks[2].now -= timedelta(minutes=20)
    replicas = [replica(world, clock, lives) for clock in clocks]
    for each in replicas:
        await each.look()
    authorities: set[str] = set()
    overlaps = 0
    for _ in range(4 * 365):
        for clock in clocks:
            clock.now += DAY
        for each in replicas:
            if rng.random() < 0.5:
                await each.look()
        for each in replicas:
            assert each._serving.usable
            assert each._serving._pair is not None
            assert leaf_is_trusted(world, each._serving._pair)
        trusted = parse_bundle(world.data(BUNDLE))
        authorities |= {fingerprint_of(each) for each in trusted}
        overlaps += len(trusted) > 1
        assert len(trusted) <= 3
    assert 5 <= len(authorities) <= 7
    assert overlaps > 50
    assert world.writes < 60


async def test_the_old_key_is_forgotten_once_the_new_authority_issues() -> None:
    world, clock = World(), Clock()
    first = replica(world, clock)
    await first.look()
    old_key = world.data(ISSUER_KEY)
    clock.now += 244 * DAY
    await first.look()
    assert world.data(ISSUER_KEY) == old_key
    assert world.data(COMING_KEY)
    old_leaf = first._serving.fingerprint
    clock.now += timedelta(minutes=9)
    await first.look()
    assert world.data(COMING_KEY)
    clock.now += timedelta(minutes=2)
    await first.look()
    assert world.data(ISSUER_KEY) != old_key
    assert not world.data(COMING_KEY)
    assert first._serving.fingerprint != old_leaf
    assert len(parse_bundle(world.bundles["mutating"][0])) == 2


async def test_a_renewed_leaf_is_served_though_a_step_that_is_due_fails() -> None:
    """Steps are requests, and a busy API server may take long over each, or refuse it."""
    world, clock = World(), Clock()
    one, two = replica(world, clock), replica(world, clock)
    await two.look()
    for _ in range(4):
        clock.now += 60 * DAY
        await one.look()
    clock.now += 5 * DAY  # the next authority is due

    async def refuse(secret: dict[str, Any], data: dict[str, bytes]) -> bool:
        raise Unavailable("the API server is away")

    world.replace_secret = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await two.look()
    assert two._serving.fingerprint == fingerprint_of(parse_certificate(world.data("tls.crt")))


async def test_a_renewed_leaf_of_a_trusted_authority_waits_for_no_bundle() -> None:
    world, clock = World(), Clock()
    one, two = replica(world, clock), replica(world, clock)
    await two.look()
    clock.now += 62 * DAY
    await one.look()
    before = two._serving.fingerprint
    world.bundles["validating"] = [b"damaged", b"damaged"]

    async def refuse(configuration: str, bundle: bytes) -> None:
        raise Unavailable("the API server is away")

    world.write_bundle = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await two.look()
    assert two._serving.fingerprint == fingerprint_of(parse_certificate(world.data("tls.crt"))) != before


async def test_a_leaf_of_a_new_authority_waits_for_its_bundle() -> None:
    world, clock = World(), Clock()
    one, two = replica(world, clock), replica(world, clock)
    await two.look()
    before = two._serving.fingerprint
    world.secret = None
    await one.look()
    world.bundles["validating"] = [b"damaged", b"damaged"]

    async def refuse(configuration: str, bundle: bytes) -> None:
        raise Unavailable("the API server is away")

    world.write_bundle = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await two.look()
    assert two._serving.fingerprint == before
