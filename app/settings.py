"""The settings of the server: flags win over environment, environment over file, file over defaults.

Flags are `--like-this`, variables `AIMA_LIKE_THIS`, keys of the YAML file `likeThis` or `like_this`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from api.duration import parse_duration
from api.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind
from api.names import is_label_value
from api.quantity import parse_quantity
from app.settings_sources import EnvironSource, FileSource, Sources
from reconcile.settings import CONTROLLERS, DEFAULT_JOB_RESOURCES, ReconcileSettings

ENV_PREFIX = "AIMA_"
_SOURCES: ContextVar[Sources] = ContextVar("sources of the reading under way", default=())
_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SettingsError(Exception):
    """Settings that cannot be used: one line each, with the setting, its source and what is wrong."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_duration(value: object) -> object:
    """Return a duration from `30s`, `1h30m` or a number of seconds; leave other types to the validation.

    Raises: ValueError for any other text.
    """
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return parse_duration(value)
    return value


def format_duration(value: timedelta) -> str:
    """Return a duration as people write it: `1h30m`, `250ms`."""
    milliseconds = round(value.total_seconds() * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _split(value: object) -> object:
    """Read `a,b` as a list; lists stay."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _blank_is_none(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _dns_labels(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _DNS_LABEL.fullmatch(value):
            raise ValueError(f'"{value}" is not a valid namespace name')
    return values


def _label_values(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not is_label_value(value):
            raise ValueError(f'"{value}" is not a valid label value')
    return values


def _memory_size(value: str | None) -> str | None:
    if value is not None and (parse_quantity(value) or 0) < 1:
        raise ValueError(f'"{value}" is not a valid quantity of memory, such as 512Mi')
    return value


def _read_json(value: object) -> object:
    """Read the text of a flag or a variable as JSON; what a YAML file holds stays.

    Raises: ValueError for any other text.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from error


def _resources(value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for part, amounts in value.items():
        if part not in ("requests", "limits"):
            raise ValueError(f'"{part}" is not a part of resources: use requests and limits')
        for name, amount in amounts.items():
            if parse_quantity(amount) is None:
                raise ValueError(f'{part}.{name}: "{amount}" is not a valid quantity, such as 500m or 1Gi')
    return value


_TOLERATION = frozenset({"key", "operator", "value", "effect", "tolerationSeconds"})


def _tolerations(value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    for toleration in value:
        if unknown := sorted(toleration.keys() - _TOLERATION):
            raise ValueError(f'"{unknown[0]}" is not a field of a toleration: use {", ".join(sorted(_TOLERATION))}')
    return value


Duration = Annotated[timedelta, BeforeValidator(read_duration)]
Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
Namespaces = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_dns_labels)]
LabelValues = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_label_values)]
OptionalPath = Annotated[Path | None, BeforeValidator(_blank_is_none)]
OptionalText = Annotated[str | None, BeforeValidator(_blank_is_none)]
MemorySize = Annotated[str | None, BeforeValidator(_blank_is_none), AfterValidator(_memory_size)]
Resources = Annotated[dict[str, dict[str, Any]], BeforeValidator(_read_json), AfterValidator(_resources)]
Tolerations = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_read_json), AfterValidator(_tolerations)]
NodeSelector = Annotated[dict[str, str], BeforeValidator(_read_json)]
Port = Annotated[int, Field(ge=0, le=65535)]


def _setting(default: Any, description: str, *, group: str, **constraints: Any) -> Any:
    return Field(default=default, description=description, json_schema_extra={"group": group}, **constraints)


def _at_least(**parts: float) -> dict[str, timedelta]:
    return {"ge": timedelta(**parts)}


