"""Shapes that several kinds share, and the base of all models."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from api.names import FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY, MODEL_ID_PATTERN, SOURCE_URI_PATTERN

NOT_ACTED_ON = "x-not-acted-on"  # marks a field whose value aim-adapters does not read; it is not written to a CRD

# Decimal or scientific number with an optional unit: core/v1 resource.Quantity, without a minus sign.
_QUANTITY_PATTERN = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"


class Shape(BaseModel):
    """Base of every model: camelCase on the wire, no coercion, unknown fields refused.

    Build one by Python names; `to_wire()` returns what is sent to the API server.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        strict=True,
    )

    def to_wire(self) -> dict[str, Any]:
        """Return JSON-ready data with wire names, without fields that are not set or None."""
        return self.model_dump(mode="json", exclude_none=True)


class SharedShape(Shape):
    """Base of the shapes that many kinds use; the reference page documents each once."""


def not_acted_on(description: str) -> Any:
    """Return a field that takes any value; a rule reports that (docs/contract.md, Unimplemented fields)."""
    return Field(None, description=description, json_schema_extra={NOT_ACTED_ON: True})


def keyed_by(*keys: str) -> dict[str, Any]:
    """Return the schema words that make a list a map: entries merge by these keys, none appears twice."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


_ATOMIC: dict[str, Any] = {"x-kubernetes-map-type": "atomic"}

Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
FromZero = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]
FromOne = Annotated[int, Field(ge=1, json_schema_extra={"format": "int32"})]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Text = Annotated[str, Field(min_length=1)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
ModelId = Annotated[str, Field(pattern=MODEL_ID_PATTERN)]
SourceUri = Annotated[str, Field(pattern=SOURCE_URI_PATTERN)]
Quantity = Annotated[
    int | Annotated[str, Field(pattern=_QUANTITY_PATTERN)],
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _QUANTITY_PATTERN}),
]

Feature = Literal["adapters", "adapters-scale-only"]
assert get_args(Feature) == (FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY)
Features = Annotated[list[Feature], Field(json_schema_extra={"x-kubernetes-list-type": "set"})]
Metric = Literal["latency", "throughput"]
Precision = Literal["fp4", "fp8", "fp16", "fp32", "fp64", "bf16", "int4", "int8"]
ProfileType = Literal["optimized", "general", "preview", "unoptimized"]
Scope = Literal["Namespace", "Cluster"]
StoreMode = Literal["Shared", "Dedicated"]


class SecretKeyRef(SharedShape):
    """One key of a Secret of the same namespace."""

    name: Text = Field(description="Name of the Secret.")
    key: Text = Field(description="Key in the Secret's data.")
    optional: bool | None = Field(
        None, description="Start without the variable if the Secret or the key does not exist."
    )


class ConfigMapKeyRef(SharedShape):
    """One key of a ConfigMap of the same namespace."""

    name: Text = Field(description="Name of the ConfigMap.")
    key: Text = Field(description="Key in the ConfigMap's data.")
    optional: bool | None = Field(
        None, description="Start without the variable if the ConfigMap or the key does not exist."
    )


class FieldRef(SharedShape):
    """One field of the pod that has the variable."""

    api_version: str | None = Field(None, description="API version of the path; v1 when absent.")
    field_path: Text = Field(description="Path of the field, for example metadata.namespace.")


class ResourceFieldRef(SharedShape):
    """A resource limit or request of a container of the pod."""

    container_name: str | None = Field(None, description="Name of the container; the variable's own when absent.")
    resource: Text = Field(description="Resource to read, for example limits.memory.")
    divisor: Quantity | None = Field(None, description="Unit of the number; 1 when absent.")


class EnvVarSource(SharedShape):
    """Where a variable's value comes from; exactly one of the references."""

    secret_key_ref: SecretKeyRef | None = Field(
        None, description="Take the value from a Secret.", json_schema_extra=_ATOMIC
    )
    config_map_key_ref: ConfigMapKeyRef | None = Field(
        None, description="Take the value from a ConfigMap.", json_schema_extra=_ATOMIC
    )
    field_ref: FieldRef | None = Field(
        None, description="Take the value from a field of the pod.", json_schema_extra=_ATOMIC
    )
    resource_field_ref: ResourceFieldRef | None = Field(
        None, description="Take the value from the container's resources.", json_schema_extra=_ATOMIC
    )


class EnvVar(SharedShape):
    """One environment variable, as in a pod."""

    name: Text = Field(description="Name of the variable.")
    value: str | None = Field(
        None, description="Literal value; $(OTHER) is replaced by a variable of the same container."
    )
    value_from: EnvVarSource | None = Field(None, description="Source of the value; excludes value.")


