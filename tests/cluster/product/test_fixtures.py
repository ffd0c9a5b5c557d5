"""Every adapter that the real library wrote, valid and invalid, declared on one running service."""

from __future__ import annotations

import csv

from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import FIXTURES, ON_DISK, Team

ROWS = list(csv.DictReader((FIXTURES / "INDEX.tsv").read_text().splitlines(), delimiter="\t"))


@on_both_pipelines
def test_each_fixture_has_the_result_in_its_index(team: Team) -> None:
    """The command that judges the files is the same for both pipelines: the second one gets every third fixture."""
    rows = ROWS if team.pipeline == "profile" else ROWS[::3]
    names = [row["name"] for row in rows]
    team.apply(*(team.adapter(name, team.put_fixture(name), rank=16, modelId=f"acme/{name}") for name in names))
    team.apply(team.service("svc", names, adapterRuntime={"maxRank": 512}))

    def settled() -> bool:
        states = {name: team.entry("svc", name).get("state") for name in names}
        return not set(states.values()) & {None, "Pending", "Downloading"}

    team.until("all adapters to end somewhere", settled, timeout=150)
    wrong = {}
    for row in rows:
        entry = team.entry("svc", row["name"])
        good = not row["expect"].startswith("reject")
        # a base of another family: reported by the preflight, refused or without effect, never served silently
        foreign = row["base"] != "acme/tiny-llama"
        ends_well = entry["state"] in ON_DISK or (entry["state"] == "LoadRejected" and "bias" in row["expect"])
        if not foreign and good != ends_well:
            wrong[row["name"]] = (row["expect"], entry)
        if entry["state"] == "Failed" and ":" not in entry["lastError"]:
            wrong[row["name"]] = ("a reason and a message", entry)
    assert not wrong
    bad = {row["name"] for row in rows if row["expect"].startswith("reject")}
    assert not bad & team.staged("svc")
