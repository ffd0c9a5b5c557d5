"""Hot reload over real handshakes; mounted pairs, whole and broken."""

from __future__ import annotations

import asyncio
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from prometheus_client import REGISTRY

from certs.decide import Validity, authority_validity, leaf_validity
from certs.mounted import MountedAuthorities, MountedCertificate
from certs.pem import (
    BadCertificate,
    Pair,
    fingerprint_of,
    issue_leaf,
    make_authority,
    names_of,
    parse_certificate,
    validity_of,
)
from certs.serve import ServingCertificate
from tests.unit.certs.tls import close, connect, echo_server, shown

NAMES = frozenset({"svc", "svc.ns", "svc.ns.svc", "svc.ns.svc.cluster.local", "10.0.0.1", "fd00::1"})
DAY = timedelta(days=1)


def now() -> datetime:
    return datetime.now(UTC)


def authority() -> Pair:
    return make_authority("test", authority_validity(now(), 30 * DAY))


def leaf_of(issuer: Pair, life: timedelta = DAY, names: frozenset[str] = NAMES) -> Pair:
    issuer_life = validity_of(parse_certificate(issuer.certificate))
    return issue_leaf(issuer, names, leaf_validity(now(), life, issuer_life))


def expired(issuer: Pair) -> Pair:
    return issue_leaf(issuer, NAMES, Validity(now() - 2 * DAY, now() - DAY))


def fingerprint(pair: Pair) -> str:
    return fingerprint_of(parse_certificate(pair.certificate))


