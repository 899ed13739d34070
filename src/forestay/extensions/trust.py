"""Workspace trust: a folder's extensions are listed, and do not run until a person trusts their content.

The user's own folder needs trust in the same way. pi runs extensions there without asking; but somebody else may have
put a file there or changed one, and earlier trust in the folder should not make it run.

Invariants:

- T1  Trust belongs to a folder and a content hash; a changed, added or removed file ends it.
- T2  Listing and hashing execute nothing and follow no link out of the folder.
- T3  Without a person, the answer is no, and the Problem names the command that would change it.
- T4  Everything that is loaded is inside the hashed content, wherever links lead.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.extensions.packages import SETTINGS, named
from forestay.kernel import Draft, Ledger, Problem, Record, former, iso

STREAM = "trust"
FOLDERS = (".pi/extensions", ".forestay/extensions")
USER_FOLDERS = (".forestay/extensions", ".holdfast/extensions", ".pi/agent/extensions")  # beneath the home folder
# Texts are not executed, but the model follows them: a skill or a prompt speaks in the user's name.
TEXTS = tuple(f"{base}/{name}" for base in (".pi", ".forestay") for name in ("skills", "prompts", "themes"))
PACKAGES = tuple(SETTINGS)
MAX_FILES = 20_000
MAX_BYTES = 256 * 1024 * 1024
_CODE = (".ts", ".js", ".mts", ".mjs", ".cts", ".cjs", ".wasm")


class Places(msgspec.Struct, frozen=True):
    """Where a folder keeps its extensions, texts and packages. The user's own texts need no trust."""

    folders: tuple[str, ...]
    texts: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    mark: str = ""
    """A prefix of the folder's name in the records: a home folder may also be a project."""
    trusted_by: str = "forestay ext trust ."


PROJECT = Places(FOLDERS, TEXTS, PACKAGES)
USER = Places(USER_FOLDERS, mark="user:", trusted_by="forestay ext trust --user")


class Brought(msgspec.Struct, frozen=True):
    """Something in a project folder that the host would execute, or the model would follow."""

    path: str
    kind: Literal["file", "folder", "texts", "packages", "package"]


class Standing(msgspec.Struct, frozen=True):
    """The trust of a folder: what it brings, its current hash, and the trusted hash."""

    folder: str
    brings: tuple[Brought, ...]
    digest: str
    trusted: str | None
    since: str | None = None

    @property
    def state(self) -> Literal["nothing", "untrusted", "changed", "trusted"]:
        if not self.brings:
            return "nothing"
        if self.trusted is None:
            return "untrusted"
        return "trusted" if self.trusted == self.digest else "changed"


class Trust:
    """The decisions about folders, on one ledger. `paths` are further places from the configuration."""

    def __init__(self, ledger: Ledger, paths: Sequence[str] = (), places: Places = PROJECT) -> None:
        self._ledger = ledger
        self._paths = tuple(paths)
        self._places = places

    def _named(self, folder: Path) -> str:
        return self._places.mark + os.path.realpath(folder)

    async def standing(self, project: Path) -> Standing:
        folder = self._named(project)
        found = _latest(await self._ledger.read(STREAM), folder)
        trusted = found if found is not None and found.type == "trust.given" else None
        digest, given = content_hash(project, self._paths, self._places), trusted.payload["digest"] if trusted else None
        if given not in (None, digest) and given == self._formerly(project):
            given = digest  # the same content, in the folder that was renamed
        return Standing(
            folder,
            tuple(brought(project, self._paths, self._places)),
            digest,
            given,
            iso(trusted.ts) if trusted else None,
        )

    def _formerly(self, project: Path) -> str:
        """Return the content hash with the file names of 0.1."""
        return content_hash(project, self._paths, self._places, spelled=former.former_path)

    async def give(self, project: Path, *, by: str = "user", digest: str | None = None) -> Standing:
        """Trust the folder's current content; with `digest`, only if the content still has that hash."""
        standing = await self.standing(project)
        if digest is not None and digest != standing.digest:
            raise Problem("conflict", "The folder has changed since it was reviewed.", folder=project.name)
        if standing.brings:
            await self._record("trust.given", standing.folder, standing.digest, by)
        return await self.standing(project)

    async def withdraw(self, project: Path, *, by: str = "user") -> None:
        digest = content_hash(project, self._paths, self._places)
        await self._record("trust.withdrawn", self._named(project), digest, by)

    async def require(self, project: Path) -> Standing:
        """Return the standing if the current content is trusted or there is none; else raise a Problem (T3)."""
        standing = await self.standing(project)
        if standing.state in ("trusted", "nothing"):
            return standing
        what = "has changed since it was trusted" if standing.state == "changed" else "has not been trusted"
        raise Problem(
            "folder_untrusted",
            f"This {'folder' if self._places.mark else 'project'} brings extensions, and the folder {what}.",
            brings=[item.path for item in standing.brings],
            digest=standing.digest,
            trusted=standing.trusted,
            fix=f"Look at the files, then run: {self._places.trusted_by}",
        )

    def check(self, project: Path, entry: Path) -> None:
        """Refuse to load through a link that leads out of the trusted content (T4)."""
        places = [project / name for name in (*self._places.folders, *self._paths)]
        places = [place for place in places if not place.is_symlink()]
        if self._places.packages:
            places.extend(named(project).trees)
        real = entry.resolve()
        if not any(real.is_relative_to(place.resolve()) for place in places):
            raise Problem(
                "extension_invalid",
                f"{entry.name} is a link out of the trusted content: its target could change unnoticed.",
                at=entry.name,
                fix="Copy the extension into the folder.",
            )

    async def _record(self, kind: str, folder: str, digest: str, by: str) -> None:
        await self._ledger.append(STREAM, [Draft(kind, {"folder": folder, "digest": digest, "by": by})])


