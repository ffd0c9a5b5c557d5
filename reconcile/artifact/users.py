"""Who is on which adapter disk, kept as services change: a look at all services of a disk would hold the loop.

No I/O and no clock.
"""

from __future__ import annotations

from api.view import Json, integer, items, namespace_of, text, uid_of


class DiskUsers:
    """By disk (namespace and UID of the claim): UIDs of the services whose subtree is there, with staging attempts."""

    def __init__(self) -> None:
        self._disks: dict[tuple[str, str], dict[str, int]] = {}

    def changed(self, old: Json | None, new: Json | None) -> None:
        """Take in that a service came, changed or went."""
        before, after = disk_use(old), disk_use(new)
        if before == after:
            return
        if before is not None:
            disk, uid, _ = before
            users = self._disks.get(disk, {})
            users.pop(uid, None)
            if not users:
                self._disks.pop(disk, None)
        if after is not None:
            disk, uid, attempts = after
            self._disks.setdefault(disk, {})[uid] = attempts

    def of(self, namespace: str, claim_uid: str) -> tuple[tuple[str, int], ...]:
        """Return (UID, attempts) of the services on a disk, sorted."""
        return tuple(sorted(self._disks.get((namespace, claim_uid), {}).items()))


def disk_use(service: Json | None) -> tuple[tuple[str, str], str, int] | None:
    """Return what a service has to do with a disk: which one, the service's UID, its staging attempts so far."""
    claim = text(service, "status", "adapterDiskPersistentVolumeClaimUid") if service is not None else None
    if service is None or claim is None:
        return None
    attempts = sum(integer(entry, "attempts") or 0 for entry in items(service, "status", "adapters"))
    return (namespace_of(service), claim), uid_of(service), attempts
