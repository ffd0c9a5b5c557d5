"""Checks the shape of an object as the API server does, against the schema that the CRDs are generated from. Pure.

Unknown fields are errors, as in kubectl's strict validation. A member with the value null counts as absent: the API
server drops it, unless the schema makes it nullable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from functools import cache
from typing import Any

from api.errors import Cause, FieldError
from api.kinds import Kind
from api.names import is_label_value
from api.reasons import Reason
from rules.shared import possible_name
from rules.suggest import did_you_mean, quoted

Schema = Mapping[str, Any]

_TYPES = {"object": Mapping, "array": list, "string": str, "boolean": bool}
_SHOWN_FIELDS = 12
_METADATA = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    }
)
_LABEL_WORDS = "at most 63 letters, digits, '-', '_' and '.', a letter or digit first and last"


@cache
def schema_of(kind: Kind) -> Schema:
    """Return the schema of a kind."""
    from api.schema import object_schema

    schema: Schema = object_schema(kind)
    return schema


def check_shape(kind: Kind, obj: Mapping[str, Any]) -> list[FieldError]:
    """Return all errors of an object against its schema, including metadata."""
    schema = schema_of(kind)
    errors = list(_metadata(obj.get("metadata"), kind))
    known = {"apiVersion", "kind", "metadata", *schema["properties"]}
    errors += _unknown(obj, known, "")
    for name in schema.get("required", ()):
        if obj.get(name) is None:
            errors.append(_required(name))
    for name in ("spec", "status"):
        if obj.get(name) is not None and name in schema["properties"]:
            errors += _check(obj[name], schema["properties"][name], name)
    return errors


def _metadata(metadata: object, kind: Kind) -> Iterator[FieldError]:
    if metadata is None:
        yield _required("metadata")
    elif not isinstance(metadata, Mapping):
        yield _wrong_type("metadata", metadata, "object")
    else:
        yield from _name(metadata)
        yield from _namespace(metadata.get("namespace"), kind)
        yield from _unknown(metadata, _METADATA, "metadata")
        for field in ("labels", "annotations"):
            yield from _string_map(metadata.get(field), f"metadata.{field}")


def _name(metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    path, name = "metadata.name", metadata.get("name")
    if name is None:
        if metadata.get("generateName") is None:
            yield _required(path)
    elif not isinstance(name, str):
        yield _wrong_type(path, name, "string")
    elif not possible_name(name) or len(name) > 253:
        detail = "a name has at most 253 of a-z, 0-9, '-' and '.', and begins and ends with a letter or digit"
        yield FieldError(path, Reason.NAME_INVALID, Cause.INVALID, detail, name)


def _namespace(namespace: object, kind: Kind) -> Iterator[FieldError]:
    path = "metadata.namespace"
    if namespace is not None and not isinstance(namespace, str):
        yield _wrong_type(path, namespace, "string")
    elif namespace and not kind.namespaced:
        detail = f"{kind.kind} is cluster-scoped"
        yield FieldError(path, Reason.NAMESPACE_ON_CLUSTER_KIND, Cause.FORBIDDEN, detail, hint="remove the namespace")
    elif namespace and (not possible_name(namespace) or "." in namespace or len(namespace) > 63):
        detail = "a namespace's name has at most 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit"
        yield FieldError(path, Reason.NAME_INVALID, Cause.INVALID, detail, namespace)


def _string_map(value: object, path: str) -> Iterator[FieldError]:
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield _wrong_type(path, value, "object")
        return
    for key, member in value.items():
        place = join(path, str(key))
        if not _qualified(str(key)):
            detail = f"a key is [prefix/]name: the prefix a DNS name, the name {_LABEL_WORDS}"
            yield FieldError(place, Reason.NAME_INVALID, Cause.INVALID, detail, str(key))
        if member is not None and not isinstance(member, str):
            yield _wrong_type(place, member, "string")
        elif member and path == "metadata.labels" and not is_label_value(member):
            detail = f"the value of a label has {_LABEL_WORDS}"
            yield FieldError(place, Reason.NAME_INVALID, Cause.INVALID, detail, member)


def _qualified(key: str) -> bool:
    """Return whether a text is a valid key of a label or annotation."""
    prefix, slash, name = key.rpartition("/")
    return is_label_value(name) and (not slash or (possible_name(prefix.lower()) and len(prefix) <= 253))


def _check(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    if value is None:
        if not schema.get("nullable"):
            yield _wrong_type(path, value, str(schema.get("type", "value")))
        return
    if schema.get("x-kubernetes-int-or-string"):
        yield from _int_or_string(value, schema, path)
        return
    wanted = schema.get("type")
    if wanted is None:
        return
    if not _is_type(value, wanted):
        yield _wrong_type(path, value, wanted)
        return
    if wanted == "object":
        yield from _object(value, schema, path)
    elif wanted == "array":
        yield from _array(value, schema, path)
    elif wanted == "string":
        yield from _string(value, schema, path)
    elif wanted in ("integer", "number"):
        yield from _number(value, schema, path)
    yield from _enum(value, schema, path)


def _is_type(value: Any, wanted: str) -> bool:
    if wanted == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES[wanted])


def _object(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[FieldError]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield _required(join(path, name))
    free = schema.get("additionalProperties")
    if free is None and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield from _unknown(value, properties, path)
    for name, member in value.items():
        if name in properties:
            if member is not None or properties[name].get("nullable"):
                yield from _check(member, properties[name], join(path, name))
        elif isinstance(free, Mapping):
            yield from _check(member, free, join(path, name))


def _unknown(value: Mapping[str, Any], known: Mapping[str, Any] | Set[str], path: str) -> Iterator[FieldError]:
    for name in value:
        if name not in known:
            hint = did_you_mean(name, known)
            if not hint and len(known) <= _SHOWN_FIELDS:
                hint = f"fields here: {', '.join(sorted(known))}"
            yield FieldError(
                join(path, name), Reason.FIELD_UNKNOWN, Cause.FORBIDDEN, f'unknown field "{name}"', None, hint
            )


def _array(value: list[Any], schema: Schema, path: str) -> Iterator[FieldError]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield FieldError(path, Reason.LIST_TOO_LONG, Cause.TOO_MANY, f"at most {most} entries, there are {len(value)}")
    if least is not None and len(value) < least:
        yield FieldError(
            path, Reason.LIST_TOO_SHORT, Cause.INVALID, f"at least {least} entries, there are {len(value)}"
        )
    items: Schema = schema.get("items", {})
    for index, item in enumerate(value):
        yield from _check(item, items, f"{path}[{index}]")
    yield from _duplicates(value, schema, path)


def _duplicates(value: list[Any], schema: Schema, path: str) -> Iterator[FieldError]:
    shape = schema.get("x-kubernetes-list-type")
    keys: list[str] = schema.get("x-kubernetes-list-map-keys", [])
    if shape not in ("map", "set"):
        return
    seen: dict[str, int] = {}  # entry → its first index
    members: Mapping[str, Schema] = schema.get("items", {}).get("properties", {})
    for index, item in enumerate(value):
        if shape == "map" and not isinstance(item, Mapping):
            continue
        word = repr([item.get(key, members.get(key, {}).get("default")) for key in keys]) if keys else repr(item)
        if (first := seen.setdefault(word, index)) != index:
            shown = "/".join(str(item.get(key)) for key in keys if key in item) if keys else item
            yield FieldError(
                f"{path}[{index}]",
                Reason.LIST_ENTRY_DUPLICATE,
                Cause.DUPLICATE,
                f"already listed as {path}[{first}] (remove one)",
                shown,
            )


def _string(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if least is not None and len(value) < least:
        detail = "must not be empty" if least == 1 else f"at least {least} characters"
        yield FieldError(path, Reason.TEXT_TOO_SHORT, Cause.INVALID, detail, value)
    elif most is not None and len(value) > most:
        yield FieldError(path, Reason.TEXT_TOO_LONG, Cause.INVALID, f"at most {most} characters", value)
    elif pattern is not None and not re.search(pattern, value):
        yield FieldError(path, Reason.PATTERN_MISMATCH, Cause.INVALID, f"must match {pattern}", value)


def _number(value: int | float, schema: Schema, path: str) -> Iterator[FieldError]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and value < least:
        yield FieldError(path, Reason.NUMBER_OUT_OF_BOUNDS, Cause.INVALID, f"must be at least {least}", value)
    elif most is not None and value > most:
        yield FieldError(path, Reason.NUMBER_OUT_OF_BOUNDS, Cause.INVALID, f"must be at most {most}", value)
    elif schema.get("format") == "int32" and abs(value) >= 2**31:
        yield FieldError(path, Reason.NUMBER_OUT_OF_BOUNDS, Cause.INVALID, "must fit in 32 bits", value)


def _enum(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        words = [str(word) for word in allowed]
        detail = f"supported values: {quoted(words)}"
        yield FieldError(
            path, Reason.VALUE_NOT_SUPPORTED, Cause.NOT_SUPPORTED, detail, value, did_you_mean(value, words)
        )


def _int_or_string(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    if isinstance(value, bool) or not isinstance(value, int | str):
        yield _wrong_type(path, value, "integer or string")
    elif isinstance(value, str) and (pattern := schema.get("pattern")) and not re.search(pattern, value):
        detail = 'must be a quantity, for example "50Gi"' if "KMGTPE" in pattern else f"must match {pattern}"
        yield FieldError(path, Reason.PATTERN_MISMATCH, Cause.INVALID, detail, value)


def _required(path: str) -> FieldError:
    return FieldError(path, Reason.FIELD_REQUIRED, Cause.REQUIRED, "must be set")


_WORDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def _wrong_type(path: str, value: Any, wanted: str) -> FieldError:
    found = "null" if value is None else _WORDS.get(type(value), "value")
    hint = ""
    if wanted == "string" and isinstance(value, bool | int | float):
        hint = f'quote it: "{str(value).lower() if isinstance(value, bool) else value}"'
    elif wanted in ("integer", "boolean") and isinstance(value, str) and value:
        hint = f"write {value} without quotes" if _reads_as(value, wanted) else ""
    elif wanted == "array":
        hint = "write a list: each entry on its own line, beginning with -"
    shown = None if isinstance(value, Mapping | list) else "null" if value is None else value
    return FieldError(path, Reason.TYPE_WRONG, Cause.INVALID, f"must be of type {wanted}, not {found}", shown, hint)


def _reads_as(value: str, wanted: str) -> bool:
    return value.lstrip("-").isdecimal() if wanted == "integer" else value in ("true", "false")


_PLAIN = re.compile(r"^[A-Za-z0-9_-]+$")


def join(path: str, name: str) -> str:
    """Return the path of a member: `spec.model`, or `metadata.labels[a/b]` for a name with other characters."""
    if not _PLAIN.match(name):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name