class Settings(BaseSettings):
    """All settings of `aim-adapters serve`. Use `load_settings`, which knows the source of each value.

    An instance that is made directly uses only the given values and the defaults, not the environment.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix=ENV_PREFIX, enable_decoding=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where values come from, the winner first: flags, then the sources of this reading."""
        return (init_settings, *_SOURCES.get())

    # What runs
    admission: bool = _setting(True, "Serve the admission webhooks.", group="What runs")
    reconciler: bool = _setting(
        True, "Run the controllers. Turn this off when another operator reconciles the same kinds.", group="What runs"
    )
    controllers: Words = _setting(
        ("*",),
        'Controllers to run, by name; "*" means all. Processes with different controllers need different lease names.',
        group="What runs",
    )
    namespaces: Namespaces = _setting(
        (),
        "Namespaces to watch; empty means all. With a list, no cluster-wide permissions are needed.",
        group="What runs",
    )
    nodes: bool = _setting(
        True,
        "Watch nodes, to report whether a node matches a profile, model or template. When off, this is not reported.",
        group="What runs",
    )

    # Cluster
    kubeconfig: OptionalPath = _setting(
        None,
        "Kubeconfig to use. Default: $KUBECONFIG, then the pod's service account, then ~/.kube/config.",
        group="Cluster",
    )
    context: OptionalText = _setting(None, "Context of the kubeconfig. Default: its current context.", group="Cluster")
    namespace: OptionalText = _setting(
        None,
        "Namespace of the server's own lease, Secret and Service. Detected automatically in a pod.",
        group="Cluster",
    )
    pod_name: OptionalText = _setting(
        None, "Name of this pod, for the lease and for events. Default: the host name.", group="Cluster"
    )
    api_timeout: Duration = _setting(
        timedelta(seconds=15), "Timeout of one request to the Kubernetes API.", group="Cluster", **_at_least(seconds=1)
    )
    field_validation: Literal["Ignore", "Warn", "Strict"] = _setting(
        "Ignore",
        "What the API server does about unknown fields in this program's writes. Ignore is cheapest; tests use Strict.",
        group="Cluster",
    )

    # Leader election
    leader_election: bool = _setting(
        True,
        "Let only one replica reconcile at a time. Turn this off only if a second replica never runs.",
        group="Leader election",
    )
    lease_name: str = _setting("aim-adapters", "Name of the Lease.", group="Leader election", min_length=1)
    lease_duration: Duration = _setting(
        timedelta(seconds=15),
        "How long a leader that stops renewing keeps the lease.",
        group="Leader election",
        **_at_least(seconds=3),
    )
    lease_renew_period: Duration = _setting(
        timedelta(seconds=3),
        "How often the leader renews the lease.",
        group="Leader election",
        **_at_least(milliseconds=200),
    )
    lease_write_margin: Duration = _setting(
        timedelta(seconds=3),
        "How long before the lease expires the leader stops writing.",
        group="Leader election",
        **_at_least(milliseconds=200),
    )

    # Servers
    bind_address: str = _setting(
        "::",
        "Address to listen on; :: means all addresses, also IPv4. Where IPv6 is disabled, 0.0.0.0 is used instead.",
        group="Servers",
        min_length=1,
    )
    admission_port: Port = _setting(9443, "Port of the admission webhooks (TLS).", group="Servers")
    health_port: Port = _setting(8080, "Port of /healthz, /livez, /readyz, /metrics and /console.", group="Servers")
    drain: Duration = _setting(
        timedelta(seconds=5),
        "How long admission keeps serving after SIGTERM; extended while reviews still arrive.",
        group="Servers",
        **_at_least(seconds=0),
    )
    shutdown_grace: Duration = _setting(
        timedelta(seconds=25),
        "Time for the whole shutdown; keep it below the pod's terminationGracePeriodSeconds.",
        group="Servers",
        **_at_least(seconds=1),
    )
    max_connections: int = _setting(
        1024,
        "Maximum number of open connections on the admission port. Beyond it the oldest idle one is closed.",
        group="Servers",
        ge=1,
    )
    max_connections_per_address: int = _setting(
        512,
        "The same for each client address. All requests of an API server may come from one address.",
        group="Servers",
        ge=1,
    )
    max_in_flight: int = _setting(
        256, "Maximum number of reviews in flight; more are answered with 503 and Retry-After.", group="Servers", ge=1
    )
    request_timeout: Duration = _setting(
        timedelta(seconds=10),
        "Time for a client to complete the TLS handshake, and for its whole request to arrive.",
        group="Servers",
        **_at_least(milliseconds=100),
    )
    keep_alive: Duration = _setting(
        timedelta(seconds=120),
        "How long an idle connection is kept; above the 90 s of the API server, so that the API server closes first.",
        group="Servers",
        **_at_least(seconds=1),
    )
    fast_path: bool = _setting(
        True,
        "Answer reviews with shortcuts that use less CPU time. When off, the answers are the same bytes.",
        group="Servers",
    )
    huge_pages: bool = _setting(
        False,
        "Move memory in use onto huge pages while little happens, where the kernel allows it.",
        group="Servers",
    )
    cache_budget: MemorySize = _setting(
        None,
        "Memory of all cached objects, such as 512Mi. Beyond it the largest objects are left out, and report that. "
        "Default: half of the container's memory limit.",
        group="Servers",
    )
    client_ca_file: OptionalPath = _setting(
        None,
        "File with CA certificates. When set, admission clients must present a certificate that one of them signed.",
        group="Servers",
    )
    metrics_auth: bool = _setting(
        False,
        "Serve /metrics over TLS with the admission certificate, only to bearer tokens that may GET /metrics.",
        group="Servers",
    )
    metrics_port: Port = _setting(8443, "Port of /metrics when it is protected.", group="Servers")

    # Console
    console: bool = _setting(
        False, "Serve a live page of services and adapters at /console on the health port.", group="Console"
    )
    console_access: Literal["port-forward", "token"] = _setting(
        "port-forward",
        "Who can open it. port-forward: connections from inside the pod; token: bearer tokens that may GET /console.",
        group="Console",
    )

    # Certificates
    certificates: Literal["self-managed", "mounted"] = _setting(
        "self-managed",
        "self-managed: issued by the server, kept in a Secret; mounted: read from a folder (cert-manager or your own).",
        group="Certificates",
    )
    certificate_dir: Path = _setting(
        Path("/etc/aim-adapters/tls"),
        "Folder with tls.crt and tls.key, for mounted certificates.",
        group="Certificates",
    )
    certificate_secret: str = _setting(
        "aim-adapters-webhook-tls", "Secret for self-managed certificates.", group="Certificates", min_length=1
    )
    service_name: str = _setting(
        "aim-adapters-webhook", "Service of the webhooks; its DNS names go into the certificate.", group="Certificates"
    )
    validating_webhook_configurations: Words = _setting(
        ("aim-adapters",), "ValidatingWebhookConfigurations whose caBundle the server maintains.", group="Certificates"
    )
    mutating_webhook_configurations: Words = _setting(
        ("aim-adapters",), "MutatingWebhookConfigurations whose caBundle the server maintains.", group="Certificates"
    )
    cluster_kinds_reviewed: bool = _setting(
        True,
        "Whether the webhook configurations cover cluster-scoped kinds; a configuration that does not is reported.",
        group="Certificates",
    )
    certificate_names: Words = _setting(
        (), "Additional DNS names and IP addresses for the certificate.", group="Certificates"
    )
    certificate_life: Duration = _setting(
        timedelta(days=90), "Lifetime of a serving certificate.", group="Certificates", **_at_least(seconds=5)
    )
    authority_life: Duration = _setting(
        timedelta(days=365), "Lifetime of a CA certificate.", group="Certificates", **_at_least(seconds=15)
    )
    authority_publish_time: Duration = _setting(
        timedelta(minutes=10),
        "How long a new CA is published before it issues certificates.",
        group="Certificates",
        **_at_least(seconds=0),
    )

    # Reconciling
    workers: int = _setting(
        16, "Maximum number of parallel reconcile passes, per controller.", group="Reconciling", ge=1, le=256
    )
    image: str = _setting(
        "aim-adapters:dev",
        "Image of the Jobs that work on disks; use the image of the server.",
        group="Reconciling",
        min_length=1,
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = _setting(
        "IfNotPresent", "imagePullPolicy of those Jobs.", group="Reconciling"
    )
    refresh_interval: Duration = _setting(
        timedelta(seconds=30),
        "How often a model server checks for new adapters (whole seconds).",
        group="Reconciling",
        **_at_least(seconds=5),
    )
    reaper_period: Duration = _setting(
        timedelta(minutes=15),
        "How often a disk is swept while it may hold something to reclaim.",
        group="Reconciling",
        **_at_least(seconds=1),
    )
    reaper_subtree_skew: Duration = _setting(
        timedelta(minutes=2),
        "Directories created less than this before the list of services was read are kept until the next sweep.",
        group="Reconciling",
        **_at_least(seconds=0),
    )
    scratch_guard: Duration = _setting(
        timedelta(minutes=30),
        "Temporary files younger than this are never swept.",
        group="Reconciling",
        **_at_least(seconds=0),
    )
    unload_grace: Duration = _setting(
        timedelta(minutes=10),
        "How long the controller waits for model servers to unload a removed adapter.",
        group="Reconciling",
        **_at_least(seconds=0),
    )
    allowed_download_images: Words = _setting(
        (),
        "Prefixes of the images that tenants may select for download Jobs (modelDownloadImage), for example "
        "registry.example/tools; empty allows every image.",
        group="Reconciling",
    )
    jobs_per_namespace: int = _setting(
        8,
        "Maximum number of staging and download Jobs that run at once in a namespace; others wait for their turn.",
        group="Reconciling",
        ge=1,
    )
    job_resources: Resources = _setting(
        DEFAULT_JOB_RESOURCES,
        "Requests and limits of the container of each Job. A quota may demand all four of CPU and memory. As JSON in "
        "flags and variables.",
        group="Reconciling",
    )
    job_tolerations: Tolerations = _setting(
        (),
        "Tolerations of Jobs, besides those for the GPU taints that the predictor tolerates. As JSON in flags and "
        "variables.",
        group="Reconciling",
    )
    job_node_selector: NodeSelector = _setting(
        {}, "Node selector of Jobs. As JSON in flags and variables.", group="Reconciling"
    )
    job_priority_class_name: OptionalText = _setting(
        None, "Priority class of Jobs; it must exist.", group="Reconciling"
    )
    staging_deadline: Duration = _setting(
        timedelta(hours=2), "Deadline of one staging Job.", group="Reconciling", **_at_least(seconds=10)
    )
    fetch_deadline: Duration = _setting(
        timedelta(hours=24), "Deadline of one download of a base model.", group="Reconciling", **_at_least(seconds=10)
    )
    probe_period: Duration = _setting(
        timedelta(seconds=10), "How often a model server is probed.", group="Reconciling", **_at_least(seconds=1)
    )
    startup_timeout: Duration = _setting(
        timedelta(hours=1), "Time for a model server to become ready.", group="Reconciling", **_at_least(seconds=10)
    )
    retry_base: Duration = _setting(
        timedelta(minutes=1),
        "First retry delay after a failed staging.",
        group="Reconciling",
        **_at_least(milliseconds=100),
    )
    retry_limit: Duration = _setting(
        timedelta(hours=1),
        "Longest retry delay after failed stagings.",
        group="Reconciling",
        **_at_least(milliseconds=100),
    )
    adopt_managed_by: LabelValues = _setting(
        (),
        "Values of the label app.kubernetes.io/managed-by whose objects are adopted from another operator.",
        group="Reconciling",
    )
    deployment_mode: Literal["Standard", "RawDeployment"] = _setting(
        "Standard",
        "Name of KServe's deployment mode without Knative: RawDeployment for KServe below 0.16, else Standard.",
        group="Reconciling",
    )
    max_surge: int = _setting(
        0,
        "Predictor pods above the desired number during a rollout; a value above 0 needs spare GPUs.",
        group="Reconciling",
        ge=0,
    )
    max_unavailable: int = _setting(
        1, "Predictor pods below the desired number during a rollout.", group="Reconciling", ge=0
    )
    security_profile: Literal["baseline", "restricted"] = _setting(
        "baseline", "Pod Security Standard that predictor pods comply with.", group="Reconciling"
    )
    strict_base: bool = _setting(
        False,
        "Fail an adapter whose own configuration names another base model. When off, this is a warning.",
        group="Reconciling",
    )
    allow_pickle: bool = _setting(
        True,
        "Accept adapter_model.bin, with a warning: such a file can run code when it is loaded.",
        group="Reconciling",
    )
    allow_link_local: bool = _setting(
        False, "Let Jobs download from link-local addresses, where clouds serve credentials.", group="Reconciling"
    )

    # Output
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "Lowest level of log lines that are written.", group="Output"
    )
    log_format: Literal["auto", "json", "logfmt"] = _setting(
        "auto", "auto: logfmt on a terminal, json otherwise.", group="Output"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        """Check combinations of settings."""
        if unknown := [name for name in self.controllers if name not in (*CONTROLLERS, "*")]:
            raise ValueError(f'no controller has the name "{unknown[0]}"; available: {", ".join(CONTROLLERS)}')
        if not (self.admission or self.reconciler):
            raise ValueError("admission and reconciler are both off, so nothing would run")
        if self.lease_renew_period + self.lease_write_margin >= self.lease_duration:
            raise ValueError("lease_duration must be longer than lease_renew_period and lease_write_margin together")
        if self.refresh_interval.microseconds:
            raise ValueError("refresh_interval must be a whole number of seconds")
        if self.max_surge == 0 and self.max_unavailable == 0:
            raise ValueError("max_surge and max_unavailable are both 0, so no rollout could proceed")
        if self.certificate_life > self.authority_life:
            raise ValueError("certificate_life is longer than authority_life")
        if self.drain >= self.shutdown_grace:
            raise ValueError("drain must be shorter than shutdown_grace")
        return self

    def reconcile_settings(self) -> ReconcileSettings:
        """Return the plain values that the reconciler's pure core works with."""
        names = ReconcileSettings.__dataclass_fields__.keys() & type(self).model_fields.keys()
        return ReconcileSettings(**{name: getattr(self, name) for name in names})

    def webhook_configurations(self) -> list[tuple[Kind, str]]:
        """Return the webhook configurations of this server, as kinds and names."""
        return [
            *((VALIDATING_WEBHOOK_CONFIGURATION, name) for name in self.validating_webhook_configurations),
            *((MUTATING_WEBHOOK_CONFIGURATION, name) for name in self.mutating_webhook_configurations),
        ]

    def own_namespace(self) -> str:
        """Return the namespace of the server: the setting, else that of the pod, else `default`."""
        if self.namespace:
            return self.namespace
        try:
            return _SERVICE_ACCOUNT_NAMESPACE.read_text().strip() or "default"
        except OSError:
            return "default"


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting as users see it, for `--help`, the table in the documentation, and the chart."""

    name: str  # as in the model
    flag: str
    variable: str
    key: str  # in the YAML file
    group: str
    default: str
    choices: tuple[str, ...]
    is_switch: bool
    description: str


def describe_settings() -> Iterator[SettingInfo]:
    """Yield all settings in the model's order."""
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        choices = getattr(field.annotation, "__args__", ()) if _is_literal(field) else ()
        yield SettingInfo(
            name=name,
            flag=f"--{name.replace('_', '-')}",
            variable=f"{ENV_PREFIX}{name.upper()}",
            key=to_camel(name),
            group=str(extra["group"]) if isinstance(extra, dict) else "",
            default=_show(field.default),
            choices=tuple(str(choice) for choice in choices),
            is_switch=field.annotation is bool,
            description=field.description or "",
        )


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Settings, list[str]]:
    """Return the settings, and warnings about variables with the prefix AIMA_ that are not settings.

    Args: `flags` by setting name, None for those not given; `config` is the YAML file (else $AIMA_CONFIG).
    Raises: SettingsError with a line per problem.
    """
    names = {info.name: info for info in describe_settings()}
    path = config or (Path(environ[f"{ENV_PREFIX}CONFIG"]) if environ.get(f"{ENV_PREFIX}CONFIG") else None)
    file = FileSource(Settings, path, _spellings(names.values()))
    sources = (EnvironSource(Settings, environ), file)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    problems = list(file.problems)
    token = _SOURCES.set(sources)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        found = _found(sources) | {name: (value, f"flag {names[name].flag}") for name, value in given.items()}
        problems += [_problem_line(problem, found, names) for problem in error.errors(include_url=False)]
    finally:
        _SOURCES.reset(token)
    if problems:
        raise SettingsError(problems)
    known = {f"{ENV_PREFIX}CONFIG", *(info.variable for info in names.values())}
    strange = sorted(v for v in environ if v.startswith(ENV_PREFIX) and v not in known)
    return settings, [f'unknown variable "{name}" is ignored' for name in strange]


def _spellings(infos: Iterable[SettingInfo]) -> dict[str, str]:
    """Return the names of settings by the keys that mean them in a file: `likeThis`, `like_this`, `like-this`."""
    return {spelling: info.name for info in infos for spelling in (info.name, info.key, info.flag[2:])}


def _found(sources: Sources) -> dict[str, tuple[Any, str]]:
    """Return the values that win, each with the words for where it is from, by name."""
    found: dict[str, tuple[Any, str]] = {}
    for source in reversed(sources):
        found |= {name: (value, source.origin(name)) for name, value in source().items()}
    return found


def _problem_line(problem: Any, found: Mapping[str, tuple[Any, str]], names: Mapping[str, SettingInfo]) -> str:
    text = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return text
    name = str(problem["loc"][0])
    value, origin = found.get(name, (None, "default"))
    flag = names[name].flag if name in names else name
    return f'{flag} (from {origin}): "{value}": {text[0].lower()}{text[1:]}'


def _is_literal(field: FieldInfo) -> bool:
    return getattr(field.annotation, "__origin__", None) is Literal


def _show(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    if isinstance(value, tuple | dict):
        return json.dumps(value, separators=(",", ":")) if value else ""
    return "" if value is None else str(value)
