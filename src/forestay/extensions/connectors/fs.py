"""The file system of an extension: real files beneath its roots, each operation a decision of policy (P6).

Operations that read: read, list, stat, realpath, access, exists, readlink, watch.
Operations that write: write, append, mkdir, delete, rename, copy, chmod, utimes, symlink, mkdtemp, truncate.
"""

from __future__ import annotations

import base64
import binascii
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, io_problem, number, text
from forestay.extensions.connectors.paths import Place, glance, outside, resolve
from forestay.extensions.connectors.watch import watch
from forestay.kernel import Problem, Randomness, SystemRandomness

MAX_READ_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 100_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
          stat.S_IFSOCK: "socket", stat.S_IFCHR: "character", stat.S_IFBLK: "block"}  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class FsConnector:
    method = "fs"

    def __init__(self, randomness: Randomness | None = None) -> None:
        self._randomness = randomness or SystemRandomness()

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        options = params.get("options")
        if options is not None and isinstance(options, Mapping):
            params = {**options, **params}
        asked = params.get("op")
        operation = _OPERATIONS.get(asked) if isinstance(asked, str) else None
        if operation is None:
            raise Problem("invalid_request", f"There is no file operation {text(params, 'op')!r}.", at="$.params.op")
        try:
            return operation(self, call, params)
        except OSError as error:
            raise io_problem(error, params.get("path")) from error

    def read(self, call: Call, params: Mapping[str, Any]) -> Output:
        offset, length = 0, MAX_READ_BYTES
        if "offset" in params or "length" in params:
            offset = number(params, "offset", 0)
            length = number(params, "length", MAX_READ_BYTES, most=MAX_READ_BYTES)
        with _opened(call, params, "read", _READ) as (descriptor, facts):
            if params.get("length") is None and facts.st_size - offset > MAX_READ_BYTES:
                raise OSError(errno.EFBIG, f"a read may take {MAX_READ_BYTES} bytes; read it in parts")
            data = _read_all(descriptor, offset, length, facts.st_size)
        if params.get("encoding") == "utf8":
            return {"text": data.decode("utf-8", "replace")}
        return {"base64": base64.b64encode(data).decode()}

    def write(self, call: Call, params: Mapping[str, Any]) -> Output:
        flag = text(params, "flag", "w")
        data = _data(params)
        flags = _FLAGS.get(flag)
        if flags is None:
            raise Problem("invalid_request", f"The flag {flag!r} does not write.", at="$.params.flag")
        offset = params.get("offset")
        if offset is not None:
            flags &= ~os.O_TRUNC
        mode = number(params, "mode", 0o666, most=0o7777) & 0o777
        with _opened(call, params, "write", _WRITE | flags, mode) as (descriptor, _):
            if offset is not None:
                os.lseek(descriptor, number(params, "offset", 0), os.SEEK_SET)
            _write_all(call, descriptor, data)
        return {"bytes": len(data)}

    def append(self, call: Call, params: Mapping[str, Any]) -> Output:
        return self.write(call, {**params, "flag": "a", "offset": None})

    def truncate(self, call: Call, params: Mapping[str, Any]) -> Output:
        with _opened(call, params, "write", _WRITE) as (descriptor, _):
            os.ftruncate(descriptor, number(params, "length", 0, most=MAX_READ_BYTES))
        return {}

    def list(self, call: Call, params: Mapping[str, Any]) -> Output:
        with (
            _place(call, params, "read") as place,
            _open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as folder,
        ):
            entries: list[dict[str, str]] = []
            with os.scandir(folder) as found:
                for entry in found:
                    if len(entries) >= MAX_ENTRIES:
                        raise OSError(errno.EOVERFLOW, f"the folder has more than {MAX_ENTRIES} entries")
                    entries.append({"name": entry.name, "kind": _kind(entry.stat(follow_symlinks=False).st_mode)})
        entries.sort(key=lambda entry: entry["name"])
        return {"entries": entries}

    def stat(self, call: Call, params: Mapping[str, Any]) -> Output:
        return _facts(_seen(call, params, follow=params.get("follow") is not False))

    def access(self, call: Call, params: Mapping[str, Any]) -> Output:
        mode = number(params, "mode", 0, most=7)
        if mode == os.F_OK:
            _seen(call, params)
            return {}
        with _place(call, params, "read") as place:
            place.stat()
            name = place.name or "."
            if mode & os.W_OK and not place.root.writable:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            if not os.access(name, mode, dir_fd=place.folder):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return {}

    def exists(self, call: Call, params: Mapping[str, Any]) -> Output:
        """Whether something is there; that nothing is, is an answer and no failure."""
        try:
            near = _near(call, params)
            if near is None:
                with _place(call, params, "read") as place:
                    place.stat()
        except OSError:
            return {"exists": False}
        return {"exists": near is None or near.found is not None}

    def realpath(self, call: Call, params: Mapping[str, Any]) -> Output:
        with _place(call, params, "read") as place:
            place.stat()
            return {"path": place.real}

    def readlink(self, call: Call, params: Mapping[str, Any]) -> Output:
        with _place(call, params, "read", follow=False) as place:
            return {"path": os.readlink(place.name or ".", dir_fd=place.folder)}

    def mkdir(self, call: Call, params: Mapping[str, Any]) -> Output:
        path, recursive = text(params, "path"), params.get("recursive") is True
        mode = number(params, "mode", 0o777, most=0o7777) & 0o777
        try:
            with _place(call, params, "write", follow=recursive) as place:
                if not place.name:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                os.mkdir(place.name, mode, dir_fd=place.folder)
                return {"first": path}
        except (FileExistsError, Problem) as error:
            refused = isinstance(error, Problem) and error.key != "path_protected"
            if recursive and not refused and self._is_folder(call, path):
                return {"first": None}
            raise
        except FileNotFoundError:
            parent = posixpath.dirname(path.rstrip("/"))
            if not recursive or not parent:
                raise
        first = self.mkdir(call, {**params, "path": parent})["first"]
        self.mkdir(call, {**params, "recursive": False})
        return {"first": first or path}

    def _is_folder(self, call: Call, path: str) -> bool:
        there = self.exists(call, {"path": path})["exists"]
        return bool(there and self.stat(call, {"path": path})["kind"] == "directory")

    def mkdtemp(self, call: Call, params: Mapping[str, Any]) -> Output:
        prefix = text(params, "prefix")
        for _ in range(100):
            path = prefix + "".join(_LETTERS[byte % len(_LETTERS)] for byte in self._randomness.bytes(6))
            try:
                self.mkdir(call, {"path": path, "mode": 0o700})
            except FileExistsError:
                continue
            return {"path": path}
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))

    def delete(self, call: Call, params: Mapping[str, Any]) -> Output:
        kind = params.get("kind")
        try:
            with _place(call, params, "write", follow=False) as place:
                _delete(call, place, kind=kind, recursive=params.get("recursive") is True)
        except FileNotFoundError:
            if params.get("force") is not True:
                raise
        return {}

    def rename(self, call: Call, params: Mapping[str, Any]) -> Output:
        target = {"path": text(params, "to")}
        with _place(call, params, "write", follow=False) as old, _place(call, target, "write", follow=False) as new:
            if not old.name or not new.name:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            if new.root.private and not old.root.private:
                # What is moved to where the extension reads without asking is read.
                call.policy.permit("read", call.roots.named(old))
            os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)
        return {}

    def copy(self, call: Call, params: Mapping[str, Any]) -> Output:
        target = {"path": text(params, "to")}
        exclusive = os.O_EXCL if params.get("exclusive") is True else os.O_TRUNC
        call.policy.permit("read", call.roots.resource(text(params, "path")))
        with _place(call, params, "read") as old, _open(old, _READ) as source:
            mode = os.fstat(source).st_mode & 0o777
            with _place(call, target, "write") as new:
                if _same(source, new):
                    return {}
                with _open(new, _WRITE | os.O_CREAT | exclusive, mode) as sink:
                    while data := os.read(source, 1 << 20):
                        call.check()
                        _write_all(call, sink, data)
        return {}

    def chmod(self, call: Call, params: Mapping[str, Any]) -> Output:
        mode = number(params, "mode", 0o666, most=0o7777) & 0o777  # never setuid, setgid or sticky
        with _place(call, params, "write") as place:
            descriptor = os.open(place.name or ".", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.folder)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)
        return {}

    def utimes(self, call: Call, params: Mapping[str, Any]) -> Output:
        times = (float(number(params, "atime_ms", 0)) / 1000, float(number(params, "mtime_ms", 0)) / 1000)
        with _place(call, params, "write") as place:
            os.utime(place.name or ".", times, dir_fd=place.folder, follow_symlinks=False)
        return {}

    def symlink(self, call: Call, params: Mapping[str, Any]) -> Output:
        """A link may only point to where the extension may go itself, else others would follow it out (F2)."""
        target, path = text(params, "target"), text(params, "path")
        call.roots.locate(target if target.startswith("/") else posixpath.join(posixpath.dirname(path), target))
        with _place(call, params, "write", follow=False) as place:
            os.symlink(target, place.name, dir_fd=place.folder)
        return {}

    def watch(self, call: Call, params: Mapping[str, Any]) -> Output:
        with _place(call, params, "read") as place:
            place.stat()
            if not call.streaming:
                raise Problem("invalid_request", "A watch is a streamed call.", at="$.params.op")
            return watch(call, place, recursive=params.get("recursive") is True)


