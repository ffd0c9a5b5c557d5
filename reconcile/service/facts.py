"""What a pass over one AIMService may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from api import view
from api.errors import FieldError
from api.jobs import Progress
from api.names import ANNOTATION_TAKE_OVER, FIELD_OWNER, LABEL_MANAGED_BY
from api.reasons import Reason
from api.view import Json
from reconcile.jobs import JobState
from reconcile.objects import owned_by
from reconcile.service.live import AdapterWiring, live_wiring
from reconcile.service.loading import ServerPod
from reconcile.service.plan import Plan
from reconcile.settings import ReconcileSettings
from rules.lazy import lazy
from rules.rank import CeilingDecision, decide_ceiling
from rules.seen import ServiceSeen

ADAPTER_CONFIG_REASONS = frozenset(
    {
        Reason.ADAPTER_ARTIFACT_INVALID,
        Reason.ADAPTER_DECLARED_TWICE,
        Reason.ADAPTER_INCOMPATIBLE,
        Reason.ADAPTER_NOT_AN_ADAPTER,
        Reason.ADAPTER_PARENT_MISMATCH,
        Reason.ADAPTER_PATH_DUPLICATE,
        Reason.ADAPTER_PATH_INVALID,
        Reason.ADAPTER_RANK_ABOVE_CEILING,
        Reason.DEDICATED_CACHING_WITH_ADAPTERS,
        Reason.FEATURE_MISSING,
        Reason.FEATURE_SCALE_ONLY,
        Reason.MAX_RANK_IN_STATIC_MODE,
        Reason.MAX_RANK_UNSUPPORTED,
        Reason.MODEL_SOURCES_AMBIGUOUS,
        Reason.RUNTIME_CONFIG_MAX_RANK_UNSUPPORTED,
    }
)


@dataclass(frozen=True)  # without slots: what follows from the fields is worked out once and kept
class ServiceFacts:
    """All that a pass over one service looks at.

    `facts`: what follows from the service and others by the rules; `plan`: what they say is to run. `caches`: caches
    of the namespace for `cache_origin(facts)`. `disk_claim`: the adapter disk of the base; `kept_claim`: the one that
    the running server mounts, where that is another one and exists. `progress`: by Job UID. `pods`: ready pods of the
    predictor with what their servers list. `pool_nodes`: 0 when no node offers the accelerator, None when nodes are not
    watched. `refusal`: what the API server said when it last refused our InferenceService, with its reason.
    `free_jobs`: staging Jobs that may start now, None: any number.
    """

    facts: ServiceSeen
    now: datetime
    settings: ReconcileSettings
    errors: tuple[FieldError, ...] = ()
    plan: Plan | None = None
    caches: tuple[Json, ...] = ()
    disk_claim: Json | None = None
    kept_claim: Json | None = None
    sync_jobs: tuple[JobState, ...] = ()
    stage_jobs: tuple[JobState, ...] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)
    isvc: Json | None = None
    deployment: Json | None = None
    predictor_pods: tuple[Json, ...] = ()
    pods: tuple[ServerPod, ...] = ()
    config_maps: tuple[Json, ...] = ()
    pool_nodes: int | None = None
    refusal: str = ""
    refusal_reason: Reason = Reason.INFERENCE_SERVICE_REFUSED
    free_jobs: int | None = None

    @property
    def service(self) -> Json:
        """The service itself."""
        return self.facts.new

    @lazy
    def live(self) -> Json | None:
        """The InferenceService, if it is this service's own."""
        return self.isvc if self.isvc is not None and owned_by(self.isvc, self.service) else None

    @lazy
    def made_by(self) -> str:
        """Who made the live InferenceService, if that is another operator whose work is left as it is; else empty.

        An apply would replace its pods, since no two operators write the same. Its service's annotation allows it.
        """
        maker = view.text(self.live, "metadata", "labels", LABEL_MANAGED_BY) or ""
        return "" if maker == FIELD_OWNER or view.annotation(self.service, ANNOTATION_TAKE_OVER) == "true" else maker

    @lazy
    def wiring(self) -> AdapterWiring | None:
        """The adapter part of the running server, None when it has none."""
        return live_wiring(self.live)

    @property
    def stranded(self) -> bool:
        """Whether no server is ready and none can start: the adapter disk that it mounts is gone with its base."""
        kept = self.wiring
        if kept is None or self.pods:
            return False
        claim = self.disk_claim if kept.claim == view.name_of(self.disk_claim) else self.kept_claim
        return claim is None or view.terminating(claim)

    @lazy
    def base(self) -> Json:
        """The base artifact, empty while it is not known."""
        base = self.facts.base
        return base.artifact if base.known and not view.terminating(base.artifact) else view.EMPTY

    @lazy
    def adapter_errors(self) -> tuple[FieldError, ...]:
        """Errors that concern the adapter part only: the rest of a running server still follows its spec."""
        if not view.uses_adapters(self.service):
            return ()
        return tuple(error for error in self.errors if error.reason in ADAPTER_CONFIG_REASONS)

    @property
    def other_errors(self) -> tuple[FieldError, ...]:
        """Errors that make the whole spec unservable."""
        concerned = set(map(id, self.adapter_errors))
        return tuple(error for error in self.errors if id(error) not in concerned)

    @property
    def may_prepare(self) -> bool:
        """Whether cache, disk and siblings continue although the configuration is not valid.

        A running server needs them, and single invalid adapters never hold the others back.
        """
        return self.live is not None or (
            bool(self.errors)
            and all(
                error.reason in ADAPTER_CONFIG_REASONS and error.path.startswith("spec.adapters[")
                for error in self.errors
            )
        )

    @property
    def status(self) -> Json:
        """The status as it was stored last."""
        return view.mapping(self.service, "status")

    @lazy
    def ceiling(self) -> CeilingDecision:
        """The rank ceiling; where the status was lost, a running server still has the last valid one."""
        if self.facts.reported_ceiling is not None or self.wiring is None:
            return self.facts.ceiling
        return decide_ceiling(self.service, self.facts.config, self.facts.artifacts, self.wiring.max_rank)

    @property
    def wanted_replicas(self) -> int | None:
        """Replicas that the Deployment is to have, None while there is no Deployment."""
        return view.integer(self.deployment, "spec", "replicas")

    @property
    def serving_replicas(self) -> int:
        """Replicas that are ready now, by the Deployment, else by the pods."""
        if self.deployment is None:
            return len(self.pods)
        return view.integer(self.deployment, "status", "readyReplicas") or 0

    @property
    def disk_claim_name(self) -> str:
        """Name of the adapter disk's claim as the base publishes it, empty while there is none."""
        return view.text(self.base, "status", "adapterPersistentVolumeClaim") or ""
