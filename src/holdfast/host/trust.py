"""Which extensions of a project may be loaded: those whose content a person has said yes to.

T1  Trust is given to a content, not to a path: a changed extension is asked about again.
T2  Finding out costs a compilation and executes nothing (Pi §2A).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.kernel import canonical
from holdfast.kernel.ledger import Draft, Ledger
from holdfast.kernel.problems import Problem

STREAM = "trust"


class Candidate(msgspec.Struct, frozen=True):
    """An extension that the project names: where it is, what its content is, and whether a person trusts that."""

    path: str
    digest: str
    trusted: bool
    problem: Problem | None = None


class Trust:
    """The decisions on one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def give(self, path: str, digest: str, *, by: str = "person") -> None:
        await self._ledger.append(STREAM, [Draft("trust.given", {"path": path, "digest": digest, "by": by})])

    async def take(self, digest: str, *, by: str = "person") -> None:
        await self._ledger.append(STREAM, [Draft("trust.taken", {"digest": digest, "by": by})])

    async def digests(self) -> set[str]:
        held: set[str] = set()
        for record in await self._ledger.read(STREAM):
            change = held.add if record.type == "trust.given" else held.discard
            change(record.payload["digest"])
        return held

    async def candidates(self, root: Path, paths: Iterable[str]) -> list[Candidate]:
        """Every extension that `paths` name beneath `root`, compiled and not executed."""
        held = await self.digests()
        found: list[Candidate] = []
        for text in paths:
            try:
                for entry in _entries((root / text).resolve()):
                    digest = _digest(entry)
                    found.append(Candidate(str(entry), digest, digest in held))
            except Problem as problem:
                found.append(Candidate(str(root / text), "", False, problem))
        return found


def _entries(path: Path) -> list[Path]:
    """The extension at `path`, or those in it when it is a folder of extensions."""
    from holdfast.extensions.compiler.source import discover, folder_entries, sources

    if path.is_dir() and not folder_entries(path):
        return discover(path)
    return [source.entry for source in sources(path)]


def _digest(entry: Path) -> str:
    """What a person trusts: the sources and what the manifest asks for, not the compiler that read them."""
    from holdfast.extensions.compiler import build
    from holdfast.extensions.compiler.cache import default_cache

    meta = build(entry, cache=default_cache()).meta
    return canonical.digest({"sources": meta.source_hash, "manifest": msgspec.to_builtins(meta.manifest)})
