"""Watches the files that a developer edits: how they differ from one look to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from forestay.kernel import PROJECT_FILE, Config

_MOST_FILES = 20_000
_SKIPPED = frozenset({"node_modules", "__pycache__", ".git", ".venv"})


class Seen(msgspec.Struct, frozen=True):
    """A file at the time of a look."""

    changed_ns: int
    size: int
    owner: int


Look = Mapping[str, Seen]
"""Every watched file by its path in the project."""


def look(root: Path, config: Config) -> dict[str, Seen]:
    """Return the current state of a project's settings, node files, workflows, agents and extensions."""
    found: dict[str, Seen] = {}
    for path in _files(root, config):
        try:
            about = path.stat()
        except OSError:  # deleted meanwhile
            continue
        found[os.path.relpath(path, root)] = Seen(about.st_mtime_ns, about.st_size, about.st_uid)
        if len(found) >= _MOST_FILES:
            break
    return found


def differences(before: Look, after: Look) -> list[str]:
    """Return the files that were added, removed or changed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def of_others(found: Look, owner: int) -> list[str]:
    """Return the files of other owners: what another person wrote is not trusted unseen."""
    return sorted(name for name, seen in found.items() if seen.owner != owner)


def _files(root: Path, config: Config) -> Iterator[Path]:
    from forestay.extensions import trust_files

    yield from (path for path in [root / PROJECT_FILE] if path.is_file())
    yield from (root / name for name in config.workflows.nodes)
    for name in (*config.workflows.paths, *config.agents.paths):
        yield from _below(root / name)
    for _, path in trust_files(root, config.extensions.paths):
        if not _SKIPPED & set(path.parts):
            yield path


def _below(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder; links are not followed."""
    if path.is_file():
        yield path
        return
    for folder, names, files in os.walk(path):
        names[:] = [name for name in names if name not in _SKIPPED]
        yield from (Path(folder) / name for name in files)
