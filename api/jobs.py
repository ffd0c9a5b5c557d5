"""What the reconciler asks a Job to do, and what the Job reports when it ends.

A specification travels as command line arguments (`--service-uid=…`), never as environment, so that nothing a tenant
can set redirects the writer; secrets never are part of it. A result travels back as the pod's termination message.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.text import clean, well_formed

DISK_MOUNT = "/adapter-disk"
CACHE_MOUNT = "/model-cache"
BASE_MOUNT = "/base-model"
CREDENTIALS_MOUNT = "/var/run/secrets/aim-adapters"
TERMINATION_LOG = "/dev/termination-log"  # where a kubelet looks for the message, unless the container names another
TERMINATION_MESSAGE_LIMIT = 4096  # bytes; a kubelet cuts a longer message
INT32, INT64 = (
    2**31 - 1,
    2**63 - 1,
)  # the maximum of integer fields in a status: the API server would refuse a larger value


class JobSpec(BaseModel):
    """Base of all specifications: renders itself as arguments; parsed again by the `disk` commands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_args(self) -> list[str]:
        """Return `--name=value` arguments, lists as repeated ones; unset values are left out."""
        args: list[str] = []
        for name, value in self.model_dump(exclude_none=True, exclude_defaults=True).items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, list | tuple):
                args += [f"{flag}={item}" for item in value]
            elif isinstance(value, bool):
                args.append(f"{flag}={str(value).lower()}")
            else:
                args.append(f"{flag}={value}")
        return args


class S3Options(BaseModel):
    """How to reach S3 where a typed `artifact.s3` block says so; credentials are files below CREDENTIALS_MOUNT."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_addressing_style: Literal["auto", "path", "virtual"] = "auto"
    s3_signature_version: Literal["auto", "s3v4"] = "auto"
    s3_auth: Literal["chain", "static", "anonymous"] = "chain"
    s3_credentials_dir: str | None = None  # files accessKeyId, secretAccessKey, sessionToken (optional)
    s3_ca_file: str | None = None
    s3_insecure_skip_verify: bool = False


class StageSpec(JobSpec, S3Options):
    """Download one adapter, check it and move it into one service's subtree (docs/contract.md, Staging)."""

    disk: str = DISK_MOUNT
    namespace: str
    service: str
    service_uid: str
    artifact: str
    artifact_uid: str
    path: str  # directory name below the service's subtree = the served model id
    source_uri: str
    model_id: str
    stage_key: str
    max_rank: int  # the ceiling that the server starts with
    declared_rank: int
    base_model_id: str | None = None
    base_dir: str | None = None  # complete base cache, mounted read-only: module paths are compared with it
    include: list[str] = Field(default_factory=list)
    exclude: list[str] = Field(default_factory=list)
    strict_base: bool = False
    allow_pickle: bool = True  # `.bin` weights are an executable pickle: a warning, refused when False
    fresh: bool = False  # download again although a done-marker exists (annotation `restage`)
    hold_changed: bool = (
        False  # changed content under a live name: move the old content away, keep the new one in scratch
    )
    progress_port: int = 0  # 0: no progress server
    allow_link_local: bool = False  # endpoints on link-local and metadata addresses are refused otherwise


class SyncSpec(JobSpec):
    """Create a service's subtree and move away what is no longer declared (docs/contract.md, Subtree sync)."""

    disk: str = DISK_MOUNT
    namespace: str
    service: str
    service_uid: str
    generation: int  # of the AIMService: a sync of an older generation than recorded on the disk does nothing
    sync_key: str
    declared: list[str] = Field(default_factory=list)  # adapter paths, sorted


class ReapSpec(JobSpec):
    """Remove what no existing service needs (docs/contract.md, Reaper)."""

    disk: str = DISK_MOUNT
    listed_at: float  # seconds since the epoch when the list of existing services was complete
    live: list[str] = Field(default_factory=list)  # UIDs of all AIMServices of the namespace
    scratch_guard_seconds: int = 1800
    subtree_skew_seconds: int = 120
    dry_run: bool = False


class FetchSpec(JobSpec, S3Options):
    """Download a base model into its cache claim."""

    cache: str = CACHE_MOUNT
    namespace: str
    artifact: str
    artifact_uid: str
    source_uri: str
    model_id: str | None = None
    include: list[str] = Field(default_factory=list)
    exclude: list[str] = Field(default_factory=list)
    progress_port: int = 0
    measure: bool = False  # only measure how many bytes a download needs (result.sizeBytes); no claim is mounted
    allow_link_local: bool = False


class Note(BaseModel):
    """A finding that does not fail a Job: stable reason and a sentence."""

    model_config = ConfigDict(extra="ignore")

    reason: str
    message: str


