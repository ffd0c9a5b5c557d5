"""fetch: download a base model into its cache claim, with the clients, checks, resume and marker of an adapter.

The directory of the model is built elsewhere and renamed into place when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from api.jobs import FetchSpec, JobResult
from api.reasons import Reason
from api.source_uri import source_model_id
from disk.checksums import content_digest
from disk.download import Downloader, Pacing, check_names, with_retries
from disk.failures import DiskFailure
from disk.filters import select_model_files
from disk.fs import Fs, is_directory, list_names, unique
from disk.layout import UnsafeNameError, check_component, scratch_name
from disk.locks import hold
from disk.progress import Meter
from disk.records import Fetched, is_complete, load, now, save, unverified
from disk.sources.base import Listing, Source

_OURS = ".aim-adapters"  # folder on the claim, outside of the directory of the model
_LOCK_SECONDS = 24 * 3600.0  # the deadline of the Job is earlier


@dataclass(slots=True)
class Fetcher:
    """One fetch. `open_source` is called only when there is work."""

    spec: FetchSpec
    fs: Fs
    open_source: Callable[[], Source]
    meter: Meter
    pacing: Pacing

    @property
    def ours(self) -> Path:
        """The folder of marker and scratch."""
        return Path(self.spec.cache) / _OURS

    @property
    def marker(self) -> Path:
        """The done-marker."""
        return self.ours / "fetched.json"

    @property
    def directory(self) -> str:
        """The path of the model, relative to the cache: `org/name`. Raises: DiskFailure."""
        spec = self.spec
        name = spec.model_id or source_model_id(spec.source_uri) or spec.artifact
        try:
            return "/".join(check_component(part) for part in name.split("/"))
        except UnsafeNameError as error:
            raise DiskFailure(Reason.SPECIFICATION_INVALID, f"the model ID is not a valid path: {error}") from error


def fetch(fetcher: Fetcher) -> JobResult:
    """Fetch a model, unless it exists already. Raises: DiskFailure, OSError."""
    spec = fetcher.spec
    if spec.measure:
        listing = _list_wanted(fetcher, fetcher.open_source())
        return _result(
            Reason.MODEL_MEASURED, f"{len(listing.files)} files", listing.total_bytes, revision=listing.revision
        )
    if (done := _find_fetched(fetcher)) is not None and not _leftovers(fetcher):
        return _fetched(done, "it exists already")
    fs = fetcher.fs
    for folder in (fetcher.ours, fetcher.ours / "staging", fetcher.ours / "aside"):
        fs.ensure_directory(folder)
    with hold(fs, fetcher.ours / "fetch.lock", wait_seconds=_LOCK_SECONDS):
        if (done := _find_fetched(fetcher)) is None:
            source = fetcher.open_source()
            done = _bring(fetcher, source, _list_wanted(fetcher, source))
        _clean(fetcher)
    return _fetched(done, f"{len(done.files)} files")


def _find_fetched(fetcher: Fetcher) -> Fetched | None:
    """Return the marker if it is of this source and all files exist. Raises: OSError, DiskFailure."""
    done = load(Fetched, fetcher.marker)
    if done is None or done.source_uri != fetcher.spec.source_uri or done.directory != fetcher.directory:
        return None
    return done if is_complete(Path(fetcher.spec.cache) / done.directory, done.files) else None


def _list_wanted(fetcher: Fetcher, source: Source) -> Listing:
    spec = fetcher.spec
    listing = select_model_files(with_retries(source.list_files, fetcher.pacing), spec.include, spec.exclude)
    if not listing.files:
        raise DiskFailure(Reason.SOURCE_PREFIX_EMPTY, f"downloadFilter selects no file of {spec.source_uri}")
    check_names(listing)
    return listing


def _bring(fetcher: Fetcher, source: Source, listing: Listing) -> Fetched:
    """Download into scratch and rename into place. Raises: DiskFailure, OSError."""
    fs, spec = fetcher.fs, fetcher.spec
    scratch = fetcher.ours / "staging" / f"get-{listing.key}"
    downloader = Downloader(fs, source, scratch, fetcher.meter, fetcher.pacing)
    downloader.prepare(listing)
    files = downloader.fetch(listing.files)
    downloader.finish()
    done = Fetched(
        source_uri=spec.source_uri,
        directory=fetcher.directory,
        listing_key=listing.key,
        digest=content_digest(files),
        size_bytes=listing.total_bytes,
        files={file.name: file.size for file in files},
        verified={file.name: file.verified for file in files},
        revision=listing.revision,
        fetched_at=now(),
    )
    _place(fetcher, downloader.files, done)
    return done


def _place(fetcher: Fetcher, ready: Path, done: Fetched) -> None:
    """Rename the model into place. The marker is written first, so a kill in between is harmless."""
    fs, cache = fetcher.fs, Path(fetcher.spec.cache)
    target = cache / done.directory
    folder = cache
    for part in done.directory.split("/")[:-1]:
        folder /= part
        fs.ensure_directory(folder)
    if is_directory(target):
        fs.rename(target, fetcher.ours / "aside" / scratch_name("replaced", unique=unique()))
        fs.sync_directory(target.parent)
    save(fs, fetcher.marker, done, fetcher.ours / "staging")
    fs.rename(ready, target)
    fs.sync_directory(target.parent)
    fs.sync_directory(cache)


def _leftovers(fetcher: Fetcher) -> list[Path]:
    """Yield what a kill left behind. Raises: OSError."""
    folders = (fetcher.ours / "staging", fetcher.ours / "aside")
    return [folder / name for folder in folders for name in list_names(folder)]


def _clean(fetcher: Fetcher) -> None:
    """Remove all scratch; call it with the lock held and the model in place. Raises: OSError."""
    for path in _leftovers(fetcher):
        fetcher.fs.remove_tree(path)


def _fetched(done: Fetched, message: str) -> JobResult:
    result = _result(Reason.MODEL_FETCHED, message, done.size_bytes, revision=done.revision)
    return replace(result, digest=done.digest, warnings=unverified(done.verified))


def _result(reason: str, message: str, size: int, *, revision: str | None) -> JobResult:
    return JobResult(ok=True, reason=reason, message=message, size_bytes=size, revision=revision)
