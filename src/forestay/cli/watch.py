"""The files of a project that a developer edits, and how they differ from one look to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from forestay.kernel import PROJECT_FILE, Config

_MOST_FILES = 20_000
_SKIPPED = frozenset({"node_modules", "__pycache__", ".git", ".venv"})


class Seen(msgspec.Struct, frozen=True):
    """A file as it was when it was looked at."""

    changed_ns: int
    size: int
    owner: int


Look = Mapping[str, Seen]
"""Every watched file by its name in the project."""


def look(root: Path, config: Config) -> dict[str, Seen]:
    """The settings, node files, workflows, agents and extensions of a project, as they are now."""
    found: dict[str, Seen] = {}
    for path in _files(root, config):
        try:
            about = path.stat()
        except OSError:  # it is gone again
            continue
        found[os.path.relpath(path, root)] = Seen(about.st_mtime_ns, about.st_size, about.st_uid)
        if len(found) >= _MOST_FILES:
            break
    return found


def differences(before: Look, after: Look) -> list[str]:
    """The files that came, went or changed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def of_others(found: Look, owner: int) -> list[str]:
    """The files that belong to somebody else: what another person wrote is not trusted unseen."""
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
    """A file, or the files of a folder; links are not followed."""
    if path.is_file():
        yield path
        return
    for folder, names, files in os.walk(path):
        names[:] = [name for name in names if name not in _SKIPPED]
        yield from (Path(folder) / name for name in files)
