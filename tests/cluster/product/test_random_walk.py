"""A random walk over the product on a live cluster: users, failures and restarts, then a check of the final state.

`AIM_TEST_LONG=1` walks further, from a new seed each time; `AIM_CLUSTER_WALK_STEPS` and `AIM_CLUSTER_WALK_SEED`
choose both (a walk repeats as far as a live cluster does).
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable

from api.view import JsonObject, terminating
from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import Team

LONG = os.environ.get("AIM_TEST_LONG") == "1"
STEPS = int(os.environ.get("AIM_CLUSTER_WALK_STEPS", "120" if LONG else "6"))
SEED = os.environ.get("AIM_CLUSTER_WALK_SEED") or (random.SystemRandom().randrange(10**6) if LONG else 17)
ADAPTERS = ("red", "green", "blue")
RANKS = (4, 8)
_ROLLS = ("PredictorChanged", "AdapterMaxRankChanged")


class Walker:
    """One team's service under random actions."""

    def __init__(self, team: Team, rng: random.Random) -> None:
        self.team, self.rng = team, rng
        self.adapters: list[str] = ["red"]
        self.spec: JsonObject = {}
        self.log: list[str] = []
        team.apply(*(team.adapter(name, team.put(name, rank=rng.choice(RANKS))) for name in ADAPTERS))
        self.apply()

    def apply(self) -> None:
        self.team.apply(self.team.service("svc", self.adapters, **self.spec))

    def _delete(self, kind: str, *selector: str) -> str:
        found = self.team.cluster.items(kind, self.team.namespace, *selector)
        if not found:
            return "-"
        name: str = self.rng.choice(found)["metadata"]["name"]
        argv = ("delete", kind, name, "-n", self.team.namespace, "--wait=false", "--ignore-not-found")
        self.team.cluster.kubectl(*argv)
        return name

    # -- the actions ------------------------------------------------------------------------------------------------

    def edit_list(self) -> str:
        self.adapters = self.rng.sample(ADAPTERS, self.rng.randint(0, len(ADAPTERS)))
        self.apply()
        return str(self.adapters)

    def edit_env(self) -> str:
        self.spec["env"] = [{"name": "X", "value": str(self.rng.randint(1, 3))}]
        self.apply()
        return str(self.spec["env"])

    def edit_rank(self) -> str:
        self.spec["adapterRuntime"] = {"maxRank": self.rng.choice((16, 32, 64))}
        self.apply()
        return str(self.spec["adapterRuntime"])

    def recreate_adapter(self) -> str:
        name = self.rng.choice(ADAPTERS)
        self.team.delete("aimartifact", name)
        self.team.apply(self.team.adapter(name, self.team.put(name, rank=self.rng.choice(RANKS))))
        return name

    def recreate_service(self) -> str:
        self.team.delete("aimservice", "svc")
        self.apply()
        return ""

    def lose_base(self) -> str:
        bases = [
            artifact["metadata"]["name"]
            for artifact in self.team.cluster.items("aimartifacts", self.team.namespace)
            if artifact["spec"].get("type") != "adapter"
        ]
        for name in bases:
            self.team.cluster.kubectl("delete", "aimartifact", name, "-n", self.team.namespace, "--wait=false")
        return str(bases)

    def lose_cache(self) -> str:
        kind = "aimprofilecache" if self.team.pipeline == "profile" else "aimtemplatecache"
        return self._delete(kind)

    def lose_job(self) -> str:
        return self._delete("job")

    def lose_server_pod(self) -> str:
        return self._delete("pod", "-l", "component=predictor")

    def lose_inference_service(self) -> str:
        return self._delete("inferenceservice")

    def lose_status(self) -> str:
        remove = json.dumps([{"op": "remove", "path": "/status"}])
        argv = (
            "patch",
            "aimsvc",
            "svc",
            "-n",
            self.team.namespace,
            "--subresource=status",
            "--type=json",
            "-p",
            remove,
        )
        self.team.cluster.kubectl(*argv, check=False)  # there may be none yet
        return ""

    def restart_us(self) -> str:
        pods = self.team.cluster.items("pods", "aim-system")
        name: str = self.rng.choice(pods)["metadata"]["name"]
        self.team.cluster.kubectl(
            "delete",
            "pod",
            name,
            "-n",
            "aim-system",
            "--wait=false",
            "--grace-period=0",
            "--force",
            "--ignore-not-found",
        )
        return name

    def step(self) -> None:
        acts: list[Callable[[], str]] = [
            *(self.edit_list,) * 4,
            self.edit_env,
            self.edit_rank,
            self.recreate_adapter,
            self.recreate_service,
            self.lose_base,
            self.lose_cache,
            *(self.lose_job,) * 2,
            self.lose_server_pod,
            self.lose_inference_service,
            *(self.lose_status,) * 2,
            self.restart_us,
        ]
        act = self.rng.choice(acts)
        self.log.append(f"{act.__name__} {act()}")
        time.sleep(self.rng.random() * 2)


