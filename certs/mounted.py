"""What someone else puts into files (cert-manager, or by hand): watched, checked, taken into service.

The serving pair, and the authorities whose clients may call.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from certs.pem import BadCertificate, Pair
from certs.serve import CLIENTS, ServingCertificate

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # a look is four calls of stat; file notification does not see all kinds of volumes
PATIENCE = 3  # looks for which a pair may be half-written before it is called broken

_Signature = tuple[tuple[str, int, int, int], ...]


class MountedCertificate:
    """Follows `tls.crt` and `tls.key` in a folder.

    Args: `folder` as a Secret volume shows it (files are links that are swapped together), or plain files.
    """

    def __init__(
        self,
        folder: Path,
        serving: ServingCertificate,
        *,
        certificate_file: str = "tls.crt",
        key_file: str = "tls.key",
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._certificate, self._key = folder / certificate_file, folder / key_file
        self._serving = serving
        self._poll_seconds = poll_seconds
        self._seen: _Signature | None = None
        self._broken_looks = 0

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._poll_seconds)

    def look(self) -> None:
        """Take the pair into service when the files have changed; a broken one is reported, the old one kept."""
        try:
            before = self._signature()
            if before == self._seen:
                return
            pair = Pair(self._certificate.read_bytes(), self._key.read_bytes())
            if self._signature() != before:  # swapped while we read: the next look gets both of one kind
                return
            self._serving.replace(pair)
        except (OSError, BadCertificate) as error:
            self._complain(error)
        else:
            self._seen = before
            self._broken_looks = 0

    def _complain(self, error: OSError | BadCertificate) -> None:
        """Report a pair that stays broken; two files written one after the other are broken for a moment only."""
        self._broken_looks += 1
        if self._broken_looks < PATIENCE and self._serving.life is not None:
            return
        self._serving.report_problem(_words(self._certificate.parent, error))

    def _signature(self) -> _Signature:
        return _signature_of(self._certificate, self._key)


class MountedAuthorities:
    """Follows a file of client authorities.

    Args: `path` PEM, as a ConfigMap or Secret volume shows it, or a plain file.
    """

    def __init__(self, path: Path, serving: ServingCertificate, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._path, self._serving, self._poll_seconds = path, serving, poll_seconds
        self._seen: _Signature | None = None
        self._broken_looks = 0

    async def run(self) -> None:
        """Look at the file until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._poll_seconds)

    def look(self) -> None:
        """Ask clients for the authorities in the file when it has changed; a broken one is reported, the old kept."""
        try:
            before = _signature_of(self._path)
            if before == self._seen:
                return
            self._serving.replace_client_authorities(self._path.read_bytes())
        except (OSError, BadCertificate) as error:
            self._broken_looks += 1
            if self._broken_looks >= PATIENCE:
                self._serving.report_problem(_words(self._path, error), CLIENTS)
        else:
            self._seen = before
            self._broken_looks = 0


def _signature_of(*paths: Path) -> _Signature:
    """Return what changes when files do: where the links lead, inode, size and time of change. Raises: OSError."""
    found = [(path, path.stat()) for path in paths]
    return tuple((os.path.realpath(path), stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found)


def _words(place: Path, error: OSError | BadCertificate) -> str:
    words = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
    return f"{place}: {words}"
