"""Environment variables: rules that are the same for several kinds, whose objects hold variables at other places.

Source: docs/contract.md, Predictor environment, Job environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    Kind,
)
from api.reasons import Reason
from rules.environment import RESERVED_ENV, env_keys, env_names, usable_env_entry
from rules.registry import Example, Output, rule
from rules.seen import Seen, invalid
from rules.shared import env_without_effect_in_jobs

Outputs = Iterator[Output]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Where some kinds hold environment variables. Each path leads from the object to a list or a map.

    `pods`: lists for the server container · `maps`: maps from name to value for it · `sources`: lists of model sources,
    each of which may hold an `env` for it · `jobs`: lists for download Jobs. `word` makes the names of the rules.
    """

    kinds: tuple[Kind, ...]
    word: str = ""
    pods: tuple[Path, ...] = ()
    maps: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()
    jobs: tuple[Path, ...] = ()

    @property
    def for_server(self) -> str:
        """The names of variables of the server container, as field paths."""
        return ", ".join(
            (
                *(f"{'.'.join(path)}[i].name" for path in self.pods),
                *(f"{'.'.join(path)}[name]" for path in self.maps),
                *(f"{'.'.join(path)}[i].env[j].name" for path in self.sources),
            )
        )

    @property
    def values(self) -> str:
        """Where a value may come from another object, as field paths."""
        return ", ".join(
            (
                *(f"{'.'.join(path)}[i].{key}" for path in self.pods for key in ("name", "valueFrom")),
                *(f"{'.'.join(path)}[i].valueFrom" for path in self.jobs),
            )
        )


def _fields(*paths: Path) -> tuple[str, ...]:
    """The fields of the spec that hold these places."""
    return tuple(sorted({path[1] for path in paths}))


def _example(path: Path, entry: str) -> Example:
    """A manifest that holds an entry in a list."""
    opened = "".join(f"{part}: {{" for part in path[:-1])
    return Example(f"{opened}{path[-1]}: [{entry}]" + "}" * (len(path) - 1))


SERVICE = Places(
    (AIM_SERVICE,),
    pods=(("spec", "env"), ("spec", "profileOverrides", "containerEnv")),
    maps=(("spec", "profileOverrides", "engineEnv"),),
    sources=(("spec", "profileOverrides", "modelSources"),),
    jobs=(("spec", "caching", "env"),),
)
PROFILES = Places(
    (AIM_PROFILE, AIM_CLUSTER_PROFILE),
    word="profile_",
    pods=(("spec", "containerEnv"),),
    maps=(("spec", "engineEnv"),),
    sources=(("spec", "modelSources"),),
)
MODELS = Places(
    (AIM_MODEL, AIM_CLUSTER_MODEL, AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE),
    word="model_",
    pods=(("spec", "env"),),
    sources=(("spec", "modelSources"),),
)
OF_JOBS = Places(
    (AIM_RUNTIME_CONFIG, AIM_CLUSTER_RUNTIME_CONFIG, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE),
    word="job_",
    jobs=(("spec", "env"),),
)
ARTIFACTS = Places((AIM_ARTIFACT,), word="artifact_", jobs=(("spec", "env"),))


def _register_reserved(places: Places) -> None:
    @rule(
        *places.kinds,
        name=f"{places.word}env_reserved",
        reason=Reason.ENV_RESERVED,
        fields=places.for_server,
        refused=_example(places.pods[0], "{name: STORAGE_URI, value: x}"),
        passes=_example(places.pods[0], "{name: VLLM_LOGGING_LEVEL, value: DEBUG}"),
        when=_fields(*places.pods, *places.maps, *places.sources),
    )
    def reserved(seen: Seen) -> Outputs:
        """KServe uses a few variables of the server container for itself, so users cannot set them."""
        for path, name in _for_server(seen, places):
            if name in RESERVED_ENV:
                detail = "KServe uses this variable for itself"
                yield invalid(path, Reason.ENV_RESERVED, detail, "remove or rename it", name)


def _for_server(seen: Seen, places: Places) -> Iterator[tuple[str, str]]:
    for path in places.pods:
        yield from env_names(seen.new, *path)
    for path in places.maps:
        yield from env_keys(seen.new, *path)
    for path in places.sources:
        for index, source in enumerate(view.items(seen.new, *path)):
            for inner, name in env_names(source, "env"):
                yield f"{'.'.join(path)}[{index}].{inner}", name


_HUB_TOKEN = "{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}"  # noqa: S105 - the name of a key
_TWO_VALUES = "{name: HF_TOKEN, value: x, valueFrom: {secretKeyRef: {name: hub, key: token}}}"


def _register_unusable(places: Places) -> None:
    first = (*places.pods, *places.jobs)[0]

    @rule(
        *places.kinds,
        name=f"{places.word}env_unusable",
        reason=Reason.ENV_UNUSABLE,
        fields=places.values,
        refused=_example(first, _TWO_VALUES),
        passes=_example(first, _HUB_TOKEN),
        when=_fields(*places.pods, *places.jobs),
    )
    def unusable(seen: Seen) -> Outputs:
        """A variable needs a valid name, and a value from exactly one place. The API server refuses other pods."""
        for path in places.pods:
            yield from _unusable(seen, path, names=True)
        for path in places.jobs:  # their names have rules of their own
            yield from _unusable(seen, path, names=False)


def _unusable(seen: Seen, path: Path, *, names: bool) -> Outputs:
    for index, entry in enumerate(view.items(seen.new, *path)):
        if not isinstance(entry, Mapping) or usable_env_entry(entry):
            continue
        name, source = entry.get("name"), entry.get("valueFrom")
        if not isinstance(name, str) or not name:
            continue  # a matter of shape, which the schema checks
        place = f"{'.'.join(path)}[{index}]"
        if usable_env_entry({"name": name}):
            both = entry.get("value") and source
            detail = "value and valueFrom are both set" if both else "valueFrom does not name exactly one source"
            hint = "keep one of the two" if both else "for example valueFrom.secretKeyRef with name and key"
            yield invalid(f"{place}.valueFrom", Reason.ENV_UNUSABLE, f"{detail}, which is not valid in a pod", hint)
        elif names:
            detail = "the name of a variable consists of printable ASCII characters other than ="
            yield invalid(f"{place}.name", Reason.ENV_UNUSABLE, detail, "rename it", name)


def _register_without_effect(places: Places) -> None:
    @rule(
        *places.kinds,
        name=f"{places.word}env_without_effect",
        reason=Reason.ENV_HAS_NO_EFFECT,
        fields=", ".join(f"{'.'.join(path)}[i].name" for path in places.jobs),
        warns=True,
        refused=_example(places.jobs[0], "{name: HF_HOME, value: /tmp}"),
        passes=_example(places.jobs[0], "{name: HF_TOKEN, value: from-a-secret}"),
        when=_fields(*places.jobs),
    )
    def without_effect(seen: Seen) -> Outputs:
        """Download Jobs use credentials and tuning only, so other variables have no effect."""
        for path in places.jobs:
            yield from env_without_effect_in_jobs(seen.new, *path)


for _places in (SERVICE, PROFILES, MODELS):
    _register_reserved(_places)
for _places in (SERVICE, PROFILES, MODELS, OF_JOBS, ARTIFACTS):
    _register_unusable(_places)
_register_without_effect(OF_JOBS)
