"""The certificates and kubeconfigs of one cluster: a CA of its own, and leaves that each start makes again."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_SKEW = timedelta(minutes=5)  # valid a little before now: clocks of a suspended laptop step


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM files."""

    certificate: Path
    key: Path


class Authority:
    """The CA of one cluster, kept in a folder."""

    def __init__(self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.folder = folder
        self._certificate = certificate
        self._key = key

    @property
    def pair(self) -> Pair:
        """Return the CA's own files."""
        return Pair(self.folder / "ca.crt", self.folder / "ca.key")

    @property
    def pem(self) -> bytes:
        """Return the CA certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def ensure(cls, folder: Path) -> Authority:
        """Load the CA of the folder, or make one.

        Raises: ValueError when the files exist but cannot be read as a certificate and its key.
        """
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
        if certificate_path.exists() and key_path.exists():
            certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
            key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError(f"{key_path} is not an EC key")
            return cls(folder, certificate, key)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _self_sign(key)
        write_private(key_path, _key_pem(key))
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, certificate, key)

    def issue(
        self, name: str, common_name: str, *, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = (), now: datetime
    ) -> Pair:
        """Write a new leaf NAME.crt and NAME.key; `hosts` (names or addresses) make it a serving certificate too.

        `groups` become organizations, which the API server reads as the user's groups. `now` is in UTC.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LEAF_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_LEAF_USAGE, critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alt_name(host) for host in hosts]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        write_private(pair.key, _key_pem(key))
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return pair


_LEAF_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def ensure_signing_key(path: Path) -> Path:
    """Make the key that signs service account tokens, once; return the path."""
    if not path.exists():
        write_private(path, _key_pem(ec.generate_private_key(ec.SECP256R1())))
    return path


def render_kubeconfig(server: str, ca_pem: bytes, user: str, pair: Pair, *, namespace: str = "default") -> str:
    """Return a kubeconfig that carries everything in itself, so that it can be copied (JSON, which is YAML too)."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "aim-dev", "cluster": {"server": server, "certificate-authority-data": _b64(ca_pem)}}],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _b64(pair.certificate.read_bytes()),
                    "client-key-data": _b64(pair.key.read_bytes()),
                },
            }
        ],
        "contexts": [{"name": "aim-dev", "context": {"cluster": "aim-dev", "user": user, "namespace": namespace}}],
        "current-context": "aim-dev",
    }
    return json.dumps(config, indent=1) + "\n"


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, never half of it."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    temporary.replace(path)


def first_address(network: str) -> IPv4Address:
    """Return the first host address of a Service range: the ClusterIP of the Service `kubernetes`."""
    return IPv4Address(network.split("/", maxsplit=1)[0]) + 1


def _self_sign(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "aim-dev-ca")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _alt_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()
