"""What RuntimeConfigs may contain (docs/contract.md, RuntimeConfig, S3 settings, Dynamic ceiling)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api import view
from api.errors import Cause, FieldError, FieldWarning
from api.kinds import AIM_CLUSTER_RUNTIME_CONFIG, AIM_RUNTIME_CONFIG
from api.names import RANK_CEILINGS
from api.reasons import Reason
from rules import adapters as adapter_rules
from rules.rank import SUPPORTED_RANKS, next_supported
from rules.registry import Basis, Example, Output, rule
from rules.relations import affected, naming_services
from rules.seen import Seen, forbidden, required
from rules.shared import unimplemented_warnings
from rules.verdict import Finding
from rules.world import Index

Outputs = Iterator[Output]
BOTH = (AIM_RUNTIME_CONFIG, AIM_CLUSTER_RUNTIME_CONFIG)

_MAX_RANK = "spec.adapterRuntime.maxRank"
_UNIMPLEMENTED = (
    ("routing",),
    ("scaleFromZero",),
    ("model", "autoDiscovery"),
    ("artifact", "defaultRetentionPriority"),
    ("artifactStorageQuota",),
)


@rule(
    *BOTH,
    reason=Reason.MAX_RANK_UNSUPPORTED,
    fields=_MAX_RANK,
    refused=Example("spec: {adapterRuntime: {maxRank: 48}}"),
    passes=Example("spec: {adapterRuntime: {maxRank: 64}}"),
)
def config_max_rank_unsupported(seen: Seen) -> Outputs:
    """The rank ceiling is one of the values that engines support."""
    value = view.dig(seen.spec, "adapterRuntime", "maxRank")
    if value is not None and value not in RANK_CEILINGS:
        detail = f"supported values: {SUPPORTED_RANKS}"
        hint = next_supported(value)
        yield Finding(FieldError(_MAX_RANK, Reason.MAX_RANK_UNSUPPORTED, Cause.NOT_SUPPORTED, detail, value, hint))


@rule(
    *BOTH,
    reason=(Reason.S3_SECRET_MISSING, Reason.S3_SECRET_UNUSED),
    fields="spec.artifact.s3.auth.credentialsSecretRef",
    refused=Example("spec: {artifact: {s3: {auth: {mode: static}}}}"),
    passes=Example("spec: {artifact: {s3: {auth: {mode: static, credentialsSecretRef: {name: bucket-keys}}}}}"),
)
def s3_secret_iff_static(seen: Seen) -> Outputs:
    """Static credentials come from a Secret, and other modes use none."""
    path = "spec.artifact.s3.auth.credentialsSecretRef"
    mode = view.text(seen.spec, "artifact", "s3", "auth", "mode")
    secret = view.dig(seen.spec, "artifact", "s3", "auth", "credentialsSecretRef")
    if mode == "static" and secret is None:
        yield required(path, Reason.S3_SECRET_MISSING, "auth.mode is static", "name the Secret that holds the keys")
    elif mode != "static" and secret is not None:
        mode_is = f'auth.mode is "{mode}"' if mode else "auth.mode is not static"
        yield forbidden(
            path, Reason.S3_SECRET_UNUSED, f"{mode_is}, so the Secret would not be used", "set auth.mode: static"
        )


@rule(
    *BOTH,
    reason=Reason.S3_TLS_CONTRADICTION,
    fields="spec.artifact.s3.tls.insecureSkipVerify",
    refused=Example(
        "spec: {artifact: {s3: {tls: {insecureSkipVerify: true, "
        "caBundleRef: {kind: ConfigMap, name: ca, key: ca.crt}}}}}"
    ),
    passes=Example("spec: {artifact: {s3: {tls: {caBundleRef: {kind: ConfigMap, name: ca, key: ca.crt}}}}}"),
)
def s3_ca_with_skip_verify(seen: Seen) -> Outputs:
    """A CA bundle has no effect if verification is skipped."""
    tls = view.dig(seen.spec, "artifact", "s3", "tls")
    if view.dig(tls, "caBundleRef") is not None and view.dig(tls, "insecureSkipVerify") is True:
        yield forbidden(
            "spec.artifact.s3.tls.insecureSkipVerify",
            Reason.S3_TLS_CONTRADICTION,
            "tls.caBundleRef is set, but it has no effect if verification is skipped",
            "remove insecureSkipVerify",
        )


@rule(
    *BOTH,
    reason=Reason.S3_ENDPOINT_CREDENTIALS,
    fields="spec.artifact.s3.endpoint",
    refused=Example("spec: {artifact: {s3: {endpoint: 'https://key:secret@minio.example:9000'}}}"),
    passes=Example("spec: {artifact: {s3: {endpoint: 'https://minio.example:9000'}}}"),
)
def s3_endpoint_with_credentials(seen: Seen) -> Outputs:
    """Everyone who can read the object can read credentials in the URL, and no client uses them."""
    endpoint = view.text(seen.spec, "artifact", "s3", "endpoint") or ""
    host = re.split(r"[/?#]", endpoint.partition("://")[2], maxsplit=1)[0]
    if "@" in host:
        yield forbidden(
            "spec.artifact.s3.endpoint",
            Reason.S3_ENDPOINT_CREDENTIALS,
            "everyone who can read this object can read the user and password in the URL, and they are not used",
            "remove the part before @, set auth.mode: static, and name a Secret in auth.credentialsSecretRef",
        )


@rule(
    *BOTH,
    reason=Reason.FIELD_NOT_IMPLEMENTED,
    fields="spec.routing, spec.scaleFromZero, spec.model.autoDiscovery, spec.artifact.defaultRetentionPriority, "
    "spec.artifactStorageQuota",
    warns=True,
    refused=Example("spec: {routing: {enabled: true}}"),
    passes=Example("spec: {adapterRuntime: {maxRank: 64}}"),
)
def config_field_not_implemented(seen: Seen) -> Outputs:
    """aim-adapters does not act on this field; other controllers may."""
    if not seen.context.admission_only:
        yield from unimplemented_warnings(seen.spec, _UNIMPLEMENTED)


@rule(
    *BOTH,
    reason=Reason.FIELD_DEPRECATED,
    fields="spec.defaultStorageClassName, spec.pvcHeadroomPercent",
    warns=True,
    refused=Example("spec: {defaultStorageClassName: fast}"),
    passes=Example("spec: {storage: {defaultStorageClassName: fast}}"),
)
def config_field_deprecated(seen: Seen) -> Outputs:
    """A deprecated field is used only where its replacement is not set."""
    for key in ("defaultStorageClassName", "pvcHeadroomPercent"):
        if view.dig(seen.spec, key) is not None:
            yield FieldWarning(f"spec.{key}", Reason.FIELD_DEPRECATED, f"deprecated; use spec.storage.{key}", 70)


@rule(
    *BOTH,
    reason=(Reason.MAX_RANK_EDIT_BREAKS_SERVICES, Reason.MAX_RANK_EDIT_ROLLS),
    fields=_MAX_RANK,
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        "spec: {adapterRuntime: {maxRank: 8}}",
        old="spec: {adapterRuntime: {maxRank: 32}}",
        world="[{kind: AIMService, metadata: {name: chat}, "
        "spec: {adapterMode: dynamic, adapters: [{name: medical, kind: AIMArtifact}]}}]",
    ),
    passes=Example(
        "spec: {adapterRuntime: {maxRank: 16}}",
        old="spec: {adapterRuntime: {maxRank: 32}}",
        world="[{kind: AIMService, metadata: {name: chat}, "
        "spec: {adapterMode: dynamic, adapters: [{name: medical, kind: AIMArtifact}]}}]",
    ),
)
def max_rank_edit_concerns_services(seen: Seen) -> Outputs:
    """Lists the services that the new rank ceiling would break, and those whose pods it would restart."""
    was, now = (view.dig(spec, "adapterRuntime", "maxRank") for spec in (seen.old_spec, seen.spec))
    if was == now:
        return
    services = seen.world.find(Index.SERVICES_BY_RUNTIME_CONFIG, seen.namespace or None, seen.name)
    dynamic = [service for service in services if view.dig(service, "spec", "adapterMode") == "dynamic"]
    among = affected(seen, dynamic)
    broken = [entry for entry in among if entry.newly_broken([adapter_rules.REASON_RANK_ABOVE_CEILING])]
    words = "too low for adapters of"
    yield from naming_services(_MAX_RANK, Reason.MAX_RANK_EDIT_BREAKS_SERVICES, words, broken, total=len(dynamic))
    rolls = [entry for entry in among if entry not in broken and entry.rolls]
    words = "rolls the pods of"
    yield from naming_services(_MAX_RANK, Reason.MAX_RANK_EDIT_ROLLS, words, rolls, total=len(dynamic), weight=2)
