"""From a pod's spec to what one process gets: environment, command line, identity. Pure: objects come as arguments."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from api.quantity import parse_quantity
from api.view import JsonObject
from devcluster.node.images import Image

# (kind, name) -> the object of the pod's namespace, None when it does not exist; kind is "Secret" or "ConfigMap"
Lookup = Callable[[str, str], JsonObject | None]

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_CAPABILITIES = {  # linux/capability.h; what a container runtime leaves to root by default
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ConfigError(Exception):
    """A container that cannot be created as it is written; retried, because other objects may change.

    `reason` is the waiting reason that a kubelet shows.
    """

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the node knows about a pod beyond its spec, for the downward API."""

    pod_ip: str
    host_ip: str
    node_allocatable: Mapping[str, str]  # quantities, for limits that are not set


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a container's process is."""

    uid: int
    gid: int
    groups: tuple[int, ...]  # supplementary, sorted
    capabilities: tuple[int, ...]  # numbers that stay in the bounding set, sorted
    no_new_privileges: bool


def pod_title(pod: JsonObject) -> str:
    """Return the pod as kubelet messages write it: name_namespace(uid)."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value; $$ is a dollar sign, and an unknown name stays as written."""

    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return "$"
        return env.get(name, found.group(0))

    return _REFERENCE.sub(one, text)


def command_line(image: Image, container: JsonObject, env: Mapping[str, str]) -> list[str]:
    """Return argv: command replaces the image's entry point (and its arguments), args replace its arguments.

    Raises: ConfigError when nothing is left to run.
    """
    command, args = container.get("command"), container.get("args")
    head = [expand(a, env) for a in command] if command else list(image.entrypoint)
    tail = [expand(a, env) for a in args] if args else ([] if command else list(image.cmd))
    if not head + tail:
        raise ConfigError("no command specified", "CreateContainerError")
    return head + tail


def container_env(
    pod: JsonObject, container: JsonObject, image: Image, facts: PodFacts, lookup: Lookup
) -> dict[str, str]:
    """Return the container's environment: the image's, envFrom, then env in order, references expanded.

    Raises: ConfigError in a kubelet's words when a Secret or ConfigMap (or a key) is missing and not optional.
    """
    env = {"PATH": DEFAULT_PATH, **image.env}
    for source in container.get("envFrom") or []:
        env.update(_from_source(source, lookup))
    for entry in container.get("env") or []:
        value = _value(pod, container, entry, facts, lookup)
        if value is not None:
            env[entry["name"]] = expand(value, env) if "value" in entry else value
    return env


def _from_source(source: JsonObject, lookup: Lookup) -> dict[str, str]:
    for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
        ref = source.get(field)
        if ref is None:
            continue
        found = lookup(kind, ref.get("name", ""))
        if found is None:
            if ref.get("optional"):
                return {}
            raise ConfigError(_missing(kind, ref.get("name", "")))
        prefix = source.get("prefix", "")
        entries = {prefix + k: v for k, v in object_data(found).items()}
        return {k: v.decode(errors="replace") for k, v in entries.items() if _ENV_NAME.fullmatch(k)}
    return {}


def _value(pod: JsonObject, container: JsonObject, entry: JsonObject, facts: PodFacts, lookup: Lookup) -> str | None:
    """Return one entry's value, None when an optional source is missing. Raises: ConfigError."""
    source = entry.get("valueFrom")
    if source is None:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"], facts)
    if "resourceFieldRef" in source:
        return resource_value(pod, source["resourceFieldRef"], facts, container)
    for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        ref = source.get(field)
        if ref is not None:
            return _key_value(pod["metadata"]["namespace"], kind, ref, lookup)
    raise ConfigError(f'env "{entry["name"]}": this kind of valueFrom is not imitated by the process node')


def _key_value(namespace: str, kind: str, ref: JsonObject, lookup: Lookup) -> str | None:
    found = lookup(kind, ref["name"])
    optional = bool(ref.get("optional"))
    if found is None:
        if optional:
            return None
        raise ConfigError(_missing(kind, ref["name"]))
    data = object_data(found)
    if ref["key"] in data:
        return data[ref["key"]].decode(errors="replace")
    if optional:
        return None
    raise ConfigError(f"couldn't find key {ref['key']} in {kind} {namespace}/{ref['name']}")