def _settled(team: Team, walker: Walker) -> bool:
    status, found = team.status("svc"), team.get("aimservice", "svc")
    entries = {entry["name"]: entry.get("state") for entry in status.get("adapters") or []}
    return bool(
        entries == dict.fromkeys(walker.adapters, "Loaded")
        and status.get("status") == "Running"
        and status.get("observedGeneration") == found["metadata"]["generation"]
        and status.get("adapterDiskPersistentVolumeClaim")
        and set(walker.adapters) <= team.models("svc")
        and team.staged("svc") == set(walker.adapters)
    )


def _picture(team: Team) -> JsonObject:
    status = team.status("svc")
    return {
        "status": status["status"],
        "maxRank": status["adapterMaxRank"],
        "adapters": [
            {key: entry.get(key) for key in ("name", "state", "stageKey", "digest", "rank", "lastError")}
            for entry in status.get("adapters") or []
        ],
        "conditions": [{key: c[key] for key in ("type", "status", "reason")} for c in status["conditions"]],
        "pods": sorted(pod["metadata"]["uid"] for pod in team.pods("svc") if not terminating(pod)),
        "InferenceService": team.isvc("svc")["spec"],
    }


@on_both_pipelines
def test_after_any_walk_the_state_is_as_declared(team: Team) -> None:
    seed = int(SEED)
    walker = Walker(team, random.Random(seed))
    print(f"AIM_CLUSTER_WALK_SEED={seed}, {STEPS} steps")  # noqa: T201 - shown when it fails
    templates: dict[str, list[JsonObject]] = {}
    try:
        for _ in range(STEPS):
            walker.step()
            _note_template(team, templates)
        team.until("the state to be as declared", lambda: _settled(team, walker), timeout=240)
        _note_template(team, templates)
        rolls = sum(len(versions) - 1 for versions in templates.values())
        said = [event for event in team.cluster.items("events", team.namespace) if event["reason"] in _ROLLS]
        assert sum(event.get("count") or 1 for event in said) >= rolls, (rolls, said)
        before = team.until_at_rest(quiet=4)
        picture = _picture(team)
        walker.lose_status()
        team.until("the status to come back", lambda: team.status("svc") and _settled(team, walker), timeout=120)
        assert _picture(team) == picture
        assert before.keys() >= {f"AIMService/{name}" for name in ("svc",)}
    finally:
        print("\n".join(walker.log))  # noqa: T201 - shown when it fails


def _note_template(team: Team, templates: dict[str, list[JsonObject]]) -> None:
    """Record each pod template of an InferenceService, in order."""
    isvc = team.isvc("svc")
    if not isvc:
        return
    skipped = ("minReplicas", "maxReplicas", "deploymentStrategy")
    template = {key: value for key, value in isvc["spec"]["predictor"].items() if key not in skipped}
    versions = templates.setdefault(isvc["metadata"]["uid"], [])
    if not versions or versions[-1] != template:
        versions.append(template)