class JobResult(BaseModel):
    """How a Job ended; written to the termination message as JSON with camelCase keys, at most 4096 bytes.

    `reason` is stable and documented; `retriable`: whether the same Job may succeed later without a change.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    ok: bool
    reason: str
    message: str = ""
    retriable: bool = False
    retry_after_seconds: int | None = Field(None, alias="retryAfterSeconds")
    key: str = ""  # stage key or sync key that this result belongs to
    rank: int | None = Field(None, le=INT32)  # the real one, from the files
    base_model_id: str | None = Field(None, alias="baseModelId")
    size_bytes: int | None = Field(None, alias="sizeBytes", le=INT64)
    digest: str | None = None  # "sha256:…" over the whole content
    revision: str | None = None  # what the source reported: commit or etag
    staged_at: int | None = Field(None, alias="stagedAt", ge=0, le=2**37)  # seconds since the epoch
    reclaimed_bytes: int | None = Field(None, alias="reclaimedBytes", le=INT64)
    left: int = 0  # of a sweep: unused content that was kept because it is new or in use, so sweep again soon
    removed: list[str] = Field(default_factory=list)  # paths moved away or reaped, cut when too many
    warnings: list[Note] = Field(default_factory=list)

    def to_termination_message(self) -> str:
        """Return the JSON text, shortened (lists first, then the message) until it fits a termination message."""
        result: JobResult = self
        for shorter in (JobResult._without_details, JobResult._last_resort):
            while len(text := result._json()) > TERMINATION_MESSAGE_LIMIT and (cut := result._shorter()) is not None:
                result = cut
            if len(text) <= TERMINATION_MESSAGE_LIMIT:
                return text.decode()
            result = shorter(result)
        return result._json().decode()

    def _json(self) -> bytes:
        dump = self.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
        return orjson.dumps(_speakable(dump | {"ok": self.ok}))

    def _shorter(self) -> Self | None:
        """Return a shorter result that still describes what happened, None when nothing more can be cut."""
        if self.removed:
            return self.model_copy(update={"removed": self.removed[: len(self.removed) // 2]})
        if len(self.warnings) > 1:
            return self.model_copy(update={"warnings": self.warnings[: len(self.warnings) // 2]})
        if len(self.message) > 100:  # enough to describe what happened
            return self.model_copy(update={"message": self.message[: len(self.message) // 2] + "…"})
        return None

    def _without_details(self) -> JobResult:
        return self.model_copy(update={"warnings": [], "message": "", "base_model_id": None, "revision": None})

    def _last_resort(self) -> JobResult:
        """Return a text that always fits: even a reason, key or digest is cut if it is too long."""
        cut = _SHORTEST_CUT
        return JobResult(
            ok=self.ok,
            reason=self.reason[:cut],
            retriable=self.retriable,
            key=self.key[:cut],
            rank=self.rank,
            digest=self.digest[:cut] if self.digest else None,
        )


_SHORTEST_CUT = 170  # characters of at most 7 bytes in JSON: three such fields stay below the limit


def _speakable(value: Any) -> Any:
    """Replace lone surrogates (bytes of a file name that are not valid UTF-8), which JSON cannot contain."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_speakable(entry) for entry in value]
    return {key: _speakable(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def parse_termination_message(text: object) -> JobResult | None:
    """Read a result back; None if no disk Job wrote the text (killed before it wrote, another image). Never raises.

    Another image may write anything, so each text is cleaned, and a reason is a short word.
    """
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        result = JobResult.model_validate(orjson.loads(text))
    except (ValidationError, ValueError):
        return None
    shown = {
        "reason": clean(result.reason, _LONGEST_REASON),
        "message": clean(result.message),
        "digest": _clean(result.digest),
        "revision": _clean(result.revision),
        "base_model_id": _clean(result.base_model_id),
        "removed": [clean(path) for path in result.removed],
        "warnings": [
            Note(reason=clean(one.reason, _LONGEST_REASON), message=clean(one.message)) for one in result.warnings
        ],
    }
    return result.model_copy(update=shown)


def _clean(text: str | None) -> str | None:
    return None if text is None else clean(text)


_LONGEST_REASON = 128  # characters; source: core/v1 Event validation


class Progress(BaseModel):
    """The response to `GET /progress` of a running Job's pod."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    downloaded_bytes: int = Field(0, alias="downloadedBytes", ge=0, le=INT64)
    total_bytes: int = Field(0, alias="totalBytes", ge=0, le=INT64)  # 0: not known yet
    percentage: int = Field(0, ge=0, le=100)
    bytes_per_second: int = Field(0, alias="bytesPerSecond", ge=0, le=INT64)
    remaining_seconds: int | None = Field(None, alias="remainingSeconds", le=INT64)
