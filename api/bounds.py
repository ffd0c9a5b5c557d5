"""How large a field of an object may be: the one table that schemas, rules, reference pages and tests are made of.

A bound holds for a field by its name, wherever it is. Pure data, and two look-ups.
Source: docs/contract.md, Bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from api.names import MAX_ADAPTERS
from api.record import record


@record
class Bound:
    """The bound of the fields with one of these names.

    `most`: entries of a list or a map, or characters of a string. `fix`: what to do beyond it, empty for the usual
    advice. A name `a.b` is the field b of a, and `a[]` is each entry of the list a.
    """

    names: tuple[str, ...]
    most: int
    why: str
    fix: str = ""


MOST_LEVELS: Final = 32
"""Levels of a free-form field below the field."""
MOST_FREE_FORM_BYTES: Final = 64 * 1024
"""A free-form field as JSON without blanks."""
MOST_SPEC_BYTES: Final = 256 * 1024
"""A whole spec as JSON without blanks."""
FREE_FORM: Final = frozenset(
    {
        "adapters[].modelId",
        "adapters[].rank",
        "adapters[].sourceUri",
        "artifact.defaultRetentionPriority",
        "artifactStorageQuota",
        "autoScaling",
        "custom",
        "customTemplates",
        "discovery",
        "engineArgs",
        "hardware.gpu.minVram",
        "imageMetadata",
        "model.autoDiscovery",
        "model.custom.hardware.gpu.minVram",
        "overrides",
        "profile.selector",
        "profileOverrides.engineArgs",
        "retentionPriority",
        "routing",
        "scaleFromZero",
    }
)
"""Where a spec takes any JSON: `engineArgs`, and fields without an effect."""
MAPS: Final = frozenset({"engineEnv", "limits", "requests"})
"""Fields of a spec with keys of the user's choice: each value counts as an entry `[]`."""
MOST_STRING: Final = 4 * 1024
"""Characters of a string that no row names."""
MOST_ENTRIES: Final = 256
"""Entries of a list or a map that no row names, and fields of one object."""
MOST_LABELS: Final = 256
"""Labels of an object. A schema cannot limit metadata, so this bound is a rule only."""

IN_STATUS: Final = Bound((), 16 * 1024, "entries of a list or a map in a status")
"""Statuses have several writers. Their bounds only keep an object readable: no status of a controller reaches them."""
STATUS_STRING: Final = Bound((), 128 * 1024, "characters of a string in a status")

MOST_NAME: Final = 253
"""Characters of a name."""
MOST_URI: Final = 1024
"""Characters of a URI or a model id."""
LISTS: Final[Sequence[Bound]] = (
    Bound(
        ("adapters",),
        MAX_ADAPTERS,
        "adapters of a service",
        "spread them over several services, which share the base model",
    ),
    Bound(("env", "containerEnv", "engineEnv"), 256, "variables of a container"),
    Bound(("modelSources",), 16, "sources of a model"),
    Bound(("compatibleWith",), 64, "bases of an adapter", "create another artifact for the other bases"),
    Bound(("features",), 16, "features of an image"),
    Bound(("labelPropagation.match",), 64, "globs of label keys", "use globs that match several keys"),
    Bound(("downloadFilter.include", "downloadFilter.exclude"), 64, "globs of a filter", "use fewer, wider globs"),
    Bound(("imagePullSecrets",), 16, "pull secrets of a pod"),
    Bound(("limits", "requests"), 64, "resources of a container"),
)
"""Entries of lists and maps."""
STRINGS: Final[Sequence[Bound]] = (
    Bound(
        (
            "name",
            "key",
            "parentArtifact",
            "profileName",
            "templateName",
            "modelName",
            "runtimeConfigName",
            "defaultServiceTemplate",
            "serviceAccountName",
            "priorityClassName",
            "storageClassName",
            "defaultStorageClassName",
            "adapterDiskStorageClassName",
            "accessKeyIdKey",
            "secretAccessKeyKey",
            "sessionTokenKey",
            "containerName",
            "resource",
            "resourceName",
        ),
        MOST_NAME,
        "name of an object, or of a key in it",
    ),
    Bound(("sourceUri", "modelId", "compatibleWith[]", "aimId", "profileId"), MOST_URI, "URI or id"),
    Bound(("env[].value", "containerEnv[].value", "engineEnv[]"), 32 * 1024, "value of a variable"),
    Bound(("labelPropagation.match[]",), 512, "glob of label keys", "a label key has at most 317 characters"),
    Bound(("size", "adapterDiskSize", "limits[]", "requests[]", "divisor"), MOST_NAME, "quantity"),
    Bound(("limits{}", "requests{}"), 317, "name of a resource"),
    Bound(("engineEnv{}",), MOST_NAME, "name of a variable"),
)
"""Characters of strings; `a{}` is each key of the map a."""


