"""What a rule sees: an object, its old self, the world, and what follows from them, worked out when first asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from api import view
from api.errors import Cause, FieldError
from api.kinds import AIM_SERVICE, Kind
from api.names import FEATURE_ADAPTERS
from api.reasons import Reason
from api.view import AdapterRef, Json
from rules.adapters import AdapterFindings, judge_adapters
from rules.lazy import lazy
from rules.rank import ORIGIN_SERVICE, Ceiling, CeilingDecision, asked_ceiling, decide_ceiling
from rules.resolve import (
    ArtifactState,
    BaseResolution,
    MergedRuntimeConfig,
    Pipeline,
    Ref,
    Resolved,
    artifact_state,
    resolve_base,
    resolve_pipeline,
    service_runtime_config,
)
from rules.verdict import Finding
from rules.world import World


@dataclass(frozen=True, slots=True)
class Context:
    """Settings that rules depend on.

    `admission_only`: another operator acts on the objects, so unimplemented fields are none of our business.
    `rollout`: the predictor's deployment strategy in words, named where a change rolls pods.
    """

    admission_only: bool = False
    rollout: str = "maxSurge 0, maxUnavailable 1"


DEFAULT_CONTEXT = Context()


_NO_CONFIG = MergedRuntimeConfig("", None, None)  # where a RuntimeConfig has no say in the ceiling


class Seen:
    """An object under judgement. Nothing of it may be changed."""

    def __init__(
        self,
        kind: Kind,
        new: Json,
        old: Json | None,
        world: World,
        *,
        request_version: str = "",
        context: Context = DEFAULT_CONTEXT,
    ) -> None:
        """Take the parsed objects as they are; `request_version` is the version that the user wrote, if known."""
        self.kind = kind
        self.new = new
        self.old = old
        self.world = world
        self.request_version = request_version
        self.context = context
        self.spec = view.mapping(new, "spec")
        self.old_spec = view.mapping(old, "spec")
        self.namespace = view.namespace_of(new)  # empty for cluster kinds

    @lazy
    def name(self) -> str:
        """metadata.name."""
        return view.name_of(self.new)

    @lazy
    def before(self) -> Self | None:
        """The old object in the same world, None on creation."""
        if self.old is None:
            return None
        before = type(self)(
            self.kind, self.old, None, self.world, request_version=self.request_version, context=self.context
        )
        self._tell(before)
        return before

    def _tell(self, before: Self) -> None:
        """Tell the old object's view what is worked out already and the edit leaves alone."""

    def changed(self, key: str) -> bool:
        """Whether a field of the spec differs from the old object's (nulls count as absent); False on creation."""
        return self.old is not None and tidy(self.old_spec.get(key)) != tidy(self.spec.get(key))

    @property
    def me(self) -> Ref:
        """This object's own address."""
        return Ref(self.kind, self.namespace if self.kind.namespaced else None, self.name)


_FOLLOWS_FROM = {
    "refs": ("adapters",),
    "artifacts": ("adapters",),
    "config": ("runtimeConfigName",),
    "pipeline": ("profile", "profileOverrides", "model", "template"),
}
"""What is worked out about a service, and the fields of its spec that it follows from (beside the namespace)."""


