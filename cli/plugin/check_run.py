"""The shell of `check`: sends each manifest as a dry run, then reads every service that the change affects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_V1ALPHA1,
    Kind,
)
from api.text import clean
from api.view import Json
from cli.lint.judge import Collected, Manifest
from cli.lint.schema import check_shape
from cli.plugin.access import warning_text
from cli.plugin.check import Effect, Judged, Report, effect, plan_apply
from cli.plugin.gather import ask_of, complete_snapshot
from cli.plugin.snapshot import Snapshot
from cli.plugin.world import DemandWorld, Known, complete
from kube.client import Client
from kube.errors import ApiError, Unauthorized, Unreachable
from rules.validate import validate
from rules.verdict import Verdict
from rules.world import Index, World, address

MOST_SERVICES = 50
"""Services whose effects are computed; further ones are counted in a note."""


async def check_all(client: Client, collected: Collected) -> Report:
    """Return the answers of the cluster and of the rules to the manifests, and the effects on services."""
    manifests = collected.manifests
    olds = {id(one): await client.find(_kind(one), _namespace(one), view.name_of(one.obj)) for one in manifests}
    news: dict[int, Json | ApiError] = {}
    warnings: dict[int, list[str]] = {}
    for one in manifests:
        client.heard = []
        news[id(one)] = await _dry_run(client, one, olds[id(one)])
        warnings[id(one)] = [text for header in client.heard if (text := warning_text(header))]
        client.heard = None
    before, after = Known(), Known.start(_result(one, news[id(one)]) for one in manifests)
    for one in manifests:
        old = olds[id(one)]
        if old is not None:
            before.take([old])
        else:
            before.absent.add(_address(one))
    changed = [_result(one, news[id(one)]) for one in manifests if not isinstance(news[id(one)], ApiError)]
    world = await complete(client, after, lambda world: _ask(world, manifests, olds, changed))
    judged = [_judge(one, olds[id(one)], news[id(one)], world, warnings[id(one)]) for one in manifests]
    judged += [
        Judged(finding.subject or "document", f"{finding.file}:{finding.position.line}", "refused", (finding.message,))
        for finding in collected.findings
        if finding.level == "error"
    ]
    effects, notes = await _effects(client, changed, before, after, world)
    return Report(tuple(judged), tuple(effects), tuple(notes))


def _kind(manifest: Manifest) -> Kind:
    v1alpha1 = manifest.kind is AIM_SERVICE and manifest.version == AIM_SERVICE_V1ALPHA1.version
    return AIM_SERVICE_V1ALPHA1 if v1alpha1 else manifest.kind


def _namespace(manifest: Manifest) -> str | None:
    return view.namespace_of(manifest.obj) if manifest.kind.namespaced else None


def _address(manifest: Manifest) -> tuple[str, str, str]:
    return address(manifest.kind, view.namespace_of(manifest.obj), view.name_of(manifest.obj))


async def _dry_run(client: Client, manifest: Manifest, old: Json | None) -> Json | ApiError:
    """Return the object as the cluster would store it, or its refusal. Raises: Unreachable, Unauthorized."""
    kind, name = _kind(manifest), view.name_of(manifest.obj)
    plan = plan_apply(manifest.obj, old)
    body = dict(plan.body)
    try:
        if plan.how == "create":
            return await client.create(kind, body, dry_run=True)
        if plan.how == "apply":
            return await client.apply(kind, body, field_owner=plan.manager, dry_run=True)
        return await client.patch_merge(kind, _namespace(manifest), name, body, dry_run=True) if body else old or {}
    except (Unreachable, Unauthorized):
        raise
    except ApiError as error:
        return error


def _result(manifest: Manifest, new: Json | ApiError) -> Json:
    """Return the object as the cluster would store it; a refused one as it is written."""
    obj = manifest.obj if isinstance(new, ApiError) else new
    return {**obj, "kind": manifest.kind.kind, "apiVersion": manifest.kind.api_version}


def _verdict(manifest: Manifest, old: Json | None, new: Json, world: World) -> Verdict:
    return validate(manifest.kind, new, old, world, request_version=manifest.version)


def _ask(world: World, manifests: Iterable[Manifest], olds: Mapping[int, Json | None], changed: Iterable[Json]) -> None:
    for manifest in manifests:
        _verdict(manifest, olds[id(manifest)], manifest.obj, world)
    for service in affected(changed, world):
        ask_of(service)(world)


def affected(changed: Iterable[Json], world: World) -> list[Json]:
    """Return the services that a change affects: those in it, and those that use its objects."""
    found: dict[tuple[str, str], Json] = {}
    for obj in changed:
        namespace, name = view.namespace_of(obj), view.name_of(obj)
        services: Iterable[Json] = ()
        match obj.get("kind"):
            case AIM_SERVICE.kind:
                services = (obj,)
            case AIM_ARTIFACT.kind:
                services = (
                    *world.find(Index.SERVICES_BY_ARTIFACT, namespace, name),
                    *world.find(Index.SERVICES_BY_BASE, namespace, name),
                )
            case AIM_PROFILE.kind | AIM_CLUSTER_PROFILE.kind:
                services = world.find(Index.SERVICES_BY_PROFILE, namespace or None, name)
            case AIM_MODEL.kind | AIM_CLUSTER_MODEL.kind:
                services = world.find(Index.SERVICES_BY_MODEL, namespace or None, name)
            case AIM_RUNTIME_CONFIG.kind | AIM_CLUSTER_RUNTIME_CONFIG.kind:
                services = world.find(Index.SERVICES_BY_RUNTIME_CONFIG, namespace or None, name)
        for service in services:
            found.setdefault((view.namespace_of(service), view.name_of(service)), service)
    return list(found.values())


def _judge(
    manifest: Manifest, old: Json | None, new: Json | ApiError, world: World, said: Iterable[str] = ()
) -> Judged:
    """Return the answer to a manifest: the server's with its warnings (`said`), and further findings of the rules."""
    line = manifest.document.locate("metadata.name").line
    place = f"{manifest.file}:{line}"
    shape = [_with_place(manifest, error.path, str(error)) for error in check_shape(manifest.kind, manifest.obj)]
    verdict = _verdict(manifest, old, manifest.obj if isinstance(new, ApiError) else new, world)
    texts = dict.fromkeys([*said, *(str(one) for one in verdict.warnings)])
    warnings = tuple(_with_place(manifest, _path_of(text), text) for text in texts)
    if isinstance(new, ApiError):
        errors = _causes(manifest, new)
        return Judged(manifest.subject, place, "refused", tuple(errors), warnings)
    if shape:
        return Judged(manifest.subject, place, "refused", tuple(shape), warnings)
    own = tuple(_with_place(manifest, error.path, str(error)) for error in verdict.errors)
    outcome = _outcome(old, new)
    return Judged(manifest.subject, place, outcome, own, warnings)


