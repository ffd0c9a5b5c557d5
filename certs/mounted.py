"""A pair that someone else puts into a folder (cert-manager, or by hand): watched, checked, taken into service."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from certs.pem import BadCertificate, Pair
from certs.serve import ServingCertificate

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
        words = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
        self._serving.report_problem(f"{self._certificate.parent}: {words}")

    def _signature(self) -> _Signature:
        """What changes when the files do: where the links lead, inode, size and time of change."""
        return tuple(self._signature_of(path) for path in (self._certificate, self._key))

    @staticmethod
    def _signature_of(path: Path) -> tuple[str, int, int, int]:
        found = path.stat()
        return os.path.realpath(path), found.st_ino, found.st_size, found.st_mtime_ns
