"""Teams for the product's tests: over both pipelines, or over the profile pipeline alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Cluster, new_namespace
from tests.cluster.product.team import Team


@pytest.fixture
def team(cluster: Cluster, namespace: str) -> Team:
    """A team on the profile pipeline."""
    return Team(cluster, namespace)


@pytest.fixture
def template_team(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Team]:
    """A team on the template pipeline, in a namespace of its own."""
    with new_namespace(cluster, f"{request.node.nodeid} template") as name:
        team = Team(cluster, name, "template")
        team.apply(*team.model_and_template())
        yield team


@pytest.fixture(params=["profile", "template"])
def any_team(cluster: Cluster, namespace: str, request: pytest.FixtureRequest) -> Team:
    """The same team on each pipeline in turn."""
    team = Team(cluster, namespace, request.param)
    if team.pipeline == "template":
        team.apply(*team.model_and_template())
    return team
