"""Keeps protected places unchanged while a program may write around them.

L1  A protected place can be read but not changed; a secret place is hidden.
L2  No folder above a protected place can be moved: else something else could take its place.
L3  A missing protected place cannot be created: an empty stand-in takes its place, or its folder allows nothing new.
L4  A link cannot be mounted over, so nothing can be created or moved in the folder that contains it.

`mounts` does this with mounts. `beside` does it with Landlock, whose rights cannot be taken away again deeper in a
tree: it allows each neighbour of a protected place, and nothing new in the folder that contains them.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from forestay.extensions.protection import Kind, Protected

Mode = Literal["fixed", "standing", "hidden", "held", "open"]
"""`fixed`: read-only. `standing`: a read-only stand-in. `hidden`: not visible. `held`: a separate mount that nothing
can move. `open`: writable inside a fixed folder."""
_MOST_ENTRIES = 1000


class Confinement(msgspec.Struct, frozen=True):
    """The limits of one command."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False
    places: tuple[Protected, ...] = ()
    """Protected places inside `read` and `write`."""


class Mount(msgspec.Struct, frozen=True):
    mode: Mode
    path: str
    shown: tuple[str, ...] = ()
    """The entries of a hidden folder that can still be read."""


class Layout(msgspec.Struct, frozen=True):
    """The writable paths, the mounts over them from the outermost to the innermost, and the stand-ins (L3)."""

    write: tuple[str, ...]
    mounts: tuple[Mount, ...]
    stand_ins: tuple[tuple[str, Kind], ...]


def mounts(limits: Confinement) -> Layout:
    """Plan L1 to L4 for a sandbox that can mount."""
    plan = _Plan(limits)
    for place in sorted(limits.places, key=lambda place: place.path.count("/")):
        plan.add(place)
    return plan.layout()


class _Plan:
    def __init__(self, limits: Confinement) -> None:
        self.read = (*limits.read, *limits.write)  # protected places inside may still be read
        self.write = _writable(limits)
        self.found: dict[str, Mount] = {}
        self.frozen: set[str] = set()
        self.stand_ins: dict[str, Kind] = {}

    def add(self, place: Protected) -> None:
        path = place.path
        around = [folder for folder in self.write if _inside(path, folder)]
        if not around or self._covered(path):
            readable = any(_inside(path, folder) for folder in self.read) and not self._covered(path, "hidden")
            if place.secret and readable and os.path.lexists(path) and not posixpath.islink(path):
                self.found[path] = Mount("hidden", path, place.shown)
            return
        self._hold(path, around)
        missing = _first_missing(path)
        if missing is not None:
            self._keep_away(missing, place.stand_in if missing == path else place.stand_in and "folder")
        elif posixpath.islink(path):
            self.frozen.add(posixpath.dirname(path))  # L4
        else:
            self.found[path] = Mount("hidden", path, place.shown) if place.secret else Mount("fixed", path)
            if place.stand_in is not None and not place.secret and _is_empty(path):
                self.stand_ins[path] = place.stand_in  # perhaps another program's, which would remove it

    def _covered(self, path: str, *modes: Mode) -> bool:
        """Whether the path is inside a mount of these modes (by default: one that the command cannot change)."""
        wanted = modes or ("fixed", "standing", "hidden")
        return any(mount.mode in wanted and _inside(path, mount.path) for mount in self.found.values())

    def _hold(self, path: str, around: Iterable[str]) -> None:
        """Hold every folder between a writable path and the place (L2)."""
        for folder in around:
            above = posixpath.dirname(path)
            while _inside(above, folder) and above != folder:
                if posixpath.isdir(above):
                    self.found.setdefault(above, Mount("held", above))
                above = posixpath.dirname(above)

    def _keep_away(self, missing: str, kind: Kind | None) -> None:
        if kind is None:
            self.frozen.add(posixpath.dirname(missing))
        else:
            self.stand_ins[missing] = kind
            self.found[missing] = Mount("standing", missing)

    def layout(self) -> Layout:
        for folder in sorted(self.frozen):
            if not self._covered(folder):
                for entry in _entries(folder):
                    self.found.setdefault(entry, Mount("open", entry))
                self.found[folder] = Mount("fixed", folder)
        ordered = sorted(self.found.values(), key=lambda mount: mount.path.count("/"))
        return Layout(self.write, tuple(ordered), tuple(self.stand_ins.items()))


def beside(limits: Confinement) -> Confinement:
    """Plan L1 to L4 without mounts: replace each folder around a protected place by the other entries in it."""
    write = [part for path in _writable(limits) for part in _beside(path, [place.path for place in limits.places])]
    secret = [place for place in limits.places if place.secret]
    read = [part for path in (*limits.read, *limits.write) for part in _beside(path, [place.path for place in secret])]
    read += [posixpath.join(place.path, name) for place in secret for name in place.shown]
    return Confinement(tuple(read), tuple(write), limits.network)


def _beside(path: str, places: Sequence[str]) -> list[str]:
    if any(_inside(path, place) for place in places):
        return []
    if not any(_inside(place, path) for place in places):
        return [path]
    return [part for entry in _entries(path) for part in _beside(entry, places)]


def _writable(limits: Confinement) -> tuple[str, ...]:
    """Return the writable paths outside all protected places."""
    return tuple(path for path in limits.write if not any(_inside(path, place.path) for place in limits.places))


def _entries(folder: str) -> list[str]:
    """Return a folder's entries without links: those cannot be mounted over, and no rule covers their targets."""
    try:
        with os.scandir(folder) as found:
            entries = [entry.path for entry in found if not entry.is_symlink() and _plain(entry)]
    except OSError:
        return []
    return sorted(entries) if len(entries) <= _MOST_ENTRIES else []


def _plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)


def _first_missing(path: str) -> str | None:
    """Return the outermost part of a path that does not exist."""
    missing = None
    while path != "/" and not os.path.lexists(path):
        missing, path = path, posixpath.dirname(path)
    return missing


def _is_empty(path: str) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - as everywhere here, paths are text
        return not os.listdir(path) if stat.S_ISDIR(found.st_mode) else found.st_size == 0  # noqa: PTH208
    except OSError:
        return False


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
