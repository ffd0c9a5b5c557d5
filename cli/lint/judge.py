"""Checks manifests: their shapes, then the rules over all given objects. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from api import view
from api.errors import FieldError, FieldWarning
from api.kinds import AIM_GROUP, AIM_SERVICE_V1ALPHA1, Kind
from api.reasons import Reason
from api.view import Json
from cli.lint.document import Document, Position, Problem
from cli.lint.schema import check_shape
from rules.seen import DEFAULT_CONTEXT, Context
from rules.suggest import did_you_mean
from rules.validate import validate
from rules.world import KIND_BY_NAME, World, address

Level = Literal["error", "warning"]
_VERSIONS = {kind.kind: (kind.version,) for kind in KIND_BY_NAME.values()} | {
    AIM_SERVICE_V1ALPHA1.kind: (KIND_BY_NAME["AIMService"].version, AIM_SERVICE_V1ALPHA1.version)
}
NOT_THERE = frozenset({Reason.ADAPTER_ARTIFACT_NOT_FOUND, Reason.REFERENCE_NOT_FOUND, Reason.BASE_NOT_FOUND})
"""Warnings about objects that are not in the files: `--cluster` or `--assume` supplies them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, with its place. `path` and `subject` are empty if it concerns no field or object."""

    file: str
    position: Position
    level: Level
    reason: Reason
    message: str
    path: str = ""
    subject: str = ""  # "AIMService team/chat"
    origin: str = ""  # the template of the chart that it was rendered from

    @property
    def order(self) -> tuple[str, Position, str, str, str]:
        """The sort key: by place, errors first."""
        return (self.file, self.position, self.level, self.path, self.reason)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One AIM object, in the namespace that it would be applied to."""

    file: str
    document: Document
    kind: Kind
    version: str  # as written
    obj: Json

    @property
    def subject(self) -> str:
        """Kind and name for people."""
        place = f"{view.namespace_of(self.obj)}/" if self.kind.namespaced else ""
        return f"{self.kind.kind} {place}{view.name_of(self.obj) or '(no name)'}"

    def tell(self, level: Level, path: str, reason: Reason, message: str) -> Finding:
        """Return a finding about one of its fields."""
        document = self.document
        return Finding(self.file, document.locate(path), level, reason, message, path, self.subject, document.origin)

    def error(self, error: FieldError) -> Finding:
        """Return a field error with its place."""
        return self.tell("error", error.path, error.reason, error.message)

    def warning(self, warning: FieldWarning) -> Finding:
        """Return a warning with its place."""
        return self.tell("warning", warning.path, warning.reason, warning.detail)


@dataclass(slots=True)
class Collected:
    """The content of the files: AIM objects, findings so far, and the number of objects of other kinds."""

    manifests: list[Manifest] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    others: int = 0
    foreign: int = 0  # files without an AIM object and without a problem

    def add(self, file: str, documents: Iterable[Document], problems: Iterable[Problem], namespace: str) -> None:
        """Add the documents of one file; objects without a namespace get `namespace`."""
        documents, problems = list(documents), list(problems)
        self.foreign += not documents and not problems
        for problem in problems:
            self.findings.append(_from_problem(file, problem))
        for document in documents:
            for problem in document.problems:
                self.findings.append(_from_problem(file, problem, document.origin))
            manifest = self._classify(file, document, namespace)
            if manifest is not None:
                self.manifests.append(manifest)

    def _classify(self, file: str, document: Document, namespace: str) -> Manifest | None:
        value = document.value
        version, kind = view.text(value, "apiVersion"), view.text(value, "kind")
        if not isinstance(value, Mapping) or (version is None and kind is None):
            self.findings.append(
                _tell(
                    file, document, "", Reason.NOT_AN_OBJECT, "not a Kubernetes object: apiVersion and kind are missing"
                )
            )
            return None
        group, _, number = (version or "").rpartition("/")
        known = KIND_BY_NAME.get(kind or "")
        if group != AIM_GROUP:
            self.others += 1
            if known is not None:
                message = f'{kind} belongs to {AIM_GROUP}, not to "{version or ""}"; it was not checked'
                self.findings.append(
                    _tell(file, document, "apiVersion", Reason.GROUP_UNKNOWN, message, level="warning")
                )
            return None
        if known is None:
            if not kind:
                self.findings.append(_tell(file, document, "kind", Reason.NOT_AN_OBJECT, "must be set"))
                return None
            hint = did_you_mean(kind, KIND_BY_NAME)
            message = f'{AIM_GROUP} has no kind "{kind}"' + (f" ({hint})" if hint else "")
            self.findings.append(_tell(file, document, "kind", Reason.KIND_UNKNOWN, message))
            return None
        if number not in _VERSIONS[known.kind]:
            served = " or ".join(f"{AIM_GROUP}/{one}" for one in _VERSIONS[known.kind])
            message = f'{known.kind} is not served in version "{number}"; write {served}'
            self.findings.append(_tell(file, document, "apiVersion", Reason.VERSION_UNKNOWN, message))
            return None
        return Manifest(file, document, known, number, _placed(value, known, namespace))