_OPERATIONS: dict[str, Callable[[FsConnector, Call, Mapping[str, Any]], Output]] = {
    name: getattr(FsConnector, name)
    for name in (
        "read", "list", "stat", "realpath", "access", "exists", "readlink", "watch", "write", "append", "mkdir",
        "delete", "rename", "copy", "chmod", "utimes", "symlink", "mkdtemp", "truncate",
    )
}  # fmt: skip
_FLAGS = {
    "w": os.O_CREAT | os.O_TRUNC,
    "wx": os.O_CREAT | os.O_TRUNC | os.O_EXCL,
    "w+": os.O_CREAT | os.O_TRUNC,
    "wx+": os.O_CREAT | os.O_TRUNC | os.O_EXCL,
    "a": os.O_CREAT | os.O_APPEND,
    "ax": os.O_CREAT | os.O_APPEND | os.O_EXCL,
    "a+": os.O_CREAT | os.O_APPEND,
    "ax+": os.O_CREAT | os.O_APPEND | os.O_EXCL,
    "r+": 0,
    "rs+": 0,
}


@contextmanager
def _place(call: Call, params: Mapping[str, Any], capability: str, *, follow: bool = True) -> Iterator[Place]:
    """The place that `params.path` names, after policy has allowed where it really is."""
    with resolve(call.roots, text(params, "path"), follow=follow) as place:
        _permit(call, place, capability)
        yield place


