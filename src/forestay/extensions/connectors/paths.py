"""Paths of an untrusted caller, resolved beneath the folders that it may use.

Invariants:

- F1  A path is used only through descriptors of folders that were opened one component at a time without
      following links, so that what is checked is what is used, whatever is renamed meanwhile.
- F2  A link is followed only to a place beneath one of the roots; `..` never climbs above its root.
- F3  The kernel's own file systems (/proc, /sys, /dev) are never reachable, not even beneath a granted root.
- F4  Of the host's data folder (its ledger, its secret) only what a project brings in it is reachable, and what is
      protected (settings, the host's own code, git's hooks …) cannot be changed, made, moved or replaced, whatever
      was granted: else a grant could make itself larger.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from forestay.extensions.git_places import is_git_place
from forestay.extensions.protection import BROUGHT, LASTING, Protected
from forestay.kernel import Problem

_MAX_LINKS = 40
_MAX_PATH = 4096
_SHORT, _MAX_KNOWN = 256, 1024  # characters of paths that are remembered, and how many of them
_KERNEL_TREES = ("/proc", "/sys", "/dev")
_BENEATH_KERNEL_TREES = tuple(f"{tree}/" for tree in _KERNEL_TREES)
NO_FOLDER = -1
_NOTHING = (0, 0)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(msgspec.Struct, frozen=True):
    """What is the host's own (F4). Letters are compared without their case, as some file systems do."""

    places: tuple[Protected, ...]
    table: tuple[tuple[str, Protected], ...]
    secrets: frozenset[str]
    folder: str = ""
    identity: tuple[int, int] = _NOTHING
    """Of the data folder, when it is one of its own."""
    lifted: tuple[str, ...] = ()
    """What a person lifted, by name or path."""

    @classmethod
    def of(cls, places: Sequence[Protected], lifted: Sequence[str] = ()) -> Kept:
        table = tuple((_folded(item.path), item) for item in places)
        secrets = frozenset(path for path, item in table if item.secret and not item.shown)
        folder = next((os.path.realpath(item.path) for item in places if item.shown), "")
        try:
            found = os.stat(folder) if folder else None  # noqa: PTH116 - as everywhere here, paths are text
        except FileNotFoundError:
            found = None
        identity = (found.st_dev, found.st_ino) if found is not None else _NOTHING
        return cls(tuple(places), table, secrets, folder, identity, tuple(lifted))

    def holds(self, path: str, inner: str) -> Protected | None:
        """The place that a change of `path` would touch: one that it is, lies in, or has in it.

        `inner` is the path within its root: a repository may lie anywhere in there.
        """
        folded = _folded(path)
        for known, item in self.table:
            if _beneath(known, folded) is not None:
                return item
            rest = _beneath(folded, known)
            if rest is not None and rest.partition("/")[0] not in item.shown:
                return item
        return Protected("git", path) if is_git_place(inner) and "git" not in self.lifted else None

    def is_linked(self, found: os.stat_result) -> Protected | None:
        """The protected file that this is another name of (a hard link)."""
        for item in self.places if found.st_nlink > 1 and stat.S_ISREG(found.st_mode) else ():
            try:
                if os.path.samestat(os.stat(item.path), found):  # noqa: PTH116
                    return item
            except OSError:
                continue
        return None


class Root(msgspec.Struct, frozen=True):
    """A folder that may be used. `name` is how the caller spells it, `real` where it is."""

    name: str
    real: str
    writable: bool = True
    private: bool = False
    """A folder that belongs to the extension alone (its temporary folder): policy scopes do not cut it."""
    identity: tuple[int, int] | None = None
    """Which folder it must be, looked at on each use, where something else could be put in its place (F1, F4)."""


