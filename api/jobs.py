"""What the reconciler asks a Job to do, and what the Job reports when it ends.

A specification travels as command line arguments (`--service-uid=…`), never as environment, so that nothing a tenant
can set redirects the writer; secrets never are part of it. A result travels back as the pod's termination message.

A Job starts for each adapter, and pydantic takes more than half of such a start: these are structs of msgspec.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
import orjson
from msgspec.structs import replace

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


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the default of each field that has one, by its name on the wire."""
    fields = (field for field in msgspec.structs.fields(kind) if not field.required)
    return {
        field.encode_name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for field in fields
    }


def _without_defaults(given: msgspec.Struct) -> dict[str, Any]:
    """Return the fields by their names on the wire, without those that equal their default or are None.

    `omit_defaults` of msgspec compares by identity, and writes numbers that equal a default.
    """
    defaults = _defaults(type(given))
    values: dict[str, Any] = msgspec.to_builtins(given)
    return {
        name: value
        for name, value in values.items()
        if value is not None and (name not in defaults or value != defaults[name])
    }


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all specifications: renders itself as arguments; `read_spec` reads them in the `disk` commands."""

    def to_args(self) -> list[str]:
        """Return `--name=value` arguments, lists as repeated ones; unset values are left out."""
        args: list[str] = []
        for name, value in _without_defaults(self).items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, list | tuple):
                args += [f"{flag}={item}" for item in value]
            elif isinstance(value, bool):
                args.append(f"{flag}={str(value).lower()}")
            else:
                args.append(f"{flag}={value}")
        return args


class ClientOptions(JobSpec, frozen=True, kw_only=True):
    """How to reach a source where the typed `artifact.s3` and `artifact.hub` blocks say so.

    Credentials and CA bundles are files below CREDENTIALS_MOUNT.
    """

    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_addressing_style: Literal["auto", "path", "virtual"] = "auto"
    s3_signature_version: Literal["auto", "s3v4"] = "auto"
    s3_auth: Literal["chain", "static", "anonymous"] = "chain"
    s3_credentials_dir: str | None = None  # files accessKeyId, secretAccessKey, sessionToken (optional)
    s3_ca_file: str | None = None
    s3_insecure_skip_verify: bool = False
    hub_ca_file: str | None = None  # trusted beside the public CAs


class StageSpec(ClientOptions, frozen=True, kw_only=True):
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
    include: list[str] = []
    exclude: list[str] = []
    strict_base: bool = False
    allow_pickle: bool = True  # `.bin` weights are an executable pickle: a warning, refused when False
    fresh: bool = False  # download again although a done-marker exists (annotation `restage`)
    hold_changed: bool = (
        False  # changed content under a live name: move the old content away, keep the new one in scratch
    )
    may_be_listed: bool = False  # with `hold_changed`: a server may list the path though nothing is live there now
    progress_port: int = 0  # 0: no progress server
    allow_link_local: bool = False  # endpoints on link-local and metadata addresses are refused otherwise


class SyncSpec(JobSpec, frozen=True, kw_only=True):
    """Create a service's subtree and move away what is no longer declared (docs/contract.md, Subtree sync)."""

    disk: str = DISK_MOUNT
    namespace: str
    service: str
    service_uid: str
    generation: int  # of the AIMService: a sync of an older generation than recorded on the disk does nothing
    sync_key: str
    declared: list[str] = []  # adapter paths, sorted


class ReapSpec(JobSpec, frozen=True, kw_only=True):
    """Remove what no existing service needs (docs/contract.md, Reaper)."""

    disk: str = DISK_MOUNT
    listed_at: float  # seconds since the epoch when the list of existing services was complete
    live: list[str] = []  # UIDs of all AIMServices of the namespace
    scratch_guard_seconds: int = 1800
    subtree_skew_seconds: int = 120
    dry_run: bool = False


class FetchSpec(ClientOptions, frozen=True, kw_only=True):
    """Download a base model into its cache claim."""

    cache: str = CACHE_MOUNT
    namespace: str
    artifact: str
    artifact_uid: str
    source_uri: str
    model_id: str | None = None
    include: list[str] = []
    exclude: list[str] = []
    progress_port: int = 0
    measure: bool = False  # only measure how many bytes a download needs (result.sizeBytes); no claim is mounted
    allow_link_local: bool = False


_Spec = TypeVar("_Spec", bound=JobSpec)
_EXPECTED: dict[object, str] = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


