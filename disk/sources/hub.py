"""hf:// sources with `huggingface_hub`: its client session, headers and errors; ranges and pins are added here.

One metadata request pins the commit and returns size and checksum of every file. Files are then read at that commit.
"""

from __future__ import annotations

import os
import re
import ssl
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from api.reasons import Reason
from api.source_uri import HubSource
from api.text import clean
from disk.checksums import Announced
from disk.failures import DiskFailure, from_network_error, parse_retry_after, redact
from disk.sources.base import MOST_LISTED_FILES, Listing, OpenFile, RemoteFile, gather, read_answer, skipped
from disk.sources.guard import check_host
from disk.sources.internals import keep_body

if TYPE_CHECKING:
    import httpx2

_DEFAULT_ENDPOINT = "https://huggingface.co"
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 60.0
_LONGEST_SAID = 300  # characters of what a hub says about an error
_LONGEST_ERROR_BODY = 64 * 1024  # bytes
_SETTINGS = {
    "HF_HUB_DISABLE_XET": "1",  # plain ranges: resumable, verifiable, no second cache on the disk
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HOME": "/tmp/hf-home",  # noqa: S108 - nothing is written there; the root file system is read-only and HOME unset
}
_reading: ContextVar[str | None] = ContextVar("reading", default=None)  # the hub whose listing is being read
_prepared: dict[str, tuple[float, float, str | None]] = {}


