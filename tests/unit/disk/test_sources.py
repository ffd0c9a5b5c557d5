"""The real clients against the stand-ins: what arrives, each kind of failure, resume, retries, hostile answers."""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api.jobs import StageSpec
from certs.decide import authority_validity, leaf_validity
from certs.pem import issue_leaf, make_authority, parse_certificate, validity_of
from devcluster.sources import hubrepo
from devcluster.sources.hub import HubServer, running_hub
from devcluster.sources.s3 import S3Server, running_s3
from disk.download import Pacing
from disk.failures import DiskFailure
from disk.fs import Fs
from disk.progress import Meter
from disk.sources import base as sources_base
from disk.sources import hub as hub_module
from disk.sources import open_source
from disk.sources import s3 as s3_module
from disk.sources.guard import is_refused
from disk.stage import Stager, stage
from tests.unit.disk.conftest import ACCESS_KEY, SECRET_KEY, TOKEN
from tests.unit.disk.world import FIXTURES, Files, adapter, look, run_sync, safetensors, stage_spec, sync_spec

GOOD = "llama-r8-qv"
WEIGHTS = "adapter_model.safetensors"
NEEDED = ("adapter_config.json", WEIGHTS)


def fixture_files(name: str) -> Files:
    return {one: (FIXTURES / name / one).read_bytes() for one in NEEDED}


def publish(server: HubServer | S3Server, name: str, files: Files, place: str = "acme") -> None:
    for path, data in files.items():
        target = Path(server.root.path) / place / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def big_adapter(megabytes: int) -> Files:
    files = adapter()
    tensors = {
        f"base_model.model.model.layers.{number}.q_proj.lora_{side}.weight": shape
        for number in range(megabytes)
        for side, shape in (("A", (8, 16384)), ("B", (16384, 8)))
    }
    weights = bytearray(safetensors(tensors))
    noise = random.Random(7).randbytes(1 << 16).translate(bytes(byte & 0x3F for byte in range(256)))  # no NaN in it
    for at in range(len(weights) - (megabytes << 19), len(weights) - len(noise), len(noise)):
        weights[at : at + len(noise)] = noise
    return files | {WEIGHTS: bytes(weights)}


class Job:
    """One staging through the real clients; retries note how long they would wait, and do not."""

    def __init__(self, disk: Path, uri: str, **options: Any) -> None:
        self.disk = disk
        disk.mkdir(exist_ok=True)
        run_sync(sync_spec(disk, "u1", "a"))
        self.spec: StageSpec = stage_spec(disk, "u1", "a", source_uri=uri, max_rank=512, **options)
        self.waits: list[float] = []

    def run(self, transfers: int = 4) -> str:
        pacing = Pacing(sleep=self.waits.append, transfers=transfers, random=random.Random(1))
        return stage(Stager(self.spec, Fs(), lambda: open_source(self.spec), Meter(), pacing)).reason

    def live(self) -> Files:
        from disk.layout import Layout

        found = {}
        root = Layout(self.disk).live("u1", "a")
        for path in root.rglob("*"):
            if path.is_file():
                found[str(path.relative_to(root))] = path.read_bytes()
        return found

    def failure(self) -> DiskFailure:
        with pytest.raises(DiskFailure) as caught:
            self.run(transfers=1)  # each file retries for itself: one at a time their waits can be counted
        assert look(self.disk / "u1", {}) == {}
        return caught.value


# -- what arrives ---------------------------------------------------------------------------------------------------


def test_hub_adapter_arrives(hub: HubServer, folder: Path) -> None:
    publish(hub, GOOD, fixture_files(GOOD) | {"README.md": b"x", "tokenizer.json": b"{}", "optimizer.pt": b"x"})
    job = Job(folder / "disk", f"hf://acme/{GOOD}")
    assert job.run() == "AdapterStaged"
    assert job.live() == fixture_files(GOOD) | {"tokenizer.json": b"{}"}
    for path in (folder / "disk" / "u1").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_hub_subfolder_and_revision(hub: HubServer, folder: Path) -> None:
    publish(hub, "multi@v2", {f"sub/dir/{name}": data for name, data in fixture_files(GOOD).items()})
    publish(hub, "multi", {"README.md": b"nothing here"})
    job = Job(folder / "disk", "hf://acme/multi/sub/dir@v2")
    assert job.run() == "AdapterStaged"
    assert job.live() == fixture_files(GOOD)


