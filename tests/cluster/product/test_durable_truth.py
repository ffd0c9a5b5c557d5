"""Known weak spots of comparable systems, numbered: one test for each."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import ON_DISK, Team


@on_both_pipelines
def test_weak_spot_01_returning_to_an_earlier_set_prunes(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    team.apply(team.service("svc", ["a", "b"]))
    team.until_loaded("svc", "a", "b")
    team.apply(team.service("svc", ["a"]))
    team.until("b to be pruned", lambda: team.staged("svc") == {"a"})
    team.until("b to be unloaded", lambda: "b" not in team.models("svc"))


@on_both_pipelines
def test_weak_spot_02_removed_and_added_again_is_staged_again(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    team.apply(team.service("svc", []))
    team.until("a to be pruned", lambda: team.staged("svc") == set())
    team.apply(team.service("svc", ["a"]))
    team.until("a to be back", lambda: team.staged("svc") == {"a"})
    team.until_loaded("svc", "a")
    assert (team.subtree("svc") / "a" / "adapter_config.json").exists()


@on_both_pipelines
def test_weak_spot_04_long_names_with_a_common_prefix_do_not_collide(team: Team) -> None:
    first, second = "x" * 60 + "-one", "x" * 60 + "-two"
    uri = team.put("a"), team.put("b")
    team.apply(team.adapter(first, uri[0], modelId="acme/one"), team.adapter(second, uri[1], modelId="acme/two"))
    team.apply(team.service("svc", [first, second]))
    team.until_loaded("svc", first, second)
    assert team.staged("svc") == {first, second}


@on_both_pipelines
def test_weak_spot_06_an_artifact_recreated_with_another_source_is_staged_again(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a", rank=4)), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    old = team.entry("svc", "a")
    team.delete("aimartifact", "a")
    team.apply(team.adapter("a", team.put("other", rank=8)))

    def staged_anew() -> bool:
        entry = team.entry("svc", "a")
        return entry.get("digest") not in (None, old["digest"]) and entry["state"] == "Loaded"

    team.until("the other content to be served", staged_anew)
    assert team.entry("svc", "a")["rank"] == 8


@on_both_pipelines
def test_weak_spot_07_an_invalid_adapter_does_not_affect_others(team: Team) -> None:
    team.apply(team.adapter("bad", team.put_fixture("damaged-weights-truncated"), rank=16))
    team.apply(team.adapter("good", team.put("good")), team.service("svc", ["bad", "good"]))
    team.until_loaded("svc", "good")
    team.until_failed(
        "svc", "bad", "AdapterWeightsTruncated"
    )  # and is retried; the status shows no time during the retry
    team.until("the time of the next try", lambda: team.entry("svc", "bad").get("nextRetryTime"))
    team.until("the service to be degraded", lambda: team.status("svc")["status"] == "Degraded")
    assert team.condition("svc", "Ready")["status"] == "True"
    before = team.running("svc")
    team.cluster.kubectl("scale", "aimsvc/svc", "--replicas=2", "-n", team.namespace)
    team.until("a second replica", lambda: team.status("svc").get("runtime", {}).get("replicas") == "2/2")
    assert before[0] in {pod["metadata"]["uid"] for pod in team.pods("svc")}


@on_both_pipelines
def test_weak_spot_08_an_existing_cache_gets_its_disk(team: Team) -> None:
    team.apply(team.service("plain", mode="static"))
    team.until_running("plain")
    plain = team.running("plain")
    (base,) = team.cluster.items("aimartifacts", team.namespace)
    assert not base["status"].get("adapterPersistentVolumeClaim")
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    assert team.running("plain") == plain


@on_both_pipelines
def test_weak_spot_10_the_status_reports_what_the_server_loaded(team: Team) -> None:
    """Loaded means listed by the server, not only on the disk; a refusal of the server is reported."""
    uri = team.put_fixture("llama-r8-bin")  # preflight never unpickles: only the server sees a damaged pickle
    weights = Path(team.cluster.info["hub"]["root"]) / team.namespace / "llama-r8-bin" / "adapter_model.bin"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 0xFF
    weights.write_bytes(data)
    team.apply(team.adapter("odd", uri, compatibleWith=["acme/tiny-llama"]))
    team.apply(team.service("svc", ["odd"]))
    team.until("the refusal to be seen", lambda: team.entry("svc", "odd").get("state") == "LoadRejected")
    assert team.status("svc")["status"] == "Degraded"


def test_weak_spot_11_an_artifacts_env_cannot_redirect_the_writer(team: Team) -> None:
    for name in ("AIMA_IMAGE", "PYTHONPATH", "LD_PRELOAD", "HF_HOME", "HF_HUB_CACHE", "AWS_CONFIG_FILE"):
        said = team.cluster.apply(team.adapter("a", team.put("a"), env=[{"name": name, "value": "/x"}]), check=False)
        assert "spec.env[0].name" in said, said


@on_both_pipelines
def test_weak_spot_12_no_credential_appears_outside_its_secret(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a", where="s3")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    secrets = [team.cluster.info["s3"]["secretKey"], team.cluster.info["hub"]["token"]]
    kinds = "jobs,pods,events,aimservices,aimartifacts,inferenceservices,configmaps"
    said = team.cluster.kubectl("get", kinds, "-A", "-o", "yaml").stdout
    logs = Path(team.cluster.info["logs"])
    for path in logs.rglob("*.log"):
        if "pods" in path.parts or "node" in path.name:
            said += path.read_text(errors="replace")
    for pod in (logs.parent / "node").rglob("*.log"):
        said += pod.read_text(errors="replace")
    for secret in secrets:
        assert secret not in said


@on_both_pipelines
def test_a_lost_status_is_rebuilt_without_a_download(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    staged = (team.subtree("svc") / "a").stat().st_ino
    asked = len([r for r in team.requests("hub") if f"{team.namespace}/a" in r["path"]])
    team.cluster.kubectl(
        "patch", "aimsvc", "svc", "-n", team.namespace, "--subresource=status", "--type=json",
        "-p", '[{"op":"remove","path":"/status"}]',
    )  # fmt: skip
    team.until("the status to be back", lambda: team.entry("svc", "a").get("state") == "Loaded")
    assert (team.subtree("svc") / "a").stat().st_ino == staged
    assert len([r for r in team.requests("hub") if f"{team.namespace}/a" in r["path"]]) == asked


@on_both_pipelines
def test_the_sweep_deletes_the_files_of_a_deleted_service(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]), team.service("stays", ["a"]))
    team.until_loaded("svc", "a")
    team.until_loaded("stays", "a")
    gone, stays = team.subtree("svc"), team.subtree("stays")
    team.delete("aimservice", "svc")
    team.until("the subtree to be reclaimed", lambda: not gone.exists(), timeout=120)
    assert (stays / "a" / "adapter_config.json").exists()
    assert "a" in team.models("stays")


@on_both_pipelines
def test_failed_staging_is_retried_at_once_when_asked(team: Team) -> None:
    team.apply(team.adapter("late"), team.service("svc", ["late"]))
    team.until_failed("svc", "late", "SourceRepositoryNotFound")
    team.put("late")
    team.cluster.kubectl("annotate", "aimart", "late", "aim.eai.amd.com/retry-staging=now", "-n", team.namespace)
    team.until_loaded("svc", "late")


@on_both_pipelines
def test_changed_content_is_fetched_when_asked_and_never_mixed(team: Team) -> None:
    """The server unloads the old content of a name before the new content becomes visible."""
    team.apply(team.adapter("a", team.put("a", rank=4)), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    old = team.entry("svc", "a")["digest"]
    shutil.rmtree(Path(team.cluster.info["hub"]["root"]) / team.namespace / "a")
    team.put("a", rank=8)
    team.cluster.kubectl("annotate", "aimart", "a", "aim.eai.amd.com/restage=1", "-n", team.namespace)
    team.until("the new content", lambda: team.entry("svc", "a").get("digest") not in (None, old))
    team.until_loaded("svc", "a")
    assert team.entry("svc", "a")["state"] in ON_DISK
