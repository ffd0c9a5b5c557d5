"""The shell of AIMService: observes from caches and polls, lets `decide` decide, carries it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from api import view
from api.accelerators import node_matches, node_selector_terms
from api.kinds import (
    AIM_ARTIFACT,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_TEMPLATE_CACHE,
    CONFIG_MAP,
    DEPLOYMENT,
    INFERENCE_SERVICE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
)
from api.names import (
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
    inference_service_name,
)
from api.reasons import Reason
from api.view import Json
from api.words import parse_time
from kube.cache import Key
from kube.engine import Watch, keys_of_both
from kube.poll import Poller, Question
from reconcile.conditions import too_large
from reconcile.controllers import REFUSED_AGAIN, Keys, Tools, keys, owner_key, unless_progress, url_host, watch_jobs
from reconcile.decision import Decision, EventNote, sooner
from reconcile.pods import mounted_by, server_started
from reconcile.service.cache import cache_origin
from reconcile.service.decide import OF_THE_SERVER, decide
from reconcile.service.entry import answers_needed_since
from reconcile.service.facts import ServiceFacts
from reconcile.service.live import PORT
from reconcile.service.loading import ServerPod
from reconcile.service.plan import Plan, make_plan
from reconcile.shell import Again, ApplyRefusedError
from reconcile.world import (
    CONFIG_KINDS,
    LABEL_ISVC,
    MODEL_KINDS,
    PROFILE_KINDS,
    TEMPLATE_KINDS,
    isvc_of,
    owner_name,
    templates_of,
    word,
)
from rules.bounds import beyond
from rules.seen import ServiceSeen, see_service
from rules.validate import judge_seen
from rules.world import Index

_CALM_INTERVAL = 30.0  # seconds between two looks at a server of which nothing new is expected
_SETTLED = frozenset({"Loaded", "Failed", "Pending", "LoadRejected"})


class ServiceController:
    """Converges AIMServices."""

    name = "service"

    def __init__(self, tools: Tools, servers: Poller) -> None:
        """Take the shared tools; `servers` polls `/v1/models` of ready pods."""
        self._tools = tools
        self._servers = servers
        self._refusals: dict[Key, tuple[str, ApplyRefusedError]] = {}  # key → (UID, what the API server said)
        self._taken: dict[Key, Key] = {}  # an InferenceService that is not its service's own → the service that waits

    @property
    def watches(self) -> Sequence[Watch]:
        """Services, and everything whose change may concern one."""
        informers = self._tools.informers
        watched = [
            Watch(informers[AIM_SERVICE], keys_of_both(lambda service: keys([service]))),
            Watch(informers[AIM_ARTIFACT], unless_progress(self._by_artifact)),
            Watch(informers[PERSISTENT_VOLUME_CLAIM], keys_of_both(self._by_claim)),
            Watch(informers[INFERENCE_SERVICE], keys_of_both(self._by_inference_service)),
            Watch(informers[CONFIG_MAP], keys_of_both(owner_key(AIM_SERVICE))),
            Watch(informers[POD], keys_of_both(self._by_predictor)),
            *watch_jobs(informers, AIM_SERVICE),
            Watch(informers[DEPLOYMENT], keys_of_both(self._by_predictor)),
            Watch(informers[AIM_PROFILE_CACHE], keys_of_both(self._by_cache)),
            Watch(informers[AIM_TEMPLATE_CACHE], keys_of_both(self._by_cache)),
        ]
        watched += [Watch(informers[kind], keys_of_both(self._by_profile)) for kind in PROFILE_KINDS]
        watched += [Watch(informers[kind], keys_of_both(self._by_config)) for kind in CONFIG_KINDS]
        watched += [Watch(informers[kind], keys_of_both(self._by_model)) for kind in MODEL_KINDS]
        watched += [Watch(informers[kind], keys_of_both(self._by_template)) for kind in TEMPLATE_KINDS]
        return tuple(watched)

    def _by_inference_service(self, isvc: Json) -> Keys:
        """The service that owns it, and the one that waits until its name is free."""
        waiting = self._taken.get((view.namespace_of(isvc), view.name_of(isvc)))
        return [*owner_key(AIM_SERVICE)(isvc), *((waiting,) if waiting is not None else ())]

    def _by_profile(self, profile: Json) -> Keys:
        """Services that name the profile, and the one whose own overlay of another it is."""
        return [*self._by_name("profile")(profile), *owner_key(AIM_SERVICE)(profile)]

    def _by_config(self, config: Json) -> Keys:
        """Services that use the RuntimeConfig, and those that declare an adapter whose Jobs use it."""
        found = list(self._by_name("runtime-config")(config))
        namespace, name = view.namespace_of(config), view.name_of(config)
        index, wanted = ("runtime-config", f"{namespace}/{name}") if namespace else ("any-runtime-config", name)
        for artifact in self._tools.informers[AIM_ARTIFACT].by_index(index, wanted):
            found += keys(self._services("adapter", word(artifact, view.name_of(artifact))))
        return dict.fromkeys(found)

    def _by_model(self, model: Json) -> Keys:
        """Services that name the model, its image, or only a template of it."""
        found = [
            *self._by_name("model")(model),
            *keys(self._services("image", view.text(model, "spec", "image") or "")),
        ]
        for template in templates_of(self._tools.informers, model):
            found += self._by_name("template")(template)
        return dict.fromkeys(found)

    def _by_template(self, template: Json) -> Keys:
        """Services that name the template, and those that choose among the templates of its model."""
        found = list(self._by_name("template")(template))
        namespace, name = view.namespace_of(template), view.text(template, "spec", "modelName")
        if name is None:
            return found
        found += keys(
            self._services("model", f"{namespace}/{name}") if namespace else self._services("any-model", name)
        )
        models = [
            model
            for kind in MODEL_KINDS
            for model in self._tools.informers[kind].items()
            if view.name_of(model) == name
        ]
        for image in sorted({image for model in models if (image := view.text(model, "spec", "image"))}):
            found += keys(self._services("image", image))
        return dict.fromkeys(found)

    def _by_name(self, index: str) -> Callable[[Json], Keys]:
        """Services that name an object of this kind: of its namespace, or of all for a cluster kind."""

        def concerned(obj: Json) -> Keys:
            if view.namespace_of(obj):
                return keys(self._services(index, word(obj, view.name_of(obj))))
            return keys(self._services(f"any-{index}", view.name_of(obj)))

        return concerned

    def _services(self, index: str, wanted: str) -> list[Json]:
        return list(self._tools.informers[AIM_SERVICE].by_index(index, wanted))

    def _by_artifact(self, artifact: Json) -> Keys:
        """Services that declare the adapter, and services whose base it is."""
        own = word(artifact, view.name_of(artifact))
        base = self._tools.world.find(Index.SERVICES_BY_BASE, view.namespace_of(artifact), view.name_of(artifact))
        return keys([*self._services("adapter", own), *base])

    def _by_claim(self, claim: Json) -> Keys:
        base = owner_name(claim, AIM_ARTIFACT)
        return keys(self._tools.world.find(Index.SERVICES_BY_BASE, view.namespace_of(claim), base)) if base else []

    def _by_cache(self, cache: Json) -> Keys:
        """Services that use the cache, and those of its profile or template that may use it now."""
        origin = view.cached_name(cache)
        found = self._services("cache", word(cache, view.name_of(cache)))
        for index in ("profile", "template", "model"):
            found += self._services(index, word(cache, origin))
        overlay = self._tools.find(AIM_PROFILE, view.namespace_of(cache), origin)
        return [*keys(found), *(owner_key(AIM_SERVICE)(overlay) if overlay is not None else ())]

    def _by_predictor(self, obj: Json) -> Keys:
        isvc = self._tools.find(INFERENCE_SERVICE, view.namespace_of(obj), isvc_of(obj))
        return owner_key(AIM_SERVICE)(isvc) if isvc is not None else []

    async def reconcile(self, key: Key) -> timedelta | None:
        """Make one pass over a service."""
        tools = self._tools
        service = tools.find(AIM_SERVICE, *key)
        if service is None or view.terminating(service) or view.paused(service):
            tools.progress.want(key, {})
            self._servers.want(key, {})
            self._refusals.pop(key, None)
            self._note_taken(key, taken=False)
            tools.turns.leave((self.name, key))
            return None
        if (large := beyond(AIM_SERVICE, service)) is not None:
            tools.progress.want(key, {})
            self._servers.want(key, {})
            tools.turns.leave((self.name, key))
            decision = Decision(status=too_large(service, large.error, tools.now()), at_rest=True)
            return await tools.shell.carry_out(AIM_SERVICE, service, decision)
        look = await tools.look_at_starts(service)
        seen = self._observe(key, service)
        self._note_taken(key, taken=seen.isvc is not None and seen.live is None)
        decision = decide(seen)
        again = self._again(key, seen, decision)
        try:
            recheck = await tools.turns.carry_out(
                (self.name, key), decision, lambda: tools.shell.carry_out(AIM_SERVICE, service, decision, again)
            )
        except ApplyRefusedError as error:
            if error.kind not in OF_THE_SERVER:  # reported where it was tried
                raise
            return self._refused(key, service, error)
        self._refusals.pop(key, None)
        return sooner(recheck, look)

    def _note_taken(self, key: Key, *, taken: bool) -> None:
        """Remember who waits for a name: no owner reference of that InferenceService leads here when it is deleted."""
        if not taken and not self._taken:
            return  # nearly always: no name is worked out
        namespace, service = key
        isvc = (namespace, inference_service_name(service, namespace) or "")
        if taken:
            self._taken[isvc] = key
        else:
            self._taken.pop(isvc, None)

    def _again(self, key: Key, seen: ServiceFacts, decision: Decision) -> Again | None:
        """How to decide again after an apply; None where the status must report what this very decision did.

        A Job's start is in the status before the next step counts on it, and so is why a running server is replaced.
        """
        if seen.isvc is not None or decision.create or decision.delete:
            return None

        def again(refused: ApplyRefusedError | None) -> Decision:
            if refused is not None and refused.kind in OF_THE_SERVER:
                self._refused(key, seen.service, refused, reported=True)
            decided = decide(self._observe(key, seen.service))
            self._tools.turns.begin((self.name, key), decided)
            return decided

        return again

    def _refused(self, key: Key, service: Json, error: ApplyRefusedError, *, reported: bool = False) -> timedelta:
        """Remember what the API server said, so that the next pass (at once if it is news) puts it into the status.

        Raises: the error where a retry may succeed and it is not new, for the work queue's backoff.
        """
        uid, known = self._refusals.get(key, ("", None))
        if uid == view.uid_of(service) and known is not None and known.message == error.message:
            if not (error.lasting or reported):
                raise error
            return REFUSED_AGAIN
        self._refusals[key] = (view.uid_of(service), error)
        self._tools.shell.tell(service, EventNote("Warning", error.reason, error.message))
        return timedelta(seconds=1)

    # -- observation ------------------------------------------------------------------------------------------------

    def _observe(self, key: Key, service: Json) -> ServiceFacts:
        tools = self._tools
        namespace = view.namespace_of(service)
        facts = see_service(service, tools.world)
        plan = make_plan(facts.pipeline, service)
        isvc = tools.find(INFERENCE_SERVICE, namespace, inference_service_name(view.name_of(service), namespace))
        if isvc is None:  # another operator may have called it differently
            isvc = min(tools.owned(INFERENCE_SERVICE, service), key=view.name_of, default=None)
        name = view.name_of(isvc)
        deployment = tools.find(DEPLOYMENT, namespace, f"{name}-predictor" if isvc is not None else None)
        pods = self._predictor_pods(namespace, name) if isvc is not None else ()
        stage_jobs = tools.jobs(service, ROLE_STAGING)
        uid, refusal = self._refusals.get(key, ("", None))
        refusal = refusal if uid == view.uid_of(service) else None
        seen = ServiceFacts(
            facts=facts,
            now=tools.now(),
            settings=tools.settings,
            errors=tuple(judge_seen(facts).errors),
            plan=plan,
            caches=self._caches(facts),
            disk_claim=self._disk_claim(facts),
            sync_jobs=tools.jobs(service, ROLE_SUBTREE_SYNC),
            stage_jobs=stage_jobs,
            progress=tools.follow(key, stage_jobs),
            isvc=isvc,
            deployment=deployment,
            predictor_pods=pods,
            pods=self._ask_servers(key, service, pods),
            config_maps=tuple(tools.owned(CONFIG_MAP, service)),
            pool_nodes=self._pool_nodes(plan),
            refusal=refusal.message if refusal is not None else "",
            refusal_reason=refusal.reason if refusal is not None else Reason.INFERENCE_SERVICE_REFUSED,
            free_jobs=tools.turns.free((self.name, key)),
        )
        if seen.wiring is None or seen.wiring.claim == view.name_of(seen.disk_claim):
            return seen
        return replace(seen, kept_claim=tools.find(PERSISTENT_VOLUME_CLAIM, namespace, seen.wiring.claim))

    def _caches(self, facts: ServiceSeen) -> tuple[Json, ...]:
        """Caches of the namespace for the same profile, template or model (or the service's overlay of it)."""
        origin = cache_origin(facts)
        if origin is None:
            return ()
        found = self._tools.informers[origin.kind].by_index("origin", word(facts.new, origin.name))
        return tuple(cache for cache in found if view.cached_scope(cache) == origin.scope)

    def _disk_claim(self, facts: ServiceSeen) -> Json | None:
        if not facts.base.known:
            return None
        name = view.text(facts.base.artifact, "status", "adapterPersistentVolumeClaim")
        return self._tools.find(PERSISTENT_VOLUME_CLAIM, view.namespace_of(facts.new), name)

    def _predictor_pods(self, namespace: str, isvc: str | None) -> tuple[Json, ...]:
        pods = self._tools.informers[POD].by_index("isvc", f"{namespace}/{isvc}")
        return tuple(pod for pod in pods if view.text(pod, "metadata", "labels", LABEL_ISVC) == isvc)

    def _ask_servers(self, key: Key, service: Json, pods: Sequence[Json]) -> tuple[ServerPod, ...]:
        """Return the ready pods with what their servers list; ask them from now on, more often while news is due."""
        ready = [(pod, since) for pod in pods if (since := _ready_since(pod)) and not view.terminating(pod)]
        expected = view.uses_adapters(service) or bool(view.items(service, "status", "adapters"))
        interval, newer_than = self._interval(service), answers_needed_since(service, self._tools.settings)
        questions = {
            view.uid_of(pod): Question(f"http://{url_host(address)}:{PORT}/v1/models", interval, newer_than)
            for pod, _ in ready
            if expected and (address := view.text(pod, "status", "podIP"))
        }
        self._servers.want(key, questions)
        return tuple(self._server_pod(pod, since) for pod, since in ready)

    def _server_pod(self, pod: Json, ready_since: str) -> ServerPod:
        uid = view.uid_of(pod)
        answer = self._servers.answer(uid)
        return ServerPod(
            view.name_of(pod),
            parse_time(ready_since),
            answer.said if answer is not None else None,
            *mounted_by(pod),
            server_started(pod),
            self._servers.mute(uid),
            answer.asked if answer is not None else None,
        )

    def _interval(self, service: Json) -> float:
        states = {view.text(entry, "state") for entry in view.items(service, "status", "adapters")}
        if states <= _SETTLED:
            return _CALM_INTERVAL
        return max(1.0, min(_CALM_INTERVAL, self._tools.settings.refresh_interval.total_seconds() / 5))

    def _pool_nodes(self, plan: Plan | None) -> int | None:
        """1 when some node offers the accelerator, 0 when none does; None when no node is watched or asked for."""
        nodes = self._tools.informers.get(NODE)
        if nodes is None or not nodes.synced.is_set():
            return None
        if plan is None or plan.accelerator_model is None or not plan.gpus:
            return None
        terms = node_selector_terms(plan.accelerator_model, plan.partitioning)
        return int(any(node_matches(view.mapping(node, "metadata", "labels"), terms) for node in nodes.items()))


def _ready_since(pod: Json) -> str | None:
    """When the pod became ready, None while it is not."""
    for condition in view.items(pod, "status", "conditions"):
        if view.dig(condition, "type") == "Ready" and view.dig(condition, "status") == "True":
            return view.text(condition, "lastTransitionTime") or view.text(pod, "metadata", "creationTimestamp")
    return None