def test_hub_sends_the_token_to_no_other_origin(hub: HubServer, folder: Path) -> None:
    publish(hub, "big", big_adapter(2))
    job = Job(folder / "disk", "hf://acme/big")
    assert job.run() == "AdapterStaged"
    by_site = {entry["site"]: entry for entry in hub.requests()}
    assert set(by_site) == {"hub", "cdn"}
    assert TOKEN not in json.dumps(by_site["cdn"])


@pytest.mark.parametrize("style", ["path", "auto"])
@pytest.mark.parametrize("uri", ["s3://bucket/deep/er/my adapter ü", "s3://bucket/deep/er/my adapter ü/"])
def test_s3_adapter_arrives(s3: S3Server, folder: Path, uri: str, style: str) -> None:
    publish(s3, "deep/er/my adapter ü", fixture_files(GOOD), "bucket")
    job = Job(folder / "disk", uri, s3_addressing_style=style)
    assert job.run() == "AdapterStaged"
    assert job.live() == fixture_files(GOOD)


def test_s3_virtual_host_style(s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(s3, GOOD, fixture_files(GOOD), "bucket")
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: real("127.0.0.1" if "localhost" in str(host) else host, *a, **k)
    )
    port = s3.endpoint.rsplit(":", 1)[1]
    job = Job(
        folder / "disk",
        f"s3://bucket/{GOOD}",
        s3_addressing_style="virtual",
        s3_endpoint=f"http://s3.localhost:{port}",
        allow_link_local=True,  # keeps the patched resolver
    )
    assert job.run() == "AdapterStaged"


def test_s3_mounted_keys_and_session_token(folder: Path, clean_environment: None) -> None:
    (folder / "s3").mkdir()
    keys = folder / "keys"
    keys.mkdir()
    for name, value in (("accessKeyId", ACCESS_KEY), ("secretAccessKey", SECRET_KEY + "\n"), ("sessionToken", "st")):
        (keys / name).write_text(value)
    with running_s3(
        folder / "s3", access_key=ACCESS_KEY, secret_key=SECRET_KEY, session_token="st", region="eu-west-3"
    ) as server:
        publish(server, GOOD, fixture_files(GOOD), "bucket")
        options = {"s3_endpoint": server.endpoint, "s3_auth": "static", "s3_region": "eu-west-3"}
        job = Job(folder / "disk", f"s3://bucket/{GOOD}", **options, s3_credentials_dir=str(keys))
        assert job.run() == "AdapterStaged"
        (keys / "secretAccessKey").unlink()
        job = Job(folder / "disk2", f"s3://bucket/{GOOD}", **options, s3_credentials_dir=str(keys))
        assert job.failure().reason == "SourceCredentialsUnreadable"


@pytest.mark.parametrize("checksum", ["SHA256", "CRC32", "CRC64NVME", ""])
def test_s3_checksums(folder: Path, clean_environment: None, checksum: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    (folder / "s3").mkdir()
    with running_s3(folder / "s3", access_key=ACCESS_KEY, secret_key=SECRET_KEY, checksum=checksum) as server:
        publish(server, GOOD, fixture_files(GOOD), "bucket")
        job = Job(folder / "disk", f"s3://bucket/{GOOD}", s3_endpoint=server.endpoint)
        server.set_faults([{"match": f"*{WEIGHTS}", "corrupt_byte_at": 4000}])
        assert job.failure().reason == "ChecksumMismatch"
        server.set_faults([{"match": f"*{WEIGHTS}", "corrupt_byte_at": 4000, "times": 1}])
        assert job.run() == "AdapterStaged"  # the second try of the same Job
        assert job.live() == fixture_files(GOOD)


# -- failures -------------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "401": ({"status": 401}, "SourceUnauthorized"),
    "403": ({"status": 403}, "SourceForbidden"),
    "429": ({"status": 429}, "SourceRateLimited"),
    "500": ({"status": 500}, "SourceServerError"),
    "502": ({"status": 502}, "SourceServerError"),
    "503": ({"status": 503}, "SourceServerError"),
    "504": ({"status": 504}, "SourceServerError"),
    "400": ({"status": 400}, "SourceResponseInvalid"),
    "no answer": ({"drop": True}, "SourceConnectionLost"),
    "slow": ({"delay": 0.8}, "SourceTimeout"),
}
AT = {"listing": "*model_info*|ListObjectsV2", "file": "resolve|GetObject"}
SEEN: list[str] = []