class HubReader:
    """A folder of a hub repository, at one commit."""

    def __init__(self, source: HubSource, ca_file: str | None = None) -> None:
        self._source = source
        self._endpoint = (os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")
        parts = urllib.parse.urlsplit(self._endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DiskFailure(Reason.SOURCE_URI_INVALID, "HF_ENDPOINT is not a valid http(s) URL")
        check_host(parts.hostname)
        self._where = parts.hostname + (f":{parts.port}" if parts.port else "")
        self._token = (os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or "").strip() or None
        self._commit = ""
        _prepare_library(ca_file)

    def list_files(self) -> Listing:
        """Return all files below the subfolder, pinned to a commit. Raises: DiskFailure."""
        from huggingface_hub import HfApi  # noqa: PLC0415 - lazy: costs a quarter of a second

        source = self._source
        with self._translated(), _bounded(self._where):
            info = HfApi(self._endpoint, token=self._token or False).model_info(
                source.repo, revision=source.revision, files_metadata=True, timeout=_READ_SECONDS
            )
            siblings = info.siblings or []
        if not isinstance(info.sha, str) or not re.fullmatch(r"[0-9a-f]{40,64}", info.sha):
            raise DiskFailure(Reason.SOURCE_RESPONSE_INVALID, f"{self._where} returned no commit for {source.repo}")
        if len(siblings) > MOST_LISTED_FILES:
            raise DiskFailure(Reason.SOURCE_TOO_MANY_FILES, f"{source.repo} has {len(siblings)} files")
        self._commit = info.sha
        prefix = f"{source.subfolder}/" if source.subfolder else ""
        files = [
            self._remote_file(sibling, prefix) for sibling in siblings if str(sibling.rfilename).startswith(prefix)
        ]
        if not files:
            where = f"folder {source.subfolder} of " if prefix else ""
            raise DiskFailure(
                Reason.SOURCE_PREFIX_EMPTY, f"there is no file in {where}{source.repo} at {self._commit[:12]}"
            )
        identity = f"hf {self._endpoint} {source.repo} {source.subfolder}"
        return Listing(identity, self._commit, tuple(sorted(files, key=lambda file: file.name)))

    def _remote_file(self, sibling: Any, prefix: str) -> RemoteFile:
        """Read one entry of the file list. Raises: DiskFailure when the size or the ID is missing."""
        name = str(sibling.rfilename)
        lfs = sibling.lfs
        size = lfs.size if lfs is not None else sibling.size
        oid = lfs.sha256 if lfs is not None else sibling.blob_id
        if not isinstance(size, int) or size < 0 or not isinstance(oid, str) or not oid:
            raise DiskFailure(Reason.SOURCE_RESPONSE_INVALID, f"{self._where} returned no size or ID for {name!r}")
        kind = "sha256" if lfs is not None else "git-sha1"
        return RemoteFile(name.removeprefix(prefix), name, size, oid, f"{kind}:{oid.lower()}")

    def checksum_of(self, file: RemoteFile) -> Announced | None:
        """Return the checksum from the listing."""
        return Announced.parse(file.checksum)

    @contextmanager
    def open_file(self, file: RemoteFile, offset: int) -> Iterator[OpenFile]:
        """Stream a file of the pinned commit from `offset`. Raises: DiskFailure."""
        from huggingface_hub import get_session, hf_hub_url  # noqa: PLC0415 - lazy, as above
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # noqa: PLC0415 - documented there

        url = hf_hub_url(self._source.repo, file.address, revision=self._commit, endpoint=self._endpoint)
        headers = build_hf_headers(token=self._token or False, library_name="aim-adapters")
        headers["Accept-Encoding"] = "identity"  # sizes and offsets are those of the stored bytes
        if offset:
            headers["Range"] = f"bytes={offset}-"
        with self._translated(), get_session().stream("GET", url, headers=headers) as response:
            self._check_answer(response, file, offset)
            pieces = self._pieces(response, offset if response.status_code == 200 else 0)
            yield OpenFile(pieces, self.checksum_of(file))

    def _pieces(self, response: httpx2.Response, skip: int) -> Iterator[bytes]:
        """Yield the body, without its first `skip` bytes when the server ignored the range."""
        with self._translated():
            yield from skipped(gather(response.iter_raw()), skip)

    def _check_answer(self, response: httpx2.Response, file: RemoteFile, offset: int) -> None:
        from huggingface_hub import hf_raise_for_status  # noqa: PLC0415 - lazy, as above

        if response.status_code >= 400:
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and int(length) <= _LONGEST_ERROR_BODY:
                response.read()
            hf_raise_for_status(response)
        if response.status_code not in (200, 206):
            raise DiskFailure(Reason.SOURCE_RESPONSE_INVALID, f"{self._where} returned status {response.status_code}")
        if response.status_code == 206:
            found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if not found or int(found[1]) != offset:
                raise DiskFailure(
                    Reason.SOURCE_RESPONSE_INVALID, f"{self._where} returned another range of {file.name}"
                )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise a DiskFailure for everything that the library raises."""
        import httpx2  # noqa: PLC0415 - the library's own HTTP client
        from huggingface_hub import errors  # noqa: PLC0415 - lazy, as above

        try:
            yield
        except DiskFailure:
            raise
        except errors.GatedRepoError as error:
            detail = f"{self._source.repo} on {self._where} is gated"
            raise DiskFailure(Reason.SOURCE_GATED, with_words(detail, error.response)) from error
        except errors.RevisionNotFoundError as error:
            revision = self._source.revision or "main"
            detail = f'{self._source.repo} has no revision "{revision}"'
            raise DiskFailure(Reason.SOURCE_REVISION_NOT_FOUND, with_words(detail, error.response)) from error
        except errors.HfHubHTTPError as error:
            raise self._from_status(error) from error
        except errors.HFValidationError as error:
            raise DiskFailure(
                Reason.SOURCE_URI_INVALID, f'"{self._source.repo}" is not a valid repository ID'
            ) from error
        except httpx2.InvalidURL as error:
            raise DiskFailure(Reason.SOURCE_URI_INVALID, "HF_ENDPOINT or a proxy setting is not a valid URL") from error
        except (httpx2.HTTPError, OSError) as error:
            raise from_network_error(error, self._where) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # the library does not check responses
            raise DiskFailure(
                Reason.SOURCE_RESPONSE_INVALID,
                f"the response of {self._where} is not that of a hub ({type(error).__name__})",
            ) from error

    def _from_status(self, error: Any) -> DiskFailure:
        response = error.response
        reason, detail = self._meaning(response)
        wait = _retry_after(response.headers) if response.status_code == 429 or response.status_code >= 500 else None
        return DiskFailure(reason, with_words(detail, response), retry_after=wait)

    def _meaning(self, response: Any) -> tuple[Reason, str]:
        """Return what an error answer of a hub means. Source: the errors that the Hugging Face Hub documents."""
        status, repo, where = response.status_code, self._source.repo, self._where
        if status == 401 and (self._token or response.headers.get("X-Error-Message", "").startswith("Invalid cred")):
            # Without a token the hub also returns 401 for what does not exist. With one, 401 means a refused token.
            return Reason.SOURCE_UNAUTHORIZED, f"{where} did not accept the token for {repo}"
        if status == 401 and response.headers.get("X-Error-Code") != "RepoNotFound":
            return Reason.SOURCE_UNAUTHORIZED, f"{where} requires a token for {repo}"
        if status in (401, 404):
            return Reason.SOURCE_REPOSITORY_NOT_FOUND, f"{where} has no repository {repo}"
        if status == 403:
            return Reason.SOURCE_FORBIDDEN, f"{where} does not allow this account to read {repo}"
        if status == 429:
            return Reason.SOURCE_RATE_LIMITED, f"{where} returned status 429"
        if status >= 500:
            return Reason.SOURCE_SERVER_ERROR, f"{where} returned status {status}"
        if status == 416:
            return Reason.SOURCE_CHANGED, f"{where} has fewer bytes than it announced"
        return Reason.SOURCE_RESPONSE_INVALID, f"{where} returned status {status}"


def with_words(detail: str, response: Any) -> str:
    """Add what a hub says itself about an error, in its headers, to what it means."""
    headers = response.headers if response is not None else {}
    words = ": ".join(part for name in ("X-Error-Code", "X-Error-Message") if (part := headers.get(name)))
    said = clean(redact(words), _LONGEST_SAID)  # cut last: a cut credential would not be recognized
    return f"{detail} ({said})" if said else detail


@contextmanager
def _bounded(where: str) -> Iterator[None]:
    """Limit the size of the responses that this thread reads meanwhile: they are listings."""
    token = _reading.set(where)
    try:
        yield
    finally:
        _reading.reset(token)


def _retry_after(headers: Any) -> int | None:
    """Return how many seconds the server asks to wait, or None."""
    found = re.search(r"(?:^|;)\s*t=([0-9]+)", str(headers.get("RateLimit", "")))  # the header of the hub: r=0;t=57
    said = headers.get("Retry-After") or (found[1] if found else None)
    return parse_retry_after(said, headers.get("Date"))


def _prepare_library(ca_file: str | None) -> None:
    """Set the variables that the library reads at import, and give it a client with time limits.

    Raises: DiskFailure when the CA bundle cannot be used.
    """
    os.environ.update(_SETTINGS)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DEBUG"):
        os.environ.pop(name, None)
    wanted = (_CONNECT_SECONDS, _READ_SECONDS, ca_file)
    if _prepared.get("limits") == wanted:
        return  # one client per process: each loads all CA certificates
    import httpx2  # noqa: PLC0415
    from huggingface_hub import set_client_factory  # noqa: PLC0415

    def read_bounded(response: httpx2.Response) -> None:
        if (where := _reading.get()) is not None:  # the library would read it without a limit
            if response.headers.get("content-type", "").startswith("text/html") and response.status_code < 400:
                raise DiskFailure(Reason.SOURCE_NOT_AN_API, f"{where} answers with a web page")
            keep_body(response, read_answer(response.iter_bytes(), where))

    trusted = _trusted(ca_file)

    def client() -> httpx2.Client:
        return httpx2.Client(
            verify=trusted,
            follow_redirects=True,
            max_redirects=5,
            timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            event_hooks={
                "request": [lambda request: check_host(request.url.host)],  # redirects, too
                "response": [read_bounded],
            },
        )

    set_client_factory(client)
    _prepared["limits"] = wanted


def _trusted(ca_file: str | None) -> ssl.SSLContext | bool:
    """Return what verifies servers: the public CAs, and those of a bundle. Raises: DiskFailure."""
    if ca_file is None:
        return True
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        detail = f"the mounted CA file {os.path.basename(ca_file)} is not a bundle in PEM form"
        raise DiskFailure(Reason.SOURCE_CREDENTIALS_UNREADABLE, detail) from error
    return context
