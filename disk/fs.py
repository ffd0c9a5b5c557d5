"""The operations that change a disk; every change uses them.

Each operation calls a hook before and after, so that tests can kill the process or inject an error at each of them in
turn. They never follow links and never cross mounts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, cast

import orjson

from disk.layout import DIRECTORY_MODE, FILE_MODE

Moment = Literal["before", "after"]
Hook = Callable[[Moment, str, Path], None]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # Linux renameat2(2)
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)
_CANNOT_LINK = (errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_CANNOT_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF)
_COPY = 64 * 1024 * 1024  # bytes for one call of copy_file_range(2)
_DEEPEST_TREE = 64
_LARGEST_RECORD = 16 * 1024 * 1024  # bytes; far more than any record has
_READ = 1024 * 1024  # bytes


class Fs:
    """Mutating file-system operations; each one calls `hook` before and after.

    `can_link`, `can_exchange`: False behaves like a file system without the feature (tests; some network file systems).
    """

    def __init__(self, hook: Hook | None = None, *, can_link: bool = True, can_exchange: bool = True) -> None:
        self._hook = hook
        self._can_link = can_link
        self._can_exchange = can_exchange

    @contextlib.contextmanager
    def _operation(self, name: str, path: Path) -> Iterator[None]:
        if self._hook is None:
            yield
            return
        self._hook("before", name, path)
        yield
        self._hook("after", name, path)

    # -- directories ------------------------------------------------------------------------------------------------

    def ensure_directory(self, path: Path) -> None:
        """Create one directory (its parent exists) with the mode that servers can read. Raises: OSError."""
        if is_directory(path):
            with contextlib.suppress(PermissionError):  # of another owner, who chooses its mode
                self.chmod(path, DIRECTORY_MODE)  # a kill between mkdir and chmod leaves the mode of the umask
            return
        with self._operation("mkdir", path):
            try:
                path.mkdir(mode=DIRECTORY_MODE)
            except FileExistsError:
                if not is_directory(path):  # a link or a file with this name: never follow it
                    raise
                return
        self.chmod(path, DIRECTORY_MODE)

    def make_directory(self, path: Path) -> None:
        """Create one directory that must not exist. Raises: OSError."""
        with self._operation("mkdir", path):
            path.mkdir(mode=DIRECTORY_MODE)
        self.chmod(path, DIRECTORY_MODE)

    def chmod(self, path: Path, mode: int) -> None:
        """Set permission bits if they differ, because an inherited umask can hide files from the server."""
        if stat.S_IMODE(path.lstat().st_mode) & 0o777 == mode:
            return  # keeps the setgid bit of a volume with fsGroup
        with self._operation("chmod", path):
            path.chmod(mode)

    def sync_directory(self, path: Path) -> None:
        """Make the entries of a directory durable, where the file system supports it."""
        with self._operation("fsync_directory", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _fsync(fd)
            finally:
                os.close(fd)

    # -- names ------------------------------------------------------------------------------------------------------

    def rename(self, source: Path, target: Path) -> None:
        """rename(2). Raises: OSError."""
        with self._operation("rename", target):
            source.rename(target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange two directories in one step; False: not supported by file system or kernel. Raises: OSError."""
        if not self._can_exchange:
            return False
        renameat2 = _renameat2()
        if renameat2 is None:
            return False
        with self._operation("exchange", other):
            code = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
            if code != 0:
                number = ctypes.get_errno()
                if number in _CANNOT_EXCHANGE:
                    return False
                raise OSError(number, os.strerror(number), str(other))
        return True

    def link_or_copy(self, source: Path, target: Path) -> None:
        """Create a hard link to a stored file; where the file system has none, copy it. Raises: OSError."""
        if self._can_link:
            with self._operation("link", target):
                try:
                    os.link(source, target, follow_symlinks=False)
                    return
                except OSError as error:
                    if error.errno not in _CANNOT_LINK:
                        raise
        self._copy(source, target)

    def _copy(self, source: Path, target: Path) -> None:
        with self._operation("copy", target):
            with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
                _copy_bytes(reader, writer)
                os.fsync(writer.fileno())
            times = source.stat()
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.chmod(target, FILE_MODE)

    def unlink(self, path: Path) -> None:
        """Remove one file or link, if it exists. Raises: OSError."""
        with self._operation("unlink", path), contextlib.suppress(FileNotFoundError):
            path.unlink()

    def touch(self, path: Path) -> None:
        """Set the times of a file to now, by the clock of the file server. Raises: OSError."""
        with self._operation("utime", path):
            os.utime(path)

    # -- contents ---------------------------------------------------------------------------------------------------

    def open_for_writing(self, path: Path) -> int:
        """Open a file for writes at offsets; never follows a link. Raises: OSError."""
        with self._operation("create", path):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)

    def open_for_locking(self, path: Path) -> int:
        """Open or create a lock file. Raises: OSError."""
        with self._operation("create", path):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)

    def write_at(self, fd: int, data: bytes | memoryview, offset: int, path: Path) -> None:
        """Write all of `data` at `offset`. Raises: OSError."""
        with self._operation("write", path):
            view = memoryview(data)
            while view:
                count = os.pwrite(fd, view, offset)
                view, offset = view[count:], offset + count

    def sync_file(self, fd: int, path: Path) -> None:
        """Make the bytes of a file durable. Raises: OSError."""
        with self._operation("fsync", path):
            _fsync(fd)

    def write_record(self, path: Path, record: object, scratch: Path) -> None:
        """Replace a JSON file atomically and durably: a reader sees the old or the new one. Raises: OSError.

        `scratch`: a folder of the same file system that the reaper cleans after a crash.
        """
        temporary = scratch / f"record--{path.name[:100]}--{unique()}"
        fd = self.open_for_writing(temporary)
        try:
            self.write_at(fd, orjson.dumps(record, option=orjson.OPT_INDENT_2), 0, temporary)
            self.sync_file(fd, temporary)
        finally:
            os.close(fd)
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    # -- removal ----------------------------------------------------------------------------------------------------

    def remove_tree(self, path: Path) -> int:
        """Delete a directory tree, a file or a link, if it exists, and return the freed bytes. Raises: OSError.

        Follows no link and crosses no mount.
        """
        try:
            info = path.lstat()
        except FileNotFoundError:
            return 0
        if not stat.S_ISDIR(info.st_mode):
            self.unlink(path)
            return _freed(info)
        return self._remove_directory(path, info.st_dev, 0)

    def _remove_directory(self, path: Path, device: int, depth: int) -> int:
        if depth > _DEEPEST_TREE:
            raise OSError(errno.ELOOP, "the tree is deeper than any that aim-adapters creates", str(path))
        freed = 0
        try:
            entries = sorted(path.iterdir())
        except FileNotFoundError:
            return 0
        for entry in entries:
            try:
                info = entry.lstat()
            except FileNotFoundError:
                continue  # another process removed it first
            if stat.S_ISDIR(info.st_mode):
                if info.st_dev != device:
                    raise OSError(errno.EXDEV, "another file system is mounted there", str(entry))
                freed += self._remove_directory(entry, device, depth + 1)
            else:
                self.unlink(entry)
                freed += _freed(info)
        with self._operation("rmdir", path), contextlib.suppress(FileNotFoundError):
            path.rmdir()
        return freed


