"""Self-managed certificates: a CA and a serving certificate in a Secret, shared by all replicas, trusted by caBundle.

The first replica creates them. The API server refuses a second creation, and checks resource versions on every change,
so replicas do not overwrite each other. No replica leads: each checks, does the step that is due, and serves what is
stored.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from cryptography import x509

from api.view import JsonObject
from certs import metrics
from certs.decide import (
    PUBLISH_TIME,
    Authority,
    Leaf,
    Step,
    Stored,
    authority_validity,
    decide,
    leaf_validity,
    trusted_until,
)
from certs.pem import (
    BadCertificate,
    Pair,
    fingerprint_of,
    is_signed_by,
    issue_leaf,
    join,
    key_fits,
    make_authority,
    names_of,
    parse_bundle,
    parse_certificate,
    parse_key,
    validity_of,
)
from certs.serve import ServingCertificate

log = logging.getLogger(__name__)


CERTIFICATE, KEY, BUNDLE, ISSUER_KEY, COMING_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key", "next-ca.key"
POLL_SECONDS = 30.0  # between checks when no change is seen
MAX_STEPS = 8  # steps in one check: re-creating everything takes two


class Unavailable(Exception):  # noqa: N818 - reads as what it is
    """The API server could not be read or written now."""


class Cluster(Protocol):
    """The calls to the API server. All raise Unavailable."""

    async def fetch_secret(self) -> JsonObject | None:
        """Return the Secret, or None when it does not exist."""
        ...

    async def create_secret(self, data: dict[str, bytes]) -> bool:
        """Create the Secret; False when it already exists."""
        ...

    async def replace_secret(self, secret: JsonObject, data: dict[str, bytes]) -> bool:
        """Put new data into the Secret as it was read; False when another writer changed it meanwhile."""
        ...

    async def fetch_bundles(self) -> list[tuple[str, list[bytes]]]:
        """Return (webhook configuration, the caBundle of each of its webhooks) for each configuration that exists."""
        ...

    async def write_bundle(self, configuration: str, bundle: bytes) -> None:
        """Put a bundle into all webhooks of a configuration."""
        ...

    async def fetch_names(self) -> frozenset[str]:
        """Return the names and addresses under which the API server may call the server."""
        ...

    async def wait_for_change(self, seconds: float) -> None:
        """Return when the Secret or a configuration has changed, or after this many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Lives:
    """Lifetimes of new certificates."""

    authority: timedelta = timedelta(days=365)
    leaf: timedelta = timedelta(days=90)
    publish_time: timedelta = PUBLISH_TIME


@dataclass(frozen=True, slots=True)
class _Read:
    """The parsed Secret: objects of `cryptography`, and the plain facts for `decide`."""

    stored: Stored
    trusted: tuple[x509.Certificate, ...]
    keys: dict[str, bytes]  # fingerprint -> PEM key
    pair: Pair | None

    @property
    def leaf_issuer(self) -> str:
        """Fingerprint of the CA that signed the stored serving certificate, "" for none."""
        return self.stored.leaf.issuer if self.stored.leaf is not None else ""

    def authority(self, fingerprint: str) -> Pair:
        certificate = next(each for each in self.trusted if fingerprint_of(each) == fingerprint)
        return Pair(join([certificate]), self.keys[fingerprint])