def rsa_leaf() -> tuple[Pair, bytes]:
    """A self-signed RSA pair, of another key type than usual."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rsa")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now() - DAY)
        .not_valid_after(now() + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("svc.ns.svc")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(pem, private), pem


@pytest.mark.parametrize("name", ["svc.ns.svc", "svc.ns.svc.cluster.local", "10.0.0.1", "fd00::1"])
async def test_the_api_server_can_verify_each_name(name: str) -> None:
    issuer = authority()
    serving = ServingCertificate()
    serving.replace(leaf_of(issuer))
    async with echo_server(serving.context) as port:
        _, writer = await connect(port, issuer.certificate, name)
        await close(writer)


async def test_strict_verification_passes() -> None:
    """The flags that newer Pythons and Go set by default: key identifiers, critical basic constraints."""
    issuer = authority()
    serving = ServingCertificate()
    serving.replace(leaf_of(issuer))
    context = ssl.create_default_context(cadata=issuer.certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    async with echo_server(serving.context) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="svc.ns.svc")
        await close(writer)


async def swap_under_connections() -> None:
    issuer = authority()
    first, second = leaf_of(issuer), leaf_of(issuer)
    serving = ServingCertificate()
    serving.replace(first)
    async with echo_server(serving.context) as port:
        reader, writer = await connect(port, issuer.certificate)
        assert shown(writer) == fingerprint(first)
        assert serving.replace(second) is True
        assert serving.replace(second) is False
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        _, newer = await connect(port, issuer.certificate)
        assert shown(newer) == fingerprint(second)
        other, bundle = rsa_leaf()
        serving.replace(other)
        _, newest = await connect(port, bundle)
        assert shown(newest) == fingerprint(other)
        for each in (writer, newer, newest):
            await close(each)


async def test_new_handshakes_get_the_new_pair_and_open_connections_continue() -> None:
    await swap_under_connections()


def test_the_same_under_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(swap_under_connections())


async def test_rotation_under_many_handshakes_fails_none() -> None:
    issuer = authority()
    pairs = [leaf_of(issuer) for _ in range(4)]
    serving = ServingCertificate()
    serving.replace(pairs[0])
    seen: set[str] = set()

    async def client(port: int) -> None:
        for _ in range(15):
            _, writer = await connect(port, issuer.certificate)
            seen.add(shown(writer))
            await close(writer)

    async with echo_server(serving.context) as port:
        clients = [asyncio.create_task(client(port)) for _ in range(4)]
        step = 0
        while not all(task.done() for task in clients):
            step += 1
            serving.replace(pairs[step % 4])
            await asyncio.sleep(0.002)
        await asyncio.gather(*clients)
    assert len(seen) > 1


async def test_without_a_certificate_handshakes_fail_and_it_says_so() -> None:
    serving = ServingCertificate()
    assert not serving.usable
    assert "no certificate" in (serving.problem or "")
    async with echo_server(serving.context) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(port, authority().certificate)


async def test_tls_below_1_2_is_refused() -> None:
    assert ServingCertificate().context.minimum_version is ssl.TLSVersion.TLSv1_2


async def greeted(port: int, issuer: Pair, signer: Pair | None, folder: Path) -> bool:
    """Return whether a client with a certificate of `signer`, or with none, is answered."""
    context = ssl.create_default_context(cadata=issuer.certificate.decode())
    if signer is not None:
        pair = client_pair(signer)
        (folder / "client.pem").write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(str(folder / "client.pem"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="svc.ns.svc")
        writer.write(b"hello\n")
        answer = await reader.readline()
        await close(writer)
    except (ssl.SSLError, ConnectionError):
        return False
    return answer == b"hello\n"


async def test_clients_can_be_asked_for_a_certificate(tmp_path: Path) -> None:
    issuer, stranger = authority(), authority()
    serving = ServingCertificate(client_authorities=issuer.certificate)
    serving.replace(leaf_of(issuer))
    async with echo_server(serving.context) as port:
        welcome = [await greeted(port, issuer, signer, tmp_path) for signer in (issuer, stranger, None)]
        assert welcome == [True, False, False]
    async with echo_server(serving.open_context) as port:
        assert await greeted(port, issuer, None, tmp_path)


async def test_client_authorities_are_followed_without_a_restart(tmp_path: Path) -> None:
    """Also beside a new pair; what cannot be used is reported, and the old ones are kept."""
    issuer, first, second = authority(), authority(), authority()
    file = tmp_path / "ca.crt"
    file.write_bytes(first.certificate)
    serving = ServingCertificate(client_authorities=file.read_bytes())
    mounted = MountedAuthorities(file, serving)
    serving.replace(leaf_of(issuer))
    mounted.look()

    async def welcome() -> list[bool]:
        return [await greeted(port, issuer, signer, tmp_path) for signer in (first, second)]

    async with echo_server(serving.context) as port:
        assert await welcome() == [True, False]
        file.write_bytes(first.certificate + second.certificate)
        mounted.look()
        assert await welcome() == [True, True]
        file.write_bytes(second.certificate)
        mounted.look()
        assert await welcome() == [False, True]
        serving.replace(leaf_of(issuer))
        assert await welcome() == [False, True]
        for broken, words in ((b"garbage", "no PEM certificate"), (past_authority().certificate, "have expired")):
            file.write_bytes(broken)
            for _ in range(3):
                mounted.look()
            assert words in (serving.problem or "")
            assert str(file) in (serving.problem or "")
            assert REGISTRY.get_sample_value("aim_adapters_certificate_problem") == 1
            serving.replace(leaf_of(issuer))
            assert words in (serving.problem or ""), "a new pair does not fix it"
            assert await welcome() == [False, True]
        file.write_bytes(first.certificate)
        mounted.look()
        assert serving.problem is None
        assert REGISTRY.get_sample_value("aim_adapters_certificate_problem") == 0
        assert await welcome() == [True, False]


def past_authority() -> Pair:
    """An authority whose life is over."""
    return make_authority("past", Validity(now() - 3 * DAY, now() - DAY))


def test_no_usable_client_authority_is_refused_at_the_start() -> None:
    for pem in (b"", b"garbage", past_authority().certificate):
        with pytest.raises(BadCertificate):
            ServingCertificate(client_authorities=pem)


def client_pair(issuer: Pair) -> Pair:
    """A certificate for a client: those of aim-adapters are only for servers, so make one by hand."""
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    ca = parse_certificate(issuer.certificate)
    ca_key = serialization.load_pem_private_key(issuer.key, None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "apiserver")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() - DAY)
        .not_valid_after(now() + DAY)
        .sign(ca_key, hashes.SHA256())
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def broken_pairs() -> dict[str, tuple[Pair, str]]:
    issuer = authority()
    good, other = leaf_of(issuer), leaf_of(issuer)
    return {
        "expired": (expired(issuer), "expired at"),
        "another's key": (Pair(good.certificate, other.key), "does not belong"),
        "no certificate": (Pair(b"garbage", good.key), "no PEM certificate"),
        "no key": (Pair(good.certificate, b"garbage"), "could not be read"),
        "empty": (Pair(b"", b""), "no PEM certificate"),
    }


@pytest.mark.parametrize("case", broken_pairs())
def test_a_broken_pair_is_refused_and_the_old_one_kept(case: str) -> None:
    pair, words = broken_pairs()[case]
    serving = ServingCertificate()
    good = leaf_of(authority())
    serving.replace(good)
    with pytest.raises(BadCertificate, match=words):
        serving.replace(pair)
    assert serving.fingerprint == fingerprint(good)


def test_expiry_is_in_the_metric_and_in_the_problem() -> None:
    clock = [now()]
    serving = ServingCertificate(now=lambda: clock[0])
    serving.replace(leaf_of(authority()))
    assert serving.life is not None
    metric = REGISTRY.get_sample_value("aim_adapters_certificate_expiry_timestamp_seconds")
    assert metric == serving.life.not_after.timestamp()
    assert serving.problem is None
    clock[0] += 2 * DAY
    assert "expired" in (serving.problem or "")
    assert not serving.usable


def test_names_come_back_as_they_went_in() -> None:
    assert names_of(parse_certificate(leaf_of(authority()).certificate)) == NAMES


class SecretVolume:
    """A folder as the kubelet keeps it: links to a dated folder behind `..data`, swapped in one step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0

    def write(self, pair: Pair) -> None:
        self._count += 1
        dated = self.folder / f"..{self._count}"
        dated.mkdir()
        (dated / "tls.crt").write_bytes(pair.certificate)
        (dated / "tls.key").write_bytes(pair.key)
        link = self.folder / "..new"
        link.symlink_to(dated.name)
        link.rename(self.folder / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


def test_a_mounted_secret_is_followed(tmp_path: Path) -> None:
    volume, serving, issuer = SecretVolume(tmp_path), ServingCertificate(), authority()
    mounted = MountedCertificate(tmp_path, serving)
    mounted.look()
    assert "No such file" in (serving.problem or "")
    first, second = leaf_of(issuer), leaf_of(issuer)
    volume.write(first)
    mounted.look()
    assert (serving.fingerprint, serving.problem) == (fingerprint(first), None)
    volume.write(second)
    mounted.look()
    assert serving.fingerprint == fingerprint(second)


def test_a_broken_mounted_pair_is_reported_the_old_one_kept_and_the_fix_noticed(tmp_path: Path) -> None:
    volume, serving, issuer = SecretVolume(tmp_path), ServingCertificate(), authority()
    mounted = MountedCertificate(tmp_path, serving)
    good = leaf_of(issuer)
    volume.write(good)
    mounted.look()
    volume.write(expired(issuer))
    for _ in range(3):
        mounted.look()
    assert "expired at" in (serving.problem or "")
    assert REGISTRY.get_sample_value("aim_adapters_certificate_problem") == 1
    assert serving.usable
    assert serving.fingerprint == fingerprint(good)
    mended = leaf_of(issuer)
    volume.write(mended)
    mounted.look()
    assert (serving.fingerprint, serving.problem) == (fingerprint(mended), None)
    assert REGISTRY.get_sample_value("aim_adapters_certificate_problem") == 0


def test_files_written_one_after_the_other_cause_no_alarm(tmp_path: Path) -> None:
    serving, issuer = ServingCertificate(), authority()
    mounted = MountedCertificate(tmp_path, serving)
    first, second = leaf_of(issuer), leaf_of(issuer)
    (tmp_path / "tls.crt").write_bytes(first.certificate)
    (tmp_path / "tls.key").write_bytes(first.key)
    mounted.look()
    (tmp_path / "tls.crt").write_bytes(second.certificate)
    mounted.look()
    assert serving.problem is None
    (tmp_path / "tls.key").write_bytes(second.key)
    mounted.look()
    assert (serving.fingerprint, serving.problem) == (fingerprint(second), None)


def test_a_file_replaced_in_its_second_with_its_size_is_noticed(tmp_path: Path) -> None:
    """Same time stamp and size, another inode."""
    serving, issuer = ServingCertificate(), authority()
    mounted = MountedCertificate(tmp_path, serving)
    first, second = leaf_of(issuer), leaf_of(issuer)
    for pair in (first, second):
        for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
            (tmp_path / f"{name}.new").write_bytes(content)
            os.utime(tmp_path / f"{name}.new", (1, 1))
            (tmp_path / f"{name}.new").rename(tmp_path / name)
        mounted.look()
    assert serving.fingerprint == fingerprint(second)