def _from_problem(file: str, problem: Problem, origin: str = "") -> Finding:
    return Finding(file, problem.position, "error", problem.reason, problem.detail, problem.path, origin=origin)


def _tell(file: str, document: Document, path: str, reason: Reason, message: str, *, level: Level = "error") -> Finding:
    return Finding(file, document.locate(path), level, reason, message, path, origin=document.origin)


def _placed(obj: Mapping[str, Any], kind: Kind, namespace: str) -> Json:
    """Return the object in the namespace where `kubectl apply -n` would put it."""
    metadata = obj.get("metadata")
    if not kind.namespaced or not isinstance(metadata, Mapping) or metadata.get("namespace") not in (None, ""):
        return obj
    return {**obj, "metadata": {**metadata, "namespace": namespace}}


def judge(
    collected: Collected,
    world: World,
    *,
    context: Context = DEFAULT_CONTEXT,
    step: Callable[[], None] | None = None,
) -> list[Finding]:
    """Return all findings in the order of the files. `world` holds the manifests and all other known objects.

    `step` is called after each object, to show progress.
    """
    found = [*collected.findings, *_duplicates(collected.manifests)]
    for manifest in collected.manifests:
        found += _judge_one(manifest, world, context)
        if step is not None:
            step()
    return sorted(dict.fromkeys(found), key=lambda finding: finding.order)


def _judge_one(manifest: Manifest, world: World, context: Context) -> Iterator[Finding]:
    shape = check_shape(manifest.kind, manifest.obj)
    for error in shape:
        yield manifest.error(_with_raw(error, manifest.document))
    if manifest.version == AIM_SERVICE_V1ALPHA1.version and manifest.kind.kind == AIM_SERVICE_V1ALPHA1.kind:
        message = f"v1alpha1 is deprecated; write {AIM_GROUP}/v1alpha2 (adapters then need spec.profile)"
        yield manifest.tell("warning", "apiVersion", Reason.VERSION_DEPRECATED, message)
    said = {error.path for error in shape}
    verdict = validate(manifest.kind, manifest.obj, None, world, request_version=manifest.version, context=context)
    for field_error in verdict.errors:
        if field_error.path not in said:
            yield manifest.error(field_error)
    for warning in verdict.warnings:
        if warning.path not in said or not warning.path:
            yield manifest.warning(warning)
    for failure in verdict.failures:
        yield manifest.tell(
            "error" if failure.blocks else "warning", "", Reason.RULE_FAILED, f"rule {failure.rule} failed"
        )


def _with_raw(error: FieldError, document: Document) -> FieldError:
    """Show in the hint of a wrong type the text as written: `yes`, not `true`."""
    raw = document.raw(error.path)
    if error.reason != Reason.TYPE_WRONG or not error.hint.startswith("quote it") or raw is None:
        return error
    return FieldError(error.path, error.reason, error.cause, error.detail, raw, f'quote it: "{raw}"')


def _duplicates(manifests: Iterable[Manifest]) -> Iterator[Finding]:
    first: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        if not view.name_of(manifest.obj):
            continue
        key = address(manifest.kind, view.namespace_of(manifest.obj), view.name_of(manifest.obj))
        other = first.setdefault(key, manifest)
        if other is not manifest:
            place = other.document.locate("metadata.name")
            message = f"{manifest.subject} is already defined in {other.file}:{place.line}"
            yield manifest.tell("error", "metadata.name", Reason.OBJECT_DUPLICATE, message)