class SelfManaged:
    """Maintains the serving certificate, the Secret and the caBundles."""

    def __init__(
        self,
        cluster: Cluster,
        serving: ServingCertificate,
        *,
        lives: Lives | None = None,
        authority_name: str = "aim-adapters webhook",
        poll_seconds: float = POLL_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._serving = serving
        self._lives = lives or Lives()
        self._authority_name = authority_name
        self._poll_seconds = poll_seconds
        self._now = now
        self._issuer: str | None = None  # fingerprint of the CA that signed the certificate in service

    async def run(self) -> None:
        """Check, do what is due, wait for a change; until cancelled."""
        failures = 0
        while True:
            until_due = self._poll_seconds
            try:
                until_due = (await self.look() - self._now()).total_seconds()
                failures = 0
            except (Unavailable, BadCertificate) as error:
                failures += 1
                if self._serving.life is None or failures > 3:
                    self._serving.report_problem(str(error))
            wait = min(self._poll_seconds, max(until_due, 0.2))
            if failures:
                wait = min(self._poll_seconds, 0.5 * 2 ** min(failures, 6))
            # Jitter, so that replicas do not check together. An early check costs little, a late one may be too late.
            await self._cluster.wait_for_change(wait * (0.7 + 0.3 * random.random()))  # noqa: S311

    async def look(self) -> datetime:
        """Do the steps that are due, serve what is stored, and write the bundle to the webhook configurations.

        Returns when the next step is due if nothing else changes. Raises: Unavailable, BadCertificate.
        """
        names = await self._cluster.fetch_names()
        for _ in range(MAX_STEPS):
            secret = await self._cluster.fetch_secret()
            read = read_secret(secret)
            bundle = join(list(read.trusted)) if read is not None else b""
            # Trust first, serve later: a certificate is served only when the bundle with its CA has been written. This
            # already holds for a certificate of the CA that signed the one in service.
            if read is not None and read.leaf_issuer == self._issuer:
                with contextlib.suppress(BadCertificate):
                    self._serve(read)
            published = bool(bundle) and await self._publish(bundle)
            now = self._now()
            decision = decide(
                read.stored if read is not None else None,
                names,
                now,
                published=published,
                publish_time=self._lives.publish_time,
            )
            if decision.step is Step.NOTHING:
                if read is not None:
                    self._serve(read)
                return decision.look_again
            if read is not None:  # newer than what is in service, although a step is due
                with contextlib.suppress(BadCertificate):
                    self._serve(read)
            await self._do(decision.step, decision.reason, secret, read, names)
        raise BadCertificate("the stored certificates keep changing")

    def _serve(self, read: _Read) -> None:
        """Put the stored pair into service. Raises: BadCertificate."""
        if read.pair is not None:
            self._serving.replace(read.pair)
            self._issuer = read.leaf_issuer

    async def _do(
        self, step: Step, reason: str, secret: JsonObject | None, read: _Read | None, names: frozenset[str]
    ) -> None:
        data = self._data_after(step, read, names)
        if secret is None:
            done = await self._cluster.create_secret(data)
        else:
            done = await self._cluster.replace_secret(secret, data)
        log.info(
            "changed the certificates" if done else "another replica changed the certificates first",
            extra={"step": step.value, "why": reason},
        )

    def _data_after(self, step: Step, read: _Read | None, names: frozenset[str]) -> dict[str, bytes]:
        """Return the Secret's data after a step."""
        now = self._now()
        alive = self._alive(read)
        if step is Step.START or read is None:
            authority = make_authority(self._authority_name, authority_validity(now, self._lives.authority))
            trusted = [parse_certificate(authority.certificate), *alive]
            return self._data(authority, trusted, self._leaf(authority, names), None)
        issuing = read.authority(read.stored.issuing)
        coming = read.keys.get(read.stored.coming)
        if step is Step.ADD_AUTHORITY:
            authority = make_authority(self._authority_name, authority_validity(now, self._lives.authority))
            trusted = [*alive, parse_certificate(authority.certificate)]
            return self._data(issuing, trusted, read.pair or self._leaf(issuing, names), authority.key)
        if step is Step.SWITCH_AUTHORITY:
            authority = read.authority(read.stored.coming)
            return self._data(authority, alive, self._leaf(authority, names), None)  # the old key is dropped
        if step is Step.ISSUE_LEAF:
            if read.stored.leaf is not None and not names <= read.stored.leaf.names:
                # Replicas of two releases may want different names. The certificate gets both until its renewal.
                names |= read.stored.leaf.names
            return self._data(issuing, alive, self._leaf(issuing, names), coming)
        return self._data(issuing, alive, read.pair or self._leaf(issuing, names), coming)

    def _alive(self, read: _Read | None) -> list[x509.Certificate]:
        if read is None:
            return []
        wanted = {authority.fingerprint for authority in trusted_until(read.stored, self._now())}
        return [certificate for certificate in read.trusted if fingerprint_of(certificate) in wanted]

    def _leaf(self, authority: Pair, names: frozenset[str]) -> Pair:
        issuer = validity_of(parse_certificate(authority.certificate))
        return issue_leaf(authority, names, leaf_validity(self._now(), self._lives.leaf, issuer))

    @staticmethod
    def _data(issuing: Pair, trusted: list[x509.Certificate], leaf: Pair, coming: bytes | None) -> dict[str, bytes]:
        data = {CERTIFICATE: leaf.certificate, KEY: leaf.key, BUNDLE: join(trusted), ISSUER_KEY: issuing.key}
        return data if coming is None else {**data, COMING_KEY: coming}

    async def _publish(self, bundle: bytes) -> bool:
        """Write the bundle into every webhook that has another one; returns whether all already had it."""
        had_it = True
        for configuration, bundles in await self._cluster.fetch_bundles():
            if any(found != bundle for found in bundles):
                had_it = False
                await self._cluster.write_bundle(configuration, bundle)
                metrics.BUNDLE_REPAIRS.inc()
                log.info("wrote the CA bundle", extra={"configuration": configuration})
        return had_it


def read_secret(secret: JsonObject | None) -> _Read | None:
    """Return the content of a Secret; None when nothing in it can be used."""
    data = {key: _decode(value) for key, value in ((secret or {}).get("data") or {}).items()}
    try:
        trusted = tuple(parse_bundle(data.get(BUNDLE, b"")))
    except BadCertificate:
        return None
    issuing_key, coming_key = data.get(ISSUER_KEY, b""), data.get(COMING_KEY, b"")
    issuing, coming = _owner(trusted, issuing_key), _owner(trusted, coming_key)
    keys = {name: key for name, key in ((issuing, issuing_key), (coming, coming_key)) if name}
    pair = Pair(data.get(CERTIFICATE, b""), data.get(KEY, b""))
    leaf = _read_leaf(pair, trusted)
    authorities = tuple(
        Authority(fingerprint_of(each), validity_of(each), fingerprint_of(each) in keys) for each in trusted
    )
    return _Read(Stored(authorities, issuing, coming, leaf), trusted, keys, pair if leaf is not None else None)


def _read_leaf(pair: Pair, trusted: tuple[x509.Certificate, ...]) -> Leaf | None:
    try:
        certificate, key = parse_certificate(pair.certificate), parse_key(pair.key)
    except BadCertificate:
        return None
    if not key_fits(certificate, key):
        return None
    issuer = next((fingerprint_of(each) for each in trusted if is_signed_by(certificate, each)), "")
    return Leaf(issuer, validity_of(certificate), names_of(certificate))


def _owner(trusted: tuple[x509.Certificate, ...], key: bytes) -> str:
    """Return the fingerprint of the CA that a private key belongs to, "" for none."""
    try:
        private = parse_key(key)
    except BadCertificate:
        return ""
    return next((fingerprint_of(each) for each in trusted if key_fits(each, private)), "")


def _decode(value: object) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return b""
