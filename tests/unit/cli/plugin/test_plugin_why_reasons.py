"""Each documented reason either stops an adapter, so that `why` finds link and fix, or has a text why it never does.

The documentation's index (docs/errors.md) is made of `api.reasons`; a reason without a case fails here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.jobs import JobResult
from api.names import ROLE_SUBTREE_SYNC
from api.reasons import EXPLANATIONS, Reason, Surface
from api.view import JsonObject
from cli.plugin.chain import Link
from cli.plugin.snapshot import Snapshot
from cli.plugin.why import walk
from rules.examples import manifest, parse
from rules.examples import scene as spell_out
from rules.registry import Basis, Rule, all_rules
from rules.world import KIND_BY_NAME
from tests.unit.cli.plugin.scene import NOW, Scene, condition, job, lease
from tests.unit.cli.plugin.test_plugin_why import CASES, failed

# -- Jobs: a failure of each is found where the Job belongs ---------------------------------------------------------

FAILURES = ("source", "disk", "command")  # of any Job; files ("adapter") are looked at by staging alone
OF_JOBS = {name: reason.group for name, reason in EXPLANATIONS.items() if reason.group in FAILURES} | dict.fromkeys(
    ("JobFailed", "JobDeadlineExceeded"), "command"
)
OF_FILES = [
    name
    for name, reason in EXPLANATIONS.items()
    if (reason.group == "adapter" and name != "AdapterNotDeclared") or name == "AdapterBaseMismatch"
]


def stopped_at(scene: Scene) -> Link:
    """The link at which the walk of `sql` ends; all before it hold."""
    (found,) = walk(scene.snapshot(), "sql")
    assert found.broken is not None
    assert all(one.state == "ok" for one in found.links[:-1])
    assert found.broken.fix
    return found.broken


@pytest.mark.parametrize("reason", OF_JOBS)
def test_a_failure_of_staging(reason: str) -> None:
    scene = Scene()
    failed(f"{reason}: what happened")(scene)
    link = stopped_at(scene)
    assert (link.link, link.reason) == ("job", reason)
    assert "what happened" in link.says
    assert "retry chat sql" in link.fix
    assert "kubectl describe aimservice" in link.look, "its Job is deleted by now"


@pytest.mark.parametrize("reason", OF_FILES)
def test_a_failure_of_the_files(reason: str) -> None:
    """A mismatched base is a warning, and a failure where the administrator wants it strict."""
    scene = Scene()
    failed(f"{reason}: what is in them")(scene)
    link = stopped_at(scene)
    assert (link.link, link.reason) == ("files", reason)
    assert "kubectl aim-adapters inspect hf://o/sql" in link.look


@pytest.mark.parametrize("reason", OF_JOBS)
def test_a_failure_of_the_base_download(reason: str) -> None:
    scene = Scene()
    scene.base_says("Ready", "False", reason, "what happened")
    link = stopped_at(scene)
    assert (link.link, link.reason) == ("base", reason)
    assert "describe aimartifact -n team base" in link.look


@pytest.mark.parametrize("reason", [name for name, group in OF_JOBS.items() if group != "source"])
def test_a_failure_of_the_subtree_sync(reason: str) -> None:
    scene = Scene()
    message = JobResult(ok=False, reason=reason, message="what happened").to_termination_message()
    scene.jobs = job(ROLE_SUBTREE_SYNC, "u-service", message)
    link = stopped_at(scene)
    assert (link.link, link.reason) == ("subtree", reason)


# -- rules: the example that each refuses, as a stored object -------------------------------------------------------

STORED = (Basis.BOUND, Basis.OBJECT, Basis.WORLD, Basis.STORED)
LINK_OF = {
    "FeatureMissing": "feature",
    "FeatureScaleOnly": "feature",
    "ModelSourcesAmbiguous": "profile",
    "AdapterDeclaredTwice": "adapter",
    "RankBelowOne": "adapter",
    "FieldNotImplemented": "adapter",  # its example is about an entry of spec.adapters
    "AdapterNotAnAdapter": "adapter",
    "AdapterIncompatible": "adapter",
    "AdapterParentMismatch": "adapter",
    "AdapterRankAboveCeiling": "adapter",
    "AdapterPathInvalid": "adapter",
    "AdapterPathDuplicate": "adapter",
}
"""Where a rule of AIMService stops the chain; all others: at the service itself."""


def rules_of(kind: str) -> list[Rule]:
    """The rules of a kind that refuse stored objects with the default settings."""
    found = [one for one in all_rules() if kind in one.kinds and one.basis in STORED and not one.warns]
    return [one for one in found if not one.refused.allowed_images]


def reasons_of(kind: str) -> dict[str, Rule]:
    """Each reason that the example of its rule speaks, by the first rule that has it."""
    return {reason: one for one in reversed(rules_of(kind)) for reason in one.reasons}


@pytest.mark.parametrize("rule", rules_of("AIMService"), ids=lambda rule: rule.name)
def test_what_a_rule_refuses_of_services(rule: Rule) -> None:
    spelt = spell_out(KIND_BY_NAME["AIMService"], rule.refused)
    seen = Snapshot(service=spelt.new, now=NOW, world=spelt.world, leases=(lease(),))
    walks = walk(seen)
    reasons = ("RankBelowOne",) if rule.name == "adapter_artifact_invalid" else rule.reasons  # the artifact's own
    found = [one.broken for one in walks if one.broken is not None and one.broken.reason in reasons]
    assert found, [one.broken for one in walks]
    assert found[0].link == LINK_OF.get(found[0].reason, "service")
    assert found[0].says
    assert found[0].fix


def around(rule: Rule) -> list[JsonObject]:
    """The objects that a rule's example needs around it, in the scene's namespace."""
    found = [manifest(patch["kind"], patch) for patch in parse(rule.refused.world)]
    if "spec.parentArtifact" in rule.fields:
        found.append(manifest("AIMArtifact", {"metadata": {"name": "legal"}, "spec": {"type": "adapter"}}))
    return [
        {**obj, "metadata": {**obj["metadata"], "namespace": "team"}} if obj["metadata"].get("namespace") else obj
        for obj in found
    ]


OF_BASES = ("source_unusable", "adapter_field_on_model", "size_unusable")


@pytest.mark.parametrize("rule", rules_of("AIMArtifact"), ids=lambda rule: rule.name)
def test_what_a_rule_refuses_of_artifacts(rule: Rule) -> None:
    """An adapter that got past admission stops its services with the rule's own reason."""
    scene = Scene(more=around(rule))
    assert scene.sql is not None
    refused = spell_out(KIND_BY_NAME["AIMArtifact"], rule.refused).new
    scene.sql["spec"] = refused["spec"]
    scene.sql["metadata"]["labels"] = refused["metadata"].get("labels", {})
    scene.sql["status"]["conditions"] = [condition("Ready", "False", "ConfigInvalid", "because")]
    scene.adapter(state="Pending", digest=None)
    link = stopped_at(scene)
    about_models = scene.sql["spec"].get("type") != "adapter"
    assert link.link == "adapter"
    assert link.reason in (("AdapterNotAnAdapter",) if about_models else rule.reasons)


