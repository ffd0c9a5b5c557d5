"""Follows the how-to pages about sources, adoption, rescue and GitOps, as one story in one namespace.

The default run fetches from an S3 service and from a private hub and bucket, with only the pages' credentials. The long
run continues with the rescue of a failed adapter, adoption, and the health rules for GitOps tools.

Some blocks are not run here, because they remove the webhooks for all users of the cluster, or need KServe's own
webhooks, Argo CD or Flux. `ELSEWHERE` names the tests that cover them. The rules of the GitOps page are evaluated over
live objects. Its ConfigMap is sent as a dry run. Flux's Kustomization is only read, because its kind is not installed.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.view import JsonObject
from devcluster.pki import Authority
from devcluster.sample_adapters import SampleAdapter, write_adapter
from devcluster.sources.s3 import running_s3
from tests.cluster.conftest import Cluster
from tests.cluster.docs.reader import Reader
from tests.cluster.product.team import TINY, Team
from tests.unit.docs.health import manifest, run_cel, run_lua
from tests.unit.docs.pages import DOCS, ROOT, SHELL, Block, blocks

LONG = bool(os.environ.get("AIM_TEST_LONG"))
PAGES = ("private-sources.md", "own-s3.md", "rescue.md", "adopt.md", "gitops.md")
OWN_KEY, OWN_SECRET = "KEYOFOURS", "the-secret-of-our-own-service"
ELSEWHERE = {
    # the first words of a block → the test that covers it
    "kubectl delete validatingwebhookconfiguration,mutating": "tests/chart/test_chart_release.py, the same line",
    "helm upgrade aim-adapters chart/": "tests/chart/test_chart_release.py: upgrades of a release",
    "helm install aim-adapters chart/": "tests/chart/test_chart_ports.py: admission alone",
    "kubectl delete validatingwebhookconfiguration inference": "KServe's own webhooks, which are not here",
}


def steps(page: str, *titles: str) -> list[Block]:
    """Return the commands of a page that run here, and all its files; with `titles`, only those files."""
    found = [block for block in blocks(DOCS / "how-to" / page) if block.title or block.language in SHELL]
    if titles:
        return [block for block in found if block.title in titles]
    return [block for block in found if not block.text.startswith(tuple(ELSEWHERE))]


@dataclasses.dataclass
class Desk:
    """The reader, and the team whose namespace it works in."""

    reader: Reader
    team: Team
    done: set[str] = dataclasses.field(default_factory=set)  # places of the blocks that were run

    def write(self, page: str, *titles: str) -> None:
        """Write files of a page, and apply them."""
        self.reader.follow(steps(page, *titles))
        for title in titles:
            self.team.cluster.kubectl("apply", "-n", self.team.namespace, "-f", str(self.reader.folder / title))

    def run(self, page: str, words: str, *, fails: bool = False) -> str:
        """Run the first block of a page that has these words."""
        block = next(block for block in steps(page) if block.language in SHELL and words in block.text)
        self.done.add(block.where)
        return self.reader.run(dataclasses.replace(block, mark="run fails" if fails else "run"))

    def left(self, *pages: str) -> set[str]:
        """Return the blocks of pages that were not run."""
        every = {block.where for page in pages for block in steps(page) if block.language in SHELL}
        return every - self.done

    def secret(self, name: str, **values: str) -> None:
        """Replace a Secret by one with these values; without values, delete it."""
        self.team.cluster.kubectl("delete", "secret", name, "-n", self.team.namespace, "--ignore-not-found")
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        metadata = {"name": name, "namespace": self.team.namespace}
        if values:
            self.team.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


@pytest.fixture
def own_s3(tmp_path: Path) -> Iterator[JsonObject]:
    """An S3 service with a private CA and one adapter."""
    authority = Authority.ensure(tmp_path / "authority")
    pair = authority.issue("s3", "s3", hosts=("127.0.0.1",), now=datetime.now(UTC))
    files = {"tls_cert": str(pair.certificate), "tls_key": str(pair.key)}
    write_adapter(tmp_path / "own-s3", SampleAdapter("adapters/legal", TINY, 8))
    with running_s3(tmp_path / "own-s3", access_key=OWN_KEY, secret_key=OWN_SECRET, **files) as server:
        yield {"endpoint": server.endpoint, "ca": authority.pair.certificate}


@pytest.fixture
def desk(cluster: Cluster, namespace: str, tmp_path: Path, own_s3: JsonObject) -> Desk:
    """A reader with real hosts instead of the examples in the pages."""
    reader, hub, s3 = Reader.at(cluster, namespace, tmp_path), cluster.info["hub"], cluster.info["s3"]
    reader.known = {
        "https://hub.example.com": hub["endpoint"],
        "https://minio.storage.svc:9000": own_s3["endpoint"],
        "value: eu-central-1": "value: us-east-1",  # the region of the stand-in
        "region: eu-central-1": f"region: us-east-1\n      endpoint: {s3['endpoint']}",  # in the typed block
        "aimsvc,aimart -A": "aimsvc,aimart",  # objects of other tests are invalid on purpose
    }
    (reader.folder / "ca.crt").write_text(own_s3["ca"].read_text())
    return Desk(reader, Team(cluster, namespace))


def test_sources_and_rescue(desk: Desk, own_s3: JsonObject) -> None:
    """Your own S3 service, then a private hub and bucket; in the long run the other pages."""
    team = desk.team
    use_an_own_s3(desk, own_s3)
    fetch_from_private_sources(desk)
    assert len([one for one in artifacts(team) if one["spec"].get("type", "model") == "model"]) == 1, "the page's base"
    assert not desk.left("own-s3.md", "private-sources.md")
    if LONG:
        rescue(desk)
        adopt(desk)
        health(desk)
        restart(desk)
        assert not desk.left(*PAGES)


def artifacts(team: Team) -> list[JsonObject]:
    """Return all artifacts of the namespace."""
    return team.cluster.items("aimartifacts", team.namespace)


def use_an_own_s3(desk: Desk, own_s3: JsonObject) -> None:
    """The page own-s3.md, from its Secret to a loaded adapter."""
    desk.secret("aim-dev-s3", accessKeyId="WRONG", secretAccessKey="wrong")  # only the keys of the pages are valid
    desk.reader.env |= {
        "AWS_ACCESS_KEY_ID": OWN_KEY,
        "AWS_SECRET_ACCESS_KEY": OWN_SECRET,
        "AWS_ENDPOINT_URL": own_s3["endpoint"],
        "AWS_CA_BUNDLE": str(own_s3["ca"]),
    }
    desk.run("own-s3.md", "create secret")
    desk.write("own-s3.md", "own-s3.yaml", "adapter.yaml")
    desk.write("adopt.md", "base.yaml")
    desk.team.apply(desk.team.service("chat", ["legal"]))
    assert "acme/tiny-llama" in desk.run("own-s3.md", "inspect")
    desk.team.until_loaded("chat", "legal")


def fetch_from_private_sources(desk: Desk) -> None:
    """The page private-sources.md: hub by token, S3 by environment and by block; other credentials do not work."""
    team, hub, s3 = desk.team, desk.team.cluster.info["hub"], desk.team.cluster.info["s3"]
    desk.secret("aim-dev-hub")
    desk.secret("s3-keys")
    desk.reader.env |= {
        "HF_TOKEN": hub["token"],
        "AWS_ACCESS_KEY_ID": s3["accessKey"],
        "AWS_SECRET_ACCESS_KEY": s3["secretKey"],
    }
    desk.run("private-sources.md", "hub-token")
    desk.run("private-sources.md", "s3-keys")
    desk.write("private-sources.md", "hub.yaml", "s3-env.yaml", "s3-typed.yaml", "hub-ca.yaml", "partner.yaml")
    private = team.put("private-tone")
    (Path(hub["root"]) / team.namespace / "private-tone/.hub.json").write_text('{"private": true}')
    write_adapter(Path(s3["root"]), SampleAdapter("partner-bucket/tone", TINY, 8))
    by_env = team.adapter("env-tone", team.put("env-tone", where="s3"), runtimeConfigName="with-env")
    names = ["private-tone", "env-tone", "partner-tone"]
    team.apply(team.adapter("private-tone", private), by_env, team.adapter("support-de"))  # this one has no source
    team.apply(team.service("chat", ["legal", "support-de", *names]))
    team.until_loaded("chat", *names)
    assert "chat" in desk.run("private-sources.md", "retry chat")

    kinds = "aimservices,aimartifacts,aimprofilecaches,inferenceservices,configmaps,jobs,pods,events"
    told = team.cluster.kubectl("get", kinds, "-n", team.namespace, "-o", "json").stdout
    for secret in (hub["token"], s3["secretKey"], OWN_SECRET):
        assert secret not in told, "no object holds credentials"


def rescue(desk: Desk) -> None:
    """The page rescue.md, for an adapter whose source is missing at first."""
    team = desk.team
    team.until_failed("chat", "support-de", "SourceRepositoryNotFound")
    desk.run("rescue.md", "get pods")
    assert "SourceRepositoryNotFound" in desk.run("rescue.md", "aim-adapters why chat", fails=True)
    assert "support-de Failed SourceRepositoryNotFound" in desk.run("rescue.md", "{range .status.adapters[*]}")
    team.put("support-de")
    desk.run("rescue.md", "retry chat support-de")
    team.until_loaded("chat", "support-de")

    assert "support-de" in desk.run("rescue.md", "disk --measure")
    desk.run("rescue.md", "reap=dry-run")
    team.until("the sweep in the status", lambda: team.get("aimartifact", "tiny-llama")["status"].get("lastReap"))
    assert "Running" in desk.run("rescue.md", "describe aimsvc chat")
    desk.reader.known["chat-1a2b3c4d"] = team.isvc("chat")["metadata"]["name"]
    patch = next(block for block in blocks(DOCS / "how-to/rescue.md") if "patch isvc" in block.text)
    desk.reader.run(dataclasses.replace(patch, text=patch.text.splitlines()[1]))
    desk.run("rescue.md", "reconciliation-paused=true")
    assert team.running("chat")


def adopt(desk: Desk) -> None:
    """The page adopt.md: two more services on the same base."""
    desk.secret("aim-dev-hub", HF_TOKEN="unused", token="unused")
    desk.write("adopt.md", "chat-dynamic.yaml", "asserted.yaml")
    desk.run("adopt.md", "lint --cluster")
    desk.run("adopt.md", "take-over=true")
    desk.run("adopt.md", "reconciliation-paused=true")
    desk.team.until_running("chat-dynamic")
    desk.team.until_running("asserted")
    models = [one for one in artifacts(desk.team) if one["spec"].get("type", "model") == "model"]
    assert [one["metadata"]["name"] for one in models] == ["tiny-llama"], "not downloaded again"


def health(desk: Desk) -> None:
    """The page gitops.md: its rules over live objects; the API server accepts its ConfigMap."""
    team = desk.team
    team.until_running("chat")
    rules = {rule["kind"]: rule for rule in manifest("flux.yaml")["spec"]["healthCheckExprs"]}
    scripts = manifest("argocd-cm.yaml")["data"]
    for kind, name in (("AIMService", "chat"), ("AIMArtifact", "tiny-llama"), ("AIMArtifact", "support-de")):
        obj = team.get(kind.lower(), name)
        assert run_lua(scripts[f"resource.customizations.health.aim.eai.amd.com_{kind}"], obj)["status"] == "Healthy"
        assert [key for key in ("inProgress", "failed", "current") if run_cel(rules[kind][key], obj)] == ["current"]
    config = manifest("argocd-cm.yaml")
    config["metadata"]["namespace"] = team.namespace
    team.cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(config))


def restart(desk: Desk) -> None:
    """The restart of the page rescue.md; reviews work afterwards as before."""
    desk.run("rescue.md", "rollout restart")
    argv = ("rollout", "status", "deploy/aim-adapters", "-n", "aim-system", "--timeout=120s")
    desk.team.cluster.kubectl(*argv, timeout=130)
    assert "configured" in desk.team.apply(desk.team.adapter("support-de", rank=7))


def test_no_block_of_the_pages_is_skipped() -> None:
    """Each block is a file or commands; the chart's tests run the same rescue command."""
    told = Path(__file__).read_text(encoding="utf-8")
    for page in PAGES:
        for block in blocks(DOCS / "how-to" / page):
            assert block.title or block.language in SHELL, block.where
            if block.title and page != "gitops.md":
                assert f'"{block.title}"' in told, block.where
    (line,) = [block.text for block in blocks(DOCS / "how-to/rescue.md") if "mutatingwebhook" in block.text]
    assert line in (ROOT / "chart/README.md").read_text(encoding="utf-8")
