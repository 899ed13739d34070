"""Finds the places of a git repository that make git run programs: its hooks, and its settings (`fsmonitor` …).

The files are read as plain text. git itself is not started, because these files decide what it runs.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator
from typing import Literal

import msgspec

_MAX_BYTES = 256 * 1024
_SECTION = re.compile(r"\[\s*([\w.-]+)(?:\s+\"[^\"]*\")?\s*\]")
_SETTING = re.compile(r"^\s*([A-Za-z][\w-]*)\s*=\s*(.*?)\s*$")
_INERT = ("refs", "logs", "objects")
_ACTIVE = ("hooks", "config", "config.worktree", "commondir", "gitdir")


class GitPlace(msgspec.Struct, frozen=True):
    """A file or folder that decides what git executes; `kind` is the stand-in's kind while it is missing."""

    path: str
    kind: Literal["file", "folder"]


def git_places(project: str) -> list[GitPlace]:
    """Return these places of the project's repository, worktrees and submodules; without a repository, `.git`."""
    own = posixpath.join(project, ".git")
    folder = git_folder(own)
    if folder is None or not os.path.lexists(posixpath.join(folder, "HEAD")):
        return [GitPlace(own, "folder")]
    found = [GitPlace(own, "file")] if folder != own else []
    shared = _pointed(posixpath.join(folder, "commondir"), folder) or folder
    for each in (shared, *_folders(posixpath.join(shared, "worktrees"))):
        found += _active(each, project)
        for module in _modules(posixpath.join(each, "modules")):
            found += _active(module, _work_tree(module) or module)
    return list(dict.fromkeys(found))


def is_git_place(path: str) -> bool:
    """Whether a path's text names a `.git`, or a place inside one that decides what git executes, at any depth."""
    parts = path.casefold().split("/")
    if ".git" not in parts:
        return False
    inside = parts[parts.index(".git") + 1 :]
    if not inside:
        return True
    return inside[0] not in _INERT and any(part in _ACTIVE or part == ".git" for part in inside)


def _active(folder: str, work_tree: str) -> list[GitPlace]:
    """Return these places of one git folder; settings files that it includes from elsewhere are followed one step."""
    found: list[GitPlace] = []
    if not os.path.lexists(posixpath.join(folder, "commondir")):  # a worktree uses those of the shared folder
        found = [
            GitPlace(posixpath.join(folder, "hooks"), "folder"),
            GitPlace(posixpath.join(folder, "config"), "file"),
        ]
    for name in ("config.worktree", "commondir", "gitdir"):
        if os.path.lexists(posixpath.join(folder, name)):
            found.append(GitPlace(posixpath.join(folder, name), "file"))
    for section, name, value in _settings(posixpath.join(folder, "config")):
        if section == "core" and name == "hookspath":
            hooks = _joined(work_tree, value)
            # husky's hooks call scripts in the folder that contains theirs.
            found.append(GitPlace(posixpath.dirname(hooks) if hooks.endswith("/_") else hooks, "folder"))
        elif section in ("include", "includeif") and name == "path":
            found.append(GitPlace(_joined(folder, value), "file"))
    tree = _work_tree(folder)
    if tree is not None and tree != posixpath.dirname(folder):
        found.append(GitPlace(posixpath.join(tree, ".git"), "file"))
    return found


def _modules(folder: str, depth: int = 0) -> Iterator[str]:
    """Yield the git folders of submodules; a submodule's name may have slashes, and it may have submodules itself."""
    for path in _folders(folder):
        if posixpath.exists(posixpath.join(path, "HEAD")):
            yield path
            yield from _modules(posixpath.join(path, "modules"), depth + 1)
        elif depth < 16:
            yield from _modules(path, depth + 1)


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def git_folder(path: str) -> str | None:
    """Return the git folder: `.git` itself, or the folder that the file `.git` names."""
    if posixpath.isdir(path):
        return os.path.realpath(path)
    return _pointed(path, posixpath.dirname(path), "gitdir:")


def _pointed(file: str, base: str, mark: str = "") -> str | None:
    text = plain_text(file).strip()
    if not text.startswith(mark) or not text.removeprefix(mark).strip():
        return None
    return os.path.realpath(_joined(base, text.removeprefix(mark).strip()))


def _work_tree(folder: str) -> str | None:
    found = _settings(posixpath.join(folder, "config"))
    values = [value for section, name, value in found if (section, name) == ("core", "worktree")]
    return os.path.realpath(_joined(folder, values[-1])) if values else None


def _settings(file: str) -> Iterator[tuple[str, str, str]]:
    """Yield (section, name, value) of a git settings file, with names in lower case."""
    section = ""
    for line in plain_text(file).splitlines():
        head = _SECTION.match(line.strip())
        if head is not None:
            section, line = head[1].lower(), line.strip()[head.end() :]
        setting = _SETTING.match(line)
        if setting is not None and setting[2]:
            yield section, setting[1].lower(), setting[2].strip('"')


def plain_text(file: str) -> str:
    """Read a plain file; return an empty text for anything else, and do not block on a pipe."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        is_plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, _MAX_BYTES).decode("utf-8", "replace") if is_plain else ""
    finally:
        os.close(descriptor)


def _joined(base: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(base, os.path.expanduser(path)))  # noqa: PTH111 - letters only
