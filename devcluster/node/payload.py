"""What the files of Secret, ConfigMap, downward API and projected volumes hold. Pure: objects come as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.view import JsonObject
from devcluster.node.resolve import ConfigError, Lookup, PodFacts, field_value, object_data, resource_value

DEFAULT_MODE = 0o644
TOKEN_SECONDS_DEFAULT = 3600


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume: contents, mode, and whether it is a service-account token (its owner follows the user)."""

    data: bytes
    mode: int
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A service-account token that a projected volume wants."""

    audience: str
    seconds: int  # life that is asked for


Payload = dict[str, File]
Tokens = Mapping[TokenRequest, str]


@dataclass(frozen=True, slots=True)
class World:
    """All that the files of one pod's volumes are made from."""

    pod: JsonObject
    facts: PodFacts
    lookup: Lookup
    tokens: Tokens


def is_payload(volume: JsonObject) -> bool:
    """Return whether the node writes the volume's files from objects."""
    return any(kind in volume for kind in ("secret", "configMap", "downwardAPI", "projected"))


def references(volume: JsonObject) -> set[tuple[str, str]]:
    """Return the (kind, name) of every Secret and ConfigMap that the volume shows."""
    found: set[tuple[str, str]] = set()
    if "secret" in volume:
        found.add(("Secret", volume["secret"].get("secretName", "")))
    if "configMap" in volume:
        found.add(("ConfigMap", volume["configMap"].get("name", "")))
    for source in (volume.get("projected") or {}).get("sources") or []:
        if source.get("secret") is not None:
            found.add(("Secret", source["secret"].get("name", "")))
        if source.get("configMap") is not None:
            found.add(("ConfigMap", source["configMap"].get("name", "")))
    return found


def token_requests(volume: JsonObject) -> list[TokenRequest]:
    """Return the tokens that the volume needs."""
    sources = (volume.get("projected") or {}).get("sources") or []
    return [_token_request(s["serviceAccountToken"]) for s in sources if s.get("serviceAccountToken") is not None]


def _token_request(source: JsonObject) -> TokenRequest:
    return TokenRequest(source.get("audience") or "", int(source.get("expirationSeconds") or TOKEN_SECONDS_DEFAULT))


def payload(volume: JsonObject, world: World) -> Payload:
    """Return the files of a volume by relative path. Raises: ConfigError when something is missing and not optional."""
    if "secret" in volume:
        source = volume["secret"]
        return _object(world, "Secret", source.get("secretName", ""), source, _mode(source))
    if "configMap" in volume:
        source = volume["configMap"]
        return _object(world, "ConfigMap", source.get("name", ""), source, _mode(source))
    if "downwardAPI" in volume:
        source = volume["downwardAPI"]
        return _downward(world, source, _mode(source))
    source = volume["projected"]
    files: Payload = {}
    for part in source.get("sources") or []:
        files.update(_projected(world, part, _mode(source)))
    return files


def _mode(source: JsonObject) -> int:
    mode = source.get("defaultMode")
    return DEFAULT_MODE if mode is None else int(mode)


def _projected(world: World, part: JsonObject, mode: int) -> Payload:
    if part.get("secret") is not None:
        return _object(world, "Secret", part["secret"].get("name", ""), part["secret"], mode)
    if part.get("configMap") is not None:
        return _object(world, "ConfigMap", part["configMap"].get("name", ""), part["configMap"], mode)
    if part.get("downwardAPI") is not None:
        return _downward(world, part["downwardAPI"], mode)
    if part.get("serviceAccountToken") is not None:
        source = part["serviceAccountToken"]
        return {source["path"]: File(world.tokens[_token_request(source)].encode(), mode, is_token=True)}
    raise ConfigError(f"projected source {', '.join(sorted(part))} is not imitated by the process node")


def _object(world: World, kind: str, name: str, source: JsonObject, mode: int) -> Payload:
    optional = bool(source.get("optional"))
    found = world.lookup(kind, name)
    if found is None:
        if optional:
            return {}
        raise ConfigError(f'{kind.lower()} "{name}" not found')
    data = object_data(found)
    items = source.get("items")
    if not items:
        return {key: File(value, mode) for key, value in data.items()}
    files: Payload = {}
    for item in items:
        if item["key"] not in data:
            if optional:
                continue
            where = f"{world.pod['metadata']['namespace']}/{name}"
            raise ConfigError(f"references non-existent {kind.lower()} key: {item['key']} in {where}")
        files[item["path"]] = File(data[item["key"]], mode if item.get("mode") is None else int(item["mode"]))
    return files


def _downward(world: World, source: JsonObject, mode: int) -> Payload:
    files: Payload = {}
    for item in source.get("items") or []:
        if item.get("fieldRef") is not None:
            text = field_value(world.pod, item["fieldRef"]["fieldPath"], world.facts)
        else:
            text = resource_value(world.pod, item["resourceFieldRef"], world.facts)
        files[item["path"]] = File(text.encode(), mode if item.get("mode") is None else int(item["mode"]))
    return files
