"""Model sources and sizes: rules that are the same for several kinds (docs/contract.md, Source URIs)."""

from __future__ import annotations

from collections.abc import Iterator
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
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    Kind,
)
from api.quantity import parse_quantity
from api.reasons import Reason
from api.source_uri import SourceUriError, parse_source_uri
from rules.registry import Example, Output, rule
from rules.seen import Seen, invalid

Outputs = Iterator[Output]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Where some kinds hold sources and sizes. Each path leads from the object to a value or a list.

    `lists`: lists of model sources, each with a `sourceUri` and perhaps a `size`. `word` makes the names of the rules;
    `bad_uri`, `good_uri`, `bad_size` and `good_size` are the examples.
    """

    kinds: tuple[Kind, ...]
    word: str
    bad_size: Example
    good_size: Example
    bad_uri: Example | None = None
    good_uri: Example | None = None
    uris: tuple[Path, ...] = ()
    sizes: tuple[Path, ...] = ()
    lists: tuple[Path, ...] = ()

    def values(self, seen: Seen, key: str) -> Iterator[tuple[str, object]]:
        """Yield field path and value of each `sourceUri` or `size`."""
        for path in self.uris if key == "sourceUri" else self.sizes:
            yield ".".join(path), view.dig(seen.new, *path)
        for path in self.lists:
            for index, source in enumerate(view.items(seen.new, *path)):
                yield f"{'.'.join(path)}[{index}].{key}", view.dig(source, key)

    def fields(self, key: str) -> str:
        """The places of each `sourceUri` or `size`, as field paths."""
        single = self.uris if key == "sourceUri" else self.sizes
        return ", ".join((*(".".join(path) for path in single), *(f"{'.'.join(path)}[i].{key}" for path in self.lists)))

    def when(self, key: str) -> tuple[str, ...]:
        """The fields of the spec that hold these places."""
        single = self.uris if key == "sourceUri" else self.sizes
        return tuple(sorted({path[1] for path in (*single, *self.lists)}))


ARTIFACTS = Places(
    (AIM_ARTIFACT,),
    word="",
    bad_uri=Example("spec: {sourceUri: 'hf://medical-lora'}"),
    good_uri=Example("spec: {sourceUri: 'hf://acme/medical-lora/v2@main'}"),
    bad_size=Example("spec: {type: model, compatibleWith: null, size: 0Gi}"),
    good_size=Example("spec: {type: model, compatibleWith: null, size: 60Gi}"),
    uris=(("spec", "sourceUri"),),
    sizes=(("spec", "size"), ("spec", "adapterDisk", "size")),
)
SERVICES = Places(
    (AIM_SERVICE,),
    word="service_",
    bad_uri=Example("spec: {profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen3-8B'}]}}"),
    good_uri=Example("spec: {profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B@main'}]}}"),
    bad_size=Example("spec: {profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B', size: 0Gi}]}}"),
    good_size=Example("spec: {profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B', size: 16Gi}]}}"),
    lists=(("spec", "profileOverrides", "modelSources"), ("spec", "model", "custom", "modelSources")),
)
LISTS = Places(
    (
        AIM_PROFILE,
        AIM_CLUSTER_PROFILE,
        AIM_TEMPLATE_CACHE,
        AIM_MODEL,
        AIM_CLUSTER_MODEL,
        AIM_SERVICE_TEMPLATE,
        AIM_CLUSTER_SERVICE_TEMPLATE,
    ),
    word="model_",
    bad_uri=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen3-8B'}]}"),
    good_uri=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}"),
    bad_size=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B', size: 0Gi}]}"),
    good_size=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B', size: 16Gi}]}"),
    lists=(("spec", "modelSources"),),
)
CONFIGS = Places(
    (AIM_RUNTIME_CONFIG, AIM_CLUSTER_RUNTIME_CONFIG),
    word="adapter_disk_",
    bad_size=Example("spec: {storage: {adapterDiskSize: 0Gi}}"),
    good_size=Example("spec: {storage: {adapterDiskSize: 50Gi}}"),
    sizes=(("spec", "storage", "adapterDiskSize"),),
)


def _register_sources(places: Places, refused: Example, passes: Example) -> None:
    @rule(
        *places.kinds,
        name=f"{places.word}source_unusable",
        reason=Reason.SOURCE_UNUSABLE,
        fields=places.fields("sourceUri"),
        refused=refused,
        passes=passes,
        when=places.when("sourceUri"),
    )
    def unusable(seen: Seen) -> Outputs:
        """A source URI that cannot be parsed can never be downloaded."""
        for path, uri in places.values(seen, "sourceUri"):
            if not isinstance(uri, str):
                continue
            try:
                parse_source_uri(uri)
            except SourceUriError as error:
                yield invalid(path, Reason.SOURCE_UNUSABLE, str(error), value=error.shown)


def _register_sizes(places: Places) -> None:
    @rule(
        *places.kinds,
        name=f"{places.word}size_unusable",
        reason=Reason.SIZE_UNUSABLE,
        fields=places.fields("size"),
        refused=places.bad_size,
        passes=places.good_size,
        when=places.when("size"),
    )
    def unusable(seen: Seen) -> Outputs:
        """A size is a quantity above zero."""
        for path, size in places.values(seen, "size"):
            if size is None or isinstance(size, bool):
                continue
            amount = parse_quantity(size) if isinstance(size, int | str) else None
            if amount is None or amount <= 0:
                detail = "a size is a quantity above zero"
                yield invalid(path, Reason.SIZE_UNUSABLE, detail, 'for example "50Gi"', size)


for _places in (SERVICES, ARTIFACTS, LISTS, CONFIGS):
    if _places.bad_uri is not None and _places.good_uri is not None:
        _register_sources(_places, _places.bad_uri, _places.good_uri)
    _register_sizes(_places)