def _permit(call: Call, place: Place, capability: str) -> None:
    resource = call.roots.named(place)
    if resource is not None:
        call.policy.permit(capability, resource)
    if capability == "write":
        if not place.root.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        call.roots.spare(place)


@contextmanager
def _opened(
    call: Call, params: Mapping[str, Any], capability: str, flags: int, mode: int = 0o666
) -> Iterator[tuple[int, os.stat_result]]:
    """The plain file that `params.path` names, open, and what is known of it."""
    near = call.roots.direct(text(params, "path")) if capability == "read" else None
    if near is not None:
        _permit(call, near, capability)
        try:
            descriptor = os.open(near.real, flags, mode)
        except OSError as error:
            if error.errno != errno.ELOOP:  # it is a link: that takes the walk
                raise
        else:
            with _plain(descriptor, flags) as facts:
                yield descriptor, facts
            return
    with _place(call, params, capability) as place, _open(place, flags, mode) as descriptor:
        yield descriptor, os.fstat(descriptor)


def _seen(call: Call, params: Mapping[str, Any], *, follow: bool = True) -> os.stat_result:
    """What is there, after policy has allowed where it really is."""
    near = _near(call, params)
    if near is not None:
        return near.stat()
    with _place(call, params, "read", follow=follow) as place:
        return place.stat()