class Roots(msgspec.Struct, frozen=True):
    """All folders that one extension may use; relative paths start at `cwd`."""

    cwd: str
    items: tuple[Root, ...]
    spelled: tuple[tuple[str, str, Root], ...] = ()
    """Each spelling of each root, its prefix and the root, made once: every call of an extension looks here."""
    kept: Kept | None = None
    known: dict[str, Spot] = msgspec.field(default_factory=dict)
    """Short paths that were located by their letters, which mean the same again."""

    @classmethod
    def of(
        cls,
        project: Path | str,
        *,
        extension: Path | str | None = None,
        temp: Path | str | None = None,
        extra: Sequence[tuple[Path | str, bool]] = (),
        kept: Kept | None = None,
    ) -> Roots:
        """The project (cwd), the extension's own folder (read only), its private temp, and granted folders."""
        items = [_root(project)]
        if extension is not None:
            items.append(_root(extension, writable=False, private=True))
        if temp is not None:
            items.append(_root(temp, private=True))
        items.extend(_root(path, writable=writable) for path, writable in extra)
        items = [_pinned(root, items, kept) for root in items if not _covered(root, items)]
        spelled = [(name, _prefix(name), root) for root in items for name in dict.fromkeys((root.name, root.real))]
        return cls(items[0].name, tuple(items), tuple(spelled), kept)

    @property
    def temp(self) -> str | None:
        """The extension's private temporary folder."""
        return next((root.real for root in self.items if root.private and root.writable), None)

    def locate(self, path: str, *, follow: bool = True) -> tuple[Root, str]:
        """The root that `path` lies in and the rest of the path: by its letters, else by where links lead."""
        if len(path) > _MAX_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if path == "":
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        known = self.known.get(path)
        if known is not None:
            return known.root, known.rest
        whole = posixpath.normpath(posixpath.join(self.cwd, path))
        by_letters = self._located(whole)
        found = by_letters or self._located(_led(whole, follow))
        if found is None or _kernel_tree(whole):
            raise outside(path)
        if by_letters is not None and len(path) <= _SHORT:
            self._remember(path, *by_letters)
        return found

    def _remember(self, path: str, root: Root, rest: str) -> None:
        if len(self.known) >= _MAX_KNOWN:
            self.known.clear()
        named = self._named(root, posixpath.join(root.real, rest) if rest else root.real)
        self.known[path] = Spot(root, rest, named, self._direct(root, rest))

    def _located(self, whole: str) -> tuple[Root, str] | None:
        best: tuple[Root, str] | None = None
        for name, prefix, root in self.spelled:
            rest = "" if whole == name else whole[len(prefix) :] if whole.startswith(prefix) else None
            if rest is not None and (best is None or len(rest) < len(best[1])):
                best = root, rest
        return best

    def resource(self, path: str, *, follow: bool = True) -> str | None:
        """How policy names `path`: relative to the project, absolute elsewhere, None in the extension's own folders.

        Elsewhere it is where links lead: a person who is asked about it decides about that.
        """
        known = self.known.get(path)
        if known is not None:
            return known.resource
        try:
            root, rest = self.locate(path, follow=follow)
        except (Problem, OSError):
            whole = posixpath.normpath(posixpath.join(self.cwd, path))
            return _led(whole, follow) if len(whole) <= _MAX_PATH else whole
        return self._named(root, posixpath.join(root.real, rest) if rest else root.real)

    def named(self, place: Place) -> str | None:
        """How policy names the place that a walk has reached, or that lies directly in a root."""
        if place.folder == NO_FOLDER and place.root is self.items[0]:
            return place.name
        return self._named(place.root, place.real)

    def spare(self, place: Place) -> None:
        """Refuse to change what is protected, or a folder that has it (F4)."""
        if self.kept is None:
            return
        inner = "" if place.root.private else _beneath(place.real, place.root.real) or ""
        held = self.kept.holds(place.real, inner)
        if held is None and place.folder != NO_FOLDER:
            with contextlib.suppress(FileNotFoundError):
                held = self.kept.is_linked(place.stat())
        if held is not None:
            raise protected_problem(place.name or ".", held)
        if self.keeps(place.folder, place.name or "."):
            raise outside(place.name)

    def guarded(self, capability: str, resource: str | None) -> Protected | None:
        """The protected place that a call would change, by the letters of what policy decides about."""
        if self.kept is None or capability != "write" or resource is None:
            return None
        path = posixpath.join(self.items[0].real, resource)
        held = self.kept.holds(path, resource)
        # A folder that has it is for the walk to judge: to make one that is there changes nothing.
        return None if held is None or _beneath(_folded(held.path), _folded(path)) else held

    def keeps(self, folder: int, name: str = ".") -> bool:
        """Whether `name` in an open folder is the host's data folder."""
        if self.kept is None:
            return False
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.kept.identity

    def hides(self, real: str) -> bool:
        """Whether a place is one of the host's secrets, or lies in one."""
        secrets = self.kept.secrets if self.kept is not None else ()
        folded = _folded(real) if secrets else ""
        return any(_beneath(folded, path) is not None for path in secrets)

    def _named(self, root: Root, real: str) -> str | None:
        if root.private:
            return None
        rest = _beneath(real, self.items[0].real)
        return real if rest is None else rest or "."

    def direct(self, path: str) -> Place | None:
        """The place of something directly in a root, by its letters alone; None when it takes a walk to get there.

        It has no descriptor, and needs none as long as its end is not followed: between the root, which is the system's
        to resolve, and the end there is nothing that could be a link (F1). An end that is one is for the walk.
        """
        known = self.known.get(path)
        return known.place if known is not None else self._direct(*self.locate(path))

    def _direct(self, root: Root, rest: str) -> Place | None:
        if not rest or "/" in rest or root.identity is not None:
            return None
        real = _prefix(root.real) + rest
        return None if _kernel_tree(real) or self.hides(real) else Place(NO_FOLDER, rest, real, root)


