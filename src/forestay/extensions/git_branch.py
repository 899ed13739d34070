"""The branch that a folder is on, as git's own files say it; no program is started.

B1  The repository is that of the folder or of the nearest folder above it; a worktree has its own HEAD.
B2  Only the name behind `refs/heads/` is told, so that a `.git` that points elsewhere shows nothing of what lies there.
"""

from __future__ import annotations

import posixpath

import msgspec

from forestay.extensions.git_places import git_folder, plain_text

DETACHED = "detached"
_HEADS = "ref: refs/heads/"
_UNTOLD = ".invalid"  # what HEAD says where the branches are kept in tables
_LONGEST = 255


class Repository(msgspec.Struct, frozen=True):
    """Where a folder's branch is told: `mark` is the `.git` that was found, `head` the file with the branch."""

    mark: str
    head: str


def repository(folder: str) -> Repository | None:
    """The repository of a folder (B1)."""
    while True:
        mark = posixpath.join(folder, ".git")
        if posixpath.lexists(mark):
            found = git_folder(mark)
            return Repository(mark, posixpath.join(found, "HEAD")) if found is not None else None
        above = posixpath.dirname(folder)
        if above == folder:
            return None
        folder = above


def branch_of(place: Repository) -> str | None:
    """The branch; `detached` where HEAD is a commit, None where nothing tells it (B2)."""
    said = plain_text(place.head).strip()
    if not said.startswith(_HEADS):
        return DETACHED if said else None
    name = said.removeprefix(_HEADS)
    return None if name == _UNTOLD else name[:_LONGEST]