def _near(call: Call, params: Mapping[str, Any]) -> Place | None:
    """What stands directly in a root, after policy has allowed it; None when it takes a walk to tell."""
    place = glance(call.roots, text(params, "path"))
    if place is not None:
        _permit(call, place, "read")
    return place


@contextmanager
def _open(place: Place, flags: int, mode: int = 0o666) -> Iterator[int]:
    """An open descriptor of the place; only plain files and folders, so that no pipe or device can hold us up."""
    try:
        descriptor = os.open(place.name or ".", flags, mode, dir_fd=place.folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise outside(place.name) from None
        raise
    with _plain(descriptor, flags):
        yield descriptor


@contextmanager
def _plain(descriptor: int, flags: int) -> Iterator[os.stat_result]:
    """What an open descriptor is of: a plain file, or a folder that was asked for; then it is closed."""
    try:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode) and not flags & os.O_DIRECTORY:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        yield facts
    finally:
        os.close(descriptor)


def _same(source: int, place: Place) -> bool:
    try:
        return os.path.samestat(os.fstat(source), place.stat())
    except FileNotFoundError:
        return False


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "unknown")


def _facts(found: os.stat_result) -> Output:
    return {
        "kind": _kind(found.st_mode), "size": found.st_size, "mode": found.st_mode, "uid": found.st_uid,
        "gid": found.st_gid, "ino": found.st_ino, "dev": found.st_dev, "nlink": found.st_nlink,
        "blocks": getattr(found, "st_blocks", 0), "blksize": getattr(found, "st_blksize", 4096),
        "atime_ms": found.st_atime_ns / 1e6, "mtime_ms": found.st_mtime_ns / 1e6, "ctime_ms": found.st_ctime_ns / 1e6,
        "birthtime_ms": getattr(found, "st_birthtime", found.st_ctime_ns / 1e9) * 1e3,
    }  # fmt: skip


def _read_all(descriptor: int, offset: int, length: int, size: int) -> bytes:
    """At most `length` bytes from `offset` on; a file is as long as it was when it was opened, as in Node."""
    parts = []
    length = min(length, max(0, size - offset)) if size else length  # what is made as it is read says it has no size
    while length > 0:
        data = os.pread(descriptor, min(length, 1 << 20), offset)
        if not data:
            break
        parts.append(data)
        offset += len(data)
        length -= len(data)
    return b"".join(parts)


def _write_all(call: Call, descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        call.wrote += written
        view = view[written:]


def _data(params: Mapping[str, Any]) -> bytes:
    if isinstance(params.get("data"), Mapping):
        params = params["data"]
    if "base64" not in params:
        value = params.get("data", params.get("text", ""))
        if not isinstance(value, str):
            raise Problem("schema_mismatch", "`text` must be a string.", at="$.params.text")
        return value.encode("utf-8", "replace")
    try:
        return base64.b64decode(str(params["base64"]), validate=True)
    except binascii.Error as error:
        raise Problem("schema_mismatch", "`base64` is not base64.", at="$.params.base64") from error


def _delete(call: Call, place: Place, *, kind: Any, recursive: bool) -> None:
    if not place.name:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    is_folder = stat.S_ISDIR(place.stat().st_mode)
    if kind == "file" and is_folder:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind == "directory" and not is_folder:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not is_folder:
        os.unlink(place.name, dir_fd=place.folder)
    elif recursive:
        _delete_tree(call, place.folder, place.name)
    else:
        os.rmdir(place.name, dir_fd=place.folder)


def _delete_tree(call: Call, parent: int, name: str) -> None:
    """Remove a folder through descriptors; links inside it are removed, never followed (F1)."""
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if call.roots.keeps(folder):
            raise outside(name)
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            call.check()
            if entry.is_dir(follow_symlinks=False):
                _delete_tree(call, folder, entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