class Spot(msgspec.Struct, frozen=True):
    """What the letters of a path say: its root, the rest, how policy names it, and its place if that is direct."""

    root: Root
    rest: str
    resource: str | None
    place: Place | None


class Place(msgspec.Struct, frozen=True):
    """A resolved path: an open descriptor of the folder, the last component's name, and where that is."""

    folder: int
    name: str
    """Empty when the path is the root itself; `folder` is then the root."""
    real: str
    root: Root
    found: os.stat_result | None = None
    """What was found there on the way, when the end was looked at: it is no link."""

    def stat(self) -> os.stat_result:
        """What is there, links not followed."""
        if self.found is not None:
            return self.found
        if self.folder == NO_FOLDER:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return os.stat(self.name or ".", dir_fd=self.folder, follow_symlinks=False)


def glance(roots: Roots, path: str) -> Place | None:
    """What stands at `path`, directly in a root, with one look; None when it takes a walk to tell."""
    place = roots.direct(path)
    if place is None:
        return None
    try:
        found = os.stat(place.real, follow_symlinks=False)  # noqa: PTH116 - every call of an extension comes by here
    except FileNotFoundError:
        return place
    return None if stat.S_ISLNK(found.st_mode) else Place(NO_FOLDER, place.name, place.real, place.root, found)


@contextmanager
def resolve(roots: Roots, path: str, *, follow: bool = True) -> Iterator[Place]:
    """Walk to `path` (F1, F2). With `follow`, a link at the end is followed as well; a missing end is fine."""
    root, rest = roots.locate(path, follow=follow)
    walk = _Walk(roots, root, path)
    try:
        yield walk.to(rest, follow=follow)
    finally:
        walk.close()