class SpecError(ValueError):
    """Arguments that are not a specification: a line for each option, without its value."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@cache
def field_types(kind: type[JobSpec]) -> dict[str, Any]:
    """Return the type of each field of a specification."""
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def read_spec(kind: type[_Spec], values: Mapping[str, Any]) -> _Spec:
    """Read a specification from field names and texts. Raises: SpecError with all invalid options."""
    types, faults = field_types(kind), []
    read: dict[str, Any] = {}
    for name, given in values.items():
        if name not in types:
            faults.append(f"{_flag(name)}: not an option")
            continue
        try:
            read[name] = msgspec.convert(given, types[name], strict=False)
        except msgspec.ValidationError:
            faults.append(f"{_flag(name)}: must be {_expected(types[name])}")
    required = (field.name for field in msgspec.structs.fields(kind) if field.required)
    faults += [f"{_flag(name)}: is required" for name in required if name not in values]
    if faults:
        raise SpecError(faults)
    return kind(**read)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _expected(wanted: Any) -> str:
    """Return what an option of this type takes."""
    if get_origin(wanted) is Literal:
        return f"one of {', '.join(get_args(wanted))}"
    return _EXPECTED.get(wanted, "text")


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that does not fail a Job: stable reason and a sentence."""

    reason: str
    message: str


Rank = Annotated[int, msgspec.Meta(le=INT32)]
Bytes = Annotated[int, msgspec.Meta(le=INT64)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**37)]
Count = Annotated[int, msgspec.Meta(ge=0, le=INT64)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class JobResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a Job ended; written to the termination message as JSON with camelCase keys, at most 4096 bytes.

    `reason` is stable and documented; `retriable`: whether the same Job may succeed later without a change.
    """

    ok: bool
    reason: str
    message: str = ""
    retriable: bool = False
    retry_after_seconds: int | None = None
    key: str = ""  # stage key or sync key that this result belongs to
    rank: Rank | None = None  # the real one, from the files
    base_model_id: str | None = None
    size_bytes: Bytes | None = None
    digest: str | None = None  # "sha256:…" over the whole content
    revision: str | None = None  # what the source reported: commit or etag
    staged_at: Moment | None = None  # seconds since the epoch
    reclaimed_bytes: Bytes | None = None
    left: int = 0  # of a sweep: unused content that was kept because it is new or in use, so sweep again soon
    removed: list[str] = []  # paths moved away or reaped, cut when too many
    warnings: list[Note] = []

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
        return orjson.dumps(_speakable(_without_defaults(self)))

    def _shorter(self) -> JobResult | None:
        """Return a shorter result that still describes what happened, None when nothing more can be cut."""
        if self.removed:
            return replace(self, removed=self.removed[: len(self.removed) // 2])
        if len(self.warnings) > 1:
            return replace(self, warnings=self.warnings[: len(self.warnings) // 2])
        if len(self.message) > 100:  # enough to describe what happened
            return replace(self, message=self.message[: len(self.message) // 2] + "…")
        return None

    def _without_details(self) -> JobResult:
        return replace(self, warnings=[], message="", base_model_id=None, revision=None)

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
        result = msgspec.convert(orjson.loads(text), JobResult, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None
    return replace(
        result,
        reason=clean(result.reason, _LONGEST_REASON),
        message=clean(result.message),
        digest=_clean(result.digest),
        revision=_clean(result.revision),
        base_model_id=_clean(result.base_model_id),
        removed=[clean(path) for path in result.removed],
        warnings=[
            Note(reason=clean(one.reason, _LONGEST_REASON), message=clean(one.message)) for one in result.warnings
        ],
    )


def _clean(text: str | None) -> str | None:
    return None if text is None else clean(text)


_LONGEST_REASON = 128  # characters; source: core/v1 Event validation


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The response to `GET /progress` of a running Job's pod."""

    downloaded_bytes: Count = 0
    total_bytes: Count = 0  # 0: not known yet
    percentage: Percent = 0
    bytes_per_second: Count = 0
    remaining_seconds: Bytes | None = None

    def to_json(self) -> bytes:
        """Return the body of the response; a time that is not known is left out."""
        return orjson.dumps({key: value for key, value in msgspec.to_builtins(self).items() if value is not None})


def read_progress(body: object) -> Progress:
    """Read the parsed body of a response. Raises: ValueError."""
    try:
        return msgspec.convert(body, Progress, strict=False)
    except msgspec.ValidationError as error:  # not a ValueError in msgspec 0.19
        raise ValueError(str(error)) from error
