"""AIMRuntimeConfig and AIMClusterRuntimeConfig: defaults of a namespace and of the cluster."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from api.models.common import (
    AdapterRuntime,
    EnvList,
    FromZero,
    Object,
    PullSecrets,
    Shape,
    Status,
    Storage,
    Text,
    not_acted_on,
)

# No field here has a schema default (except the key names of a Secret): the namespace's object is merged over the
# cluster's, and a default in the former would hide the value of the latter.


class S3CredentialsSecretRef(Shape):
    """The Secret with static credentials, and the names of its keys."""

    name: Text = Field(description="Name of the Secret, in the namespace of the artifact.")
    access_key_id_key: str = Field("accessKeyId", description="Key that holds the access key id.")
    secret_access_key_key: str = Field("secretAccessKey", description="Key that holds the secret access key.")
    session_token_key: str | None = Field(None, description="Key that holds a session token; absent means none.")


class S3Auth(Shape):
    """How requests are signed."""

    mode: Literal["chain", "static", "anonymous"] | None = Field(
        None,
        description="chain: credentials from the pod's environment (the default); static: from credentialsSecretRef; "
        "anonymous: unsigned requests.",
    )
    credentials_secret_ref: S3CredentialsSecretRef | None = Field(
        None, description="Required with mode static, and valid only there."
    )


class CaBundleRef(Shape):
    """A CA bundle in PEM form."""

    kind: Literal["ConfigMap", "Secret"] = Field(description="Kind of the object that holds it.")
    name: Text = Field(description="Name of that object.")
    key: Text = Field(description="Key that holds the bundle.")


class S3Tls(Shape):
    """How the endpoint's certificate is verified; at most one of the fields."""

    ca_bundle_ref: CaBundleRef | None = Field(None, description="CA bundle to verify the endpoint with.")
    insecure_skip_verify: bool | None = Field(None, description="Do not verify the endpoint's certificate.")


class S3(Shape):
    """How to reach the S3 service that has the buckets of s3:// sources."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^ \t\r\n]+$")] | None = Field(
        None, description="URL of the service; absent means AWS."
    )
    region: str | None = Field(None, description="Region to sign for.")
    addressing_style: Literal["auto", "path", "virtual"] | None = Field(
        None, description="Position of the bucket's name in a URL: path, virtual (host name), or auto (the default)."
    )
    signature_version: Literal["auto", "s3v4"] | None = Field(None, description="Signature; auto is the default.")
    auth: S3Auth | None = Field(None, description="How requests are signed.")
    tls: S3Tls | None = Field(None, description="How the endpoint's certificate is verified.")


class Hub(Shape):
    """How to reach the hub that has the repositories of hf:// sources."""

    ca_bundle_ref: CaBundleRef | None = Field(
        None, description="CA bundle to verify the hub with, beside the public CAs."
    )


class ArtifactDefaults(Shape):
    """Defaults for artifacts."""

    model_download_image: str | None = Field(None, description="Image of download Jobs.")
    s3: S3 | None = Field(
        None, description="How to reach s3:// sources. With this block, credentials are mounted as files."
    )
    hub: Hub | None = Field(None, description="How to reach hf:// sources.")
    default_retention_priority: Any = not_acted_on("Retention priority of artifacts that have none.")


class LabelPropagation(Shape):
    """Which labels of an object are copied to what is created for it."""

    enabled: bool | None = Field(
        None, description="Copy labels that match; labels of aim.eai.amd.com are always copied."
    )
    match: list[str] | None = Field(None, description="Globs over label keys, for example team.example.com/*.")


class ModelDefaults(Shape):
    """Defaults for models."""

    auto_discovery: Any = not_acted_on("Discovery of profiles from images.")


class AIMRuntimeConfigSpec(Shape):
    """Defaults; the namespace's object is merged over the cluster's of the same name, field by field, env by name."""

    adapter_runtime: AdapterRuntime | None = Field(
        None, description="Default of dynamic services; static services ignore it."
    )
    storage: Storage | None = Field(None, description="Storage of caches and adapter disks.")
    env: EnvList | None = Field(None, description="Variables of Jobs, never of a model server.")
    artifact: ArtifactDefaults | None = Field(None, description="Defaults for artifacts.")
    label_propagation: LabelPropagation | None = Field(None, description="Which labels are copied to created objects.")
    image_pull_secrets: PullSecrets | None = Field(None, description="Pull secrets of Jobs and model servers.")
    service_account_name: str | None = Field(None, description="Service account of model servers that name none.")
    default_storage_class_name: str | None = Field(
        None, description="Deprecated: use storage.defaultStorageClassName, which takes precedence."
    )
    pvc_headroom_percent: FromZero | None = Field(
        None, description="Deprecated: use storage.pvcHeadroomPercent, which takes precedence."
    )
    model: ModelDefaults | None = Field(None, description="Defaults for models.")
    routing: Any = not_acted_on("HTTP routing to services.")
    scale_from_zero: Any = not_acted_on("Start of services at the first request.")


class AIMClusterRuntimeConfigSpec(AIMRuntimeConfigSpec):
    """Defaults of the whole cluster."""

    artifact_storage_quota: Any = not_acted_on("Limit of the storage that artifacts may use.")


class AIMRuntimeConfigStatus(Status):
    """State of the configuration."""


class AIMRuntimeConfig(Object):
    """Defaults of a namespace, merged over the AIMClusterRuntimeConfig of the same name."""

    spec: AIMRuntimeConfigSpec | None = Field(None, description="The defaults.")
    status: AIMRuntimeConfigStatus | None = Field(None, description="State; written by the controller.")


class AIMClusterRuntimeConfig(Object):
    """Defaults of the whole cluster."""

    spec: AIMClusterRuntimeConfigSpec | None = Field(None, description="The defaults.")
    status: AIMRuntimeConfigStatus | None = Field(None, description="State; written by the controller.")
