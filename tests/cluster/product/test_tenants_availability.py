"""Whatever one tenant stores or sends, the others notice nothing: their applies succeed, and their services are served.

Each test attacks the server of the session's cluster, looks at a neighbour meanwhile, and cleans up.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import ssl
import statistics
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from api.kinds import AIM_ARTIFACT, AIM_KINDS, AIM_PROFILE, AIM_RUNTIME_CONFIG, AIM_SERVICE, Kind
from api.view import JsonObject
from tests.cluster.conftest import Cluster, new_namespaces
from tests.cluster.product.team import Team
from tests.unit.tenants.objects import objects, storable

_CONFIGURATION = "validatingwebhookconfiguration"
_MUTATING = "mutatingwebhookconfiguration"
_LIMIT_SECONDS = 20  # for a status of a new service, on a machine that does other things, too
_FUZZ = "fuzz-of"  # a label


@dataclass
class Neighbour:
    """A tenant who only wants to be served, and the server that serves all."""

    team: Team

    @property
    def _health(self) -> str:
        return str(self.team.cluster.info["metrics"]).rsplit("/", 1)[0]

    def readiness(self) -> str:
        """What the server reports on /readyz."""
        try:
            with urllib.request.urlopen(f"{self._health}/readyz?verbose", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def restarts(self) -> dict[str, int]:
        """The container restarts of each replica, by the UID of its pod."""
        return {
            pod["metadata"]["uid"]: sum(status["restartCount"] for status in pod["status"]["containerStatuses"])
            for pod in self.team.cluster.items("pods", "aim-system")
        }

    def applies(self, count: int = 10) -> list[float]:
        """Apply a service as a dry run; return the seconds of each, and fail if one is refused."""
        taken = []
        for number in range(count):
            began = time.monotonic()
            self.team.cluster.apply(self.team.service(f"dry-{number}"), args=("--dry-run=server",))
            taken.append(time.monotonic() - began)
        return taken

    def is_served(self, name: str) -> None:
        """Create a service and wait for its first status; the server is ready and did not restart."""
        self.team.apply(self.team.service(name))
        self.team.until(f"{name} to have a status", lambda: self.team.status(name), _LIMIT_SECONDS)
        assert self.readiness().endswith("\nready\n")
        self.team.delete("aimservice", name)


@pytest.fixture(scope="module")
def tenants(cluster: Cluster) -> Iterator[tuple[Team, Neighbour]]:
    """The attacker's team, and the neighbour."""
    with new_namespaces(cluster, "attacks", "suffers") as (attacks, suffers):
        yield Team(cluster, attacks), Neighbour(Team(cluster, suffers))


@pytest.fixture
def attacker(tenants: tuple[Team, Neighbour]) -> Iterator[Team]:
    """The attacker's team; the neighbour is served before and after each attack by the same processes."""
    team, neighbour = tenants
    restarts, before = neighbour.restarts(), statistics.median(neighbour.applies(5))
    yield team
    after = neighbour.applies()
    neighbour.is_served("afterwards")
    assert neighbour.restarts() == restarts
    print(f"\napply: {before * 1000:.0f} ms before, {max(after) * 1000:.0f} ms at most afterwards")  # noqa: T201


@pytest.fixture
def neighbour(tenants: tuple[Team, Neighbour]) -> Neighbour:
    return tenants[1]


@contextlib.contextmanager
def without_webhooks(cluster: Cluster) -> Iterator[None]:
    """Take the webhook configurations away for a moment, as an administrator's mistake would."""
    stored = []
    for kind in (_CONFIGURATION, _MUTATING):
        for configuration in json.loads(cluster.kubectl("get", kind, "-o", "json").stdout)["items"]:
            if any("aim.eai.amd.com" in hook["name"] for hook in configuration["webhooks"]):
                stored.append(configuration)
                cluster.kubectl("delete", kind, configuration["metadata"]["name"])
    try:
        yield
    finally:
        for configuration in stored:
            kept = {name: configuration["metadata"][name] for name in ("name", "labels", "annotations")}
            cluster.apply({**configuration, "metadata": {key: kept[key] for key in kept if kept[key]}})
        cluster.wait(lambda: _reviewed(cluster), 30, "objects to be reviewed again")