@pytest.mark.parametrize("name", OF_BASES)
def test_what_a_rule_refuses_of_bases(name: str) -> None:
    rule = next(one for one in rules_of("AIMArtifact") if one.name == name)
    scene = Scene()
    assert scene.base is not None
    spec = spell_out(KIND_BY_NAME["AIMArtifact"], rule.refused).new["spec"]
    scene.base["spec"] = spec | {"type": "model", "modelId": "Qwen/Q", "sourceUri": "hf://Qwen/Q"}
    if name == "source_unusable":  # the profile names the same source, so the base is found by it
        assert scene.profile is not None
        scene.base["spec"]["sourceUri"] = spec["sourceUri"]
        scene.profile["spec"]["modelSources"] = [{"modelId": "Qwen/Q", "sourceUri": spec["sourceUri"]}]
    scene.base_says("Ready", "False", "ConfigInvalid", "because")
    link = stopped_at(scene)
    if name == "source_unusable":  # which the profile's own rules refuse, too
        assert (link.link, link.reason) == ("service", "ReferenceInvalid")
    else:
        assert link.link == "base"
        assert link.reason in {*rule.reasons, "FieldOnlyOnAdapters"}


# -- the index is complete ------------------------------------------------------------------------------------------


def found_by_why() -> set[str]:
    """Every reason that a case of this module or of `test_plugin_why` ends with."""
    of_rules = {*reasons_of("AIMService"), *reasons_of("AIMArtifact")}
    return {case[3] for case in CASES.values()} | {*OF_JOBS, *OF_FILES} | of_rules


_HOLDS = """
AdaptersStaged ConfigValid NothingToCache AllCachesReady InferenceServiceReady Serving ModelValid TemplateValid
NodesMatch NodesNotWatched ModelCached AdapterValidated ClaimBound
"""
_OF_OTHERS = {
    "AimIdWithoutSources": "NoModelSources",
    "SourcesWithoutAimId": "NoModelSources",
    "TooManyModelSources": "ModelSourcesAmbiguous",
    "DownloadImageNotAllowed": "",
    "S3SecretMissing": "SourceCredentialsUnreadable",
    "S3EndpointCredentials": "",
    "S3SecretUnused": "",
    "S3TlsContradiction": "SourceTlsFailed",
    "SizeUnusable": "ClaimProvisioningFailed",
}
"""Rules about profiles, models and RuntimeConfigs → with what a service that uses such an object stops."""


def of(surface: Surface) -> list[Reason]:
    """The reasons that are seen there and nowhere else."""
    return [reason for reason, one in EXPLANATIONS.items() if one.surfaces == (surface,)]


def never_stop() -> dict[str, str]:
    """Reasons that never prevent an adapter from being served, each with why."""
    rules = all_rules()
    found = dict.fromkeys(_HOLDS.split(), "says that all is well")
    found |= {name: "a Job that ended well" for name, one in EXPLANATIONS.items() if one.group == "success"}
    found |= {
        name: "a note beside an adapter that is served" for name, one in EXPLANATIONS.items() if one.group == "warning"
    }
    found |= dict.fromkeys(of("lint"), "about a file: the API server stores no such object")
    found |= dict.fromkeys(of("event"), "an event: the status has the state")
    found |= {reason: "a warning" for one in rules if one.warns for reason in one.reasons}
    of_requests = (Basis.TRANSITION, Basis.REQUEST)
    found |= {reason: "about a request" for one in rules if one.basis in of_requests for reason in one.reasons}
    found |= {reason: f"on its own object; a service stops with {other}" for reason, other in _OF_OTHERS.items()}
    return found


def _unaccounted() -> Iterator[str]:
    known = found_by_why() | never_stop().keys()
    yield from (reason for reason in Reason if reason not in known)


def test_each_reason_has_a_case_or_never_stops_an_adapter() -> None:
    assert not list(_unaccounted()), (
        "give it a case in test_plugin_why.CASES, or explain in never_stop() why it stops no adapter"
    )


def test_what_stands_for_others_is_found() -> None:
    assert {other for other in _OF_OTHERS.values() if other} <= found_by_why()


def test_the_cases_speak_documented_reasons_only() -> None:
    assert found_by_why() <= set(Reason)


def test_how_many() -> None:
    """The numbers of the table: they may grow."""
    assert len(found_by_why()) >= 150
    assert len(CASES) >= 100
