"""What a project folder brings, for the person who decides whether it may run: every file, its size, hash and text.

V1  Looking executes nothing and follows no link.
V2  What is shown is bounded, and what is left out is counted; the content hash covers all of it.
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
    """One file; `text` is None when it is no text, or too long to be shown."""

    name: str
    bytes: int
    digest: str
    text: str | None


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """The folder as it is now, and where it stands."""

    name: str
    standing: Standing
    files: tuple[FileSeen, ...]
    more: int
    runs: str | None
    """The hash of what the host has loaded; None when it loaded nothing of the project."""

    @property
    def is_older(self) -> bool:
        """Whether the host still runs something else than what the folder has now."""
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
