"""Reads a folder's branch from git's own files, without starting git.

B1  The repository is that of the folder or of the nearest folder above it; a worktree has its own HEAD.
B2  Only a name after `refs/heads/` is returned, so that a `.git` that points elsewhere reveals no other content.
"""

from __future__ import annotations

import posixpath

import msgspec

from forestay.extensions.git_places import git_folder, plain_text

DETACHED = "detached"
_HEADS = "ref: refs/heads/"
_UNTOLD = ".invalid"  # the branch in HEAD when the repository stores its refs in tables (reftable)
_LONGEST = 255


class Repository(msgspec.Struct, frozen=True):
    """A git repository: `mark` is its `.git`, `head` the file with the branch."""

    mark: str
    head: str


def repository(folder: str) -> Repository | None:
    """Return the repository of a folder (B1)."""
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
    """Return the branch; `detached` when HEAD is a commit, None when it is unknown (B2)."""
    said = plain_text(place.head).strip()
    if not said.startswith(_HEADS):
        return DETACHED if said else None
    name = said.removeprefix(_HEADS)
    return None if name == _UNTOLD else name[:_LONGEST]
