"""A bucket as a folder: keys, sidecar settings, ETags and checksums, listings. Reads the disk, knows no HTTP."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from devcluster.sources.files import Digests, Located, Root, b64

SETTINGS_FILE: Final = ".s3meta.json"
HIDDEN_PREFIX: Final = ".s3"
MAX_KEYS: Final = 1000
LARGE_BYTES: Final = 2 << 30  # above it an object looks like a multipart upload under a key of KMS and is not hashed
LARGE_PART_BYTES: Final = 16 << 20
ALGORITHMS: Final = {
    "CRC32": "crc32",
    "CRC32C": "crc32c",
    "SHA1": "sha1",
    "SHA256": "sha256",
    "CRC64NVME": "crc64nvme",
}
ENCRYPTIONS: Final = ("", "AES256", "aws:kms", "aws:kms:dsse")


class SettingsError(ValueError):
    """A `.s3meta.json` that cannot be read; the text names the file."""


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """What the sidecar says about the objects whose keys match a glob."""

    etag: str = ""  # instead of the computed one, without quotes
    part_size: int = 0  # bytes; ETag and composite checksum are computed as of a multipart upload with such parts
    part_sizes: tuple[int, ...] = ()  # bytes, instead of parts of one size; the last one repeats
    encryption: str = ""  # server-side: with a KMS key an ETag is not an MD5 digest
    checksum: str = ""  # an algorithm, NONE, or empty for the server's
    checksum_value: str = ""  # base64, instead of the computed one
    checksum_type: str = "FULL_OBJECT"
    content_type: str = "binary/octet-stream"


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """What `.s3meta.json` says about a bucket."""

    public: bool = False  # readable without a signature
    allowed_access_keys: tuple[str, ...] | None = None  # None: any that the server knows
    aliases: tuple[tuple[str, str], ...] = ()  # (key, path in the bucket): for keys no file system takes
    objects: tuple[tuple[str, ObjectSettings], ...] = ()

    def of(self, key: str) -> ObjectSettings:
        """Return the settings of a key: those of the first glob that matches."""
        return next((found for glob, found in self.objects if fnmatch.fnmatchcase(key, glob)), ObjectSettings())


def parse_settings(text: str, where: str) -> BucketSettings:
    """Read `.s3meta.json`.

    Raises: SettingsError for anything but an object of known fields with the right types.
    """
    try:
        raw = json.loads(text)
        keys = raw.pop("allowed_access_keys", None)
        objects = tuple((str(glob), _object_settings(value)) for glob, value in raw.pop("objects", {}).items())
        aliases = tuple(sorted((str(key), str(path)) for key, path in raw.pop("aliases", {}).items()))
        public = raw.pop("public", False)
        if raw:
            raise SettingsError(f"{where}: unknown fields {', '.join(sorted(raw))}")
        return BucketSettings(bool(public), None if keys is None else tuple(map(str, keys)), aliases, objects)
    except SettingsError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"{where}: {error}") from error


def _object_settings(raw: dict[str, Any]) -> ObjectSettings:
    values = dict(raw)
    checksum = values.get("checksum")
    if isinstance(checksum, dict):
        values["checksum"] = checksum["algorithm"]
        values["checksum_value"] = checksum.get("value", "")
        values["checksum_type"] = checksum.get("type", "FULL_OBJECT")
    values["part_sizes"] = tuple(int(size) for size in values.get("part_sizes", ()))
    found = ObjectSettings(**values)
    if found.checksum not in ("", "NONE", *ALGORITHMS):
        raise ValueError(f"checksum {found.checksum!r} is not supported; supported: NONE, {', '.join(ALGORITHMS)}")
    if found.encryption not in ENCRYPTIONS:
        raise ValueError(
            f"encryption {found.encryption!r} is not supported; supported: {', '.join(filter(None, ENCRYPTIONS))}"
        )
    if any(size <= 0 for size in found.part_sizes) or found.part_size < 0:
        raise ValueError("the sizes of parts must be above 0")
    if found.checksum_type not in ("FULL_OBJECT", "COMPOSITE"):
        raise ValueError(
            f"the checksum type {found.checksum_type!r} is not supported; supported: FULL_OBJECT, COMPOSITE"
        )
    if found.checksum_type == "COMPOSITE" and not found.checksum_value and not (found.part_size or found.part_sizes):
        raise ValueError("a COMPOSITE checksum needs part_size, part_sizes or its value")
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """One object."""

    key: str
    file: Located
    settings: ObjectSettings


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What is remembered of a multipart upload: sizes of its parts in bytes, which checksum its client requested."""

    part_sizes: tuple[int, ...]
    checksum: str = ""
    checksum_type: str = "FULL_OBJECT"


