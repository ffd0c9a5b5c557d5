"""The TLS context of the server, whose certificate can be replaced while connections stay open."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from certs import metrics
from certs.decide import Validity, is_expired
from certs.pem import (
    BadCertificate,
    Pair,
    check_pair,
    fingerprint_of,
    join,
    parse_bundle,
    parse_certificate,
    validity_of,
)

log = logging.getLogger(__name__)

PAIR, CLIENTS = "serving certificate", "client CA"  # what a problem can be about


class ServingCertificate:
    """The certificate in service. New handshakes get the newest one; open connections keep theirs.

    The server gets `context` once. Each replacement is a new context, which is chosen at the start of every handshake.
    Loading into a live context would leave a broken pair behind when it fails half-way, and would keep the old
    certificate beside a new one with another key type.

    Args:
        client_authorities: PEM; when set, clients of `context` must present a certificate that one of them signed.
            Clients of `open_context` (metrics) need none.
        now: the clock, UTC.
    Raises: BadCertificate when no usable CA is among them.
    """

    def __init__(
        self, *, client_authorities: bytes | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        self._current: ssl.SSLContext | None = None
        self._current_open: ssl.SSLContext | None = None
        self._pair: Pair | None = None
        self._life: Validity | None = None
        self._problems: dict[str, str] = {}  # by what they are about
        self._clients = None if client_authorities is None else self._usable_authorities(client_authorities)
        self.context = self._make_context(self._clients)
        self.context.sni_callback = self._choose
        self.open_context = self._make_context(None)
        self.open_context.sni_callback = self._choose_open

    @property
    def life(self) -> Validity | None:
        """Lifetime of the certificate in service; None while there is none."""
        return self._life

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate in service, in hex; "" while there is none."""
        return fingerprint_of(parse_certificate(self._pair.certificate)) if self._pair is not None else ""

    @property
    def problem(self) -> str | None:
        """Why a newer certificate is not in service, or why the current one is invalid; None without a problem."""
        found = list(self._problems.values())
        if self._life is None:
            found = found or ["no certificate has been loaded yet"]
        elif self._now() > self._life.not_after:
            found.insert(0, f"the certificate being served expired at {self._life.not_after:%Y-%m-%dT%H:%M:%SZ}")
        return "; ".join(found) or None

    @property
    def usable(self) -> bool:
        """Whether handshakes get a certificate that has not expired."""
        return self._life is not None and self._now() <= self._life.not_after

    def replace(self, pair: Pair) -> bool:
        """Put a pair into service for all handshakes from now on; returns whether it is a different one.

        Raises: BadCertificate, and keeps what is in service.
        """
        if pair == self._pair:
            self.clear_problem()
            return False
        life = check_pair(pair, self._now())
        self._current, self._current_open = self._make_context(self._clients, pair), self._make_context(None, pair)
        self._pair, self._life = pair, life
        self.clear_problem()
        metrics.RELOADS.inc()
        metrics.EXPIRY.set(life.not_after.timestamp())
        log.info(
            "certificate in service",
            extra={"fingerprint": self.fingerprint[:16], "expires": life.not_after.isoformat()},
        )
        return True

    def replace_client_authorities(self, pem: bytes) -> bool:
        """Check clients against other CA certificates from the next handshake on; returns whether they differ.

        Raises: BadCertificate, and keeps the old ones.
        """
        usable = self._usable_authorities(pem)
        changed = usable != self._clients
        if changed:
            if self._pair is not None:
                self._current = self._make_context(usable, self._pair)
            self._clients = usable
            log.info("client CA certificates in service", extra={"count": len(parse_bundle(usable))})
        self.clear_problem(CLIENTS)
        return changed

    def report_problem(self, problem: str, about: str = PAIR) -> None:
        """Report why a newer file cannot be used: once in the log, in metric and readiness until it is fixed."""
        if problem != self._problems.get(about):
            log.error("a certificate cannot be used; the old one is kept", extra={"about": about, "problem": problem})
        self._problems[about] = problem
        metrics.PROBLEM.set(1)

    def clear_problem(self, about: str = PAIR) -> None:
        """Note that the newest one is in service."""
        self._problems.pop(about, None)
        metrics.PROBLEM.set(1 if self._problems else 0)

    def _usable_authorities(self, pem: bytes) -> bytes:
        """Return the CA certificates that have not expired. Raises: BadCertificate when none remains."""
        alive = [each for each in parse_bundle(pem) if not is_expired(validity_of(each), self._now())]
        if not alive:
            raise BadCertificate("all client CA certificates have expired")
        return join(alive)

    @staticmethod
    def _make_context(clients: bytes | None, pair: Pair | None = None) -> ssl.SSLContext:
        """Return a context. Each has its own trusted CA certificates: verification uses the chosen context.

        Raises: BadCertificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        try:
            if clients is not None:
                context.load_verify_locations(cadata=clients.decode("ascii"))
                context.verify_mode = ssl.CERT_REQUIRED
            if pair is not None:
                with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
                    context.load_cert_chain(certificate, key)
        except (ssl.SSLError, OSError) as error:
            raise BadCertificate(f"refused by the TLS library: {error}") from error
        return context

    def _choose(self, handshake: ssl.SSLSocket | ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        handshake.context = self._current
        return None

    def _choose_open(self, handshake: ssl.SSLSocket | ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> int | None:
        if self._current_open is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        handshake.context = self._current_open
        return None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Provide a path to content without a disk: the root file system is read-only, and keys stay in memory."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
