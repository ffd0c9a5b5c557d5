"""What every pod of the node shares: clients, places, addresses, and how patient the node is."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.by_path import Kube
from devcluster.node.events import Events
from devcluster.node.images import ImageTable
from devcluster.node.objects import ObjectStore
from devcluster.node.process import Isolation

_SKIP_FIRST = 10  # addresses at the range's beginning that stay free for people


class Addresses:
    """Hands out addresses of the pod range, each to one pod at a time, and none again soon."""

    def __init__(self, network: str) -> None:
        self._network = ipaddress.ip_network(network)
        self._used: set[str] = set()
        self._next = _SKIP_FIRST

    def take(self, wanted: str = "") -> str:
        """Return a free address, the wanted one if it is free. Raises: RuntimeError when none is left."""
        if wanted and wanted not in self._used and self.holds(wanted):
            self._used.add(wanted)
            return wanted
        size = self._network.num_addresses
        for _ in range(size):
            address = str(self._network[self._next])
            self._next = self._next + 1 if self._next + 2 < size else _SKIP_FIRST
            if address not in self._used:
                self._used.add(address)
                return address
        raise RuntimeError(f"no pod address is left in {self._network}")

    def give_back(self, address: str) -> None:
        """Free an address."""
        self._used.discard(address)

    def holds(self, address: str) -> bool:
        """Return whether the address belongs to the range."""
        try:
            return ipaddress.ip_address(address) in self._network
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the node waits before it tries again (a kubelet in a crash loop: 10 s doubling to 5 min)."""

    crash_first_s: float = 1.0
    crash_max_s: float = 30.0
    crash_reset_s: float = 60.0  # a container that ran this long starts over with the first pause
    retry_first_s: float = 0.2  # volumes, configuration, images
    retry_max_s: float = 2.0
    stop_s: float = 3.0  # grace of every pod when the node itself stops


@dataclass(frozen=True, slots=True)
class Host:
    """The node as its pods see it."""

    kube: Kube
    store: ObjectStore
    events: Events
    images: ImageTable
    isolation: Isolation
    addresses: Addresses
    folder: Path
    claims: Path
    node_name: str
    api_host: str
    api_port: str
    host_ip: str = "127.0.0.1"
    allocatable: Mapping[str, str] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)

    def pod_folder(self, uid: str) -> Path:
        """Return the directory of a pod's own files."""
        return self.folder / "pods" / uid

    def log_folder(self, namespace: str, name: str) -> Path:
        """Return the directory of a pod's logs."""
        return self.folder / "logs" / "pods" / f"{namespace}_{name}"