def _outcome(old: Json | None, new: Json) -> Any:
    if old is None:
        return "created"
    return "unchanged" if _bare(old) == _bare(new) else "changed"


def _bare(obj: Json) -> bytes:
    """Return the parts of an object that a user may change, comparable."""
    metadata = view.mapping(obj, "metadata")
    kept = {key: metadata.get(key) for key in ("labels", "annotations")}
    return orjson.dumps([obj.get("spec"), kept], option=orjson.OPT_SORT_KEYS)


def _causes(manifest: Manifest, error: ApiError) -> list[str]:
    causes = [cause for cause in error.details.get("causes") or () if isinstance(cause, dict) and cause.get("message")]
    if not causes:
        return [clean(error.message or error.reason)]
    return [
        _with_place(
            manifest, str(cause.get("field") or ""), f"{cause.get('field') or ''}: {cause['message']}".lstrip(": ")
        )
        for cause in causes
    ]


_PATH = re.compile(r"^((?:spec|metadata|status)[\w.\[\]-]*): ")


def _path_of(text: str) -> str:
    found = _PATH.match(text)
    return found[1] if found else ""


def _with_place(manifest: Manifest, path: str, text: str) -> str:
    position = manifest.document.locate(path)
    return f"{manifest.file}:{position.line}:{position.column}: {text}"


async def _effects(
    client: Client, changed: list[Json], before: Known, after: Known, world: DemandWorld
) -> tuple[list[Effect], list[str]]:
    """Return the effect on each affected service, and notes."""
    services = affected(changed, world)
    notes = []
    if len(services) > MOST_SERVICES:
        notes.append(f"{len(services)} services are affected; only the first {MOST_SERVICES} are shown")
    effects = [await _effect(client, service, before, after, world) for service in services[:MOST_SERVICES]]
    if unreadable := before.unreadable | after.unreadable:
        notes.append(f"not allowed to read: {', '.join(sorted(unreadable))}; effects that depend on them are not shown")
    return effects, notes


async def _effect(client: Client, service: Json, before: Known, after: Known, world: DemandWorld) -> Effect:
    new = await complete_snapshot(client, service, world, after)
    old = await client.find(AIM_SERVICE, view.namespace_of(service), view.name_of(service))
    if old is None:
        return effect(None, new)
    old_world = await complete(client, before, ask_of(old))
    return effect(_as_of(new, old, old_world), new)


def _as_of(new: Snapshot, old: Json, world: DemandWorld) -> Snapshot:
    """Return the same cluster before the change."""
    now: datetime = new.now
    return Snapshot(service=old, now=now, world=world, caches=new.caches, claims=new.claims, isvc=new.isvc)
