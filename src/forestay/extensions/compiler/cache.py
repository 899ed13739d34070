"""Artifacts kept by hash, and found again without compiling.

1. An artifact lives under its own hash, which covers manifest, bundle, engine and shims (Pi §2): never stale.
2. A remembered build names every file and folder that it looked at, with size, time and inode. It counts only when
   none of them has changed; anything else compiles again.
3. Files appear whole: written beside, then renamed.
4. What is found counts only under the seal of this host's data folder, which covers the build's path and every byte:
   who can write here cannot have code run that nobody compiled. A broken seal is told, and the build is made again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from forestay.extensions.compiler.artifact import (
    COMPILER_VERSION,
    ENGINE_VERSION,
    SHIM_VERSION,
    Artifact,
    digests_of,
    read_artifact,
)
from forestay.kernel import HOST_SECRET, Problem, Seal, canonical, derive, kept_secret, write_file

Refused = Callable[[str, str], None]
"""Hears of what was not as this host left it: what it is (index, artifact, bytecode), and its name."""


class Remembered(msgspec.Struct, frozen=True):
    """What a build looked at, and what it made."""

    hash: str
    root: str
    stamps: dict[str, tuple[int, ...] | None]


class Cache:
    """A folder of artifacts."""

    def __init__(self, folder: Path, seal: Seal, refused: Refused = lambda _what, _name: None) -> None:
        self.folder = folder
        self.seal = seal
        self._refused = refused

    def find(self, path: Path) -> Artifact | None:
        """The artifact of the extension at `path`, when nothing that it was made of has changed."""
        data = self._opened("index", self._index(path))
        if data is None:
            return None
        try:
            remembered = canonical.decode(data, Remembered)
        except Problem:
            return None  # of a version that remembered other things
        if any(stamp(name) != then for name, then in remembered.stamps.items()):
            return None
        return self.made(remembered.hash, remembered.root)

    def made(self, digest: str, root: str = "") -> Artifact | None:
        """The artifact with this hash, when it was made here before."""
        place = self._place(digest)
        sealed = self._opened("artifact", self._sealed(place))
        if sealed is None:
            return None
        try:
            return read_artifact(place, root, digests=canonical.decode(sealed, dict[str, str]))
        except Problem:
            self._refused("artifact", place.name)
            return None

    def keep(self, path: Path, artifact: Artifact, looked_at: list[str]) -> None:
        """Remember a build; `looked_at` are the files and folders that could change its outcome."""
        place, digests = self._place(artifact.meta.hash), digests_of(artifact.files())
        if not self._has(place, digests):
            beside = place.with_name(f"{place.name}.{os.getpid()}")
            shutil.rmtree(beside, ignore_errors=True)
            artifact.write(beside)
            shutil.rmtree(place, ignore_errors=True)  # something else lies there
            try:
                beside.rename(place)
            except OSError:  # another process was faster
                shutil.rmtree(beside, ignore_errors=True)
        stamps = {name: stamp(name) for name in sorted(set(looked_at))}
        self._close("artifact", self._sealed(place), canonical.encode(digests))
        self._close("index", self._index(path), canonical.encode(Remembered(artifact.meta.hash, artifact.root, stamps)))

    def _has(self, place: Path, digests: dict[str, str]) -> bool:
        try:
            read_artifact(place, digests=digests)
        except Problem:
            return False
        return True

    def _opened(self, what: str, file: Path) -> bytes | None:
        """What a file holds under our seal. That there is none is nothing to tell; that its seal is broken is."""
        try:
            whole = file.read_bytes()
        except OSError:
            return None
        data = self.seal.open(f"{what} {file.name}", whole)
        if data is None:
            self._refused(what, file.name)
        return data

    def _close(self, what: str, file: Path, data: bytes) -> None:
        write_file(file, self.seal.close(f"{what} {file.name}", data))

    def _place(self, digest: str) -> Path:
        return self.folder / "artifacts" / digest.removeprefix("sha256:")

    def _sealed(self, place: Path) -> Path:
        return self.folder / "sealed" / self.seal.id / place.name

    def _index(self, path: Path) -> Path:
        key = f"{path.resolve()}\n{ENGINE_VERSION}\n{SHIM_VERSION}\n{COMPILER_VERSION}"
        return self.folder / "index" / self.seal.id / hashlib.sha256(key.encode()).hexdigest()


def cache_folder() -> Path:
    """The cache of this user: FORESTAY_CACHE, or beside the packages of this environment."""
    named = os.environ.get("FORESTAY_CACHE")
    return Path(named) if named else Path(sys.prefix) / "share" / "forestay" / "cache"


def default_cache(data: Path | None, refused: Refused = lambda _what, _name: None) -> Cache | None:
    """The cache under the seal of a data folder; none without one, for there is no secret to seal with."""
    if data is None or not data.is_dir():
        return None
    try:
        secret = kept_secret(data / HOST_SECRET)
    except OSError:
        return None  # a folder that cannot be written, and has no secret yet
    return Cache(cache_folder(), Seal(derive(secret, "cache")), refused)


def stamp(name: str) -> tuple[int, ...] | None:
    """What changes when a file does; for a folder, when an entry comes or goes. None when there is nothing."""
    try:
        found = os.stat(name)  # noqa: PTH116 - thousands of them, each time that an extension is loaded
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
