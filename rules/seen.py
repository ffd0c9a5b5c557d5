"""What a rule sees: an object, its old version, other objects, and what follows from them, computed on first use."""

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
from rules.base import BaseResolution, resolve_base
from rules.lazy import lazy
from rules.pipeline import Pipeline, resolve_pipeline
from rules.rank import ORIGIN_SERVICE, Ceiling, CeilingDecision, asked_ceiling, decide_ceiling
from rules.references import ArtifactState, Ref, Resolved, artifact_state
from rules.runtime_config import MergedRuntimeConfig, service_runtime_config
from rules.verdict import Finding
from rules.world import World


@dataclass(frozen=True, slots=True)
class Context:
    """Settings that rules depend on.

    `admission_only`: another operator acts on the objects, so unimplemented fields are not reported.
    `allowed_images`: prefixes of the images that download Jobs may run, empty: all.
    `rollout`: the predictor's deployment strategy in words, named where a change rolls pods.
    """

    admission_only: bool = False
    rollout: str = "maxSurge 0, maxUnavailable 1"
    allowed_images: tuple[str, ...] = ()


DEFAULT_CONTEXT = Context()


_NO_CONFIG = MergedRuntimeConfig("", None, None)  # where no RuntimeConfig affects the ceiling


class Seen:
    """An object that is checked. Nothing of it may be changed."""

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
        """The old version of the object among the same other objects, None on creation."""
        if self.old is None:
            return None
        before = type(self)(
            self.kind, self.old, None, self.world, request_version=self.request_version, context=self.context
        )
        self._share(before)
        return before

    def _share(self, before: Self) -> None:
        """Give the old version what is already computed and does not differ from it."""

    def changed(self, key: str) -> bool:
        """Whether a field of the spec differs from the old object's (nulls count as absent); False on creation."""
        return self.old is not None and not same(self.old_spec.get(key), self.spec.get(key), nulls=False)

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
"""What is computed about a service, and the fields of its spec that it follows from (beside the namespace)."""


class ServiceSeen(Seen):
    """An AIMService that is checked, with everything that it refers to."""

    def _share(self, before: Self) -> None:
        known, spec, old = self.__dict__, self.spec, self.old_spec
        if before.namespace != self.namespace:
            return
        for name, fields in _FOLLOWS_FROM.items():
            if name in known and all(same(old.get(key), spec.get(key)) for key in fields):
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
        """The feature token of the effective profile that has an effect."""
        features = view.items(view.spec_of(self.profile), "features")
        if FEATURE_ADAPTERS in features:  # it wins over the other one
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
        """The ceiling that adapters are compared with."""
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


def same(was: object, now: object, *, nulls: bool = True) -> bool:
    """Whether two JSON values are equal, however deeply they are nested.

    Args: `nulls` False: a field that is null equals an absent one.
    """
    if was is now:
        return True
    if nulls:
        try:
            return was == now
        except RecursionError:  # an object that was stored before there were bounds
            pass
    left = [(was, now)]
    while left:
        one, other = left.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            keys = one.keys() | other.keys()
            if nulls and not len(keys) == len(one) == len(other):
                return False
            left += [(one.get(key), other.get(key)) for key in keys]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            left += zip(one, other, strict=True)
        elif isinstance(one, dict | list) or isinstance(other, dict | list) or one != other:
            return False
    return True


def invalid(path: str, reason: Reason, detail: str, hint: str = "", value: object = None) -> Finding:
    """Return a finding with cause Invalid that depends on the manifest alone."""
    return Finding(FieldError(path, reason, Cause.INVALID, detail, value, hint))


def required(path: str, reason: Reason, detail: str, hint: str = "", rests_on: tuple[Ref, ...] = ()) -> Finding:
    """Return a finding about something that is missing."""
    return Finding(FieldError(path, reason, Cause.REQUIRED, detail, None, hint), rests_on)


def forbidden(path: str, reason: Reason, detail: str, hint: str = "") -> Finding:
    """Return a finding about something that must not be set."""
    return Finding(FieldError(path, reason, Cause.FORBIDDEN, detail, None, hint))


def see_service(service: Json, world: World, *, context: Context = DEFAULT_CONTEXT) -> ServiceSeen:
    """Return everything that follows from a service and other objects: references, base, ceiling, findings (lazily)."""
    return ServiceSeen(AIM_SERVICE, service, None, world, context=context)