class LocalObjectReference(SharedShape):
    """The name of an object of the same namespace."""

    name: Text = Field(description="Name of the object.")


class ResourceRequirements(SharedShape):
    """CPU, memory and extended resources of a container; each absent key gets the built-in amount."""

    limits: dict[str, Quantity] | None = Field(None, description="Maximum that the container may use, per resource.")
    requests: dict[str, Quantity] | None = Field(None, description="Amount that must be free on a node, per resource.")


EnvList = Annotated[list[EnvVar], Field(json_schema_extra=keyed_by("name"))]
PullSecrets = Annotated[list[LocalObjectReference], Field(json_schema_extra=keyed_by("name"))]


class DownloadFilter(SharedShape):
    """Which files of a source are downloaded, by glob over the path below the source's root."""

    include: list[str] | None = Field(None, description="Only files that match one of these globs; absent means all.")
    exclude: list[str] | None = Field(None, description="Files that match one of these globs are skipped.")


class ModelSource(SharedShape):
    """A base model that can be downloaded."""

    model_id: ModelId | None = Field(
        None,
        description="Canonical id of the model, org/name; absent means the org/name of an hf:// source. "
        "Adapters name it in compatibleWith.",
    )
    source_uri: SourceUri = Field(
        description="Location of the files: hf://org/name[/subfolder][@revision] or s3://bucket/prefix/."
    )
    size: Quantity | None = Field(
        None, description="Expected size of the download; the claim gets some headroom on top of it."
    )
    env: EnvList | None = Field(None, description="Variables of the download Job, mainly credentials.")


class Storage(SharedShape):
    """Storage of caches and adapter disks."""

    default_storage_class_name: str | None = Field(
        None, description="Storage class of claims that name none; absent means the cluster's default class."
    )
    pvc_headroom_percent: FromZero | None = Field(
        None,
        description="How much larger than the model a cache claim is, in percent; 10 when absent everywhere.",
    )
    download_filter: DownloadFilter | None = Field(
        None, description="Files to download for artifacts that have no filter."
    )
    adapter_disk_storage_class_name: str | None = Field(
        None, description="Storage class of adapter disks; it must support ReadWriteMany."
    )
    adapter_disk_size: Quantity | None = Field(None, description="Size of adapter disks; 50Gi when absent everywhere.")


class AdapterRuntime(SharedShape):
    """How the model server is started for adapters."""

    max_rank: FromOne | None = Field(
        None,
        description="Rank ceiling in dynamic mode, the largest LoRA rank that the server supports: "
        "one of 1, 8, 16, 32, 64, 128, 256, 320, 512. Changing it rolls the pods.",
    )


class Caching(SharedShape):
    """Whether model artifacts are cached before a service asks for them."""

    enabled: bool | None = Field(None, description="Create the cache as soon as this object exists.")
    env: EnvList | None = Field(None, description="Variables of the download Jobs, mainly credentials.")


class Reference(SharedShape):
    """Another object, as it was found."""

    name: str | None = Field(None, description="Name of the object.")
    namespace: str | None = Field(None, description="Its namespace; absent for a cluster-wide object.")
    scope: Literal["Namespace", "Cluster", "Merged"] | None = Field(
        None, description="Where it was found; Merged: namespace object over cluster object of the same name."
    )
    kind: str | None = Field(None, description="Its kind.")
    uid: str | None = Field(None, description="Its UID, which distinguishes it from a later object of the same name.")


class Condition(SharedShape):
    """One aspect of the object's state, in the usual Kubernetes form."""

    type: str = Field(description="The aspect, for example Ready; a type appears once.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition is met.")
    reason: str | None = Field(None, description="CamelCase word for programs; stable and documented.")
    message: str | None = Field(None, description="Sentence for people: the state, and where to look next.")
    last_transition_time: Timestamp | None = Field(None, description="When status last changed.")
    observed_generation: Int64 | None = Field(None, description="Generation of the spec that this condition describes.")


Conditions = Annotated[list[Condition], Field(json_schema_extra=keyed_by("type"))]


class Status(Shape):
    """What every status has."""

    observed_generation: Int64 | None = Field(
        None,
        description="Last generation of the spec that was handled; lower than metadata.generation until the latest is.",
    )
    conditions: Conditions | None = Field(None, description="State in detail, one entry per aspect.")


class Object(Shape):
    """Envelope of every kind; metadata is left to the API server and not modelled."""

    api_version: str | None = Field(None, description="Group and version that this manifest is written in.")
    kind: str | None = Field(None, description="Kind of the object.")
    metadata: dict[str, Any] | None = Field(None, description="Name, namespace, labels, annotations.")
