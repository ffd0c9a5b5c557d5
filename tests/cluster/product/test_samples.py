"""The sample of the template pipeline in the repository; `make demo` serves the other sample."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.product.team import Team

SAMPLE = Path(__file__).parents[3] / "config" / "samples" / "aim_v1alpha1_lora_adapters.yaml"


def test_the_v1alpha1_example_is_served(team: Team) -> None:
    said = team.cluster.kubectl("apply", "-n", team.namespace, "-f", str(SAMPLE))
    assert "aimservice.aim.eai.amd.com/gemma-cs created" in said.stdout
    assert "deprecated" in said.stderr
    team.until_loaded("gemma-cs", "cs-tone-v3")
    team.until_running("gemma-cs")
    status = team.status("gemma-cs")
    assert status["adapterSummary"] == "1/1"
    assert status["resolvedTemplate"]["name"] == "gemma-3-27b-it-mi300x"
    assert "templateCacheRef" in status["cache"]