def _by_name(rows: Sequence[Bound]) -> Mapping[str, Bound]:
    return MappingProxyType({name: row for row in rows for name in row.names})


_LISTS = _by_name(LISTS)
_STRINGS = _by_name(STRINGS)
ANY_ENTRIES: Final = Bound((), MOST_ENTRIES, "entries of any other list or map")
ANY_STRING: Final = Bound((), MOST_STRING, "characters of any other string")
SMALLEST_LIST: Final = min(row.most for row in LISTS)
SMALLEST_STRING: Final = min(row.most for row in STRINGS)


def of_entries(path: Sequence[str]) -> Bound:
    """Return the bound of a list or a map at a path, for example `("env",)` or `("modelSources", "[]", "env")`."""
    return _find(_LISTS, path, ANY_ENTRIES)


def of_string(path: Sequence[str]) -> Bound:
    """Return the bound of a string at a path; entries are spelt `[]`, and keys of a map `{}`."""
    return _find(_STRINGS, path, ANY_STRING)


def free_form(path: Sequence[str]) -> bool:
    """Whether the field at a path of a spec takes any JSON."""
    return _spelt(path) in FREE_FORM


def _spelt(path: Sequence[str]) -> str:
    """Spell a path: `modelSources[].env`."""
    return ".".join(path).replace(".[]", "[]")


def _find(rows: Mapping[str, Bound], path: Sequence[str], default: Bound) -> Bound:
    """Return the row with the longest name that the path ends in."""
    words: list[str] = []
    for part in path:
        if part in ("[]", "{}") and words:
            words[-1] += part
        else:
            words.append(part)
    for count in (3, 2, 1):
        found = rows.get(".".join(words[-count:]))
        if found is not None and len(words) >= count:
            return found
    return default


def apply(schema: dict[str, Any], path: tuple[str, ...] = (), *, status: bool = False) -> dict[str, Any]:
    """Return the structural schema of a spec (or a status) with a bound for each list, map and string.

    A smaller bound of the field's own is kept. A CRD can bound neither the depth nor the JSON size of a free-form
    field, so the rules do (`rules.bounds`). Args: `path` from the spec, or the status, to this part of it.
    """
    out = dict(schema)
    kind = out.get("type")
    entries = IN_STATUS if status else of_entries(path)
    string = STATUS_STRING if status else of_string(path)
    if out.get("x-kubernetes-preserve-unknown-fields"):
        return of_anything(out, status=status)
    if "enum" not in out and (kind == "string" or out.get("x-kubernetes-int-or-string")):
        _at_most(out, "maxLength", string.most)
    if kind == "array":
        _at_most(out, "maxItems", entries.most)
        out["items"] = apply(out["items"], (*path, "[]"), status=status)
    if "additionalProperties" in out:
        _at_most(out, "maxProperties", entries.most)
        out["additionalProperties"] = apply(out["additionalProperties"], (*path, "[]"), status=status)
    if "properties" in out:
        out["properties"] = {
            name: apply(child, (*path, name), status=status) for name, child in out["properties"].items()
        }
    return out


def of_anything(schema: dict[str, Any], *, status: bool = False) -> dict[str, Any]:
    """Return the schema of a part that holds fields which no schema describes, with a bound for each type."""
    out = dict(schema)
    for word in ("maxItems", "maxLength", "maxProperties"):
        _at_most(out, word, MOST_FREE_FORM_BYTES if not status else STATUS_STRING.most)
    return out


def _at_most(schema: dict[str, Any], word: str, most: int) -> None:
    schema[word] = min(schema.get(word, most), most)