class ServiceSeen(Seen):
    """An AIMService under judgement, with everything that it refers to."""

    def _tell(self, before: Self) -> None:
        known, spec, old = self.__dict__, self.spec, self.old_spec
        if before.namespace != self.namespace:
            return
        for name, fields in _FOLLOWS_FROM.items():
            if name in known and all(old.get(key) == spec.get(key) for key in fields):
                before.__dict__[name] = known[name]

    @lazy
    def refs(self) -> tuple[AdapterRef, ...]:
        """The declared adapters."""
        return view.adapter_refs(self.new)

    @lazy
    def env(self) -> tuple[str, ...]:
        """The names of spec.env, in its order; entries without one are empty."""
        if "env" not in self.spec:
            return ()
        return tuple([view.text(entry, "name") or "" for entry in view.items(self.spec, "env")])

    @lazy
    def dynamic(self) -> bool:
        """Whether adapterMode is dynamic."""
        return self.spec.get("adapterMode") == "dynamic"

    @lazy
    def uses_adapters(self) -> bool:
        """Whether the adapter contract applies."""
        return self.dynamic or bool(self.refs)

    @lazy
    def pipeline(self) -> Pipeline:
        """Profile or template pipeline, resolved."""
        return resolve_pipeline(self.world, self.new)

    @property
    def profile(self) -> Json | None:
        """The profile, where it exists."""
        reference = self.pipeline.profile
        return reference.obj if isinstance(reference, Resolved) else None

    @lazy
    def feature(self) -> str | None:
        """The feature token that rules in the effective profile."""
        features = view.items(view.spec_of(self.profile), "features")
        if FEATURE_ADAPTERS in features:  # it rules whatever else is there
            return FEATURE_ADAPTERS
        return view.feature_token(view.effective_features(self.profile, self.new))

    @lazy
    def base(self) -> BaseResolution:
        """The base that the adapters bind to."""
        return resolve_base(self.world, self.new, self.pipeline)

    @lazy
    def config(self) -> MergedRuntimeConfig:
        """The RuntimeConfig, merged."""
        return service_runtime_config(self.world, self.new)

    @lazy
    def artifacts(self) -> Mapping[str, ArtifactState]:
        """The declared adapters' artifacts by name."""
        world, namespace = self.world, self.namespace
        return {ref.name: artifact_state(world, namespace, ref.name) for ref in self.refs}

    @lazy
    def reported_ceiling(self) -> int | None:
        """status.adapterMaxRank."""
        return view.integer(self.new, "status", "adapterMaxRank")

    @lazy
    def ceiling(self) -> CeilingDecision:
        """The rank ceiling."""
        return decide_ceiling(self.new, self._ceiling_config, self.artifacts, self.reported_ceiling, refs=self.refs)

    @lazy
    def asked_ceiling(self) -> Ceiling:
        """The ceiling that adapters are judged against."""
        return asked_ceiling(self.new, self._ceiling_config)

    @property
    def _ceiling_config(self) -> MergedRuntimeConfig:
        needed = self.dynamic and view.integer(self.spec.get("adapterRuntime"), "maxRank") is None
        return self.config if needed else _NO_CONFIG

    @lazy
    def adapter_findings(self) -> list[AdapterFindings]:
        """What is wrong with single adapters."""
        if not self.refs:
            return []
        asked = self.asked_ceiling
        rests_on = () if asked.origin == ORIGIN_SERVICE or not self.dynamic else self.config.looked_at
        return judge_adapters(self.new, self.artifacts, self.base, asked, rests_on, refs=self.refs)

    def findings_about_adapters(self, reason: Reason) -> Iterable[Finding]:
        """The findings of one reason, all adapters."""
        if not self.adapter_findings:
            return ()
        return [
            finding for entry in self.adapter_findings for finding in entry.findings if finding.error.reason == reason
        ]

    @property
    def pods(self) -> int:
        """How many pods run now (status.runtime.currentReplicas)."""
        return view.integer(self.new, "status", "runtime", "currentReplicas") or 0


def tidy(value: object) -> object:
    """Drop nulls, so that an absent field and a null one are the same; the value itself stays as it is."""
    if isinstance(value, Mapping):
        return {key: tidy(part) for key, part in value.items() if part is not None}
    return [tidy(part) for part in value] if isinstance(value, list) else value


def invalid(path: str, reason: Reason, detail: str, hint: str = "", value: object = None) -> Finding:
    """A finding that rests on the manifest alone, cause Invalid."""
    return Finding(FieldError(path, reason, Cause.INVALID, detail, value, hint))


def required(path: str, reason: Reason, detail: str, hint: str = "", rests_on: tuple[Ref, ...] = ()) -> Finding:
    """A finding about something that is not there."""
    return Finding(FieldError(path, reason, Cause.REQUIRED, detail, None, hint), rests_on)


def forbidden(path: str, reason: Reason, detail: str, hint: str = "") -> Finding:
    """A finding about something that must not be there."""
    return Finding(FieldError(path, reason, Cause.FORBIDDEN, detail, None, hint))


def see_service(service: Json, world: World, *, context: Context = DEFAULT_CONTEXT) -> ServiceSeen:
    """Return everything that follows from a service and the world: references, base, ceiling, findings (lazily)."""
    return ServiceSeen(AIM_SERVICE, service, None, world, context=context)