def _missing(kind: str, name: str) -> str:
    return f'{kind.lower()} "{name}" not found'


def object_data(obj: JsonObject) -> dict[str, bytes]:
    """Return the decoded data of a Secret or ConfigMap by key."""
    if obj.get("kind") == "Secret":
        return {k: base64.b64decode(v or "") for k, v in (obj.get("data") or {}).items()}
    plain = {k: str(v).encode() for k, v in (obj.get("data") or {}).items()}
    return plain | {k: base64.b64decode(v) for k, v in (obj.get("binaryData") or {}).items()}


def field_value(pod: JsonObject, path: str, facts: PodFacts) -> str:
    """Return a downward API field. Raises: ConfigError for a path that is not known."""
    meta, spec = pod["metadata"], pod["spec"]
    plain = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
    }
    if path in plain:
        return str(plain[path])
    if path in {"metadata.labels", "metadata.annotations"}:
        pairs = sorted((meta.get(path.removeprefix("metadata.")) or {}).items())
        return "\n".join(f'{k}="{_escape(v)}"' for k, v in pairs)
    found = _SUBSCRIPT.fullmatch(path)
    if found:
        return str((meta.get(found.group(1)) or {}).get(found.group(2), ""))
    raise ConfigError(f'fieldPath "{path}" is not supported')


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(pod: JsonObject, ref: JsonObject, facts: PodFacts, container: JsonObject | None = None) -> str:
    """Return a resourceFieldRef: the quantity in units of its divisor, rounded up; an unset limit is the node's.

    Raises: ConfigError when the container or the field is not known, or a value is not a quantity.
    """
    if container is None or ref.get("containerName"):
        every = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
        container = next((c for c in every if c["name"] == ref.get("containerName")), None)
    kind, _, name = ref["resource"].partition(".")
    if container is None or kind not in {"limits", "requests"}:
        raise ConfigError(f'resourceFieldRef "{ref["resource"]}" is not supported')
    resources = container.get("resources") or {}
    text = (resources.get(kind) or {}).get(name)
    if text is None:
        text = facts.node_allocatable.get(name, "0") if kind == "limits" else "0"
    divisor = _quantity(ref.get("divisor") or "1") or Decimal(1)
    return str((_quantity(text) / divisor).to_integral_value(ROUND_CEILING))


def _quantity(value: object) -> Decimal:
    number = parse_quantity(value)
    if number is None:
        raise ConfigError(f'"{value}" is not a valid quantity')
    return number


def identity(pod: JsonObject, container: JsonObject, image: Image) -> Identity:
    """Return who the process is: the container's security context, then the pod's, then the image's user, then root.

    Raises: ConfigError when runAsNonRoot forbids the user.
    """
    wide = pod["spec"].get("securityContext") or {}
    narrow = container.get("securityContext") or {}
    merged = {**wide, **{k: v for k, v in narrow.items() if v is not None}}
    wanted = merged.get("runAsUser")
    uid = wanted if wanted is not None else image.uid or 0
    if merged.get("runAsNonRoot") and uid == 0:
        where = f'(pod: "{pod_title(pod)}", container: {container["name"]})'
        if wanted == 0:
            raise ConfigError(f"container's runAsUser breaks non-root policy {where}")
        raise ConfigError(f"container has runAsNonRoot and image will run as root {where}")
    gid = merged.get("runAsGroup")
    if gid is None:
        gid = image.gid if image.gid is not None else (image.uid or 0) if wanted is None else 0
    groups = {int(g) for g in wide.get("supplementalGroups") or []}
    if wide.get("fsGroup") is not None:
        groups.add(int(wide["fsGroup"]))
    return Identity(
        uid=int(uid),
        gid=int(gid),
        groups=tuple(sorted(groups)),
        capabilities=_capabilities(narrow.get("capabilities") or {}),
        no_new_privileges=narrow.get("allowPrivilegeEscalation") is False,
    )


def _capabilities(wanted: JsonObject) -> tuple[int, ...]:
    dropped = {c.removeprefix("CAP_") for c in wanted.get("drop") or []}
    added = {c.removeprefix("CAP_") for c in wanted.get("add") or []}
    kept = set() if "ALL" in dropped else set(DEFAULT_CAPABILITIES) - dropped
    return tuple(sorted(DEFAULT_CAPABILITIES[c] for c in kept | (added & set(DEFAULT_CAPABILITIES))))