@dataclass(slots=True)
class Listing:
    """One page of a listing."""

    entries: list[Entry] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    truncated: bool = False

    @property
    def last(self) -> str:
        """The last key or common prefix of the page."""
        return max([e.key for e in self.entries[-1:]] + self.prefixes[-1:], default="")


def list_page(
    keys: Iterable[str], prefix: str, delimiter: str, *, after: str, after_prefix: bool, max_keys: int
) -> tuple[list[str], list[str], bool]:
    """Return (keys, common prefixes, truncated) of one page.

    Args: keys sorted; `after` is exclusive, and when it is a common prefix that an earlier page gave
    (`after_prefix`), all keys below it are done too.
    """
    found: list[str] = []
    prefixes: list[str] = []
    for key in keys:
        if not key.startswith(prefix) or key <= after or (after_prefix and key.startswith(after)):
            continue
        head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        common = prefix + head + cut if cut else ""
        if common and prefixes and prefixes[-1] == common:
            continue
        if len(found) + len(prefixes) >= max_keys:
            return found, prefixes, max_keys > 0
        if common:
            prefixes.append(common)
        else:
            found.append(key)
    return found, prefixes, False


@dataclass(slots=True)
class Buckets:
    """The buckets under a root. Methods read the disk: call them off the event loop. Safe for threads."""

    root: Root
    digests: Digests
    checksum: str = "SHA256"
    large_bytes: int = LARGE_BYTES
    uploaded: dict[tuple[str, int, int, int], Uploaded] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the buckets, sorted."""
        return self.root.folders()

    def exists(self, bucket: str) -> bool:
        """Whether there is such a bucket."""
        return not bucket.startswith(".") and self.root.folder([bucket]) is not None

    def settings(self, bucket: str) -> BucketSettings:
        """Return a bucket's settings, the default ones when it has no file.

        Raises: SettingsError.
        """
        file = self.root.file([bucket, SETTINGS_FILE])
        if file is None:
            return BucketSettings()
        where = f"{bucket}/{SETTINGS_FILE}"
        try:
            with open(file.path, encoding="utf-8") as stream:
                return parse_settings(stream.read(), where)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{where}: {error}") from error

    def find(self, bucket: str, key: str) -> Entry | None:
        """Return an object."""
        settings = self.settings(bucket)
        path = dict(settings.aliases).get(key, key)
        names = path.split("/")
        if names[0].startswith(HIDDEN_PREFIX):
            return None
        file = self.root.file([bucket, *names])
        return None if file is None else Entry(key, file, settings.of(key))

    def _all(self, bucket: str, prefix: str) -> Iterator[tuple[str, Located]]:
        """Yield the objects that can start with the prefix: only the folder that it names is walked."""
        folder, slash, _ = prefix.rpartition("/")
        for path, file in self.root.walk([bucket, *folder.split("/")] if slash else [bucket]):
            key = f"{folder}/{path}" if slash else path
            if not key.startswith(HIDDEN_PREFIX):
                yield key, file
        for key, path in self.settings(bucket).aliases:
            target = self.root.file([bucket, *path.split("/")])
            if target is not None:
                yield key, target

    def page(
        self, bucket: str, prefix: str, delimiter: str, *, after: str = "", after_prefix: bool = False, max_keys: int
    ) -> Listing:
        """Return one page of a bucket's listing, in the order of the keys' UTF-8 bytes."""
        found = dict(self._all(bucket, prefix))
        keys, prefixes, truncated = list_page(
            sorted(found), prefix, delimiter, after=after, after_prefix=after_prefix, max_keys=max_keys
        )
        settings = self.settings(bucket)
        return Listing([Entry(key, found[key], settings.of(key)) for key in keys], prefixes, truncated)

    def is_large(self, entry: Entry) -> bool:
        """Whether an object is too large to be hashed for an answer."""
        return entry.file.size > self.large_bytes

    def part_sizes(self, entry: Entry) -> tuple[int, ...]:
        """Return the sizes in bytes of an object's parts; none when it was uploaded as a whole."""
        size, wanted = entry.file.size, entry.settings
        if (known := self.uploaded.get(entry.file.identity)) is not None:
            return known.part_sizes
        step = wanted.part_sizes or ((wanted.part_size,) if wanted.part_size else ())
        if not step and self.is_large(entry):
            step = (LARGE_PART_BYTES,)
        if not step:
            return ()
        found: list[int] = []
        for part in itertools.chain(step, itertools.repeat(step[-1])):
            found.append(min(part, size))
            size -= found[-1]
            if size <= 0:
                break
        return tuple(found)

    def encryption(self, entry: Entry) -> str:
        """Return how an object is encrypted, empty if it is not: with a key of KMS its ETag says nothing."""
        return entry.settings.encryption or ("aws:kms" if self.is_large(entry) else "")

    def etag(self, entry: Entry) -> str:
        """Return the ETag without quotes. Reads the file when its digest is not known yet."""
        file, wanted = entry.file, entry.settings
        if wanted.etag:
            return wanted.etag
        sizes = self.part_sizes(entry)
        suffix = f"-{len(sizes)}" if sizes else ""
        if self.encryption(entry).startswith("aws:kms"):
            return f"{hashlib.md5(repr(file.identity).encode(), usedforsecurity=False).hexdigest()}{suffix}"
        md5 = _of_parts("md5", sizes)
        algorithm, kind = self.algorithm(entry)
        if algorithm and not wanted.checksum_value:  # both in one pass: usually both are requested
            hasher = ALGORITHMS[algorithm] if kind == "FULL_OBJECT" else _of_parts(ALGORITHMS[algorithm], sizes)
            return f"{self.digests.of(file, md5, hasher)[0].hex()}{suffix}"
        return f"{self.digests.of(file, md5)[0].hex()}{suffix}"

    def algorithm(self, entry: Entry) -> tuple[str, str]:
        """Return (algorithm, type) of the object's checksum, empty if it has none."""
        wanted = entry.settings
        known = self.uploaded.get(entry.file.identity)
        name = wanted.checksum or (known.checksum if known is not None else "") or self.checksum
        if name in ("", "NONE") or (self.is_large(entry) and not wanted.checksum):
            return "", ""
        return name, known.checksum_type if known is not None and not wanted.checksum else wanted.checksum_type

    def checksum_of(self, entry: Entry) -> tuple[str, str, str]:
        """Return (algorithm, base64 value, type); empty strings when the object has none."""
        name, kind = self.algorithm(entry)
        if not name:
            return "", "", ""
        if entry.settings.checksum_value:
            return name, entry.settings.checksum_value, kind
        sizes = self.part_sizes(entry) if kind == "COMPOSITE" else ()
        value = b64(self.digests.of(entry.file, _of_parts(ALGORITHMS[name], sizes))[0])
        return name, f"{value}-{len(sizes)}" if sizes else value, kind


def _of_parts(name: str, sizes: Sequence[int]) -> str:
    """Return the name of a hasher: over the whole object, or over its parts."""
    return f"parts:{name}:{','.join(map(str, sizes))}" if sizes else name


def make_token(last: str, is_prefix: bool) -> str:
    """Return the continuation token behind a key or a common prefix."""
    return base64.urlsafe_b64encode(f"{'p' if is_prefix else 'k'}{last}".encode()).decode()


def read_token(token: str) -> tuple[str, bool]:
    """Return (last, is a prefix) of a continuation token.

    Raises: ValueError for a token of another server.
    """
    text = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    if text[:1] not in ("p", "k"):
        raise ValueError(token)
    return text[1:], text[0] == "p"
