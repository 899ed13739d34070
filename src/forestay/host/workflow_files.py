"""The workflow documents of a folder: the host stores them when it opens, and names those that it cannot store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forestay.kernel import Problem, canonical, redact_text
from forestay.runs import RESERVED, Runs

_MAX_REASON = 300
_OF_THE_FILE = (400, 413, 422)  # the document is wrong; every other status is a fault of the host


class LeftOut(msgspec.Struct, frozen=True):
    """A file without a workflow that can run here. An earlier revision of it in the ledger still runs."""

    file: str
    problem: str
    reason: str


class Found(msgspec.Struct, frozen=True):
    """The result for a folder: the ids of the stored workflows, and the files that were left out."""

    stored: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __add__(self, other: Found) -> Found:
        return Found(self.stored + other.stored, self.left_out + other.left_out)


async def load_workflows(runs: Runs, folder: Path, *, strict: bool = False) -> Found:
    """Store every `*.json` of a folder for all tenants. Leave out invalid files; with `strict`, raise a Problem."""
    stored: list[str] = []
    left_out: list[LeftOut] = []
    for path in _documents(folder):
        try:
            document: dict[str, Any] = canonical.decode(_read(path), dict)
            if str(document.get("id")).startswith(RESERVED):
                raise Problem("workflow_invalid", f"Ids that begin with {RESERVED} are the host's own.", at="$.id")
            stored.append((await runs.put_workflow(document, tenant=None)).workflow_id)
        except Problem as problem:
            if strict or problem.row.http not in _OF_THE_FILE:
                raise Problem(problem.key, f"{path.name}: {problem.message}", **problem.details) from problem
            left_out.append(LeftOut(path.name, problem.key, redact_text(problem.message)[:_MAX_REASON]))
    return Found(tuple(stored), tuple(left_out))


def _documents(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise Problem("not_found", f"There is no folder {folder.name}.", at="workflows")
    return sorted(folder.glob("*.json"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Problem("workflow_invalid", f"The file cannot be read: {error.strerror}.") from error
