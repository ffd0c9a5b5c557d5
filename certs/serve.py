"""What our socket shows: a TLS context whose certificate can be replaced while connections go on."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from certs import metrics
from certs.decide import Validity
from certs.pem import BadCertificate, Pair, check_pair, fingerprint_of, parse_certificate

log = logging.getLogger(__name__)


class ServingCertificate:
    """The certificate in service. New handshakes get the newest one; open connections are left alone.

    `context` is handed to the server once. Each replacement is a context of its own, chosen at the start of every
    handshake: loading into a live context would leave a broken pair behind when it fails half-way, and would keep
    the old certificate beside a new one of another key type.

    Args:
        client_ca_file: when set, clients must show a certificate of one of these authorities.
        now: the clock, UTC.
    """

    def __init__(
        self, *, client_ca_file: str | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        self._current: ssl.SSLContext | None = None
        self._pair: Pair | None = None
        self._life: Validity | None = None
        self._problem: str | None = None
        self._client_ca_file = client_ca_file
        self.context = self._make_context()
        self.context.sni_callback = self._choose

    @property
    def life(self) -> Validity | None:
        """Life of the certificate in service; None while there is none."""
        return self._life

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate in service, in hex; "" while there is none."""
        return fingerprint_of(parse_certificate(self._pair.certificate)) if self._pair is not None else ""

    @property
    def problem(self) -> str | None:
        """Why a newer certificate is not in service, or why the one in service is no good; None when all is well."""
        if self._life is None:
            return self._problem or "no certificate has been loaded yet"
        if self._now() > self._life.not_after:
            expired = f"the certificate being served expired at {self._life.not_after:%Y-%m-%dT%H:%M:%SZ}"
            return f"{expired}; {self._problem}" if self._problem else expired
        return self._problem

    @property
    def usable(self) -> bool:
        """True while a handshake shows a certificate that is not expired."""
        return self._life is not None and self._now() <= self._life.not_after

    def replace(self, pair: Pair) -> bool:
        """Take a pair into service for all handshakes from now on; returns whether it is another one.

        Raises: BadCertificate, and keeps what is in service.
        """
        if pair == self._pair:
            self.clear_problem()
            return False
        life = check_pair(pair, self._now())
        fresh = self._make_context()
        with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
            try:
                fresh.load_cert_chain(certificate, key)
            except (ssl.SSLError, OSError) as error:
                raise BadCertificate(f"the pair was refused by the TLS library: {error}") from error
        self._current, self._pair, self._life = fresh, pair, life
        self.clear_problem()
        metrics.RELOADS.inc()
        metrics.EXPIRY.set(life.not_after.timestamp())
        log.info(
            "certificate in service",
            extra={"fingerprint": self.fingerprint[:16], "expires": life.not_after.isoformat()},
        )
        return True

    def report_problem(self, problem: str) -> None:
        """Say why a newer certificate cannot be used: in the log once, in metric and readiness until it is mended."""
        if problem != self._problem:
            log.error("a certificate cannot be used; the old one is kept", extra={"problem": problem})
        self._problem = problem
        metrics.PROBLEM.set(1)

    def clear_problem(self) -> None:
        """The newest certificate is in service."""
        self._problem = None
        metrics.PROBLEM.set(0)

    def _make_context(self) -> ssl.SSLContext:
        """Return a context without a pair. Whom it trusts is set in each: verification looks at the chosen one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        if self._client_ca_file is not None:
            context.load_verify_locations(cafile=self._client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _choose(self, handshake: ssl.SSLSocket | ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        handshake.context = self._current
        return None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give content a path without touching a disk: the root file system is read-only, and keys stay in memory."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