def _reviewed(cluster: Cluster) -> bool:
    spec = {"profile": {"name": "p"}, "adapterMode": "static", "adapterRuntime": {"maxRank": 16}}
    wrong = {"apiVersion": AIM_SERVICE.api_version, "kind": "AIMService", "metadata": {"name": "x"}, "spec": spec}
    return "dry run" not in cluster.apply(wrong, check=False, args=("--dry-run=server",))


def create(team: Team, text: str) -> str:
    """Create an object from a text that no JSON library here takes; return what kubectl says."""
    done = team.cluster.kubectl("create", "-n", team.namespace, "-f", "-", input=text, check=False)
    return done.stdout + done.stderr


def nested(kind: Kind, name: str, depth: int) -> str:
    """Return an object with engine arguments that are nested deeply, as JSON."""
    deep = '{"a":' * depth + "1" + "}" * depth
    args = f'"engineArgs":{deep}'
    body = f'"profile":{{"name":"tiny-mi300x"}},"replicas":0,"profileOverrides":{{{args}}}'
    spec = body if kind == AIM_SERVICE else f'"aimId":"acme/tiny-llama","image":"x/y:1",{args}'
    return (
        f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}","metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}'
    )


def test_nested_objects_that_were_stored_without_a_review(attacker: Team, neighbour: Neighbour) -> None:
    cluster = attacker.cluster
    with without_webhooks(cluster):
        for depth in (260, 1_100, 5_000):
            for kind in (AIM_SERVICE, AIM_PROFILE):
                said = create(attacker, nested(kind, f"deep-{depth}", depth))
                assert "created" in said, said
        neighbour.is_served("beside")
    for depth in (260, 1_100, 5_000):
        found = attacker.until(
            "the service to report itself",
            lambda depth=depth: (
                attacker.cluster.kubectl(  # type: ignore[misc]
                    "get",
                    "aimservice",
                    f"deep-{depth}",
                    "-n",
                    attacker.namespace,
                    "-o",
                    'jsonpath={.status.conditions[?(@.type=="ConfigValid")].reason}',
                ).stdout
            ),
            _LIMIT_SECONDS,
        )
        assert found in ("TooLarge", "Unreadable")
    assert f"{attacker.namespace}/deep-1100" in neighbour.readiness()
    cluster.kubectl("delete", "aimservices,aimprofiles", "--all", "-n", attacker.namespace)
    cluster.wait(lambda: attacker.namespace not in neighbour.readiness(), 20, "nothing to be left out any more")


def test_a_nested_object_is_refused_with_one_error(attacker: Team) -> None:
    said = create(attacker, nested(AIM_SERVICE, "deep", 260))
    assert "more than 32 levels of lists and objects, at most 32 are allowed" in said
    assert said.count("Invalid value") == 1


WIDE: dict[str, tuple[Kind, JsonObject]] = {
    "label patterns": (
        AIM_RUNTIME_CONFIG,
        {"labelPropagation": {"enabled": True, "match": [f"*a{number}*b*" for number in range(34_000)]}},
    ),
    "adapters": (
        AIM_SERVICE,
        {"profile": {"name": "p"}, "adapters": [{"name": f"a-{number}"} for number in range(20_000)]},
    ),
    "variables that chain": (
        AIM_SERVICE,
        {
            "profile": {"name": "p"},
            "env": [{"name": f"V{number}", "value": f"$(V{number + 1})"} for number in range(1_500)],
        },
    ),
    "a long address": (AIM_ARTIFACT, {"type": "model", "modelId": "a/b", "sourceUri": "hf://a/" + "b" * 1_300_000}),
    "a large profile": (
        AIM_PROFILE,
        {"aimId": "a/b", "image": "x/y:1", "engineArgs": {"x": [{} for _ in range(490_000)]}},
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_a_wide_object_is_refused_quickly(attacker: Team, neighbour: Neighbour, name: str) -> None:
    """By the schema at apply, and by the webhook where its port is called directly."""
    kind, spec = WIDE[name]
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "wide"}, "spec": spec}
    said = create(attacker, json.dumps(obj))
    assert "created" not in said
    obj["metadata"] = {"name": "wide", "namespace": attacker.namespace}
    began = time.monotonic()
    answer = posted(attacker.cluster, kind, obj)
    assert time.monotonic() - began < 3
    assert answer["response"]["allowed"] is False
    assert len(json.dumps(answer)) < 10_000, "what is echoed is cut"
    causes = answer["response"]["status"]["details"]["causes"]
    assert len(causes) == 1, "nothing else is judged"
    assert "at most" in causes[0]["message"]
    neighbour.applies(3)


