"""Teams for the product's tests: over both pipelines, or over the profile pipeline alone."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.product.team import Team


@pytest.fixture
def team(cluster: Cluster, namespace: str) -> Team:
    """A team on the profile pipeline."""
    return Team(cluster, namespace)


@pytest.fixture(params=["profile", "template"])
def any_team(cluster: Cluster, namespace: str, request: pytest.FixtureRequest) -> Team:
    """The same team on each pipeline in turn."""
    team = Team(cluster, namespace, request.param)
    if team.pipeline == "template":
        team.apply(*team.model_and_template())
    return team
