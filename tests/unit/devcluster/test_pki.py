"""Certificates and kubeconfigs of a cluster."""

import base64
import json
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from devcluster.pki import Authority, ensure_signing_key, first_address, render_kubeconfig

NOW = datetime.now(UTC)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_authority_survives_a_restart(tmp_path: Path) -> None:
    first = Authority.ensure(tmp_path / "pki")
    assert Authority.ensure(tmp_path / "pki").pem == first.pem
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700
    assert first.pair.key.stat().st_mode & 0o777 == 0o600


def test_a_serving_certificate_is_trusted_for_its_hosts_only(tmp_path: Path) -> None:
    authority = Authority.ensure(tmp_path)
    pair = authority.issue("server", "server", hosts=("127.0.0.1", "localhost"), now=NOW)
    store = Store([load(authority.pair.certificate)])
    verifier = PolicyBuilder().store(store).time(NOW + timedelta(days=1))
    verifier.build_server_verifier(x509.IPAddress(ip_address("127.0.0.1"))).verify(load(pair.certificate), [])
    with pytest.raises(x509.verification.VerificationError):
        verifier.build_server_verifier(x509.DNSName("elsewhere")).verify(load(pair.certificate), [])


def test_groups_become_organizations_and_clients_cannot_serve(tmp_path: Path) -> None:
    pair = Authority.ensure(tmp_path).issue("node", "system:node:n0", groups=("system:nodes",), now=NOW)
    certificate = load(pair.certificate)
    names = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert names == ["system:nodes"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_the_kubeconfig_carries_a_pair_that_belongs_together(tmp_path: Path) -> None:
    authority = Authority.ensure(tmp_path)
    pair = authority.issue("admin", "admin", groups=("system:masters",), now=NOW)
    config = json.loads(render_kubeconfig("https://127.0.0.1:1", authority.pem, "admin", pair))
    user = config["users"][0]["user"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    key = serialization.load_pem_private_key(base64.b64decode(user["client-key-data"]), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert certificate.public_key() == key.public_key()
    ssl.create_default_context(
        cadata=base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    )


def test_the_signing_key_is_made_once_in_a_form_that_kubernetes_reads(tmp_path: Path) -> None:
    path = ensure_signing_key(tmp_path / "sa.key")
    before = path.read_bytes()
    assert before.startswith(b"-----BEGIN EC PRIVATE KEY-----")
    assert ensure_signing_key(path).read_bytes() == before


def test_a_broken_authority_is_not_replaced(tmp_path: Path) -> None:
    Authority.ensure(tmp_path)
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(ValueError, match="PEM"):
        Authority.ensure(tmp_path)


def test_first_address() -> None:
    assert str(first_address("127.64.0.0/16")) == "127.64.0.1"
