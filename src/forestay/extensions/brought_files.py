"""The files of a project's extensions, for the person who decides whether they may run: name, size, hash and text.

V1  Listing executes nothing and follows no link.
V2  The shown files and texts are limited, and the rest is counted; the content hash covers everything.
"""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from forestay.extensions.profiles import Project
from forestay.extensions.trust import Standing, files

MOST_FILES = 200
MOST_BYTES = 32 * 1024
MOST_TEXT = 256 * 1024


class FileSeen(msgspec.Struct, frozen=True):
    """One file; `text` is None when it is not text or too long to show."""

    name: str
    bytes: int
    digest: str
    text: str | None


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """The folder's current content and its trust."""

    name: str
    standing: Standing
    files: tuple[FileSeen, ...]
    more: int
    runs: str | None
    """The content hash at the time of loading; None when the host has loaded nothing from the project."""

    @property
    def is_older(self) -> bool:
        """Whether the host still runs an older content of the folder."""
        return self.runs is not None and self.runs != self.standing.digest


async def brought(project: Project) -> Brought:
    standing = await project.standing()
    seen, more = await asyncio.to_thread(_seen, project.root, project.settings.paths)
    return Brought(name=project.root.name, standing=standing, files=tuple(seen), more=more, runs=project.runs)


def _seen(root: Path, paths: Sequence[str]) -> tuple[list[FileSeen], int]:
    found: list[FileSeen] = []
    more, room = 0, MOST_TEXT
    for name, path in dict(files(root, paths)).items():
        if len(found) == MOST_FILES:
            more += 1
            continue
        file = _file(name, path, room)
        room -= len(file.text or "")
        found.append(file)
    return found, more


def _file(name: str, path: Path, room: int) -> FileSeen:
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        return FileSeen(name, 0, "", f"a link to {path.readlink()}")
    if not stat.S_ISREG(facts.st_mode):
        return FileSeen(name, 0, "", None)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if facts.st_size > min(MOST_BYTES, room):
            return FileSeen(name, facts.st_size, digest, None)
        file.seek(0)
        data = file.read(MOST_BYTES)
    try:
        text = None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        text = None
    return FileSeen(name, facts.st_size, digest, text)