def brought(project: Path, paths: Sequence[str] = (), places: Places = PROJECT) -> list[Brought]:
    """List what the host would execute from the project, without reading the files (T2)."""
    found: list[Brought] = []
    for name in (*places.folders, *paths):
        folder = project / name
        if name in paths and folder.is_file() and not folder.is_symlink():
            found.append(Brought(name, "file"))
        if folder.is_symlink() or not folder.is_dir():
            continue
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                found.append(Brought(f"{name}/{entry.name}", "folder"))
            elif entry.suffix in _CODE:
                found.append(Brought(f"{name}/{entry.name}", "file"))
    found.extend(Brought(name, "texts") for name in places.texts if _has_texts(project / name))
    if not places.packages:
        return found
    found.extend(Brought(name, "packages") for name in places.packages if (project / name).is_file())
    root = project.resolve()
    settings = named(project)
    spots = [package.folder for package in settings.packages if package.folder is not None]
    spots += [path for kind, path in settings.paths if kind == "extension"]
    found.extend(Brought(place.relative_to(root).as_posix(), "package") for place in spots)
    return found


def _has_texts(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and any(folder.iterdir())


def content_hash(
    project: Path, paths: Sequence[str] = (), places: Places = PROJECT, spelled: Callable[[str], str] = str
) -> str:
    """Return the SHA-256 over the names, kinds and contents of everything that the project brings (T1, T2)."""
    digest = hashlib.sha256()
    total = 0
    for count, (name, path) in enumerate(files(project, paths, places), start=1):
        facts = path.lstat()
        total += facts.st_size if stat.S_ISREG(facts.st_mode) else 0
        if count > MAX_FILES or total > MAX_BYTES:
            raise Problem(
                "payload_too_large",
                f"The project's extensions exceed {MAX_FILES} files or {MAX_BYTES} bytes.",
                files=count,
                bytes=total,
            )
        name = spelled(name)
        digest.update(f"{len(name)}:{name}".encode("utf-8", "surrogateescape"))
        if stat.S_ISLNK(facts.st_mode):
            # Only the link itself is hashed: content outside the folder can change unnoticed.
            digest.update(b"link" + os.fsencode(path.readlink()))
        elif stat.S_ISREG(facts.st_mode):
            digest.update(b"file%d:" % facts.st_size)
            _feed(digest, path)
        else:
            digest.update(b"other")
    return "sha256:" + digest.hexdigest()


def files(project: Path, paths: Sequence[str] = (), places: Places = PROJECT) -> Iterator[tuple[str, Path]]:
    """Yield everything that the content hash covers: the name in the project, and the path (T2)."""
    for name in (*places.folders, *paths, *places.texts):
        yield from _tree(project, project / name)
    if not places.packages:
        return
    for name in places.packages:
        if (project / name).is_file():
            yield name, project / name
    root = project.resolve()
    for tree in named(project).trees:
        yield from _tree(root, tree)


def _tree(project: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    if folder.is_symlink() or folder.is_file():
        yield folder.relative_to(project).as_posix(), folder
    elif folder.is_dir():
        for base, folders, files in os.walk(folder):
            folders.sort()
            links = [entry for entry in folders if Path(base, entry).is_symlink()]
            for entry in sorted((*files, *links)):
                path = Path(base, entry)
                yield path.relative_to(project).as_posix(), path


def _feed(digest: Any, path: Path) -> None:
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)


def _latest(records: list[Record], folder: str) -> Record | None:
    return next((record for record in reversed(records) if record.payload["folder"] == folder), None)
