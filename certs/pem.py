"""Make and read certificates: PEM text in and out, `cryptography` between. No I/O."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.decide import Validity

_ORGANIZATION = "aim-adapters"


class BadCertificate(Exception):  # noqa: N818 - reads as what it is
    """A certificate or key that cannot be served; the text has the reason, and never contains key material."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (or a chain, the leaf first) and its private key, both PEM."""

    certificate: bytes
    key: bytes


def make_authority(name: str, validity: Validity) -> Pair:
    """Return a new self-signed CA certificate (ECDSA P-256) that may sign only serving certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The date in the name keeps two authorities of one bundle apart: verifiers look an issuer up by its name.
    subject = _name(f"{name} {validity.not_before:%Y-%m-%dT%H:%M:%SZ} {x509.random_serial_number() % 0x10000:04x}")
    builder = (
        _builder(subject, subject, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue_leaf(authority: Pair, names: frozenset[str], validity: Validity) -> Pair:
    """Return a new serving certificate for DNS names and addresses, signed by a CA.

    Raises: BadCertificate when the authority's key is not the certificate's.
    """
    issuer, issuer_key = parse_certificate(authority.certificate), parse_key(authority.key)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise BadCertificate("the key of the CA is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(min(names, default="webhook")[:64]), issuer.subject, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in sorted(names)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    return Pair(_pem(builder.sign(issuer_key, hashes.SHA256())), _key_pem(key))


def parse_certificate(pem: bytes) -> x509.Certificate:
    """Return the first certificate of a PEM text. Raises: BadCertificate."""
    return parse_bundle(pem)[0]


def parse_bundle(pem: bytes) -> list[x509.Certificate]:
    """Return all certificates of a PEM text, at least one. Raises: BadCertificate."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BadCertificate("no PEM certificate could be read") from error


def parse_key(pem: bytes) -> object:
    """Return a private key. Raises: BadCertificate."""
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise BadCertificate("the private key could not be read (is it PEM, and without a passphrase?)") from error


def key_fits(certificate: x509.Certificate, key: object) -> bool:
    """Return whether a private key belongs to a certificate."""
    public = getattr(key, "public_key", None)
    if public is None:
        return False
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    ours: bytes = public().public_bytes(encoding, form)
    return ours == certificate.public_key().public_bytes(encoding, form)


def check_pair(pair: Pair, now: datetime) -> Validity:
    """Return the lifetime of the serving certificate of a pair.

    One that is not valid yet passes: our clock may be behind. Raises: BadCertificate when the pair cannot be served:
    unreadable, not a pair, or expired.
    """
    leaf = parse_certificate(pair.certificate)
    if not key_fits(leaf, parse_key(pair.key)):
        raise BadCertificate("the private key does not belong to the certificate")
    life = validity_of(leaf)
    if now > life.not_after:
        raise BadCertificate(f"the certificate expired at {life.not_after:%Y-%m-%dT%H:%M:%SZ}")
    return life


def validity_of(certificate: x509.Certificate) -> Validity:
    """Return the lifetime of a certificate."""
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def fingerprint_of(certificate: x509.Certificate) -> str:
    """Return SHA-256 over the certificate, in hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def names_of(certificate: x509.Certificate) -> frozenset[str]:
    """Return the DNS names and addresses that a certificate is for."""
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = alternatives.get_values_for_type(x509.IPAddress)
    return frozenset([*alternatives.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)])


def is_signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether a CA signed a certificate."""
    try:
        leaf.verify_directly_issued_by(authority)
    except Exception:  # whatever is wrong with either, the answer is no
        return False
    return True


def join(certificates: list[x509.Certificate]) -> bytes:
    """Return certificates as one PEM text."""
    return b"".join(_pem(certificate) for certificate in certificates)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, validity: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.not_before)
        .not_valid_after(validity.not_after)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64]),  # X.520: at most 64 characters
        ]
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