class _Walk:
    def __init__(self, roots: Roots, root: Root, path: str) -> None:
        self._roots = roots
        self._path = path
        self._root = root
        self._links = 0
        self._stack: list[tuple[int, str]] = []
        self._start(root)

    def _start(self, root: Root) -> None:
        self.close()
        self._root = root
        self._stack = [(os.open(root.real, _FOLDER & ~os.O_NOFOLLOW), root.real)]
        if root.identity is not None:
            found = os.fstat(self._stack[0][0])
            if (found.st_dev, found.st_ino) != root.identity:
                self.close()
                raise outside(self._path)

    def close(self) -> None:
        for descriptor, _ in self._stack:
            os.close(descriptor)
        self._stack = []

    def to(self, rest: str, *, follow: bool) -> Place:
        parts = [part for part in rest.split("/") if part not in ("", ".")][::-1]
        while parts:
            part = parts.pop()
            if part == "..":
                self._up()
                continue
            folder, here = self._stack[-1]
            if part not in BROUGHT and self._roots.keeps(folder):
                raise outside(self._path)
            if not parts and not follow:
                return self._place(folder, part, here)
            if parts and self._enter(folder, part, here):
                continue
            found = self._seen(folder, part)
            if found is not None and stat.S_ISLNK(found.st_mode):
                parts.extend(self._follow(self._link(folder, part))[::-1])
            elif not parts:
                return self._place(folder, part, here, found)
            elif found is None or not stat.S_ISDIR(found.st_mode):
                number = errno.ENOENT if found is None else errno.ENOTDIR
                raise OSError(number, os.strerror(number))
            else:  # it was no folder when we went in, and is one now: nothing that we looked at is used
                raise outside(self._path)
        folder, here = self._stack[-1]
        return self._place(folder, "", here)

    def _enter(self, folder: int, part: str, here: str) -> bool:
        """Go into a folder that is no link (F1); False when it is something else."""
        try:
            self._stack.append((os.open(part, _FOLDER, dir_fd=folder), posixpath.join(here, part)))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
                return False
            raise
        return True

    def _place(self, folder: int, name: str, here: str, found: os.stat_result | None = None) -> Place:
        real = posixpath.join(here, name) if name else here
        if _kernel_tree(real) or self._roots.hides(real):
            raise outside(self._path)
        return Place(folder, name, real, self._root, found)

    def _up(self) -> None:
        if len(self._stack) == 1:
            raise outside(self._path)
        os.close(self._stack.pop()[0])

    def _seen(self, folder: int, part: str) -> os.stat_result | None:
        try:
            return os.stat(part, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _link(self, folder: int, part: str) -> str:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.readlink(part, dir_fd=folder)

    def _follow(self, target: str) -> list[str]:
        """The components to walk from here on, after a link that points to `target`."""
        if not target.startswith("/"):
            return [part for part in target.split("/") if part not in ("", ".")]
        try:
            root, rest = self._roots.locate(posixpath.normpath(target))
        except Problem:
            raise outside(self._path) from None
        self._start(root)
        return [part for part in rest.split("/") if part]


def outside(path: str) -> Problem:
    return Problem(
        "path_outside_root",
        f"{path!r} lies outside the folders that this extension may use.",
        errno="EACCES",
        path=path,
        fix="Use a path beneath the project, or grant the folder by name.",
    )


def protected_problem(path: str, held: Protected) -> Problem:
    lift = "No grant and no setting opens it."
    if held.name not in LASTING:
        lift = f'If you need it: `unprotected = ["{held.name}"]` under [extensions] in the settings.'
    return Problem(
        "path_protected",
        f"{path!r} is protected ({held.name}: {held.why}).",
        errno="EACCES",
        path=path,
        protected=held.name,
        fix=lift,
    )


def _root(path: Path | str, *, writable: bool = True, private: bool = False) -> Root:
    name = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - letters only: links stay as spelled
    return Root(name, os.path.realpath(name), writable, private)


def _covered(root: Root, items: Sequence[Root]) -> bool:
    """A granted folder in the project needs no root of its own: policy cuts, and a walk watches each step to it."""
    return root is not items[0] and not root.private and bool(_beneath(root.real, items[0].real))


def _pinned(root: Root, items: Sequence[Root], kept: Kept | None) -> Root:
    """The root, held to what it is now where a program that may write around it could replace it."""
    around = any(other.writable and _beneath(root.real, other.real) for other in items)
    try:
        found = os.stat(root.real)  # noqa: PTH116 - as everywhere here, paths are text
        identity = (found.st_dev, found.st_ino)
    except FileNotFoundError:
        identity = _NOTHING
    return msgspec.structs.replace(root, identity=identity) if around or (kept and identity == kept.identity) else root


def _prefix(folder: str) -> str:
    return folder if folder.endswith("/") else folder + "/"


def _led(path: str, follow: bool) -> str:
    """Where links lead on the way to a path, and at its end when that is followed: letters for a walk to use (F1)."""
    if follow:
        return os.path.realpath(path)
    return posixpath.join(os.path.realpath(posixpath.dirname(path)), posixpath.basename(path))


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _beneath(path: str, folder: str) -> str | None:
    if path == folder:
        return ""
    prefix = _prefix(folder)
    return path[len(prefix) :] if path.startswith(prefix) else None


def _kernel_tree(path: str) -> bool:
    return path.startswith(_BENEATH_KERNEL_TREES) or path in _KERNEL_TREES
