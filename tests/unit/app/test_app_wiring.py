"""What is wired to what: the metrics of the reconciler get what they need."""

from __future__ import annotations

from typing import Any, cast

from prometheus_client import REGISTRY

from api.kinds import AIM_SERVICE
from api.reasons import JOB_REASONS
from app.settings import Settings
from app.wiring import Parts, wire
from reconcile.meters import OUTCOMES
from reconcile.service.controller import ServiceController


def test_outcomes_of_jobs_have_the_reasons_of_the_disk_commands() -> None:
    nobody = cast("Any", None)
    wiring = wire(Parts(Settings(admission=False), nobody, nobody, nobody, lambda _, __: None))
    controller = next(each for each in wiring.controllers if isinstance(each, ServiceController))
    assert controller._tools.shell._meter is not None
    assert JOB_REASONS < OUTCOMES

    (services,) = (informer for informer in wiring.informers if informer.kind == AIM_SERVICE)
    metadata = {"namespace": "a", "name": "chat", "uid": "u", "resourceVersion": "1"}
    services.store({"metadata": metadata, "status": {"adapters": [{"name": "one", "state": "Loaded"}]}})
    assert REGISTRY.get_sample_value("aim_adapters_adapters", {"state": "Loaded"}) == 1
