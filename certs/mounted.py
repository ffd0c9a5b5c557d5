"""Certificates in files that cert-manager or an administrator writes: watched, checked, put into service.

These are the serving pair, and the CA certificates that client certificates are checked against.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from pathlib import Path

from certs.pem import BadCertificate, Pair
from certs.serve import CLIENTS, PAIR, ServingCertificate

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # a check is four calls of stat; file notification does not work on all kinds of volumes
PATIENCE = 3  # checks for which a pair may be half-written before it is reported as broken

_Signature = tuple[tuple[str, int, int, int], ...]


class _MountedFiles(ABC):
    """Files that are checked for changes, and then used. Files that stay broken are reported, and the old ones kept.

    Args: `paths` of all files that belong together, `place` for messages, `about`: what is reported as broken.
    """

    def __init__(
        self, paths: tuple[Path, ...], place: Path, serving: ServingCertificate, about: str, poll_seconds: float
    ) -> None:
        self._paths, self._place, self._serving, self._about = paths, place, serving, about
        self._poll_seconds = poll_seconds
        self._seen: _Signature | None = None
        self._broken_looks = 0

    async def run(self) -> None:
        """Check the files until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._poll_seconds)

    def look(self) -> None:
        """Use the files when they have changed; broken ones are reported, and the old ones kept."""
        try:
            before = self._signature()
            if before == self._seen or not self._take(before):
                return
        except (OSError, BadCertificate) as error:
            self._broken_looks += 1  # files that are written one after the other are broken only for a moment
            if self._broken_looks >= PATIENCE or not self._has_old():
                self._serving.report_problem(_words(self._place, error), self._about)
        else:
            self._seen = before
            self._broken_looks = 0

    @abstractmethod
    def _take(self, signature: _Signature) -> bool:
        """Read the files and use them; False: they changed meanwhile. Raises: OSError, BadCertificate."""

    def _has_old(self) -> bool:
        """Return whether an older version can be used while the files are broken."""
        return True

    def _signature(self) -> _Signature:
        return _signature_of(*self._paths)


class MountedCertificate(_MountedFiles):
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
        certificate = folder / certificate_file
        super().__init__((certificate, folder / key_file), certificate.parent, serving, PAIR, poll_seconds)

    def _take(self, signature: _Signature) -> bool:
        certificate, key = self._paths
        pair = Pair(certificate.read_bytes(), key.read_bytes())
        if self._signature() != signature:  # swapped during the read: the next check reads a matching pair
            return False
        self._serving.replace(pair)
        return True

    def _has_old(self) -> bool:
        return self._serving.life is not None


class MountedAuthorities(_MountedFiles):
    """Follows a file of client CA certificates.

    Args: `path` PEM, as a ConfigMap or Secret volume shows it, or a plain file.
    """

    def __init__(self, path: Path, serving: ServingCertificate, *, poll_seconds: float = POLL_SECONDS) -> None:
        super().__init__((path,), path, serving, CLIENTS, poll_seconds)

    def _take(self, signature: _Signature) -> bool:
        self._serving.replace_client_authorities(self._paths[0].read_bytes())
        return True


def _signature_of(*paths: Path) -> _Signature:
    """Return values that change when files do: link targets, inode, size and time of change. Raises: OSError."""
    found = [(path, path.stat()) for path in paths]
    return tuple((os.path.realpath(path), stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found)


def _words(place: Path, error: OSError | BadCertificate) -> str:
    words = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
    return f"{place}: {words}"
