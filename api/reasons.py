"""Every reason that a user can meet: the stable word, what it means, and what to do about it.

The one table for all who speak or show a reason: rules, conditions, events, disk Jobs, `kubectl aim-adapters why`,
lint and its SARIF, the console and the generated pages. A disk Job imports it at its start, so it is data alone.

To add a reason: a member of `Reason`, and its entry in `EXPLANATIONS`. Tests keep the two complete, each meaning and
fix different from all others, and the fields and settings that a fix names real.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NewType

from api.text import clean

Surface = Literal["rule", "condition", "adapter", "event", "lint", "job", "why"]
"""Where a reason is seen.

rule: refused or warned about at admission and by lint, and in ConfigValid of a stored object · condition: the `reason`
of a condition · adapter: at the head of `status.adapters[].lastError`, or in `.warnings[]` · event: the `reason` of an
event · lint: lint alone, for the API server refuses it in its own words · job: the result of a disk Job · why:
`kubectl aim-adapters why` alone.
"""

Group = Literal["success", "source", "disk", "adapter", "warning", "command"]
"""What the result of a disk Job is about."""


class Reason(StrEnum):
    """The words; they never change, so that tests, dashboards and scripts may match on them."""

    ACCELERATOR_MODEL_UNFAMILIAR = "AcceleratorModelUnfamiliar"
    ADAPTER_ALPHA_MISSING = "AdapterAlphaMissing"
    ADAPTER_ARTIFACT_INVALID = "AdapterArtifactInvalid"
    ADAPTER_ARTIFACT_NOT_FOUND = "AdapterArtifactNotFound"
    ADAPTER_BASE_MISMATCH = "AdapterBaseMismatch"
    ADAPTER_CONFIG_INVALID = "AdapterConfigInvalid"
    ADAPTER_CONFIG_MISSING = "AdapterConfigMissing"
    ADAPTER_CONFIG_UNREADABLE = "AdapterConfigUnreadable"
    ADAPTER_DECLARED_TWICE = "AdapterDeclaredTwice"
    ADAPTER_DELETING = "AdapterDeleting"
    ADAPTER_DISK_ON_ADAPTER = "AdapterDiskOnAdapter"
    ADAPTER_DISK_ON_DEDICATED_CACHE = "AdapterDiskOnDedicatedCache"
    ADAPTER_DISK_ON_SERVICE = "AdapterDiskOnService"
    ADAPTER_DOWNLOADED = "AdapterDownloaded"
    ADAPTER_DOWNLOADING = "AdapterDownloading"
    ADAPTER_EXTRA_TENSORS = "AdapterExtraTensors"
    ADAPTER_FAILED = "AdapterFailed"
    ADAPTER_FIT_UNCHECKED = "AdapterFitUnchecked"
    ADAPTER_FITS_NO_MODULE = "AdapterFitsNoModule"
    ADAPTER_FITS_PARTLY = "AdapterFitsPartly"
    ADAPTER_HELD_FOR_UNLOAD = "AdapterHeldForUnload"
    ADAPTER_INCOMPATIBLE = "AdapterIncompatible"
    ADAPTER_INIT_CHANGES_BASE = "AdapterInitChangesBase"
    ADAPTER_IS_LFS_POINTER = "AdapterIsLfsPointer"
    ADAPTER_IS_PICKLE = "AdapterIsPickle"
    ADAPTER_LAYOUT_NESTED = "AdapterLayoutNested"
    ADAPTER_LOAD_REJECTED = "AdapterLoadRejected"
    ADAPTER_LOADED = "AdapterLoaded"
    ADAPTER_MAX_RANK_CHANGED = "AdapterMaxRankChanged"
    ADAPTER_MODE_IMMUTABLE = "AdapterModeImmutable"
    ADAPTER_MODEL_ID_MISSING = "AdapterModelIdMissing"
    ADAPTER_MODULE_UNKNOWN = "AdapterModuleUnknown"
    ADAPTER_NEEDS_NEWER_ENGINE = "AdapterNeedsNewerEngine"
    ADAPTER_NOT_AN_ADAPTER = "AdapterNotAnAdapter"
    ADAPTER_NOT_DECLARED = "AdapterNotDeclared"
    ADAPTER_NOT_DECLARED_BY_SERVICE = "AdapterNotDeclaredByService"
    ADAPTER_NOT_LISTED = "AdapterNotListed"
    ADAPTER_PARENT_MISMATCH = "AdapterParentMismatch"
    ADAPTER_PATH_DUPLICATE = "AdapterPathDuplicate"
    ADAPTER_PATH_INVALID = "AdapterPathInvalid"
    ADAPTER_PENDING = "AdapterPending"
    ADAPTER_PICKLE_REFUSED = "AdapterPickleRefused"
    ADAPTER_PROBABLY_INCOMPATIBLE = "AdapterProbablyIncompatible"
    ADAPTER_RANK_ABOVE_CEILING = "AdapterRankAboveCeiling"
    ADAPTER_RANK_ABOVE_DECLARED = "AdapterRankAboveDeclared"
    ADAPTER_RANK_EXCEEDS_CEILING = "AdapterRankExceedsCeiling"
    ADAPTER_RANK_MISMATCH = "AdapterRankMismatch"
    ADAPTER_RANK_MISSING = "AdapterRankMissing"
    ADAPTER_REPLICATES_LAYERS = "AdapterReplicatesLayers"
    ADAPTER_SAVES_MODULES = "AdapterSavesModules"
    ADAPTER_SHAPE_MISMATCH = "AdapterShapeMismatch"
    ADAPTER_SHARDED = "AdapterSharded"
    ADAPTER_STAGED = "AdapterStaged"
    ADAPTER_SUBTREE_PROVISIONING = "AdapterSubtreeProvisioning"
    ADAPTER_TARGETS_NOTHING = "AdapterTargetsNothing"
    ADAPTER_TENSORS_INCOMPLETE = "AdapterTensorsIncomplete"
    ADAPTER_TENSORS_MISNAMED = "AdapterTensorsMisnamed"
    ADAPTER_TYPE_UNSUPPORTED = "AdapterTypeUnsupported"
    ADAPTER_UNLOAD_OVERDUE = "AdapterUnloadOverdue"
    ADAPTER_USES_ACTIVATED_LORA = "AdapterUsesActivatedLora"
    ADAPTER_USES_BIAS = "AdapterUsesBias"
    ADAPTER_USES_BLOCK_DIAGONAL = "AdapterUsesBlockDiagonal"
    ADAPTER_USES_DORA = "AdapterUsesDora"
    ADAPTER_USES_QALORA = "AdapterUsesQalora"
    ADAPTER_VALIDATED = "AdapterValidated"
    ADAPTER_WEIGHTS_MISSING = "AdapterWeightsMissing"
    ADAPTER_WEIGHTS_NOT_FINITE = "AdapterWeightsNotFinite"
    ADAPTER_WEIGHTS_NOT_FLOAT = "AdapterWeightsNotFloat"
    ADAPTER_WEIGHTS_TRUNCATED = "AdapterWeightsTruncated"
    ADAPTER_WEIGHTS_UNREADABLE = "AdapterWeightsUnreadable"
    ADAPTERS_STAGED = "AdaptersStaged"
    ADAPTERS_STAGING = "AdaptersStaging"
    ADAPTERS_WITHOUT_PROFILE = "AdaptersWithoutProfile"
    AIM_ID_IMMUTABLE = "AimIdImmutable"
    AIM_ID_WITHOUT_SOURCES = "AimIdWithoutSources"
    ALL_CACHES_READY = "AllCachesReady"
    ALREADY_STAGED = "AlreadyStaged"
    ARTIFACT_TERMINATING = "ArtifactTerminating"
    AUTOSCALING_CHANGE_ROLLS = "AutoscalingChangeRolls"
    BASE_ID_IMPOSSIBLE = "BaseIdImpossible"
    BASE_NOT_FOUND = "BaseNotFound"
    CACHE_BUDGET_EXCEEDED = "CacheBudgetExceeded"
    CACHES_NOT_READY = "CachesNotReady"
    CACHING_MODE_IMMUTABLE = "CachingModeImmutable"
    CEILING_CHANGE_DEFERRED = "CeilingChangeDeferred"
    CEILING_CHANGE_ROLLS = "CeilingChangeRolls"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    CLAIM_BOUND = "ClaimBound"
    CLAIM_PENDING = "ClaimPending"
    CLAIM_PROVISIONING_FAILED = "ClaimProvisioningFailed"
    CLAIM_TERMINATING = "ClaimTerminating"
    CLAIM_UNBOUND = "ClaimUnbound"
    COMPATIBILITY_EDIT_BREAKS_SERVICES = "CompatibilityEditBreaksServices"
    COMPATIBILITY_MISSING = "CompatibilityMissing"
    COMPATIBILITY_TWICE = "CompatibilityTwice"
    CONFIG_INVALID = "ConfigInvalid"
    CONFIG_VALID = "ConfigValid"
    CONTROLLER_BEHIND = "ControllerBehind"
    CONTROLLER_SILENT = "ControllerSilent"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    CREATING = "Creating"
    CREATING_CACHES = "CreatingCaches"
    CUSTOM_MODEL_SOURCES_NOT_ONE = "CustomModelSourcesNotOne"
    DEDICATED_CACHING_WITH_ADAPTERS = "DedicatedCachingWithAdapters"
    DISALLOWED_S3_ARTIFACT_ENVIRONMENT = "DisallowedS3ArtifactEnvironment"
    DISK_BUSY = "DiskBusy"
    DISK_FULL = "DiskFull"
    DISK_IO_ERROR = "DiskIoError"
    DISK_NOT_BOUND = "DiskNotBound"
    DISK_NOT_OURS = "DiskNotOurs"
    DISK_OPERATION_FAILED = "DiskOperationFailed"
    DISK_PERMISSION_DENIED = "DiskPermissionDenied"
    DISK_QUOTA_EXCEEDED = "DiskQuotaExceeded"
    DISK_READ_ONLY = "DiskReadOnly"
    DISK_REAPED = "DiskReaped"
    DISK_STALE = "DiskStale"
    DOWNLOAD_BLOCKED = "DownloadBlocked"
    DOWNLOAD_IMAGE_NOT_ALLOWED = "DownloadImageNotAllowed"
    DOWNLOADING = "Downloading"
    EDIT_HAS_NO_EFFECT = "EditHasNoEffect"
    ENGINE_ARGS_SWITCH_ADAPTERS_OFF = "EngineArgsSwitchAdaptersOff"
    ENV_HAS_NO_EFFECT = "EnvHasNoEffect"
    ENV_NOT_ALLOWED = "EnvNotAllowed"
    ENV_RESERVED = "EnvReserved"
    ENV_UNUSABLE = "EnvUnusable"
    FAILED_CREATE = "FailedCreate"
    FAILED_MOUNT = "FailedMount"
    FEATURE_MISSING = "FeatureMissing"
    FEATURE_REMOVAL_BREAKS_SERVICES = "FeatureRemovalBreaksServices"
    FEATURE_SCALE_ONLY = "FeatureScaleOnly"
    FIELD_DEPRECATED = "FieldDeprecated"
    FIELD_IMMUTABLE = "FieldImmutable"
    FIELD_NOT_IMPLEMENTED = "FieldNotImplemented"
    FIELD_ONLY_ON_ADAPTERS = "FieldOnlyOnAdapters"
    FIELD_REQUIRED = "FieldRequired"
    FIELD_UNKNOWN = "FieldUnknown"
    GATED = "Gated"
    GROUP_UNKNOWN = "GroupUnknown"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    IMAGE_TOO_OLD = "ImageTooOld"
    IMAGE_UNKNOWN = "ImageUnknown"
    INFERENCE_SERVICE_READY = "InferenceServiceReady"
    INFERENCE_SERVICE_REFUSED = "InferenceServiceRefused"
    INTERNAL_ERROR = "InternalError"
    INTERRUPTED = "Interrupted"
    INVALID_IMAGE_NAME = "InvalidImageName"
    JOB_DEADLINE_EXCEEDED = "JobDeadlineExceeded"
    JOB_FAILED = "JobFailed"
    JOB_SUSPENDED = "JobSuspended"
    K_SERVE_NOT_INSTALLED = "KServeNotInstalled"
    K_SERVE_UNAVAILABLE = "KServeUnavailable"
    KEY_DUPLICATE = "KeyDuplicate"
    KIND_UNKNOWN = "KindUnknown"
    LIST_ENTRY_DUPLICATE = "ListEntryDuplicate"
    LIST_TOO_LONG = "ListTooLong"
    LIST_TOO_SHORT = "ListTooShort"
    LOADING_SOON = "LoadingSoon"
    MAX_RANK_EDIT_BREAKS_SERVICES = "MaxRankEditBreaksServices"
    MAX_RANK_EDIT_ROLLS = "MaxRankEditRolls"
    MAX_RANK_IN_STATIC_MODE = "MaxRankInStaticMode"
    MAX_RANK_UNSUPPORTED = "MaxRankUnsupported"
    MEASURING_SOURCE = "MeasuringSource"
    MIN_REPLICAS_ABOVE_MAX = "MinReplicasAboveMax"
    MINIMUM_REPLICAS_UNAVAILABLE = "MinimumReplicasUnavailable"
    MODEL_CACHED = "ModelCached"
    MODEL_FETCHED = "ModelFetched"
    MODEL_ID_CHANGED = "ModelIdChanged"
    MODEL_ID_EDIT_BREAKS_SERVICES = "ModelIdEditBreaksServices"
    MODEL_IMMUTABLE = "ModelImmutable"
    MODEL_LIST_UNREADABLE = "ModelListUnreadable"
    MODEL_MEASURED = "ModelMeasured"
    MODEL_NOT_EXACTLY_ONE = "ModelNotExactlyOne"
    MODEL_SOURCES_AMBIGUOUS = "ModelSourcesAmbiguous"
    MODEL_VALID = "ModelValid"
    MORE_ADAPTERS_THAN_SLOTS = "MoreAdaptersThanSlots"
    NAME_INVALID = "NameInvalid"
    NAME_TAKEN = "NameTaken"
    NAMESPACE_NAME_TOO_LONG = "NamespaceNameTooLong"
    NAMESPACE_ON_CLUSTER_KIND = "NamespaceOnClusterKind"
    NO_CACHES = "NoCaches"
    NO_MATCHING_NODE = "NoMatchingNode"
    NO_MODEL_SOURCES = "NoModelSources"
    NO_PODS = "NoPods"
    NODES_MATCH = "NodesMatch"
    NODES_NOT_WATCHED = "NodesNotWatched"
    NOT_AN_OBJECT = "NotAnObject"
    NOTHING_TO_CACHE = "NothingToCache"
    NOTHING_TO_SERVE = "NothingToServe"
    NUMBER_OUT_OF_BOUNDS = "NumberOutOfBounds"
    OBJECT_DUPLICATE = "ObjectDuplicate"
    OVERRIDES_WITHOUT_PROFILE = "OverridesWithoutProfile"
    PARENT_ARTIFACT_NOT_FOUND = "ParentArtifactNotFound"
    PARENT_ARTIFACT_NOT_MODEL = "ParentArtifactNotModel"
    PARENT_LACKS_ADAPTER_DISK = "ParentLacksAdapterDisk"
    PARENT_NOT_MODEL = "ParentNotModel"
    PARTITIONING_WITHOUT_COUNT = "PartitioningWithoutCount"
    PATTERN_MISMATCH = "PatternMismatch"
    PENDING = "Pending"
    POD_PENDING = "PodPending"
    PREDICTOR_CHANGED = "PredictorChanged"
    PROFILE_CHANGE_ROLLS = "ProfileChangeRolls"
    PROFILE_EDIT_ROLLS = "ProfileEditRolls"
    PROFILE_NAME_MISSING = "ProfileNameMissing"
    PROFILE_NOT_DEPLOYABLE = "ProfileNotDeployable"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    QUEUED = "Queued"
    RANK_ABOVE_HIGHEST = "RankAboveHighest"
    RANK_BELOW_ONE = "RankBelowOne"
    RANK_CEILING_UNKNOWN = "RankCeilingUnknown"
    RANK_EDIT_BREAKS_SERVICES = "RankEditBreaksServices"
    RANK_EDIT_ROLLS = "RankEditRolls"
    RECONCILE_FAILED = "ReconcileFailed"
    RECONCILIATION_PAUSED = "ReconciliationPaused"
    REFERENCE_INVALID = "ReferenceInvalid"
    REFERENCE_NOT_FOUND = "ReferenceNotFound"
    REFERENCE_UNREADABLE = "ReferenceUnreadable"
    REPLICAS_IGNORED = "ReplicasIgnored"
    RESTART_REQUIRED = "RestartRequired"
    ROLLING_OUT = "RollingOut"
    RULE_FAILED = "RuleFailed"
    RUN_CONTAINER_ERROR = "RunContainerError"
    RUNTIME_CONFIG_MAX_RANK_UNSUPPORTED = "RuntimeConfigMaxRankUnsupported"
    RUNTIME_CONFIG_NOT_FOUND = "RuntimeConfigNotFound"
    RUNTIME_CONFIG_UNREADABLE = "RuntimeConfigUnreadable"
    S3_ENDPOINT_CREDENTIALS = "S3EndpointCredentials"
    S3_SECRET_MISSING = "S3SecretMissing"  # noqa: S105 - a word, not a password
    S3_SECRET_UNUSED = "S3SecretUnused"  # noqa: S105 - as above
    S3_TLS_CONTRADICTION = "S3TlsContradiction"
    SCALED_TO_ZERO = "ScaledToZero"
    SERVICE_TERMINATING = "ServiceTerminating"
    SERVING = "Serving"
    SIZE_UNUSABLE = "SizeUnusable"
    SOME_REPLICAS_LACK = "SomeReplicasLack"
    SOURCE_ARCHIVED = "SourceArchived"
    SOURCE_BUCKET_NOT_FOUND = "SourceBucketNotFound"
    SOURCE_CHANGED = "SourceChanged"
    SOURCE_CLOCK_DIFFERS = "SourceClockDiffers"
    SOURCE_CONNECTION_LOST = "SourceConnectionLost"
    SOURCE_CREDENTIALS_UNREADABLE = "SourceCredentialsUnreadable"
    SOURCE_DNS_FAILED = "SourceDnsFailed"
    SOURCE_ENDPOINT_HAS_BUCKET = "SourceEndpointHasBucket"
    SOURCE_ENDPOINT_REFUSED = "SourceEndpointRefused"
    SOURCE_FORBIDDEN = "SourceForbidden"
    SOURCE_GATED = "SourceGated"
    SOURCE_NAME_REFUSED = "SourceNameRefused"
    SOURCE_NOT_AN_API = "SourceNotAnApi"
    SOURCE_NOT_VERIFIED = "SourceNotVerified"
    SOURCE_PREFIX_EMPTY = "SourcePrefixEmpty"
    SOURCE_RATE_LIMITED = "SourceRateLimited"
    SOURCE_REGION_WRONG = "SourceRegionWrong"
    SOURCE_REPOSITORY_NOT_FOUND = "SourceRepositoryNotFound"
    SOURCE_RESPONSE_INVALID = "SourceResponseInvalid"
    SOURCE_REVISION_NOT_FOUND = "SourceRevisionNotFound"
    SOURCE_SERVER_ERROR = "SourceServerError"
    SOURCE_TIMEOUT = "SourceTimeout"
    SOURCE_TLS_FAILED = "SourceTlsFailed"
    SOURCE_TOO_MANY_FILES = "SourceTooManyFiles"
    SOURCE_UNAUTHORIZED = "SourceUnauthorized"
    SOURCE_UNUSABLE = "SourceUnusable"
    SOURCE_URI_INVALID = "SourceUriInvalid"
    SOURCES_EDIT_BREAKS_SERVICES = "SourcesEditBreaksServices"
    SOURCES_WITHOUT_AIM_ID = "SourcesWithoutAimId"
    SPECIFICATION_INVALID = "SpecificationInvalid"
    STAGING_BLOCKED = "StagingBlocked"
    STAGING_RUNS = "StagingRuns"
    STAGING_WAITING = "StagingWaiting"
    STARTING = "Starting"
    STATIC_ADAPTERS_IMMUTABLE = "StaticAdaptersImmutable"
    STOPPED = "Stopped"
    SUBTREE_MOVE_FAILED = "SubtreeMoveFailed"
    SUBTREE_SYNCED = "SubtreeSynced"
    SWEEP_DRY_RUN = "SweepDryRun"
    SYNC_SUPERSEDED = "SyncSuperseded"
    TEMPLATE_AMBIGUOUS = "TemplateAmbiguous"
    TEMPLATE_BESIDE_PROFILE = "TemplateBesideProfile"
    TEMPLATE_IMMUTABLE = "TemplateImmutable"
    TEMPLATE_IN_V1ALPHA2 = "TemplateInV1alpha2"
    TEMPLATE_NOT_CHOSEN = "TemplateNotChosen"
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    TEMPLATE_OF_ANOTHER_MODEL = "TemplateOfAnotherModel"
    TEMPLATE_VALID = "TemplateValid"
    TERMINATING = "Terminating"
    TEXT_NOT_UTF8 = "TextNotUtf8"
    TEXT_TOO_LONG = "TextTooLong"
    TEXT_TOO_SHORT = "TextTooShort"
    TOO_LARGE = "TooLarge"
    TOO_MANY_MODEL_SOURCES = "TooManyModelSources"
    TYPE_UNKNOWN = "TypeUnknown"
    TYPE_WRONG = "TypeWrong"
    UNREADABLE = "Unreadable"
    UNSCHEDULABLE = "Unschedulable"
    VALUE_NOT_SUPPORTED = "ValueNotSupported"
    VERSION_DEPRECATED = "VersionDeprecated"
    VERSION_UNKNOWN = "VersionUnknown"
    WORD_UNKNOWN = "WordUnknown"
    YAML_INVALID = "YamlInvalid"
    YAML_TOO_LARGE = "YamlTooLarge"

    __hash__ = str.__hash__  # as equality says; Enum's own hash is a call for every look-up


Foreign = NewType("Foreign", str)
"""A reason that is not one of these: a word of Kubernetes or KServe, or one that was read from a status or a Job."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a reason means, and what to do about it.

    `meaning` in sentences; `fix` is a clause in the imperative that completes a message ("…; set HF_TOKEN"), and empty
    only where nothing is wrong (`fine`) or time alone helps (`waits` or `retriable`).
    `conditions`: the condition types that carry it; `event_on`: the kind that its event is about.
    `group`: of the results of disk Jobs. `retriable`: the same Job may succeed later, and is retried with backoff.
    """

    meaning: str
    fix: str = ""
    surfaces: tuple[Surface, ...] = ()
    conditions: tuple[str, ...] = ()
    event_on: str = ""
    group: Group | None = None
    retriable: bool = False
    waits: bool = False
    fine: bool = False

    @property
    def advice(self) -> str:
        """What to do, in one clause; empty where nothing is wrong."""
        if self.retriable:
            return f"{self.fix}; it is retried automatically" if self.fix else "it is retried automatically"
        if self.waits:
            return f"wait; if it lasts, {self.fix}" if self.fix else "wait; it passes automatically"
        return self.fix


# -- short forms for the entries below ------------------------------------------------------------------------------


def _rule(meaning: str, fix: str = "", *, waits: bool = False) -> Explanation:
    return Explanation(meaning, fix, ("rule",), waits=waits)


def _lint(meaning: str, fix: str) -> Explanation:
    return Explanation(meaning, fix, ("lint",))


def _why(meaning: str, fix: str = "", *, waits: bool = False) -> Explanation:
    return Explanation(meaning, fix, ("why",), waits=waits)


def _condition(
    conditions: tuple[str, ...], meaning: str, fix: str = "", *also: Surface, waits: bool = False, fine: bool = False
) -> Explanation:
    return Explanation(meaning, fix, (*also, "condition"), conditions, waits=waits, fine=fine)


def _adapter(meaning: str, fix: str) -> Explanation:
    return Explanation(meaning, fix, ("adapter",))


def _event(kind: str, meaning: str, fix: str = "", *, waits: bool = False, fine: bool = False) -> Explanation:
    return Explanation(meaning, fix, ("event",), event_on=kind, waits=waits, fine=fine)


def _done(meaning: str) -> Explanation:
    """A disk Job that ended well."""
    return Explanation(meaning, "", ("job",), group="success", fine=True)


def _failed(group: Group, meaning: str, fix: str = "", *, retriable: bool = False) -> Explanation:
    """A disk Job that failed: of staging, of a download of a base model, of a sweep."""
    return Explanation(
        meaning, fix, ("job", "adapter", "condition", "event"), _MODEL, "AIMArtifact", group, retriable=retriable
    )


def _files(meaning: str, fix: str) -> Explanation:
    """A staging Job that ran well over an adapter that cannot be served."""
    return Explanation(meaning, fix, ("job", "adapter"), group="adapter")


def _note(meaning: str, fix: str) -> Explanation:
    """A warning beside the success of a staging Job."""
    return Explanation(meaning, fix, ("job", "adapter"), group="warning")


_CACHE_READY = ("CacheReady",)
_CACHES = ("CacheReady", "ArtifactsReady")
_SERVED = ("InferenceServiceReady",)
_MODEL = ("Ready of a model artifact",)
_OF_ADAPTER = ("Ready of an adapter artifact",)
_CLAIMS = ("CacheStorageReady", "AdapterDiskReady")
_NODES = ("Ready of a profile or template",)

_TABLE: dict[Reason, Explanation] = {
    # -- rules of AIMService: what is served
    Reason.NOTHING_TO_SERVE: Explanation(
        "Neither a profile nor a model with an image is named, so there is nothing to serve.",
        "set spec.profile.name (`kubectl get aimprf,aimclprf` lists profiles), or spec.model in v1alpha1",
        ("rule", "condition"),
        _CACHE_READY,
    ),
    Reason.MODEL_NOT_EXACTLY_ONE: _rule(
        "spec.model sets none, or more than one, of name, image and custom.",
        "keep exactly one of spec.model.name, spec.model.image and spec.model.custom",
    ),
    Reason.CUSTOM_MODEL_SOURCES_NOT_ONE: _rule(
        "A custom model lists no model source, or more than one.",
        "list exactly one source in spec.model.custom.modelSources",
    ),
    Reason.TEMPLATE_BESIDE_PROFILE: _rule(
        "The service sets both spec.profile and spec.template, and a profile already defines what a template would.",
        "remove spec.template, and adjust the profile with spec.profileOverrides",
    ),
    Reason.PROFILE_NAME_MISSING: _rule(
        "spec.profile is set, but it names no profile.",
        "set spec.profile.name to a profile that `kubectl get aimprf,aimclprf` lists",
    ),
    Reason.OVERRIDES_WITHOUT_PROFILE: _rule(
        "The service sets spec.profileOverrides, but it has no profile to override.",
        "set spec.profile.name, or remove spec.profileOverrides",
    ),
    Reason.PARTITIONING_WITHOUT_COUNT: _rule(
        "The override changes how accelerators are partitioned, so the profile's count no longer means the same.",
        "set spec.profileOverrides.acceleratorCount to the number of partitions that the service needs",
    ),
    Reason.NAMESPACE_NAME_TOO_LONG: _rule(
        "KServe builds host names from the InferenceService and the namespace, and the name of this namespace leaves "
        "fewer than 10 characters for the InferenceService.",
        "use a namespace whose name has at most 42 characters",
    ),
    Reason.FIELD_NOT_IMPLEMENTED: _rule(
        "aim-adapters does not act on this field. An AIMService that sets it is refused; on other kinds it is a "
        "warning.",
        "remove the field, and use the alternative in the message where it has one",
    ),
    Reason.WORD_UNKNOWN: _rule(
        "A mode, a kind or a feature is not one of the words that the field supports.",
        "use one of the words that the message lists",
    ),
    Reason.MIN_REPLICAS_ABOVE_MAX: _rule(
        "spec.minReplicas is above spec.maxReplicas.", "lower spec.minReplicas, or raise spec.maxReplicas"
    ),
    Reason.ENV_RESERVED: _rule(
        "KServe gives this variable of the server container a meaning of its own.", "remove or rename the variable"
    ),
    Reason.ENV_UNUSABLE: _rule(
        "No pod accepts this entry of an env list: its name is not valid, or its value does not come from exactly one "
        "place.",
        "write a valid name, and either value or exactly one source in valueFrom",
    ),
    Reason.SOURCE_UNUSABLE: _rule(
        "The source URI cannot be parsed, so nothing could be downloaded from it.",
        "write hf://ORG/NAME[/SUBFOLDER][@REVISION] or s3://BUCKET/PREFIX/",
    ),
    Reason.SIZE_UNUSABLE: _rule("The size is not a quantity above zero.", 'write a quantity, for example "50Gi"'),
    # -- rules of AIMService: adapters
    Reason.ADAPTER_DECLARED_TWICE: _rule(
        "spec.adapters declares the same adapter more than once.", "remove one of the two entries of spec.adapters"
    ),
    Reason.TOO_LARGE: _rule(
        "A field of the object is beyond its bound: a list, a map or a string is too long, or a free-form field is "
        "nested too deeply. The message names the field and the bound. Nothing else of the object is judged, and "
        "nothing is done for it.",
        "shorten the field that the message names; docs/bounds.md lists every bound",
    ),
    Reason.CACHE_BUDGET_EXCEEDED: _condition(
        ("ConfigValid",),
        "The objects of the cluster need more memory than aim-adapters may use for them, and this one is among the "
        "largest. Nothing is done for it until there is room.",
        "remove objects that are not needed or make this one smaller; an administrator can raise cacheBudget",
    ),
    Reason.DOWNLOAD_IMAGE_NOT_ALLOWED: Explanation(
        "The image of download Jobs does not begin with a prefix that the administrator allows.",
        "use an image that the message names as allowed, or ask an administrator to extend allowedDownloadImages",
        ("rule", "condition"),
        _MODEL,
    ),
    Reason.UNREADABLE: _condition(
        ("ConfigValid",),
        "A part of the stored object is nested so deeply, or contains such text, that no JSON parser reads it. "
        "Nothing is done for the object.",
        "apply the object again without the part that the message names",
    ),
    Reason.MAX_RANK_IN_STATIC_MODE: _rule(
        "A static service sets a rank ceiling, but its ceiling is the largest rank of the declared adapters.",
        "remove spec.adapterRuntime.maxRank; only adapterMode: dynamic takes one",
    ),
    Reason.MAX_RANK_UNSUPPORTED: _rule(
        "adapterRuntime.maxRank is not a value that engines support: 1, 8, 16, 32, 64, 128, 256, 320 or 512.",
        "set adapterRuntime.maxRank to the next larger supported value",
    ),
    Reason.RUNTIME_CONFIG_MAX_RANK_UNSUPPORTED: _rule(
        "A dynamic service takes its rank ceiling from a RuntimeConfig, and engines do not support that value.",
        "correct adapterRuntime.maxRank of the RuntimeConfig, or set spec.adapterRuntime.maxRank on the service",
    ),
    Reason.DEDICATED_CACHING_WITH_ADAPTERS: _rule(
        "The service uses adapters with a dedicated cache, but adapters need the disk of a shared base model.",
        "set spec.caching.mode: Shared, the default",
    ),
    Reason.ADAPTER_DISK_ON_SERVICE: _rule(
        "The service sets the size or the class of the adapter disk, which belongs to the base model and is shared by "
        "all its services.",
        "set spec.adapterDisk on the base AIMArtifact, or storage in the RuntimeConfig",
    ),
    Reason.ADAPTERS_WITHOUT_PROFILE: _rule(
        "A service written as v1alpha2 declares adapters but no profile, which shows whether the image serves them.",
        "set spec.profile.name, or write the service as aim.eai.amd.com/v1alpha1",
    ),
    Reason.TEMPLATE_IN_V1ALPHA2: _rule(
        "A template cannot be added through v1alpha2; a service that has one keeps it.",
        "set spec.profile instead, or write the service with its template as aim.eai.amd.com/v1alpha1",
    ),
    Reason.ADAPTER_MODE_IMMUTABLE: _rule(
        "spec.adapterMode is fixed when the service is created.",
        "delete the service, and create it again with the other adapterMode",
    ),
    Reason.STATIC_ADAPTERS_IMMUTABLE: _rule(
        "In static mode the list of adapters is fixed when the service is created.",
        "create another service with adapterMode: dynamic, where the list can change at any time",
    ),
    Reason.MODEL_IMMUTABLE: _rule(
        "spec.model is fixed when the service is created.", "create another service for the other model"
    ),
    Reason.TEMPLATE_IMMUTABLE: _rule(
        "spec.template is fixed when the service is created.", "create another service with the other template"
    ),
    Reason.CACHING_MODE_IMMUTABLE: _rule(
        "spec.caching.mode is fixed when the service is created.", "create another service with the other caching mode"
    ),
    Reason.FEATURE_MISSING: _rule(
        'The service uses adapters, but its effective profile does not advertise the feature "adapters".',
        'if the image is AIM 0.13 or newer, set spec.profileOverrides.features: ["adapters"]; else choose another '
        "profile",
    ),
    Reason.FEATURE_SCALE_ONLY: _rule(
        'The service is dynamic, but its effective profile advertises "adapters-scale-only", which allows static mode '
        "only.",
        'use adapterMode: static, or override the features with ["adapters"] if the image supports that',
    ),
    Reason.MODEL_SOURCES_AMBIGUOUS: _rule(
        "Several model sources leave open which base model the adapters belong to.",
        "serve adapters with exactly one model source; spec.profileOverrides.modelSources replaces a profile's list",
    ),
    Reason.TEMPLATE_OF_ANOTHER_MODEL: _rule(
        "spec.template names a template that belongs to another model than the service's.",
        "choose a template of the model, or remove spec.template.name",
    ),
    Reason.ADAPTER_NOT_AN_ADAPTER: _rule(
        "The declared AIMArtifact is a base model (spec.type: model), not an adapter.",
        "declare an AIMArtifact with spec.type: adapter; the base model comes from the profile or model",
    ),
    Reason.ADAPTER_PATH_INVALID: _rule(
        "The directory in the artifact's status.adapterPath is not a name that a model server loads.",
        "delete the AIMArtifact, and create it again: its path is then its name",
    ),
    Reason.ADAPTER_PATH_DUPLICATE: _rule(
        "Two declared adapters have the same directory, which is also the name of the served model.",
        "remove one of the two, or create one of the artifacts again under another name",
    ),
    Reason.ADAPTER_INCOMPATIBLE: _rule(
        "The adapter's spec.compatibleWith does not list the model id of the service's base model.",
        "add the model id of the base to spec.compatibleWith if the adapter fits; else declare another adapter",
    ),
    Reason.ADAPTER_PARENT_MISMATCH: _rule(
        "The adapter's spec.parentArtifact names another artifact than the base model of the service.",
        "declare an adapter of this base, or one that has spec.compatibleWith instead of a parent",
    ),
    Reason.ADAPTER_RANK_ABOVE_CEILING: _rule(
        "The rank in the adapter's spec is above the rank ceiling of the service, or above the highest that engines "
        "support, 512.",
        "raise adapterRuntime.maxRank on the service or in its RuntimeConfig, to at most 512",
    ),
    Reason.ADAPTER_ARTIFACT_INVALID: Explanation(
        "The AIMArtifact of a declared adapter breaks its own rules: it was created while admission was away.",
        "correct the AIMArtifact as the message says, or delete it and apply it again; admission shows all its errors",
        ("rule", "condition", "why"),
        ("ConfigValid", "status.adapters[].lastError"),
    ),
    Reason.REFERENCE_INVALID: Explanation(
        "A profile, model, template or RuntimeConfig that the service uses breaks its own rules.",
        "correct that object as the message says; `kubectl apply` of it shows all its errors",
        ("rule", "condition", "why"),
        ("ConfigValid",),
    ),
    Reason.REFERENCE_NOT_FOUND: Explanation(
        "An object that this one names (a profile, model, template or RuntimeConfig) does not exist.",
        "create the object, or correct the name in the field that the message shows",
        ("rule", "condition", "why"),
        ("ConfigValid", "CacheReady", "Ready of a template"),
    ),
    # -- rules of AIMService: warnings
    Reason.ADAPTER_ARTIFACT_NOT_FOUND: Explanation(
        "The namespace has no AIMArtifact with the name of the declared adapter.",
        "apply the AIMArtifact, which is picked up at once, or remove the adapter from the service",
        ("rule", "adapter", "why"),
    ),
    Reason.BASE_NOT_FOUND: _rule(
        "The base AIMArtifact of the model source does not exist yet; adapters are checked against it once it does.",
        waits=True,
    ),
    Reason.PROFILE_NOT_DEPLOYABLE: _rule(
        "The named profile lists no model sources: it only describes, and cannot be served.",
        "name a profile that has modelSources",
    ),
    Reason.TEMPLATE_NOT_CHOSEN: _rule(
        "No template is chosen: several fit the model, or none fits and the model is served with 1 GPU.",
        "name a template in spec.template.name when you create the service, or set spec.defaultServiceTemplate of the "
        "model",
    ),
    Reason.ADAPTER_PROBABLY_INCOMPATIBLE: _rule(
        "The base AIMArtifact does not exist yet, and the model source suggests a model id that the adapter's "
        "spec.compatibleWith does not list.",
        "check that the adapter fits the model, and add the suggested id to spec.compatibleWith if it does",
    ),
    Reason.CEILING_CHANGE_ROLLS: _rule(
        "The change of the rank ceiling restarts the pods of the service.",
        "keep spec.adapterRuntime.maxRank as it is while the pods must not restart",
    ),
    Reason.CEILING_CHANGE_DEFERRED: _rule(
        "The lower rank ceiling waits until the rank of every declared adapter is known; the pods then restart.",
        "apply the AIMArtifacts that the message names, or remove these adapters from the service",
    ),
    Reason.PROFILE_CHANGE_ROLLS: _rule(
        "The change of spec.profile or spec.profileOverrides restarts the pods of the service.",
        "change the profile or its overrides when the pods may restart",
    ),
    Reason.AUTOSCALING_CHANGE_ROLLS: _rule(
        "Turning autoscaling on or off restarts the pods of the service.",
        "keep spec.minReplicas and spec.maxReplicas equal, or different, as they were while the pods must not restart",
    ),
    Reason.MORE_ADAPTERS_THAN_SLOTS: _rule(
        "The service declares more adapters than the 8 that the GPU holds at a time, so requests wait while an adapter "
        "is swapped in.",
        "declare at most 8 adapters on a service whose requests must not wait",
    ),
    Reason.IMAGE_TOO_OLD: _rule(
        "The tag of the image is older than 0.13, and such images load no adapters.",
        "use an image of AIM 0.13 or newer",
    ),
    Reason.ENGINE_ARGS_SWITCH_ADAPTERS_OFF: _rule(
        "An engine argument disables LoRA, so the server loads no adapter.",
        "remove the argument that the message names (enable-lora or no-enable-lora)",
    ),
    Reason.FIELD_DEPRECATED: _rule(
        "The field is deprecated: it is ignored, or counts only while its replacement is not set.",
        "use the field that the message names instead",
    ),
    Reason.REPLICAS_IGNORED: _rule(
        "spec.replicas has no effect beside spec.minReplicas or spec.maxReplicas.",
        "remove spec.replicas, or remove both bounds",
    ),
    Reason.ENV_HAS_NO_EFFECT: _rule(
        "The variable has no effect: the controller sets it on the server, or download Jobs do not accept it.",
        "remove the variable from env",
    ),
    Reason.EDIT_HAS_NO_EFFECT: _rule(
        "The field counts only when the claim is created, and the claim exists already.",
        "change the claim itself as the message says, or create another artifact",
    ),
    Reason.ACCELERATOR_MODEL_UNFAMILIAR: _rule(
        "The accelerator model looks like a misspelling of a known one, so no node would match it.",
        "write the accelerator model that the message suggests",
    ),
    # -- rules of AIMArtifact
    Reason.TYPE_UNKNOWN: _rule(
        "spec.type of the artifact is neither model nor adapter.", "write spec.type: model or spec.type: adapter"
    ),
    Reason.FIELD_ONLY_ON_ADAPTERS: _rule(
        "An artifact of type model sets a field of adapters: rank, parentArtifact or compatibleWith.",
        "set spec.type: adapter, or remove the field that only adapters have",
    ),
    Reason.ADAPTER_DISK_ON_ADAPTER: _rule(
        "An artifact of type adapter sets spec.adapterDisk, but the disk belongs to the base model.",
        "set spec.adapterDisk on the artifact of type model, or remove it",
    ),
    Reason.ADAPTER_MODEL_ID_MISSING: _rule(
        "The adapter has no model id of its own.", "set spec.modelId, for example acme/medical-lora"
    ),
    Reason.COMPATIBILITY_MISSING: _rule(
        "Neither spec.compatibleWith nor spec.parentArtifact names a base model that the adapter fits.",
        "list model ids in spec.compatibleWith, for example Qwen/Qwen3-8B",
    ),
    Reason.COMPATIBILITY_TWICE: _rule(
        "The adapter sets both spec.compatibleWith and spec.parentArtifact, and exactly one of them decides what it "
        "fits.",
        "keep spec.compatibleWith, and remove spec.parentArtifact",
    ),
    Reason.RANK_BELOW_ONE: _rule(
        "The rank of the adapter is below 1.", "set spec.rank to the r of adapter_config.json"
    ),
    Reason.ENV_NOT_ALLOWED: _rule(
        "The env of an artifact reaches the Job that writes to a shared disk, and this variable is not one of those "
        "that are allowed there.",
        "remove the variable; the message lists the allowed ones",
    ),
    Reason.DISALLOWED_S3_ARTIFACT_ENVIRONMENT: _rule(
        "The RuntimeConfig has an artifact.s3 block, which alone defines access to the bucket; the env of the artifact "
        "may then only tune the client.",
        "remove the variable from the artifact, and set artifact.s3 of the RuntimeConfig",
    ),
    Reason.PARENT_NOT_MODEL: _rule(
        "spec.parentArtifact names an AIMArtifact that is itself an adapter.",
        "name the AIMArtifact of the base model in spec.parentArtifact",
    ),
    Reason.FIELD_IMMUTABLE: _rule(
        "The field is fixed when the object is created. It defines what an artifact or a template is.",
        "create another object with the new value, or delete this one first",
    ),
    Reason.PARENT_ARTIFACT_NOT_FOUND: Explanation(
        "The parent artifact of the adapter does not exist, or was deleted and the adapter is deleted with it.",
        "create the parent artifact, or create the adapter with spec.compatibleWith",
        ("rule", "condition"),
        _OF_ADAPTER,
    ),
    Reason.BASE_ID_IMPOSSIBLE: _rule(
        "An entry of spec.compatibleWith is not of the form org/name, so it never equals the model id of a base.",
        "write the model id that the message suggests, without scheme or path",
    ),
    Reason.RANK_ABOVE_HIGHEST: _rule(
        "The rank is above 512, the highest that engines support, so services that declare the adapter are refused.",
        "train the adapter with a rank of at most 512",
    ),
    Reason.RANK_EDIT_BREAKS_SERVICES: _rule(
        "Services that declare the adapter have a rank ceiling below its rank.",
        "raise adapterRuntime.maxRank of the listed services first",
    ),
    Reason.RANK_EDIT_ROLLS: _rule(
        "The new rank of the adapter changes the rank ceiling of services that declare it, and their pods restart.",
        "edit spec.rank when the pods of the listed services may restart",
    ),
    Reason.COMPATIBILITY_EDIT_BREAKS_SERVICES: _rule(
        "Services declare the artifact, and it does not fit their base model or is not an adapter.",
        "keep the base models of the listed services in spec.compatibleWith, or remove the adapter from them first",
    ),
    Reason.MODEL_ID_EDIT_BREAKS_SERVICES: _rule(
        "Adapters of services on this base model do not list its new spec.modelId in their compatibleWith.",
        "add the new model id to spec.compatibleWith of these adapters first",
    ),
    Reason.MODEL_ID_CHANGED: _rule(
        "The model id changes of an artifact that services use.",
        "check that nothing else refers to the old model id of the artifact",
    ),
    # -- rules of RuntimeConfigs
    Reason.S3_SECRET_MISSING: _rule(
        "artifact.s3.auth.mode is static, but no Secret is named.",
        "name the Secret that holds the keys in artifact.s3.auth.credentialsSecretRef",
    ),
    Reason.S3_SECRET_UNUSED: _rule(
        "A Secret is named in artifact.s3.auth, but it would not be used, because the mode is not static.",
        "set artifact.s3.auth.mode: static, or remove credentialsSecretRef",
    ),
    Reason.S3_TLS_CONTRADICTION: _rule(
        "artifact.s3.tls sets a CA bundle and skips the verification that would use it.",
        "remove artifact.s3.tls.insecureSkipVerify",
    ),
    Reason.S3_ENDPOINT_CREDENTIALS: _rule(
        "The URL in artifact.s3.endpoint contains a user and password, which everyone who can read the object sees and "
        "no client uses.",
        "remove what precedes @ from the URL, and name a Secret in artifact.s3.auth",
    ),
    Reason.MAX_RANK_EDIT_BREAKS_SERVICES: _rule(
        "The new ceiling of the RuntimeConfig is below the rank of adapters of services that use it.",
        "set spec.adapterRuntime.maxRank on the listed services before you lower adapterRuntime.maxRank here",
    ),
    Reason.MAX_RANK_EDIT_ROLLS: _rule(
        "Dynamic services take their rank ceiling from this RuntimeConfig, and the change restarts their pods.",
        "set spec.adapterRuntime.maxRank on the listed services if they must keep their ceiling",
    ),
    # -- rules of profiles, models, templates and caches
    Reason.AIM_ID_WITHOUT_SOURCES: _rule(
        "The profile has an aimId but no modelSources; a profile that can be deployed has both.",
        "list the source of the weights in spec.modelSources, or remove spec.aimId",
    ),
    Reason.SOURCES_WITHOUT_AIM_ID: _rule(
        "The profile has modelSources but no aimId; a profile that can be deployed has both.",
        "set spec.aimId as the image spells it, or remove spec.modelSources",
    ),
    Reason.AIM_ID_IMMUTABLE: _rule(
        "spec.aimId is fixed when the profile is created.", "create another profile with the other aimId"
    ),
    Reason.FEATURE_REMOVAL_BREAKS_SERVICES: _rule(
        "The profile does not advertise an adapter feature that services with this profile need.",
        "keep the feature in spec.features, or override spec.profileOverrides.features on the listed services first",
    ),
    Reason.SOURCES_EDIT_BREAKS_SERVICES: _rule(
        "The adapters of services that use this profile or model do not fit its new model sources.",
        "keep the source of the base model in spec.modelSources, or remove the adapters from the listed services first",
    ),
    Reason.PROFILE_EDIT_ROLLS: _rule(
        "Services run with this profile, or with a cluster profile that it hides, and their pods restart.",
        "create the profile under another name, and move the listed services to it one by one",
    ),
    Reason.ADAPTER_DISK_ON_DEDICATED_CACHE: _rule(
        "A dedicated cache asks for an adapter disk, but adapters are served from shared caches only.",
        "remove spec.requiresAdapterDisk from the cache, or make the cache shared",
    ),
    Reason.TOO_MANY_MODEL_SOURCES: _rule("The model has more than one source.", "create one AIMModel for each source"),
    # -- conditions of services: configuration and cache
    Reason.CONFIG_VALID: _condition(
        ("ConfigValid",), "The spec is valid, and the RuntimeConfig that it names exists.", fine=True
    ),
    Reason.ADAPTER_CONFIG_INVALID: _condition(
        ("Adapters", "ConfigValid"),
        "The adapters cannot be served as they are declared; the message lists every error.",
        "correct each field that the message names, on the service or on the AIMArtifact",
    ),
    Reason.REFERENCE_UNREADABLE: _condition(
        ("CacheReady", "Ready of a template"),
        "An object that this one refers to cannot be read, so nothing is decided from it.",
        "grant read access to the kind of the object: to the controller for a condition, to your account for `why`",
        "why",
    ),
    Reason.TEMPLATE_AMBIGUOUS: _condition(
        _CACHE_READY,
        "Several templates fit the model, and none is named.",
        "set spec.defaultServiceTemplate of the model, or create the service again with spec.template.name",
    ),
    Reason.TEMPLATE_NOT_FOUND: _condition(
        _CACHE_READY,
        "No template fits the model, and it cannot be served without one.",
        "create an AIMServiceTemplate for the model",
    ),
    Reason.NO_MODEL_SOURCES: _condition(
        _CACHE_READY,
        "The profile of the service has no model sources, so nothing can be cached and served.",
        "name a profile that is deployable, or add aimId and modelSources to this one",
    ),
    Reason.NOTHING_TO_CACHE: _condition(_CACHE_READY, "The image contains the model, so nothing is cached.", fine=True),
    Reason.ALL_CACHES_READY: _condition(_CACHES, "Every model source is complete in the cache.", fine=True),
    Reason.CREATING_CACHES: _condition(_CACHES, "The cache, or an artifact of it, is being created.", waits=True),
    Reason.CACHES_NOT_READY: _condition(
        _CACHES,
        "A base model is not complete in its cache yet.",
        "check the conditions of the base AIMArtifact that the message names",
        waits=True,
    ),
    Reason.NO_CACHES: _condition(
        ("ArtifactsReady",),
        "The cache has nothing to hold: its profile or template does not exist, or has no model sources.",
        "create the profile or template of the cache, or add modelSources to it",
    ),
    Reason.ARTIFACT_TERMINATING: _condition(
        ("ArtifactsReady",),
        "An artifact of the cache is being deleted; a new one is created once it is gone.",
        waits=True,
    ),
    # -- conditions of services: adapters
    Reason.PARENT_LACKS_ADAPTER_DISK: _condition(
        ("Adapters", "Ready of an adapter artifact"),
        "The base model has no adapter disk yet, or is not known yet.",
        "check the conditions of the base AIMArtifact, and CacheReady of the service",
        "why",
        waits=True,
    ),
    Reason.ADAPTER_SUBTREE_PROVISIONING: _condition(
        ("Adapters",),
        "The directory of the service on the adapter disk is being created.",
        "check the subtree-sync Job of the service",
        "why",
        waits=True,
    ),
    Reason.ADAPTERS_STAGING: _condition(
        ("Adapters",),
        "The directory of the service exists, and some declared adapters are not on the disk yet.",
        "read lastError of these adapters in status.adapters",
        "why",
        waits=True,
    ),
    Reason.ADAPTERS_STAGED: _condition(("Adapters",), "Every declared adapter is on the disk.", fine=True),
    # -- conditions of services: the server
    Reason.GATED: _condition(
        _SERVED,
        "The InferenceService is not created yet, because something that it needs is missing.",
        "look up the reason at the start of the message",
    ),
    Reason.IMAGE_UNKNOWN: _condition(
        ("Ready",),
        "Neither the profile, the model nor the service names an image.",
        "set the image of the profile or model",
        "rule",
    ),
    Reason.CREATING: _condition(_SERVED, "The InferenceService is being created.", waits=True),
    Reason.STARTING: _condition(
        _SERVED, "The model server is starting.", "read the log and the events of its pods", waits=True
    ),
    Reason.INFERENCE_SERVICE_READY: _condition(
        _SERVED, "A replica of the model server is ready, and KServe reports the InferenceService ready.", fine=True
    ),
    Reason.SERVING: _condition(("Ready",), "The service answers requests.", fine=True),
    Reason.NAME_TAKEN: _condition(
        _SERVED,
        "An InferenceService with the name that the service needs exists and does not belong to it.",
        "delete or rename that InferenceService, or create the service under another name",
    ),
    Reason.INFERENCE_SERVICE_REFUSED: Explanation(
        "The API server rejected the InferenceService that the controller applied.",
        "correct what the API server's message names: a policy of the namespace, or a field of the service",
        ("condition", "event"),
        _SERVED,
        "AIMService",
    ),
    Reason.RECONCILE_FAILED: _condition(
        _SERVED,
        "KServe failed to create what the InferenceService describes.",
        "correct what KServe's message names; the log of the KServe controller has more",
    ),
    Reason.CRASH_LOOP_BACK_OFF: _condition(
        _SERVED,
        "The model server exits again and again after it starts.",
        "read the log of the pod, with the command that the message contains",
    ),
    Reason.NO_MATCHING_NODE: _condition(
        (*_SERVED, *_NODES),
        "No node offers the accelerator.",
        "add or label a node with the accelerator, or choose a profile for another accelerator",
    ),
    Reason.ROLLING_OUT: _condition(
        _SERVED, "Pods are being replaced, and none is ready at the moment. The message shows the cause.", waits=True
    ),
    Reason.SCALED_TO_ZERO: _condition(
        (*_SERVED, "Ready"), "No replicas are requested, so nothing is served.", "raise spec.replicas to serve"
    ),
    Reason.STOPPED: _condition(
        (*_SERVED, "Ready"),
        "KServe removed the pods, because the InferenceService has KServe's annotation to stop it.",
        "remove the annotation: kubectl annotate inferenceservice NAME serving.kserve.io/stop-",
    ),
    Reason.TERMINATING: _condition(
        _SERVED, "The InferenceService is being deleted; a new one is created once it is gone.", waits=True
    ),
    Reason.IMAGE_PULL_BACK_OFF: _condition(
        _SERVED,
        "The image of the pod cannot be pulled.",
        "check the name and tag of the image, and imagePullSecrets",
        "adapter",
    ),
    Reason.INVALID_IMAGE_NAME: _condition(
        _SERVED,
        "The name of the image cannot be parsed.",
        "correct the spelling of the image in the profile, model or service",
        "adapter",
    ),
    Reason.CREATE_CONTAINER_CONFIG_ERROR: _condition(
        _SERVED,
        "The container refers to something that does not exist, such as a Secret.",
        "create the Secret or ConfigMap that the message names",
        "adapter",
    ),
    Reason.CREATE_CONTAINER_ERROR: _condition(
        _SERVED,
        "The container runtime of the node cannot create the container.",
        "read the events of the pod (kubectl describe pod)",
        "adapter",
    ),
    Reason.RUN_CONTAINER_ERROR: _condition(
        _SERVED,
        "The container runtime of the node created the container, but cannot start it.",
        "read what the container runtime reports in the events of the pod, for example about a device or a mount",
        "adapter",
    ),
    Reason.UNSCHEDULABLE: _condition(
        _SERVED,
        "The scheduler finds no node for a pod.",
        "free or add the resources that the scheduler's message names, such as accelerators",
        "adapter",
        "why",
    ),
    Reason.MINIMUM_REPLICAS_UNAVAILABLE: _condition(
        _SERVED, "Fewer replicas than requested are ready.", "check the pods that are not ready", waits=True
    ),
    Reason.PROGRESS_DEADLINE_EXCEEDED: _condition(
        _SERVED,
        "The Deployment of the model server made no progress in time.",
        "check the Deployment, its pods and their events",
    ),
    Reason.FAILED_CREATE: _condition(
        _SERVED,
        "A quota, a limit range or an admission policy prevents the creation of pods.",
        "change the quota or policy that the message names, or request less",
        "adapter",
    ),
    Reason.K_SERVE_NOT_INSTALLED: _condition(
        _SERVED,
        "The API server does not serve InferenceServices: KServe's CRDs are not installed.",
        "install KServe; the service continues without further action",
    ),
    Reason.K_SERVE_UNAVAILABLE: _condition(
        _SERVED,
        "The admission webhook of KServe gives no answer, so that no InferenceService can be created or changed.",
        "check the pods of the KServe controller; the change is repeated automatically",
    ),
    Reason.FAILED_MOUNT: _adapter(
        "The pod of a Job waits for a volume: its Secret, ConfigMap or claim does not exist or cannot be mounted.",
        "create the object that the message names in the namespace of the service, or correct the field that refers "
        "to it",
    ),
    Reason.JOB_SUSPENDED: _adapter(
        "Another program suspends a Job before its pod starts, such as a queue that waits for quota.",
        "admit the Job in its queue, or exclude the namespace from the queueing",
    ),
    Reason.RUNTIME_CONFIG_UNREADABLE: _condition(
        ("Ready", *_MODEL),
        "The RuntimeConfig cannot be read, so credentials, storage and defaults are not known.",
        "check that RBAC lets the controller read AIMRuntimeConfigs and AIMClusterRuntimeConfigs, and read its log",
        "adapter",
    ),
    # -- conditions of profiles, models and templates
    Reason.MODEL_VALID: _condition(
        ("Ready of a model",), "The model is valid, and services may refer to it.", fine=True
    ),
    Reason.TEMPLATE_VALID: _condition(
        ("Ready of a template",), "The template is valid; whether a node matches it is not checked.", fine=True
    ),
    Reason.NODES_MATCH: _condition(_NODES, "At least one node offers the accelerator.", fine=True),
    Reason.NODES_NOT_WATCHED: _condition(
        ("Ready of a profile",),
        "Nodes are not watched, so it is unknown whether any node matches.",
        "turn on the setting nodes (chart value reconciler.nodes), which needs the right to list nodes",
    ),
    # -- conditions of artifacts
    Reason.CONFIG_INVALID: _condition(
        ("Ready of an artifact", "Ready of a profile, model or template"),
        "The spec breaks a rule; the message lists every error.",
        "correct the fields of this object that the message names",
    ),
    Reason.MODEL_CACHED: _condition(_MODEL, "Every byte of the base model is in its cache and verified.", fine=True),
    Reason.MEASURING_SOURCE: _condition(
        _MODEL, "A Job reads the size of the source, for the size of the claim.", waits=True
    ),
    Reason.DOWNLOADING: _condition(_MODEL, "The base model is being downloaded.", waits=True),
    Reason.QUEUED: Explanation(
        "As many downloads of the namespace run as may run at once (setting jobsPerNamespace). Services take turns.",
        "look whether Jobs of the namespace do not start: a Job that waits for more than a minute gives its place back",
        ("adapter", "condition"),
        _MODEL,
        waits=True,
    ),
    Reason.DOWNLOAD_BLOCKED: _condition(
        _MODEL,
        "The pod of the Job that downloads the base model cannot start.",
        "create the Secret or ConfigMap that the message names, correct the image, or make room for the pod",
    ),
    Reason.PENDING: _condition(_MODEL, "The claim and the download of the base model are about to start.", waits=True),
    Reason.ADAPTER_VALIDATED: _condition(_OF_ADAPTER, "The adapter is valid, and services may declare it.", fine=True),
    Reason.PARENT_ARTIFACT_NOT_MODEL: _condition(
        _OF_ADAPTER,
        "The adapter cannot be served, because its parent artifact is not a base model.",
        "create the adapter again with a base model as its parent, or with spec.compatibleWith instead",
    ),
    Reason.CLAIM_BOUND: _condition(_CLAIMS, "The claim is bound.", fine=True),
    Reason.CLAIM_PENDING: _condition(_CLAIMS, "The claim is not bound yet.", waits=True),
    Reason.CLAIM_UNBOUND: _condition(
        _CLAIMS,
        "The claim is still not bound after the time that binding may take.",
        "use a storage class that supports ReadWriteMany; kubectl describe pvc shows why the claim waits",
    ),
    Reason.CLAIM_PROVISIONING_FAILED: _condition(
        _CLAIMS,
        "The provisioner of the storage class cannot create the volume.",
        "name a class that provisions ReadWriteMany volumes, for example in storage.adapterDiskStorageClassName of a "
        "RuntimeConfig, and delete the claim",
    ),
    Reason.CLAIM_TERMINATING: _condition(
        (*_CLAIMS, *_MODEL),
        "The claim is being deleted; it is created again once no pod mounts it.",
        "delete or restart the pods that mount the claim",
    ),
    # -- adapters of a service
    Reason.RUNTIME_CONFIG_NOT_FOUND: _adapter(
        "The RuntimeConfig that the AIMArtifact of the adapter names does not exist.",
        "create the RuntimeConfig, or correct spec.runtimeConfigName of the AIMArtifact",
    ),
    Reason.RANK_CEILING_UNKNOWN: _adapter(
        "No valid rank ceiling is known: the value is not valid, or the RuntimeConfig that sets it cannot be read.",
        "correct adapterRuntime.maxRank as ConfigValid shows; else check that the controller can read RuntimeConfigs",
    ),
    Reason.ADAPTER_NOT_LISTED: _adapter(
        "The adapter is on the disk, but a ready server does not list it.",
        "read the log of the pod for the reason of the server; images before 0.13 load no adapters",
    ),
    Reason.MODEL_LIST_UNREADABLE: _adapter(
        "The adapter is on the disk, but a ready server does not answer `GET /v1/models` with a list.",
        "read the log of the pod, let the controller reach its port 8000, and use an image with OpenAI's API",
    ),
    Reason.RESTART_REQUIRED: _adapter(
        "The disk has new content, which the running pods load only when they restart.",
        "restart the pods (kubectl rollout restart deployment)",
    ),
    Reason.ADAPTER_HELD_FOR_UNLOAD: Explanation(
        "The source has new content, which becomes live once no replica lists the old content any more.",
        surfaces=("adapter", "job"),
        group="success",
        waits=True,
    ),
    Reason.JOB_FAILED: Explanation(
        "A Job ended without a result of its own.",
        "read the events and the log of the Job",
        ("adapter", "condition", "event"),
        _MODEL,
        "AIMArtifact",
        retriable=True,
    ),
    Reason.JOB_DEADLINE_EXCEEDED: Explanation(
        "A Job ran past its deadline.",
        "check the speed of the source, or raise the setting stagingDeadline (adapters) or fetchDeadline (base models)",
        ("adapter", "condition", "event"),
        _MODEL,
        "AIMArtifact",
        retriable=True,
    ),
    # -- events
    Reason.ADAPTER_PENDING: _event(
        "AIMService", "An adapter waits again: its artifact or disk is missing, or its Job has not started.", waits=True
    ),
    Reason.ADAPTER_DOWNLOADING: _event("AIMService", "The staging Job of an adapter runs.", fine=True),
    Reason.ADAPTER_DOWNLOADED: _event("AIMService", "An adapter arrived on the disk.", fine=True),
    Reason.ADAPTER_LOADED: _event("AIMService", "Every ready replica lists the adapter.", fine=True),
    Reason.ADAPTER_FAILED: _event(
        "AIMService",
        "An adapter is not valid, or its staging failed.",
        "look up the reason that follows the state in the message",
    ),
    Reason.ADAPTER_LOAD_REJECTED: _event(
        "AIMService",
        "A ready server does not list an adapter although it had time to load it.",
        "read the log of the pod that the message names",
    ),
    Reason.ADAPTER_DELETING: _event(
        "AIMService", "An adapter was removed from the service and is being unloaded.", fine=True
    ),
    Reason.ADAPTER_UNLOAD_OVERDUE: _event(
        "AIMService",
        "A removed adapter is off the disk, but a server still listed it when the wait (setting unloadGrace) ended.",
        "restart the pod that lists it, which unloads the adapter; its log shows why it did not",
    ),
    Reason.ADAPTER_MAX_RANK_CHANGED: _event(
        "AIMService", "The rank ceiling changed, and the pods are replaced.", fine=True
    ),
    Reason.PREDICTOR_CHANGED: _event(
        "AIMService", "What the pods run changed, and they are replaced. The message shows what changed.", fine=True
    ),
    Reason.SWEEP_DRY_RUN: _event(
        "AIMArtifact", "A dry run of a sweep of the adapter disk started or ended.", fine=True
    ),
    # -- `kubectl aim-adapters why`
    Reason.ADAPTER_NOT_DECLARED_BY_SERVICE: _why(
        "The service does not declare the adapter.", "declare it: kubectl aim-adapters add SERVICE ADAPTER"
    ),
    Reason.SERVICE_TERMINATING: _why("The service is being deleted.", "apply the service again once it is gone"),
    Reason.RECONCILIATION_PAUSED: _why(
        "The annotation aim.eai.amd.com/reconciliation-paused pauses the object.",
        "remove the annotation aim.eai.amd.com/reconciliation-paused",
    ),
    Reason.CONTROLLER_BEHIND: _why(
        "The controller has not handled the newest spec yet.",
        "check that aim-adapters runs, and read its log",
        waits=True,
    ),
    Reason.CONTROLLER_SILENT: _why(
        "No controller holds the lease, so no service is reconciled.",
        "check that aim-adapters runs: kubectl get pods,lease -A | grep aim-adapters",
    ),
    Reason.DISK_NOT_BOUND: _why(
        "The claim of the adapter disk does not exist or lost its volume.",
        "read the events of the claim (kubectl describe pvc)",
    ),
    Reason.STAGING_BLOCKED: _why(
        "The pod of a Job on the adapter disk cannot start.",
        "give the pod of the Job what the message names: a Secret, a ConfigMap, an image or room on a node",
    ),
    Reason.STAGING_WAITING: _why("The staging Job of the adapter has not started yet.", waits=True),
    Reason.STAGING_RUNS: _why("The adapter is being downloaded by its staging Job.", waits=True),
    Reason.LOADING_SOON: _why(
        "The adapter is on the disk, and the server loads it within a refresh interval.", waits=True
    ),
    Reason.SOME_REPLICAS_LACK: _why("Some replicas do not list the adapter yet.", waits=True),
    Reason.NO_PODS: _why(
        "The Deployment of the model server cannot create any pod.",
        "raise the quota of the namespace, or change the admission policy that the message names",
    ),
    Reason.POD_PENDING: _why(
        "A pod of the model server cannot be scheduled or started.",
        "correct what the message names; kubectl describe pod shows more",
    ),
    # -- lint
    Reason.YAML_INVALID: _lint(
        "The text is not valid YAML or JSON, so nothing in this document was checked.",
        "correct the line; render a template first (helm template, kustomize build)",
    ),
    Reason.YAML_TOO_LARGE: _lint(
        "A document is larger, or nested more deeply, than a cluster would store.",
        "split the document, and look for aliases that multiply",
    ),
    Reason.TEXT_NOT_UTF8: _lint("The file is not UTF-8 text.", "save the file as UTF-8"),
    Reason.KEY_DUPLICATE: _lint(
        "A mapping contains the same key twice, and programs differ in which one they use.",
        "remove one of the two keys",
    ),
    Reason.NOT_AN_OBJECT: _lint(
        "The document is not a Kubernetes object, because apiVersion or kind is missing.",
        "set apiVersion and kind, or leave the file out",
    ),
    Reason.KIND_UNKNOWN: _lint("The API group aim.eai.amd.com has no such kind.", "correct the kind"),
    Reason.VERSION_UNKNOWN: _lint(
        "This version of the kind is not served.", "write the apiVersion that the message names"
    ),
    Reason.GROUP_UNKNOWN: _lint(
        "The kind belongs to the API group aim.eai.amd.com, but is written under another group and was not checked.",
        "write apiVersion: aim.eai.amd.com/VERSION",
    ),
    Reason.VERSION_DEPRECATED: _lint(
        "AIMService v1alpha1 is served, but deprecated.",
        "write aim.eai.amd.com/v1alpha2; adapters then need spec.profile",
    ),
    Reason.OBJECT_DUPLICATE: _lint(
        "The same object (kind, namespace and name) appears twice, and the last one applied would win.",
        "remove or rename one of the two objects",
    ),
    Reason.NAME_INVALID: _lint(
        "The API server does not accept this name, label or annotation key.",
        "use only the characters and the length that the message allows",
    ),
    Reason.NAMESPACE_ON_CLUSTER_KIND: _lint(
        "The object sets a namespace, but its kind belongs to the whole cluster.", "remove metadata.namespace"
    ),
    Reason.FIELD_UNKNOWN: _lint(
        "The kind has no such field: kubectl rejects it, and other clients drop it silently.",
        "correct the name of the field, or remove it",
    ),
    Reason.FIELD_REQUIRED: _lint("A field that the schema requires is missing.", "set the field"),
    Reason.TYPE_WRONG: _lint(
        "A value has another type than the schema requires.", "write a value of the type that the message names"
    ),
    Reason.VALUE_NOT_SUPPORTED: _lint(
        "The value is not one that the schema lists.", "write one of the values that the message lists"
    ),
    Reason.PATTERN_MISMATCH: _lint(
        "The text does not have the form that the schema requires.", "write the text in the form that the message shows"
    ),
    Reason.NUMBER_OUT_OF_BOUNDS: _lint(
        "The number is below the minimum or above the maximum.", "keep the number within the bound in the message"
    ),
    Reason.TEXT_TOO_SHORT: _lint(
        "The text is shorter than the schema allows.", "write at least as many characters as required"
    ),
    Reason.TEXT_TOO_LONG: _lint(
        "The text is longer than the schema allows.", "shorten the text to the maximum in the message"
    ),
    Reason.LIST_TOO_LONG: _lint(
        "The list has more entries than the schema allows.", "remove entries down to the maximum"
    ),
    Reason.LIST_TOO_SHORT: _lint(
        "The list has fewer entries than the schema requires.", "add entries up to the minimum"
    ),
    Reason.LIST_ENTRY_DUPLICATE: _lint(
        "Two entries of a list have the same key.", "remove or rename one of the two entries of the list"
    ),
    Reason.RULE_FAILED: _lint(
        "A rule of aim-adapters failed with an error; the other rules were applied.", "report it with the manifest"
    ),
    # -- disk Jobs: success
    Reason.ADAPTER_STAGED: _done("The adapter was downloaded or found in the store, checked and made live."),
    Reason.ALREADY_STAGED: _done("The adapter was staged before, and its files are complete."),
    Reason.SUBTREE_SYNCED: _done("The directory of the service exists and holds declared adapters only."),
    Reason.SYNC_SUPERSEDED: _done("The disk follows a newer list of adapters, so this older sync changed nothing."),
    Reason.DISK_REAPED: Explanation(
        "A sweep removed from the adapter disk what no existing service needs; a dry run only lists it.",
        surfaces=("job", "event"),
        event_on="AIMArtifact",
        group="success",
        fine=True,
    ),
    Reason.MODEL_FETCHED: Explanation(
        "The download of the base model to its cache is complete.",
        surfaces=("job", "event"),
        event_on="AIMArtifact",
        group="success",
        fine=True,
    ),
    Reason.MODEL_MEASURED: _done("The size of what would be downloaded is known; nothing was written."),
    # -- disk Jobs: the source
    Reason.SOURCE_UNAUTHORIZED: _failed(
        "source",
        "The source rejected the credentials, or none were given (401).",
        "check the token or keys in the Secret that the env or the artifact.s3 block refers to",
    ),
    Reason.SOURCE_FORBIDDEN: _failed(
        "source",
        "The credentials are valid, but do not allow reading this (403).",
        "give the token or the keys read access",
    ),
    Reason.SOURCE_ARCHIVED: _failed(
        "source",
        "An object is in a storage class from which it cannot be read at once (archive).",
        "restore the objects, or copy them to a class that can be read at once",
    ),
    Reason.SOURCE_CLOCK_DIFFERS: _failed(
        "source",
        "The clocks of the node and of the source differ by more than the source allows.",
        "synchronize the clock of the node",
        retriable=True,
    ),
    Reason.SOURCE_ENDPOINT_HAS_BUCKET: _failed(
        "source",
        "The endpoint contains the name of the bucket, which the client adds itself.",
        "remove the bucket from artifact.s3.endpoint (or AWS_ENDPOINT_URL)",
    ),
    Reason.SOURCE_NOT_AN_API: _failed(
        "source",
        "The endpoint answers with a web page: it is a console or a login page, not the API.",
        "use the address and the port of the API as the endpoint",
    ),
    Reason.SOURCE_REGION_WRONG: _failed(
        "source",
        "The bucket is in another region than the one that the client uses.",
        "set artifact.s3.region (or AWS_REGION) to the region that the message names",
    ),
    Reason.SOURCE_GATED: _failed(
        "source",
        "The repository is gated, and the account has no access to it.",
        "accept the terms of the repository with the account of HF_TOKEN, or use a token of an account that has access",
    ),
    Reason.SOURCE_REPOSITORY_NOT_FOUND: _failed(
        "source",
        "The hub has no such repository, or hides it from these credentials.",
        "check the spelling of sourceUri; a private repository needs HF_TOKEN",
    ),
    Reason.SOURCE_REVISION_NOT_FOUND: _failed(
        "source", "The repository has no such branch, tag or commit.", "check the revision after @ in sourceUri"
    ),
    Reason.SOURCE_BUCKET_NOT_FOUND: _failed(
        "source", "The bucket does not exist.", "check the bucket in sourceUri, and artifact.s3.endpoint"
    ),
    Reason.SOURCE_PREFIX_EMPTY: _failed(
        "source",
        "The prefix or subfolder holds no files, or the filter excludes all of them.",
        "check the folder in sourceUri, and downloadFilter",
    ),
    Reason.SOURCE_URI_INVALID: _failed(
        "source",
        "The source URI, or the address of an endpoint or proxy, cannot be parsed.",
        "correct what the message names: sourceUri (hf://ORG/NAME[@REVISION] or s3://BUCKET/PREFIX/), HF_ENDPOINT, a "
        "proxy or artifact.s3",
    ),
    Reason.SOURCE_RATE_LIMITED: _failed(
        "source",
        "The source limits the number of requests (429 or SlowDown).",
        "use a token, which raises the limits of the hub",
        retriable=True,
    ),
    Reason.SOURCE_SERVER_ERROR: _failed("source", "The source failed with an error of its own (5xx).", retriable=True),
    Reason.SOURCE_DNS_FAILED: _failed(
        "source",
        "The host name of the endpoint cannot be resolved.",
        "check the spelling of the endpoint, and the cluster's DNS",
        retriable=True,
    ),
    Reason.SOURCE_TLS_FAILED: _failed(
        "source",
        "The certificate of the endpoint was not accepted, or no TLS connection was possible.",
        "name the CA in artifact.s3.tls.caBundleRef or artifact.hub.caBundleRef, or fix the endpoint's certificate",
    ),
    Reason.SOURCE_TIMEOUT: _failed(
        "source", "The source did not answer in time.", "check network policies and proxies", retriable=True
    ),
    Reason.SOURCE_CONNECTION_LOST: _failed(
        "source", "The connection was refused or interrupted; what arrived is kept.", retriable=True
    ),
    Reason.SOURCE_CHANGED: _failed(
        "source", "The source changed during the download, which starts again with the new content.", retriable=True
    ),
    Reason.SOURCE_ENDPOINT_REFUSED: _failed(
        "source",
        "The endpoint is a link-local or metadata address, which Jobs do not contact.",
        "use another endpoint, or turn on the setting allowLinkLocal",
    ),
    Reason.SOURCE_NAME_REFUSED: _failed(
        "source",
        "The name of a file in the source is unsafe on a disk, or two names collide.",
        "rename the file in the source, or exclude it with downloadFilter.exclude",
    ),
    Reason.SOURCE_TOO_MANY_FILES: _failed(
        "source",
        "The source lists more files than any adapter or model has.",
        "point sourceUri at the folder of the adapter or model alone",
    ),
    Reason.SOURCE_RESPONSE_INVALID: _failed(
        "source",
        "The source gave an answer that its protocol does not allow.",
        "check that the endpoint is a hub or an S3 service",
    ),
    Reason.SOURCE_CREDENTIALS_UNREADABLE: _failed(
        "source",
        "The mounted credentials or CA file cannot be used.",
        "check the keys of the Secret or ConfigMap that the artifact.s3 block or the env refers to",
    ),
    Reason.CHECKSUM_MISMATCH: _failed(
        "source",
        "The downloaded bytes did not match the checksum of the source, twice.",
        "look for a proxy that alters downloads, or upload the file again to the source",
        retriable=True,
    ),
    # -- disk Jobs: the disk
    Reason.DISK_FULL: _failed(
        "disk",
        "The disk or the cache has no room for the download.",
        "raise the storage request of the claim, where its class can expand, or remove adapters",
        retriable=True,
    ),
    Reason.DISK_QUOTA_EXCEEDED: _failed(
        "disk",
        "The quota of the storage is used up.",
        "raise the quota of the volume, or remove adapters",
        retriable=True,
    ),
    Reason.DISK_IO_ERROR: _failed(
        "disk", "The storage reports an I/O error.", "check the storage system", retriable=True
    ),
    Reason.DISK_STALE: _failed(
        "disk",
        "The network file system lost a file handle (ESTALE); the next Job mounts the disk again.",
        retriable=True,
    ),
    Reason.DISK_READ_ONLY: _failed(
        "disk", "The disk is mounted read-only.", "check why the claim is read-only: its volume, or the storage system"
    ),
    Reason.DISK_PERMISSION_DENIED: _failed(
        "disk",
        "Jobs run with uid and gid 1000, which may not write to the disk.",
        "use a storage class that honors fsGroup, or whose volumes gid 1000 can write to",
    ),
    Reason.DISK_OPERATION_FAILED: _failed(
        "disk",
        "The file system refused an operation.",
        "check the storage system for the error that the message names",
        retriable=True,
    ),
    Reason.DISK_NOT_OURS: _failed(
        "disk",
        "The disk holds other data and no marker of aim-adapters; nothing was changed.",
        "give the base AIMArtifact an empty volume of its own",
    ),
    Reason.DISK_BUSY: _failed("disk", "Another Job used the same part of the disk for too long.", retriable=True),
    Reason.SUBTREE_MOVE_FAILED: _failed(
        "disk",
        "Some removed adapters could not be moved out of the directory of the service; the others were moved.",
        "check the storage system for the first error in the message",
        retriable=True,
    ),
    # -- disk Jobs: the files of the adapter
    Reason.ADAPTER_NOT_DECLARED: Explanation(
        "During staging the service was deleted or stopped declaring the adapter, so nothing was made live.",
        surfaces=("job", "adapter"),
        group="adapter",
        waits=True,
    ),
    Reason.ADAPTER_CONFIG_MISSING: _files(
        "The source has no adapter_config.json.", "point sourceUri at the folder that PEFT's save_pretrained wrote"
    ),
    Reason.ADAPTER_CONFIG_UNREADABLE: _files(
        "adapter_config.json is not a JSON object with valid values.",
        "save the adapter again with PEFT, and upload adapter_config.json unchanged",
    ),
    Reason.ADAPTER_LAYOUT_NESTED: _files(
        "The adapter is in a subfolder, but the runtime needs it at the top.", "add the subfolder to sourceUri"
    ),
    Reason.ADAPTER_WEIGHTS_MISSING: _files(
        "The source has neither adapter_model.safetensors nor adapter_model.bin.",
        "upload the weights beside adapter_config.json",
    ),
    Reason.ADAPTER_SHARDED: _files(
        "The weights are split into several files, which the runtime does not load.",
        "save the adapter as one adapter_model.safetensors",
    ),
    Reason.ADAPTER_IS_LFS_POINTER: _files(
        "A file of the source is a git-LFS pointer instead of its content.",
        "upload the real file (git lfs pull before copying)",
    ),
    Reason.ADAPTER_WEIGHTS_TRUNCATED: _files(
        "The weights file is shorter than its header says.", "upload the complete weights file again"
    ),
    Reason.ADAPTER_WEIGHTS_UNREADABLE: _files(
        "The weights file is not a valid safetensors or PyTorch file.", "save the weights again with PEFT"
    ),
    Reason.ADAPTER_RANK_MISSING: _files(
        "adapter_config.json has no rank r.", 'add "r" with the rank of the training to adapter_config.json'
    ),
    Reason.ADAPTER_RANK_EXCEEDS_CEILING: _files(
        "The rank in the adapter's files is above the rank ceiling that the server starts with.",
        "set spec.rank of the AIMArtifact to the real rank (static mode), or raise adapterRuntime.maxRank (dynamic)",
    ),
    Reason.ADAPTER_TYPE_UNSUPPORTED: _files(
        "peft_type is not LORA, the only type that the runtime serves.", "train the adapter with LoRA"
    ),
    Reason.ADAPTER_USES_DORA: _files("The adapter is a DoRA adapter.", "train the adapter without use_dora"),
    Reason.ADAPTER_SAVES_MODULES: _files(
        "The adapter contains whole modules (modules_to_save).",
        "train without modules_to_save, or merge the adapter into a base model of its own",
    ),
    Reason.ADAPTER_FITS_NO_MODULE: _files(
        "None of the adapter's tensors belongs to a module of the base model, so it would have no effect.",
        "check that it was trained on this base model, and the prefix of its tensor names",
    ),
    Reason.ADAPTER_TENSORS_INCOMPLETE: _files(
        "A LoRA matrix lacks its other half, differs from it in rank, or is not a matrix; engines fail to load it.",
        "export the adapter again from its training, with all tensors",
    ),
    Reason.ADAPTER_TARGETS_NOTHING: _files(
        "adapter_config.json has no target_modules, which the engine demands.",
        "add target_modules to adapter_config.json: the trained modules, or null",
    ),
    Reason.ADAPTER_ALPHA_MISSING: _files(
        "adapter_config.json has no lora_alpha, without which the engine does not load an adapter.",
        "add lora_alpha to adapter_config.json, with the value of the training",
    ),
    Reason.ADAPTER_USES_BIAS: _files(
        "The adapter has trained biases, which the engine refuses.",
        'train with bias="none" and lora_bias=False, or merge it into a base model of its own (merge_and_unload)',
    ),
    Reason.ADAPTER_EXTRA_TENSORS: _files(
        "The adapter has tensors that are not LoRA matrices (norms, trained tokens), which the engine refuses.",
        "remove these tensors from the file, or merge the adapter into a base model of its own if it needs them",
    ),
    Reason.ADAPTER_TENSORS_MISNAMED: _files(
        "The name of a LoRA matrix is not one that the engine loads, for example with the name of the adapter in it.",
        "save with save_pretrained of PEFT, or rename the tensors to ….lora_A.weight and ….lora_B.weight",
    ),
    Reason.ADAPTER_MODULE_UNKNOWN: _files(
        "The adapter has a module whose name no module of the base model has, so the engine refuses all of it.",
        "remove the tensors of that module, or declare the adapter for the base model that it was trained on",
    ),
    Reason.ADAPTER_SHAPE_MISMATCH: _files(
        "A LoRA matrix has another width than its module of the base model.",
        "declare the adapter for the base model that it was trained on, in the same size",
    ),
    Reason.ADAPTER_INIT_CHANGES_BASE: _files(
        "The adapter belongs to weights of the base that its initialization changed (PiSSA, OLoRA, CorDA, LoftQ).",
        "convert it: save_pretrained(path_initial_model_for_weight_conversion=…) of PEFT writes a plain LoRA",
    ),
    Reason.ADAPTER_USES_ACTIVATED_LORA: _files(
        "The adapter is an activated LoRA, which starts to act at certain tokens.",
        "train it without alora_invocation_tokens",
    ),
    Reason.ADAPTER_REPLICATES_LAYERS: _files(
        "The adapter repeats layers of the base (layer_replication), which the engine does not do.",
        "train it without layer_replication",
    ),
    Reason.ADAPTER_USES_BLOCK_DIAGONAL: _files(
        "The adapter has block-diagonal matrices (BD-LoRA).", "train it without use_bdlora"
    ),
    Reason.ADAPTER_USES_QALORA: _files(
        "The adapter is a QALoRA, whose inputs are pooled in groups.", "train it without use_qalora"
    ),
    Reason.ADAPTER_WEIGHTS_NOT_FLOAT: _files(
        "The matrices are not floating-point numbers.", "save the adapter in float32, float16 or bfloat16"
    ),
    Reason.ADAPTER_WEIGHTS_NOT_FINITE: _files(
        "The weights have NaN or infinite values: answers of the server, also to others, would be nonsense.",
        "train the adapter again, for example with a lower learning rate or in bfloat16",
    ),
    Reason.ADAPTER_PICKLE_REFUSED: _files(
        "The weights are an executable pickle (.bin), which the administrator does not allow.",
        "save the adapter with safe_serialization=True, or let the administrator turn on the setting allowPickle",
    ),
    # -- disk Jobs: warnings beside a success
    Reason.ADAPTER_BASE_MISMATCH: _note(
        "adapter_config.json names another base model than the service has (a failure with the setting strictBase).",
        "check that the adapter was trained on the base model of the service",
    ),
    Reason.ADAPTER_RANK_ABOVE_DECLARED: _note(
        "The rank in the adapter's files is above spec.rank of the AIMArtifact, but within the ceiling.",
        "set spec.rank of the AIMArtifact to the rank in the message",
    ),
    Reason.ADAPTER_RANK_MISMATCH: _note(
        "Tensors have a rank that adapter_config.json does not name.",
        "correct r or rank_pattern in adapter_config.json",
    ),
    Reason.ADAPTER_NEEDS_NEWER_ENGINE: _note(
        "An older engine refuses this adapter, or answers wrongly with it.",
        "use an AIM image with the engine version that the message names, or a newer one",
    ),
    Reason.ADAPTER_FIT_UNCHECKED: _note(
        "The base model was not complete, so the modules of the adapter were not compared with it yet.",
        "wait until the base model is Ready; the adapter is then checked without a download",
    ),
    Reason.ADAPTER_IS_PICKLE: _note(
        "The weights are a .bin file, which is an executable pickle.",
        "save the weights as adapter_model.safetensors, which cannot run code",
    ),
    Reason.ADAPTER_FITS_PARTLY: _note(
        "Some of the adapter's tensors belong to no module of the base model.",
        "check that adapter and base model are of the same architecture",
    ),
    Reason.SOURCE_NOT_VERIFIED: _note(
        "The source gives no checksum that can be verified for some files, so only their sizes were compared.",
        "upload the files with a checksum, such as SHA-256",
    ),
    # -- disk Jobs: the command
    Reason.SPECIFICATION_INVALID: _failed(
        "command",
        "The command line of the Job is not one that this version accepts.",
        "use one version for the controller and for the image of its Jobs (setting image)",
    ),
    Reason.INTERRUPTED: _failed("command", "The Job was asked to stop; what arrived is kept.", retriable=True),
    Reason.INTERNAL_ERROR: _failed(
        "command",
        "aim-adapters failed with an unexpected error.",
        "report it with the log of the Job",
        retriable=True,
    ),
}

EXPLANATIONS: Final[Mapping[Reason, Explanation]] = MappingProxyType(_TABLE)
"""The explanation of every reason."""

JOB_REASONS: Final = frozenset(reason for reason, found in _TABLE.items() if found.group is not None)
"""The reasons that a disk Job itself ends with, or warns of."""

ENDS_OF_JOBS: Final = JOB_REASONS | {Reason.JOB_FAILED, Reason.JOB_DEADLINE_EXCEEDED}
"""Every reason that the controller reports for the end of a Job, also of one without a result of its own."""

DOCS_URL: Final = "https://aim-adapters.example/docs/"
"""Where the pages of `make docs` are served. A placeholder: `aim-adapters lint --docs-url` sets the real address."""


def anchor(reason: Reason) -> str:
    """Return the anchor of a reason on the page docs/errors.md."""
    return reason.lower()


def help_uri(reason: Reason, docs_url: str = DOCS_URL) -> str:
    """Return the address of a reason's section; `docs_url` is where the built pages are served."""
    return f"{docs_url.rstrip('/')}/errors.html#{anchor(reason)}"


def find(word: str) -> Reason | None:
    """Return the reason that is spelled so, or None."""
    try:
        return Reason(word)
    except ValueError:
        return None


def spoken(word: str) -> Reason | Foreign:
    """Return a word as the reason that it is, or else as one of others."""
    return find(word) or Foreign(clean(word, _LONGEST_REASON))


_LONGEST_REASON = 128  # characters; source: core/v1 Event validation


def explain(word: str) -> Explanation | None:
    """Return the explanation of a word, or None for a word that is not a reason."""
    reason = find(word)
    return None if reason is None else EXPLANATIONS[reason]