@pytest.mark.parametrize("place", AT)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["hub", "s3"])
def test_each_fault(
    request: pytest.FixtureRequest, folder: Path, kind: str, fault: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: HubServer | S3Server = request.getfixturevalue(kind)
    if fault == "slow":  # the others answer at once, and a busy machine may take longer than this
        monkeypatch.setattr(hub_module, "_READ_SECONDS", 0.5)
        monkeypatch.setattr(s3_module, "_READ_SECONDS", 0.5)
    publish(server, GOOD, fixture_files(GOOD))
    rule, reason = FAULTS[fault]
    if kind == "s3" and fault == "503":
        reason = "SourceRateLimited"  # S3 says SlowDown with it
    operation = AT[place].split("|")[kind == "s3"]
    server.set_faults([rule | {"operation": operation}])
    scheme = "hf://acme" if kind == "hub" else "s3://acme"
    job = Job(folder / "disk", f"{scheme}/{GOOD}")
    failure = job.failure()
    assert failure.reason == reason
    assert failure.retriable == (reason not in ("SourceUnauthorized", "SourceForbidden", "SourceResponseInvalid"))
    assert len(job.waits) == (5 if failure.retriable else 0), "bounded retries, only of what may pass"
    assert all(0 < wait <= 20 for wait in job.waits)
    _no_secrets(failure.message)
    SEEN.append(f"{kind} {fault} {place}")
    server.set_faults([])
    assert job.run() == "AdapterStaged"


def _no_secrets(text: str) -> None:
    for secret in (TOKEN, ACCESS_KEY, SECRET_KEY, "Signature=", "Bearer"):
        assert secret not in text


@pytest.mark.parametrize("kind", ["hub", "s3"])
def test_a_short_fault_passes_within_the_job(request: pytest.FixtureRequest, folder: Path, kind: str) -> None:
    server: HubServer | S3Server = request.getfixturevalue(kind)
    publish(server, GOOD, fixture_files(GOOD))
    server.set_faults(
        [
            {"status": 503, "times": 2},
            {"status": 429, "retry_after": 7, "only_nth": 2, "times": 1},
            {"match": f"*{WEIGHTS}", "cut_after_bytes": 5000, "times": 1},
        ]
    )
    job = Job(folder / "disk", f"{'hf' if kind == 'hub' else 's3'}://acme/{GOOD}")
    assert job.run() == "AdapterStaged"
    assert 7.0 in job.waits, "Retry-After is honoured"
    assert job.live() == fixture_files(GOOD)


@pytest.mark.parametrize("kind", ["hub", "s3"])
def test_a_long_retry_after_is_left_to_the_controller(request: pytest.FixtureRequest, folder: Path, kind: str) -> None:
    server: HubServer | S3Server = request.getfixturevalue(kind)
    publish(server, GOOD, fixture_files(GOOD))
    server.set_faults([{"status": 429, "retry_after": 3600}])
    job = Job(folder / "disk", f"{'hf' if kind == 'hub' else 's3'}://acme/{GOOD}")
    failure = job.failure()
    assert (failure.reason, failure.retry_after, job.waits) == ("SourceRateLimited", 3600, [])
    assert failure.to_result("k").retry_after_seconds == 3600


def _settings(server: HubServer, name: str, **settings: Any) -> None:
    (Path(server.root.path) / "acme" / name / ".hub.json").write_text(json.dumps(settings))


def test_hub_private_gated_disabled_and_missing(hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("private", "gated", "disabled"):
        publish(hub, name, fixture_files(GOOD))
    _settings(hub, "private", private=True)
    _settings(hub, "gated", gated="manual", allowed_tokens=["hf_other"])
    _settings(hub, "disabled", disabled=True)

    def reason(uri: str) -> str:
        return Job(folder / "disk", uri).failure().reason

    assert reason("hf://acme/gated") == "SourceGated"
    assert reason("hf://acme/disabled") == "SourceForbidden"
    assert reason("hf://acme/nowhere") == "SourceRepositoryNotFound"
    assert reason("hf://acme/private@v9") == "SourceRevisionNotFound"
    assert reason("hf://acme/private/no/such/folder") == "SourcePrefixEmpty"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert reason("hf://acme/private") == "SourceUnauthorized"
    monkeypatch.delenv("HF_TOKEN")
    assert reason("hf://acme/private") == "SourceRepositoryNotFound"
    assert reason("hf://acme/gated") == "SourceGated"


def test_s3_refusals(s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(s3, GOOD, fixture_files(GOOD), "bucket")

    def reason(uri: str, **options: Any) -> str:
        return Job(folder / "disk", uri, **options).failure().reason

    assert reason("s3://bucket/nothing/") == "SourcePrefixEmpty"
    assert reason("s3://no-such-bucket/x") == "SourceBucketNotFound"
    assert reason(f"s3://bucket/{GOOD}", s3_auth="anonymous") == "SourceForbidden"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert reason(f"s3://bucket/{GOOD}") == "SourceUnauthorized"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")
    assert reason(f"s3://bucket/{GOOD}") == "SourceUnauthorized"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert reason(f"s3://bucket/{GOOD}") == "SourceUnauthorized"


@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_names_that_do_not_resolve_and_closed_ports(
    scheme: str, folder: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")

    def reason(endpoint: str) -> str:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        return Job(folder / "disk", f"{scheme}://acme/x", allow_link_local=True).failure().reason

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert reason(f"http://127.0.0.1:{closed.getsockname()[1]}") == "SourceConnectionLost"

    def nowhere(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    assert reason("http://hub.invalid") == "SourceDnsFailed"


def _certificate(folder: Path) -> tuple[str, str]:
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "tls.crt"), str(folder / "tls.key")


def test_tls(folder: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = _certificate(folder)
    (folder / "hub").mkdir()
    (folder / "s3").mkdir()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with running_hub(folder / "hub", token=TOKEN, tls_cert=cert, tls_key=key) as server:
        publish(server, GOOD, fixture_files(GOOD))
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        assert Job(folder / "disk", f"hf://acme/{GOOD}").failure().reason == "SourceTlsFailed"
    with running_s3(folder / "s3", access_key=ACCESS_KEY, secret_key=SECRET_KEY, tls_cert=cert, tls_key=key) as server:
        publish(server, GOOD, fixture_files(GOOD), "bucket")
        uri, options = f"s3://bucket/{GOOD}", {"s3_endpoint": server.endpoint}
        assert Job(folder / "disk", uri, **options).failure().reason == "SourceTlsFailed"
        missing = Job(folder / "disk", uri, **options, s3_ca_file="/no/such/ca.crt")
        assert missing.failure().reason == "SourceCredentialsUnreadable"
        assert Job(folder / "disk", uri, **options, s3_ca_file=cert).run() == "AdapterStaged"


# -- resume ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hub", "s3"])
def test_cut_at_random_offsets(request: pytest.FixtureRequest, folder: Path, kind: str) -> None:
    server: HubServer | S3Server = request.getfixturevalue(kind)
    files = big_adapter(3)
    publish(server, "big", files)
    dice = random.Random(int(time.time()))
    size = len(files[WEIGHTS])
    for number in range(8):
        cuts = [{"match": f"*{WEIGHTS}", "cut_after_bytes": dice.randrange(size), "times": 1} for _ in range(4)]
        cuts[0]["reset"] = number % 2 == 0
        server.set_faults(cuts)
        job = Job(folder / f"disk{number}", f"{'hf' if kind == 'hub' else 's3'}://acme/big")
        assert job.run() == "AdapterStaged", cuts
        assert job.live() == files


@pytest.mark.parametrize("kind", ["hub", "s3"])
@pytest.mark.parametrize("ignore_range", [False, True])
def test_what_arrived_before_a_failure_is_not_fetched_again(
    request: pytest.FixtureRequest, folder: Path, kind: str, ignore_range: bool
) -> None:
    server: HubServer | S3Server = request.getfixturevalue(kind)
    files = big_adapter(4)
    publish(server, "big", files)
    size = len(files[WEIGHTS])
    cut = size * 3 // 4
    job = Job(folder / "disk", f"{'hf' if kind == 'hub' else 's3'}://acme/big")
    server.set_faults([{"match": f"*{WEIGHTS}", "cut_after_bytes": cut, "only_nth": 1}])
    with pytest.raises(DiskFailure) as caught:
        stage(Stager(job.spec, Fs(), lambda: open_source(job.spec), Meter(), Pacing(attempts=1)))
    assert caught.value.reason == "SourceConnectionLost"
    mark = len(server.requests())
    server.set_faults([{"match": "*", "ignore_range": True}] if ignore_range else [])
    assert job.run() == "AdapterStaged"
    assert job.live() == files
    sent = sum(entry["bytes"] for entry in server.requests()[mark:] if entry["operation"] in ("cdn", "GetObject"))
    if not ignore_range:
        assert size - cut <= sent <= size - cut + 2 * sources_base.CHUNK_BYTES


@pytest.mark.parametrize("kind", ["hub", "s3"])
def test_connections_that_never_live_long(request: pytest.FixtureRequest, folder: Path, kind: str) -> None:
    """Each is cut after less than a piece: what it brought is kept, so that all of them together bring the file."""
    server: HubServer | S3Server = request.getfixturevalue(kind)
    files = big_adapter(2)
    publish(server, "big", files)
    cut = 300_000
    server.set_faults([{"match": f"*{WEIGHTS}", "cut_after_bytes": cut}])
    job = Job(folder / "disk", f"{'hf' if kind == 'hub' else 's3'}://acme/big")
    assert job.run() == "AdapterStaged"
    assert job.live() == files
    assert len(job.waits) <= len(files[WEIGHTS]) // cut + 2


def test_a_changed_source_starts_over(s3: S3Server, folder: Path) -> None:
    one, two = big_adapter(2), big_adapter(2)
    two[WEIGHTS] = two[WEIGHTS][:-4] + b"\1\2\3\4"
    publish(s3, "big", one, "bucket")
    job = Job(folder / "disk", "s3://bucket/big")
    s3.set_faults([{"match": f"*{WEIGHTS}", "cut_after_bytes": 1_500_000, "times": 1}])
    with pytest.raises(DiskFailure):
        stage(Stager(job.spec, Fs(), lambda: open_source(job.spec), Meter(), Pacing(attempts=1)))
    publish(s3, "big", two, "bucket")
    assert job.run() == "AdapterStaged"
    assert job.live() == two


def test_a_source_that_changes_after_it_was_listed(s3: S3Server, folder: Path) -> None:
    publish(s3, GOOD, fixture_files(GOOD), "bucket")
    job = Job(folder / "disk", f"s3://bucket/{GOOD}")
    source = open_source(job.spec)
    listing = source.list_files()
    publish(s3, GOOD, adapter(5), "bucket")
    with pytest.raises(DiskFailure) as caught, source.open_file(listing.files[0], 0) as opened:
        list(opened.pieces)
    assert caught.value.reason == "SourceChanged"


@pytest.mark.parametrize("kind", ["hub", "s3"])
@pytest.mark.parametrize("wrong", [-100, 100])
def test_a_server_that_lies_about_lengths(request: pytest.FixtureRequest, folder: Path, kind: str, wrong: int) -> None:
    server: HubServer | S3Server = request.getfixturevalue(kind)
    publish(server, GOOD, fixture_files(GOOD))
    server.set_faults([{"match": f"*{WEIGHTS}", "wrong_length": wrong}])
    failure = Job(folder / "disk", f"{'hf' if kind == 'hub' else 's3'}://acme/{GOOD}").failure()
    assert failure.reason in ("SourceChanged", "SourceConnectionLost", "ChecksumMismatch")


# -- hostile --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "::ffff:169.254.169.254",
    ],
)
def test_metadata_addresses_are_refused(address: str) -> None:
    assert is_refused(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "::1", "192.168.1.1", "8.8.8.8", "fd12::1", "bucket"])
def test_other_addresses_are_not(address: str) -> None:
    assert not is_refused(address)


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "2852039166", "0xa9.0xfe.0xa9.0xfe", "[fe80::1]", "[::ffff:169.254.169.254]"]
)
@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_link_local_endpoints_are_refused(
    scheme: str, host: str, folder: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://{host}:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    job = Job(folder / "disk", f"{scheme}://acme/x")
    assert job.failure().reason == "SourceEndpointRefused"
    assert job.waits == []


HOSTILE = ["../../../etc/passwd", "/etc/passwd", "a/../../b", "x\\y", "bell\x07", "n" * 300, "a//b", "./a"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(name: str, folder: Path) -> None:
    from tests.unit.disk.world import MemorySource, run_stage

    run_sync(sync_spec(folder, "u1", "a"))
    source = MemorySource(adapter() | {name: b"x"})
    with pytest.raises(DiskFailure) as caught:
        run_stage(stage_spec(folder, "u1", "a", include=["*"]), source)
    assert caught.value.reason == "SourceNameRefused"
    assert source.opened == []


@pytest.mark.parametrize("pair", [("A.json", "a.json"), ("é.json", "e\u0301.json"), ("d", "d/x")])
def test_names_that_collide_are_refused(pair: tuple[str, str], folder: Path) -> None:
    from tests.unit.disk.world import MemorySource, run_stage

    run_sync(sync_spec(folder, "u1", "a"))
    source = MemorySource(adapter() | dict.fromkeys(pair, b"x"))
    with pytest.raises(DiskFailure) as caught:
        run_stage(stage_spec(folder, "u1", "a", include=["*"]), source)
    assert caught.value.reason == "SourceNameRefused"


LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no object": lambda answer: [1, 2],
    "no sha": lambda answer: answer | {"sha": None},
    "sha is a path": lambda answer: answer | {"sha": "../../x"},
    "size is text": lambda answer: answer | {"siblings": [s | {"size": "12", "lfs": None} for s in answer["siblings"]]},
    "negative size": lambda answer: answer | {"siblings": [s | {"size": -1, "lfs": None} for s in answer["siblings"]]},
    "no ids": lambda answer: answer | {"siblings": [{"rfilename": s["rfilename"]} for s in answer["siblings"]]},
    "siblings are numbers": lambda answer: answer | {"siblings": [1]},
    "lfs is text": lambda answer: answer | {"siblings": [s | {"lfs": "x"} for s in answer["siblings"]]},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_hub_that_lies_about_its_files(
    lie: str, hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(hub, GOOD, fixture_files(GOOD))
    real = hubrepo.model_info
    monkeypatch.setattr("devcluster.sources.hub.model_info", lambda *args: LIES[lie](real(*args)))
    assert Job(folder / "disk", f"hf://acme/{GOOD}").failure().reason == "SourceResponseInvalid"


def test_number_of_faults(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints how many faults were tried (the last test of this module)."""
    with capsys.disabled():
        sys.stdout.write(f"\nsource faults: {len(SEEN)} kinds at listing and file, {len(LIES)} lies\n")


def test_a_hub_with_a_private_ca(folder: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fix of SourceTlsFailed works: with the bundle the same Job succeeds."""
    now = datetime.now(UTC)
    authority = make_authority("company", authority_validity(now, timedelta(days=9)))
    life = leaf_validity(now, timedelta(days=1), validity_of(parse_certificate(authority.certificate)))
    leaf = issue_leaf(authority, frozenset({"localhost"}), life)
    (folder / "tls.crt").write_bytes(leaf.certificate)
    (folder / "tls.key").write_bytes(leaf.key)
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "hub").mkdir()
    cert, key = str(folder / "tls.crt"), str(folder / "tls.key")
    with running_hub(folder / "hub", token=TOKEN, tls_cert=cert, tls_key=key) as hub:
        publish(hub, GOOD, fixture_files(GOOD), "acme")
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint.replace("127.0.0.1", "localhost"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        failure = Job(folder / "disk", f"hf://acme/{GOOD}").failure()
        assert failure.reason == "SourceTlsFailed"
        assert "artifact.hub.caBundleRef" in failure.message
        (folder / "not.crt").write_text("no certificate")
        wrong = Job(folder / "disk", f"hf://acme/{GOOD}", hub_ca_file=str(folder / "not.crt"))
        assert wrong.failure().reason == "SourceCredentialsUnreadable"
        assert Job(folder / "disk", f"hf://acme/{GOOD}", hub_ca_file=str(folder / "ca.crt")).run() == "AdapterStaged"
