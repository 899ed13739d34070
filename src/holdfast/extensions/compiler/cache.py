"""Artifacts kept by hash, and found again without compiling.

1. An artifact lives under its own hash, which covers manifest, bundle, engine and shims (Pi §2): never stale.
2. A remembered build names every file and folder that it looked at, with size, time and inode. It counts only when
   none of them has changed; anything else compiles again.
3. Files appear whole: written beside, then renamed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import msgspec

from holdfast.extensions.compiler.artifact import (
    CODE_FILE,
    COMPILER_VERSION,
    ENGINE_VERSION,
    MAP_FILE,
    META_FILE,
    SHIM_VERSION,
    Artifact,
    read_artifact,
)
from holdfast.kernel import canonical
from holdfast.kernel.problems import Problem


class Remembered(msgspec.Struct, frozen=True):
    """What a build looked at, and what it made."""

    hash: str
    root: str
    stamps: dict[str, tuple[int, ...] | None]
    files: dict[str, tuple[int, ...] | None]


class Cache:
    """A folder of artifacts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, path: Path) -> Artifact | None:
        """The artifact of the extension at `path`, when nothing that it was made of has changed."""
        try:
            remembered = canonical.decode(self._index(path).read_bytes(), Remembered)
        except (OSError, Problem):
            return None
        if any(stamp(name) != then for name, then in remembered.stamps.items()):
            return None
        place = self._place(remembered.hash)
        try:
            # Files that nobody touched since they were written need no second hashing.
            return read_artifact(place, remembered.root, is_trusted=_stamps(place) == remembered.files)
        except Problem:
            return None

    def made(self, digest: str) -> Artifact | None:
        """The artifact with this hash, when it was made here before."""
        try:
            return read_artifact(self._place(digest), "")
        except Problem:
            return None

    def keep(self, path: Path, artifact: Artifact, looked_at: list[str]) -> None:
        """Remember a build; `looked_at` are the files and folders that could change its outcome."""
        place = self._place(artifact.meta.hash)
        if not (place / META_FILE).exists():
            beside = place.with_name(f"{place.name}.{os.getpid()}")
            shutil.rmtree(beside, ignore_errors=True)
            artifact.write(beside)
            try:
                beside.rename(place)
            except OSError:  # another process was faster
                shutil.rmtree(beside, ignore_errors=True)
        stamps = {name: stamp(name) for name in sorted(set(looked_at))}
        index = self._index(path)
        index.parent.mkdir(parents=True, exist_ok=True)
        beside_index = index.with_name(f"{index.name}.{os.getpid()}")
        beside_index.write_bytes(
            canonical.encode(Remembered(artifact.meta.hash, artifact.root, stamps, _stamps(place)))
        )
        beside_index.replace(index)

    def _place(self, digest: str) -> Path:
        return self.folder / "artifacts" / digest.removeprefix("sha256:")

    def _index(self, path: Path) -> Path:
        key = f"{path.resolve()}\n{ENGINE_VERSION}\n{SHIM_VERSION}\n{COMPILER_VERSION}"
        return self.folder / "index" / hashlib.sha256(key.encode()).hexdigest()


def default_cache() -> Cache:
    """The cache of this user: HOLDFAST_CACHE, or beside the packages of this environment."""
    named = os.environ.get("HOLDFAST_CACHE")
    return Cache(Path(named) if named else Path(sys.prefix) / "share" / "holdfast" / "cache")


def _stamps(place: Path) -> dict[str, tuple[int, ...] | None]:
    return {name: stamp(str(place / name)) for name in (CODE_FILE, MAP_FILE, META_FILE)}


def stamp(name: str) -> tuple[int, ...] | None:
    """What changes when a file does; for a folder, when an entry comes or goes. None when there is nothing."""
    try:
        found = os.stat(name)  # noqa: PTH116 - thousands of them, each time that an extension is loaded
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
