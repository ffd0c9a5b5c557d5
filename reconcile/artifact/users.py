"""Who is on which adapter disk, kept as services change: a look at all services of a disk would hold the loop.

No I/O and no clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from api import view
from api.view import Json

User = tuple[str, int]
"""A service's UID and its staging attempts so far."""


@dataclass(slots=True)
class _Disk:
    users: dict[str, User] = field(default_factory=dict)  # by UID
    uids: list[str] = field(default_factory=list)  # sorted


class DiskUsers:
    """By disk (namespace and UID of the claim) the services whose subtree is there."""

    def __init__(self) -> None:
        self._disks: dict[tuple[str, str], _Disk] = {}

    def changed(self, old: Json | None, new: Json | None) -> None:
        """Take in that a service came, changed or went."""
        before, after = disk_use(old), disk_use(new)
        if before == after:
            return
        if before is not None and (after is None or before[:2] != after[:2]):
            self._went(*before[:2])
        if after is not None:
            self._came(*after)

    def _went(self, where: tuple[str, str], uid: str) -> None:
        disk = self._disks.get(where)
        if disk is None or disk.users.pop(uid, None) is None:
            return
        del disk.uids[bisect_left(disk.uids, uid)]
        if not disk.uids:
            del self._disks[where]

    def _came(self, where: tuple[str, str], uid: str, attempts: int) -> None:
        disk = self._disks.setdefault(where, _Disk())
        if uid not in disk.users:
            insort(disk.uids, uid)
        disk.users[uid] = (uid, attempts)

    def of(self, namespace: str, claim_uid: str) -> tuple[User, ...]:
        """Return the services on a disk, sorted."""
        disk = self._disks.get((namespace, claim_uid))
        return tuple(map(disk.users.__getitem__, disk.uids)) if disk is not None else ()


def disk_use(service: Json | None) -> tuple[tuple[str, str], str, int] | None:
    """Return what a service has to do with a disk: which one, the service's UID, its staging attempts so far."""
    claim = view.text(service, "status", "adapterDiskPersistentVolumeClaimUid") if service is not None else None
    if service is None or claim is None:
        return None
    attempts = sum(view.integer(entry, "attempts") or 0 for entry in view.items(service, "status", "adapters"))
    return (view.namespace_of(service), claim), view.uid_of(service), attempts