def posted(cluster: Cluster, kind: Kind, obj: JsonObject) -> dict[str, Any]:
    """Send a review straight to the webhook port, as any pod can."""
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "namespace": obj["metadata"]["namespace"],
            "name": obj["metadata"]["name"],
            "object": obj,
        },
    }
    request = urllib.request.Request(
        f"{cluster.info['admission']['url']}/validate",
        data=json.dumps(review).encode(),
        headers={"Content-Type": "application/json"},
    )
    trust = ssl.create_default_context(cafile=cluster.info["admission"]["caFile"])
    trust.check_hostname = False
    with urllib.request.urlopen(request, timeout=20, context=trust) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@contextlib.contextmanager
def held(url: str, count: int, first: bytes = b"") -> Iterator[None]:
    """Hold connections open that send these bytes and nothing more."""
    parts = urlsplit(url)
    address = (parts.hostname, parts.port or 443)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8_192, limits[1]), limits[1]))
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(address, timeout=5))
            with contextlib.suppress(OSError):
                opened[-1].sendall(first)
        yield
    finally:
        for sock in opened:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("first", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /hea"])
def test_idle_connections_to_the_health_port(attacker: Team, neighbour: Neighbour, first: bytes) -> None:
    with held(str(attacker.cluster.info["metrics"]), 300, first):
        for _ in range(10):
            began = time.monotonic()
            assert neighbour.readiness().endswith("\nready\n")
            assert time.monotonic() - began < 5
        neighbour.applies(3)


def test_connections_to_the_admission_port_without_a_handshake(attacker: Team, neighbour: Neighbour) -> None:
    with held(str(attacker.cluster.info["admission"]["url"]), 3_000):
        neighbour.applies()
        neighbour.is_served("beside")


def test_random_objects_that_were_stored_without_a_review(attacker: Team, neighbour: Neighbour) -> None:
    """Of every kind. AIM_FUZZ_LIVE: how many; the API server refuses what its schemas exclude."""
    count = int(os.environ.get("AIM_FUZZ_LIVE", "60"))
    rng, stored = Random(7), Counter[str]()
    try:
        with without_webhooks(attacker.cluster):
            for number in range(count):
                kind = AIM_KINDS[number % len(AIM_KINDS)]
                obj = (storable if rng.random() < 0.8 else objects)(kind, rng)
                obj["metadata"] = {"name": f"{attacker.namespace}-{number}", "labels": {_FUZZ: attacker.namespace}}
                obj.pop("status", None)
                if "created" in create(attacker, json.dumps(obj)):
                    stored[kind.kind] += 1
                if number % 50 == 49:
                    neighbour.is_served(f"beside-{number}")
        assert stored.total() > count / 3, stored
        assert len(stored) == len(AIM_KINDS), stored
        print(f"\nstored {stored.total()} of {count}: {dict(stored)}")  # noqa: T201
        neighbour.is_served("beside")
    finally:
        selector = ("-l", f"{_FUZZ}={attacker.namespace}", "--wait=false")
        for kind in AIM_KINDS:
            attacker.cluster.kubectl("delete", kind.plural, "-n", attacker.namespace, *selector, timeout=120)
