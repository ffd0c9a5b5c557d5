"""What the container of an InferenceService mounts, and what is read back from a live one. Pure.

Source: docs/contract.md, Adapter wiring, KServe behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass

from api import view
from api.names import CPU_ADAPTER_SLOTS, GPU_ADAPTER_SLOTS
from api.view import AdapterMode, Json
from reconcile.objects import covers, whole_number
from reconcile.pods import ADAPTER_VOLUME, CONTAINER, MAX_RANK_ENV
from reconcile.settings import ReconcileSettings

PORT = 8000
ADAPTERS_MOUNT = "/adapters"
CACHE_VOLUME = "model-cache"
PROFILE_VOLUME = "aim-profile"


@dataclass(frozen=True, slots=True)
class AdapterWiring:
    """The adapter part of the container: which disk, which mode, which ceiling."""

    claim: str
    mode: str
    max_rank: int

    def env(self, settings: ReconcileSettings) -> dict[str, str]:
        """The AIM_ADAPTER_ variables (docs/contract.md, Adapter wiring)."""
        values = {
            "AIM_ADAPTER_SOURCE": ADAPTERS_MOUNT,
            "AIM_ADAPTER_MODE": self.mode,
            "AIM_ADAPTER_MAX_COUNT": str(GPU_ADAPTER_SLOTS),
            "AIM_ADAPTER_MAX_CPU_COUNT": str(CPU_ADAPTER_SLOTS),
            MAX_RANK_ENV: str(self.max_rank),
        }
        if self.mode == "dynamic":
            values["AIM_ADAPTER_REFRESH_INTERVAL"] = str(max(5, int(settings.refresh_interval.total_seconds())))
        return values


@dataclass(frozen=True, slots=True)
class CacheMount:
    """A base model's files in the container: a directory of a claim, mounted read-only."""

    claim: str
    directory: str
    path: str


def live_cache_mounts(isvc: Json | None) -> tuple[CacheMount, ...]:
    """Read the base models' mounts of a live InferenceService."""
    claims = _claims(isvc)
    mounts = []
    for mount in view.items(_container(isvc), "volumeMounts"):
        name, directory, path = (
            view.text(mount, "name") or "",
            view.text(mount, "subPath"),
            view.text(mount, "mountPath"),
        )
        if name.startswith(CACHE_VOLUME) and name in claims and directory and path:
            mounts.append(CacheMount(claims[name], directory, path))
    return tuple(mounts)


def live_wiring(isvc: Json | None) -> AdapterWiring | None:
    """Read the adapter part of a live InferenceService, or None when it has none."""
    claim = _claims(isvc).get(ADAPTER_VOLUME)
    env = {view.dig(entry, "name"): view.text(entry, "value") for entry in view.items(_container(isvc), "env")}
    rank = whole_number(env.get(MAX_RANK_ENV))
    if claim is None or rank is None:
        return None
    mode: AdapterMode = "dynamic" if env.get("AIM_ADAPTER_MODE") == "dynamic" else "static"
    return AdapterWiring(claim, mode, rank)


def live_config_map(isvc: Json | None) -> str | None:
    """Name of the ConfigMap with the runtime profile that a live InferenceService mounts."""
    for volume in view.items(isvc, "spec", "predictor", "volumes"):
        if view.dig(volume, "name") == PROFILE_VOLUME:
            return view.text(volume, "configMap", "name")
    return None


def _claims(isvc: Json | None) -> dict[str, str]:
    return {
        name: claim
        for volume in view.items(isvc, "spec", "predictor", "volumes")
        if (name := view.text(volume, "name")) and (claim := view.text(volume, "persistentVolumeClaim", "claimName"))
    }


def _container(isvc: Json | None) -> Json:
    for container in view.items(isvc, "spec", "predictor", "containers"):
        if view.dig(container, "name") == CONTAINER:
            return view.mapping(container)
    return {}


# -- why pods roll --------------------------------------------------------------------------------------------------

_NOT_IN_THE_TEMPLATE = frozenset({"minReplicas", "maxReplicas", "deploymentStrategy", "containers"})


def roll_causes(live: Json | None, desired: Json) -> tuple[str, ...]:
    """Return what an apply would change in the pods of a live InferenceService, in words; empty: nothing rolls.

    Values of variables are not shown (they may be secrets), but for the rank ceiling.
    """
    if live is None:
        return ()
    have, want = view.mapping(live, "spec", "predictor"), view.mapping(desired, "spec", "predictor")
    causes = [
        *(f"metadata.{part}" for part in ("labels", "annotations") if not _same(live, desired, "metadata", part)),
        *_differences(have, want, _NOT_IN_THE_TEMPLATE),
    ]
    old, new = _container(live), _container(desired)
    causes += _env_causes(old, new)
    causes += _differences(old, new, frozenset({"env"}))
    return tuple(causes)


def _same(left: Json, right: Json, *path: str) -> bool:
    have, want = view.dig(left, *path), view.dig(right, *path)
    if want is None:
        return not have
    return covers(have, want)


def _differences(have: Json, want: Json, skipped: frozenset[str]) -> list[str]:
    ours = want.keys() | (have.keys() & _SOMETIMES_OURS)
    return [key for key in sorted(ours - skipped) if not _same(have, want, key)]


_SOMETIMES_OURS = frozenset({"affinity", "tolerations", "imagePullSecrets", "serviceAccountName", "priorityClassName"})


def _env_causes(old: Json, new: Json) -> list[str]:
    before = {name: entry for entry in view.items(old, "env") if (name := view.text(entry, "name"))}
    after = {name: entry for entry in view.items(new, "env") if (name := view.text(entry, "name"))}
    changed = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    words = [
        f"{name} {view.text(before.get(name), 'value')} → {view.text(after.get(name), 'value')}"
        if name == MAX_RANK_ENV
        else name
        for name in changed
    ]
    if not changed and list(before) != list(after):
        words = ["order"]
    return [f"env {word}" for word in words]


def deployment_follows(deployment: Json | None, isvc: Json | None) -> bool:
    """Whether a Deployment's pods are already those of its InferenceService: KServe follows with a little delay."""
    template = view.mapping(deployment, "spec", "template", "spec")
    there = next((entry for entry in view.items(template, "containers") if view.dig(entry, "name") == CONTAINER), None)
    if there is None:
        return True  # nothing to compare with
    wanted = _container(isvc)
    env = {view.text(entry, "name"): entry for entry in view.items(there, "env")}
    return (
        view.dig(there, "image") == view.dig(wanted, "image")
        and all(covers(env.get(view.text(entry, "name")), entry) for entry in view.items(wanted, "env"))
        and covers(view.items(template, "volumes"), view.items(isvc, "spec", "predictor", "volumes"))
    )
