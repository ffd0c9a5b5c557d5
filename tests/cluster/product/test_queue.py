"""Downloads of a namespace wait for their turn, and other namespaces do not notice."""

from __future__ import annotations

import time

from api.names import LABEL_ROLE, ROLE_FETCH, ROLE_STAGING
from reconcile.jobs import holds_place
from reconcile.settings import ReconcileSettings
from tests.cluster.conftest import Cluster, new_namespaces
from tests.cluster.product.team import Team

_LIMIT = ReconcileSettings().jobs_per_namespace
_SERVICES = ("a", "b")
_ADAPTERS = 7


def _running(team: Team) -> int:
    roles = f"{LABEL_ROLE} in ({ROLE_STAGING},{ROLE_FETCH})"
    return sum(map(holds_place, team.cluster.items("jobs", team.namespace, "-l", roles)))


def test_no_more_than_the_limit_run_at_once_and_all_arrive(cluster: Cluster) -> None:
    with new_namespaces(cluster, "queue", "neighbour") as namespaces:
        team, neighbour = (Team(cluster, name) for name in namespaces)
        names = {service: [f"{service}{number}" for number in range(_ADAPTERS)] for service in _SERVICES}
        adapters = [team.adapter(name, team.put(name)) for listed in names.values() for name in listed]
        team.apply(*adapters, *(team.service(service, listed) for service, listed in names.items()))
        neighbour.apply(neighbour.adapter("n", neighbour.put("n")), neighbour.service("n", ["n"]))
        most, queued, deadline = 0, set(), time.monotonic() + 120
        while time.monotonic() < deadline:
            most = max(most, _running(team))
            entries = [entry for service in _SERVICES for entry in team.status(service).get("adapters") or []]
            queued |= {entry["name"] for entry in entries if (entry.get("lastError") or "").startswith("Queued")}
            if len(entries) == len(adapters) and all(entry["state"] in ("Downloaded", "Loaded") for entry in entries):
                break
            time.sleep(0.1)
        assert most == _LIMIT, "the limit was reached, and never exceeded"
        assert queued, "the status says why an adapter waits"
        neighbour.until_loaded("n", "n")
        for service, listed in names.items():
            team.until_loaded(service, *listed)
        assert not _running(team)
