"""Teams for the product's tests: one on each pipeline, or one on the profile pipeline alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Cluster, new_namespaces
from tests.cluster.product.team import PIPELINES, Team


@pytest.fixture
def team(cluster: Cluster, namespace: str) -> Team:
    """A team on the profile pipeline."""
    return Team(cluster, namespace)


@pytest.fixture
def teams(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[dict[str, Team]]:
    """A team on each pipeline, by the pipeline's name; each has its own namespace."""
    with new_namespaces(cluster, *(f"{request.node.nodeid} {pipeline}" for pipeline in PIPELINES)) as names:
        made = {pipeline: Team(cluster, name, pipeline) for pipeline, name in zip(PIPELINES, names, strict=True)}
        made["template"].apply(*made["template"].model_and_template())
        yield made
