"""The kubectl plugin with a running cluster: its output matches the state, and its actions take effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.view import JsonObject
from cli.plugin.access import Access, run
from cli.plugin.gather import gather
from cli.plugin.why import walk
from tests.cluster.conftest import Cluster
from tests.cluster.product.team import IMAGE, Team

PROGRAM = (sys.executable, "-m", "cli.main")


@pytest.fixture
def team(cluster: Cluster, namespace: str) -> Team:
    """A team on the profile pipeline."""
    return Team(cluster, namespace)


def ask(team: Team, *args: str, code: int = 0, stdin: str | None = None, timeout: float = 150) -> str:
    """Run a command in the team's namespace; assert its exit code, and that it shows no traceback."""
    done = team.cluster.run(*PROGRAM, *args, "-n", team.namespace, stdin=stdin, check=False, timeout=timeout)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert done.returncode == code, said
    return said if done.returncode else done.stdout


def ask_json(team: Team, *args: str, code: int = 0) -> Any:
    done = team.cluster.run(*PROGRAM, *args, "-n", team.namespace, "-o", "json", check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def broken(team: Team, *args: str) -> JsonObject:
    """Return the link at which `why` stopped."""
    (walk,) = ask_json(team, "why", *args, code=1)["walks"]
    found: JsonObject = walk["links"][-1]
    return found


def test_a_life_by_commands_alone(team: Team) -> None:
    """add with a source → status, why, rank, disk show it → rank ceiling → remove."""
    team.apply(team.service("chat"))
    uri = team.put("sql", rank=8)
    said = ask(team, "add", "chat", "sql", "--source", uri, "--rank", "8", "--wait", "--timeout", "120")
    assert "AIMArtifact sql created" in said
    assert "declared: sql" in said
    team.until_loaded("chat", "sql")
    assert "already declared: sql" in ask(team, "add", "chat", "sql", "--source", uri)

    view = ask_json(team, "status", "chat")
    assert (view["status"], view["mode"], view["ceiling"]["value"]) == ("Running", "dynamic", 32)
    assert [(one["name"], one["state"], one["rank"]) for one in view["adapters"]] == [("sql", "Loaded", 8)]
    assert "chat" in ask(team, "status")
    assert ask_json(team, "why", "chat", "sql")["served"] is True
    assert "nothing is broken" in ask(team, "why", "chat")
    assert "sql" in ask(team, "rank", "chat")

    (disk,) = ask_json(team, "disk", "--measure")
    assert [(row["service"], row["adapter"]) for row in disk["adapters"]] == [("chat", "sql")]
    assert disk["usedBytes"] > 0
    assert disk["lastReap"]["reclaimedBytes"] == 0

    assert "1 pod restarts; pass --yes" in ask(team, "rank", "chat", "64", code=1)
    ask(team, "rank", "chat", "64", "--yes", "--wait", "--timeout", "120")
    assert team.status("chat")["adapterMaxRank"] == 64

    assert "removed: sql" in ask(team, "remove", "chat", "sql", "--wait", "--delete-artifact", "--timeout", "120")
    assert team.get("aimartifact", "sql") == {}
    assert team.models("chat") == {"acme/tiny-llama"}


def stopped(team: Team, place: str, reason: str) -> JsonObject | None:
    """Return where `why` stops if it stops there; during a retry of a staging, it stops at the running Job."""
    link = broken(team, "chat", "sql")
    return link if (link["link"], link["reason"]) == (place, reason) else None


def test_why_finds_each_broken_link(team: Team) -> None:
    """A missing artifact, a private source, a damaged file: found and fixed with only these commands."""
    team.apply(team.service("chat", ["sql"]))
    team.until_running("chat")
    assert broken(team, "chat", "sql")["reason"] == "AdapterArtifactNotFound"
    assert broken(team, "chat", "nope")["reason"] == "AdapterNotDeclaredByService"

    team.apply(team.adapter("sql", "hf://nobody/here"))
    team.until_failed("chat", "sql", "SourceRepositoryNotFound")
    link: JsonObject = team.until("why to stop at the Job", lambda: stopped(team, "job", "SourceRepositoryNotFound"))
    assert "retry chat sql" in link["fix"]

    team.delete("aimartifact", "sql")
    team.apply(team.adapter("sql", team.put_fixture("damaged-lfs-pointer")))
    team.until_failed("chat", "sql", "AdapterIsLfsPointer")
    team.until("why to stop at the files", lambda: stopped(team, "files", "AdapterIsLfsPointer"))


def profile(team: Team, name: str, *, model: str = "acme/tiny-llama", **spec: Any) -> JsonObject:
    """A profile of the namespace: the small base on one MI300X, with adapters, unless `spec` says otherwise."""
    body = {
        "aimId": model,
        "image": IMAGE,
        "features": ["adapters"],
        "engine": "vllm",
        "acceleratorModel": "MI300X",
        "acceleratorCount": 1,
        "modelSources": [{"modelId": model, "sourceUri": f"hf://{model}", "size": "16Mi"}],
    } | spec
    return team._object("v1alpha2", "AIMProfile", name, body)


BREAKAGES: dict[str, tuple[JsonObject, str, str]] = {
    # service → its fault, the link at which `why` stops, the reason
    "paused": ({}, "service", "ReconciliationPaused"),
    "no-profile": ({"profile": {"name": "not-there"}}, "profile", "ReferenceNotFound"),
    "no-config": ({"runtimeConfigName": "not-there"}, "service", "ReferenceNotFound"),
    "no-feature": ({"profile": {"name": "no-feature"}}, "feature", "FeatureMissing"),
    "too-wide": ({}, "adapter", "AdapterRankAboveCeiling"),
    "no-source": ({"profile": {"name": "no-source"}}, "base", "SourceRepositoryNotFound"),
    "one-node-disk": ({"profile": {"name": "one-node-disk"}}, "disk", "ClaimProvisioningFailed"),
    "other-gpu": ({"profile": {"name": "other-gpu"}}, "server", "NoMatchingNode"),
    "no-image": ({"profile": {"name": "no-image"}}, "server", "ImagePullBackOff"),
    "crashes": ({"env": [{"name": "AIM_STAND_IN_CRASH_AT_START", "value": "true"}]}, "server", "CrashLoopBackOff"),
    "zero": ({"replicas": 0}, "server", "ScaledToZero"),
    "old-image": ({"env": [{"name": "AIM_STAND_IN_IGNORE_ADAPTERS", "value": "true"}]}, "server", "AdapterNotListed"),
}


def test_why_stops_at_the_right_link_of_a_running_cluster(team: Team) -> None:
    """A dozen services, each broken at another link: `why` finds each of them."""
    team.put("sql")
    services = [
        team.service(name, ["wide" if name == "too-wide" else "sql"], **spec)
        for name, (spec, _, _) in BREAKAGES.items()
    ]
    services[0]["metadata"]["annotations"] = {"aim.eai.amd.com/reconciliation-paused": "true"}
    one_node = team._object(
        "v1alpha1",
        "AIMArtifact",
        "one-node",
        {
            "modelId": "acme/tiny-qwen2",
            "sourceUri": "hf://acme/tiny-qwen2",
            "size": "16Mi",
            "adapterDisk": {"size": "1Gi", "storageClassName": "aim-dev-rwo"},
        },
    )
    team.apply(
        profile(team, "no-source", model="nobody/here"),
        profile(team, "one-node-disk", model="acme/tiny-qwen2"),
        profile(team, "other-gpu", acceleratorModel="MI355X"),
        profile(team, "no-image", image="example.com/not/there:0.13.0"),
        one_node,
        team.adapter("sql", compatibleWith=["acme/tiny-llama", "acme/tiny-qwen2", "nobody/here"]),
        *services,
    )
    team.apply(profile(team, "no-feature", features=[]), team.adapter("wide", team.put("wide"), rank=64))

    access = Access(team.namespace, str(team.cluster.kubeconfig))
    found: dict[str, tuple[str, str]] = {}

    def all_found() -> bool:
        for name, (_, link, reason) in BREAKAGES.items():
            if found.get(name) != (link, reason):
                seen = run(access, lambda client, name=name: gather(client, team.namespace, name))  # type: ignore[misc]
                (walked,) = walk(seen, "wide" if name == "too-wide" else "sql")
                last = walked.links[-1]
                assert last.state == "ok" or last.fix
                found[name] = (last.link, last.reason)
        return found == {name: (link, reason) for name, (_, link, reason) in BREAKAGES.items()}

    try:
        team.until("every breakage to be found by why", all_found, timeout=120)
    except pytest.fail.Exception as error:
        wrong = {name: seen for name, seen in found.items() if seen != BREAKAGES[name][1:]}
        raise AssertionError(f"found {wrong}") from error


def test_retry_after_the_source_was_fixed(team: Team) -> None:
    team.apply(team.adapter("late"), team.service("chat", ["late"]))
    team.until_failed("chat", "late", "SourceRepositoryNotFound")
    said = ask(team, "retry", "chat", "unknown", code=2)
    assert said.splitlines()[-1] == 'error: "chat" does not declare "unknown" (declared: late)'
    team.put("late")
    ask(team, "retry", "chat", "late", "--wait", "--timeout", "120")
    team.until_loaded("chat", "late")
    tries = team.entry("chat", "late")["attempts"]
    ask(team, "retry", "chat", "late", "--restage", "--wait", "--timeout", "120")
    assert team.entry("chat", "late")["attempts"] > tries, "it waits for the new content, not for the old"
    done = team.cluster.run(*PROGRAM, "rank", "chat", "late", "64", "-n", team.namespace)
    assert "Warning: spec.rank:" in done.stderr, "the server's warnings are passed on"


def test_waiting_ends_when_it_fails(team: Team) -> None:
    team.apply(team.service("chat"))
    team.until_running("chat")
    said = ask(team, "add", "chat", "x", "--source", "hf://nobody/here", "--wait", "--timeout", "90", code=1)
    assert "SourceRepositoryNotFound" in said.splitlines()[-1]


def test_static_services_are_explained(team: Team) -> None:
    team.put("one")
    team.apply(team.adapter("one"), team.service("chat", ["one"], mode="static"))
    team.until_loaded("chat", "one")
    assert "is static" in ask(team, "add", "chat", "two", code=1)
    assert "is static" in ask(team, "rank", "chat", "64", code=1)


def test_the_template_pipeline(team: Team) -> None:
    """Adapters of a service without a profile: written through v1alpha1, which admission allows."""
    team.pipeline = "template"
    team.apply(*team.model_and_template(), team.service("old"))
    team.until_running("old")
    ask(team, "add", "old", "sql", "--source", team.put("sql"), "--rank", "8", "--wait", "--timeout", "120")
    team.until_loaded("old", "sql")
    assert ask_json(team, "why", "old", "sql")["served"] is True


# -- check ----------------------------------------------------------------------------------------------------------


def check(team: Team, *objects: JsonObject, code: int = 0) -> JsonObject:
    text = yaml.safe_dump_all(objects)
    done = team.cluster.run(*PROGRAM, "check", "-f", "-", "-o", "json", "-n", team.namespace, stdin=text, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    found: JsonObject = json.loads(done.stdout)
    return found


def all_but_the_base(team: Team) -> dict[str, str]:
    """Return the versions of all objects except the base artifact, whose status changes with each sweep."""
    models = {base["metadata"]["name"] for base in team.base_models()}
    own = {name: version for name, version in team.versions().items() if name.partition("/")[2] not in models}
    return {name: version for name, version in own.items() if "-reaper-" not in name}


def test_check_shows_the_blast_radius_and_changes_nothing(team: Team) -> None:
    team.put("sql")
    team.apply(team.adapter("sql"), team.service("chat", ["sql"]))
    team.until_loaded("chat", "sql")
    team.until_at_rest(quiet=4)
    before = all_but_the_base(team)

    config = team._object("v1alpha1", "AIMRuntimeConfig", "default", {"adapterRuntime": {"maxRank": 64}})
    report = check(team, config)
    (effect,) = report["services"]
    assert (effect["ceilingBefore"], effect["ceilingAfter"], effect["rolls"]) == (32, 64, True)
    assert effect["changes"] == ["env AIM_ADAPTER_MAX_RANK 32 → 64"]
    assert report["objects"][0]["outcome"] == "created"

    quiet = check(team, team.service("chat", ["sql"]))
    assert quiet["objects"][0]["outcome"] == "unchanged"
    assert quiet["services"][0]["changes"] == []

    more = check(team, team.service("chat", ["sql", "med"]))
    assert more["services"][0]["adapters_added"] == ["med"]
    assert not more["services"][0]["rolls"]

    fewer = check(team, team.service("chat", []))
    assert fewer["services"][0]["adapters_removed"] == ["sql"]

    env = check(team, team.service("chat", ["sql"], env=[{"name": "A", "value": "secret-word"}]))
    assert env["services"][0]["changes"] == ["env A is new"]
    assert "secret-word" not in json.dumps(env)
    assert all_but_the_base(team) == before


def test_check_shows_what_the_cluster_refuses_with_its_place(team: Team) -> None:
    team.put("sql")
    team.apply(team.adapter("sql"), team.service("chat", ["sql"]))
    team.until_loaded("chat", "sql")
    report = check(team, team.service("chat", ["sql"], mode="static"), code=1)
    (judged,) = report["objects"]
    assert judged["outcome"] == "refused"
    assert any("spec.adapterMode" in error and error.startswith("stdin:") for error in judged["errors"])

    broken_by = check(team, team.adapter("sql", compatibleWith=["a/b"]), code=1)
    assert any("AIMArtifact" in text or "fits a/b" in text for text in broken_by["services"][0]["broken"])


def test_check_of_objects_that_do_not_exist_yet(team: Team) -> None:
    old = {**team.service("old"), "apiVersion": "aim.eai.amd.com/v1alpha1"}
    report = check(team, team.adapter("sql"), team.service("chat", ["sql"]), old)
    assert {one["outcome"] for one in report["objects"]} == {"created"}
    said = report["objects"][2]["warnings"]
    assert any("AIMService v1alpha1 is deprecated" in text for text in said), "the API server's own Warning header"
    report["services"] = [one for one in report["services"] if one["service"].endswith("/chat")]
    (effect,) = report["services"]
    assert (effect["created"], effect["ceilingAfter"]) == (True, 32)


# -- lint with a cluster, the plugin, others ------------------------------------------------------------------------


def test_lint_reads_references_from_the_cluster(team: Team, tmp_path: Path) -> None:
    team.apply(team.adapter("big", rank=128))
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(team.service("chat", ["big"])))
    offline = ask(team, "lint", str(file))
    assert "AdapterArtifactNotFound" in offline
    said = ask(team, "lint", "--cluster", str(file), code=1)
    assert "[AdapterRankAboveCeiling]" in said
    assert "AdapterArtifactNotFound" not in said
    assert "use --cluster" not in said


def test_inspect_reads_the_sources_themselves(team: Team) -> None:
    """Read the hub with its token, S3 with its keys, only the header of the weights; a missing source exits with 2."""
    hub, s3 = team.cluster.info["hub"], team.cluster.info["s3"]
    uris = {team.put("sql", rank=8): (), team.put("sql", rank=8, where="s3"): ("--s3-endpoint", s3["endpoint"])}
    team.cluster.env |= {
        "HF_ENDPOINT": hub["endpoint"],
        "HF_TOKEN": hub["token"],
        "AWS_ACCESS_KEY_ID": s3["accessKey"],
        "AWS_SECRET_ACCESS_KEY": s3["secretKey"],
    }
    try:
        for uri, more in uris.items():
            done = team.cluster.run(*PROGRAM, "inspect", uri, *more, "-o", "json")
            view = json.loads(done.stdout)
            assert (view["servable"], view["rank"], view["base"]) == (True, 8, "acme/tiny-llama")
        done = team.cluster.run(*PROGRAM, "inspect", "hf://nobody/here", check=False)
        assert (done.returncode, done.stderr.startswith("error: SourceRepositoryNotFound")) == (2, True)
    finally:
        team.cluster.env.clear()


def test_as_a_plugin_of_kubectl(team: Team) -> None:
    team.apply(team.service("chat"))
    team.until_running("chat")
    env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    kubectl = team.cluster.info["kubectl"]
    done = subprocess.run(
        [kubectl, "aim-adapters", "status", "chat", "-n", team.namespace],
        env={**os.environ, **env, "KUBECONFIG": str(team.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{team.namespace}/chat   Running")
    listed = team.cluster.run(kubectl, "plugin", "list", check=False)
    assert "Traceback" not in listed.stderr


def test_names_are_completed_from_the_cluster(team: Team) -> None:
    team.apply(team.service("chat"), team.service("other"))
    words = f"aim-adapters status -n {team.namespace} ch"
    asked = {"_AIM_ADAPTERS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    env = {**os.environ, "KUBECONFIG": str(team.cluster.kubeconfig), **asked}

    def completed() -> bool:
        done = subprocess.run(PROGRAM, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.split() == ["chat"], done.stderr
        return True

    team.cluster.wait(completed, timeout=60, what="a completion in its own bounded time")


def test_watch_shows_each_change(team: Team) -> None:
    team.put("sql")
    watching = subprocess.Popen(
        [*PROGRAM, "watch", "-n", team.namespace, "--for", "90"],
        env={**os.environ, "KUBECONFIG": str(team.cluster.kubeconfig)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        team.apply(team.adapter("sql"), team.service("chat", ["sql"]))
        team.until_loaded("chat", "sql")
        assert watching.stdout is not None
        seen = ""
        for line in watching.stdout:  # ends at the latest with the watch
            seen += line
            if "adapter sql" in line and "→ Loaded" in line:
                break
        assert f"{team.namespace}/chat" in seen
        assert "→ Loaded" in seen
    finally:
        watching.kill()
        watching.wait()
        if watching.stdout is not None:
            watching.stdout.close()


MISTAKES = {
    "no such service": (("status", "nope"), "no AIMService"),
    "why without one": (("why", "nope"), "no AIMService"),
    "a context that is not there": (("status", "--context", "nope"), "nope"),
    "an unreachable cluster": (("status", "--kubeconfig", "{unreachable}"), "does not answer"),
}


@pytest.mark.parametrize(("args", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_reported_in_one_line(team: Team, tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    unreachable = tmp_path / "kubeconfig"
    config = yaml.safe_load(team.cluster.kubeconfig.read_text())
    for entry in config["clusters"]:
        entry["cluster"]["server"] = "https://127.0.0.1:1"
    unreachable.write_text(yaml.safe_dump(config))
    said = ask(team, *(word.format(unreachable=unreachable) for word in args), code=2)
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert said.startswith("error: ")