def is_directory(path: Path) -> bool:
    """Return whether this is a directory, not a link to one. Raises: OSError, except for a missing one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_there(path: Path) -> bool:
    """Return whether anything has this name, even a broken link. Raises: OSError, except for a missing one."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def file_size(path: Path) -> int | None:
    """Return the size in bytes of a regular file (not a link), or None. Raises: OSError, except for a missing one."""
    try:
        info = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None


def read_record(path: Path) -> dict[str, Any] | None:
    """Read a JSON object of aim-adapters; None when it is missing or not valid. Raises: OSError."""
    size = file_size(path)
    if size is None or size > _LARGEST_RECORD:
        return None
    try:
        record = orjson.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return cast("dict[str, Any]", record) if isinstance(record, dict) else None


def list_names(path: Path) -> list[str]:
    """Return the names in a directory, sorted; none when it is missing. Raises: OSError."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def unique() -> str:
    """Return a word that no other process uses for its scratch."""
    return secrets.token_hex(6)


def _copy_bytes(reader: IO[bytes], writer: IO[bytes]) -> None:
    """Copy a file within one file system: as a reflink or on the file server, where supported."""
    try:
        while os.copy_file_range(reader.fileno(), writer.fileno(), _COPY):
            pass
        if os.fstat(writer.fileno()).st_size == os.fstat(reader.fileno()).st_size:
            return  # some file systems return early without an error
    except OSError as error:
        if error.errno not in _CANNOT_COPY:
            raise
    reader.seek(0)
    writer.seek(0)
    shutil.copyfileobj(reader, writer, _READ)


def _freed(info: os.stat_result) -> int:
    return info.st_size if info.st_nlink <= 1 else 0


def _fsync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def _renameat2() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return cast("Callable[..., int]", function)
