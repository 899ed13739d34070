"""Files and folders as sources of a session: ingested, replaced when they change, taken back when they are gone."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from forestay.cli.documents import read_source
from forestay.cli.files import fix_of, shown
from forestay.cli.output import note
from forestay.kernel import Problem

if TYPE_CHECKING:
    from forestay.relay import ExtractionResult, Session

_FILE_LIMIT = 50_000_000
_LABEL = 200  # characters of a source's name
_EMPTY = "Write a text into it."
_LOOKS_SECONDS = 1.0
_INGEST = "ingest:"
_TOTALS = ("facts", "superseded", "quarantined", "taken_back")


class _Source(NamedTuple):
    """A file to read; without a label it replaces no earlier source. `named`: the caller named this very file."""

    path: Path
    label: str | None
    named: bool


def _sources(paths: list[Path], skipped: list[dict[str, str]]) -> list[_Source]:
    """Return the files in the order of `paths`; a folder gives its files by name, without hidden ones."""
    found: list[_Source] = []
    for path in paths:
        if path.is_dir():
            found += [_Source(file, _label(file), False) for file in _below(path, skipped)]
        else:
            found.append(_Source(path, _label(path) if path.is_file() else None, True))
    return found


def _below(folder: Path, skipped: list[dict[str, str]]) -> list[Path]:
    """Return the files below a folder, by name; add what is no readable file to `skipped`."""
    found: list[Path] = []

    def shut(error: OSError) -> None:
        reason = f"The folder {error.filename} cannot be read: {error.strerror}."
        skipped.append({"path": str(error.filename), "reason": reason, "fix": "Make it readable."})

    for place, folders, files in os.walk(folder, onerror=shut):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(place) / name for name in files if not name.startswith(".")):
            if file.is_file():
                found.append(file)
            else:
                what = "leads nowhere" if file.is_symlink() else "is a pipe, a socket or a device"
                skipped.append(
                    {"path": str(file), "reason": f"{file} {what}.", "fix": "Name it by itself, if you mean it."}
                )
    return sorted(found)


def _label(path: Path) -> str:
    """Return a file's source label: its relative path, so that two files of one name are two sources."""
    name = Path(os.path.relpath(path)).as_posix()
    if len(name) <= _LABEL:
        return name
    return f"{hashlib.sha256(name.encode()).hexdigest()[:8]}…{name[-(_LABEL - 9) :]}"


def _nothing(paths: list[Path], skipped: list[dict[str, str]]) -> Problem:
    names = ", ".join(map(str, paths))
    if not skipped:
        return Problem("file_missing", f"There is no file in {names}.", fix="Name a folder with text files in it.")
    return Problem(
        "file_not_text",
        f"No file in {names} could be read. {skipped[0]['reason']}",
        skipped=skipped[:20],
        fix=skipped[0]["fix"],
    )


State = Mapping[Path, tuple[int, int]]
"""The modification time and the size of each file."""


def state_of(paths: list[Path]) -> State:
    """Return the current state of the files."""
    found: dict[Path, tuple[int, int]] = {}
    for source in _sources(paths, []):
        try:
            stat = source.path.stat()
        except OSError:
            continue
        found[source.path] = (stat.st_mtime_ns, stat.st_size)
    return found


def changes(before: State, after: State) -> tuple[list[Path], list[Path]]:
    """Return the files that are new or changed, and those that are gone."""
    return [path for path in after if before.get(path) != after[path]], [path for path in before if path not in after]


class Intake:
    """Ingests files into a session, and keeps what was taken, skipped and taken back."""

    def __init__(self, session: Session, encoding: str | None, supersedes: Sequence[str]) -> None:
        self.taken: dict[str, dict[str, Any]] = {}  # the last ingest of each source
        self.gone: dict[str, int] = {}  # deleted sources, with the number of their facts
        self._skipped: dict[str, dict[str, str]] = {}  # by path
        self._failed: list[Problem] = []
        self._session, self._encoding, self._supersedes = session, encoding, supersedes

    async def take(self, paths: list[Path]) -> None:
        """Ingest the files at the paths, including those below folders."""
        skipped: list[dict[str, str]] = []
        sources = await asyncio.to_thread(_sources, paths, skipped)
        self._skipped.update({item["path"]: item for item in skipped})
        for source in _progress(sources):
            await self._read(source)

    async def _read(self, source: _Source) -> dict[str, Any] | None:
        path = str(source.path)
        try:
            text = await read_source(source.path, _FILE_LIMIT, self._encoding)
            if not text.strip():
                raise Problem("file_not_text", f"{shown(source.path)} is empty.", at=path, fix=_EMPTY)
        except Problem as problem:
            self._skipped[path] = {"path": path, "reason": problem.message, "fix": fix_of(problem)}
            if source.named:
                self._failed.append(problem)
            return None
        self._skipped.pop(path, None)
        whole = source.label is not None
        result = await self._session.ingest(text, source.label, supersedes=self._supersedes, whole=whole)
        taken = self.taken[result.source_label] = _taken(result)
        return taken

    async def again(self, path: Path) -> str:
        """Ingest a changed file in place of its earlier content; return the result as a line for people."""
        taken = await self._read(_Source(path, _label(path), False))
        if taken is None:
            item = self._skipped[str(path)]
            return f"skipped {path}: {item['reason']} {item['fix']}"
        return f"{taken['source']}: {_counted(taken, _TOTALS)}"

    async def take_back(self, label: str) -> str:
        """Take back the facts of a file that is gone; return the result as a line for people."""
        count = self.gone[label] = await self._session.take_back(label)
        self.taken.pop(label, None)
        return f"{label} is gone: {_many(count, 'fact')} taken back"

    def missing(self, paths: list[Path], state: State) -> list[str]:
        """Return the session's sources below the folders whose files no longer exist.

        Below the current folder any label could be a file's: there, only later deletions are noticed.
        """
        folders = tuple(f"{name}/" for path in paths if path.is_dir() and (name := _label(path)) != ".")
        facts = self._session.warm.facts
        known = {fact.source.removeprefix(_INGEST) for fact in facts if fact.superseded_by < 0}
        here = {_label(path) for path in state}
        return sorted(label for label in known - here if label.startswith(folders) and not Path(label).exists())

    def problem(self, paths: list[Path]) -> Problem | None:
        """Return the problem of the whole ingest: a named file failed, or nothing could be read."""
        if self._failed:
            return self._failed[0]
        return None if self.taken or self.gone else _nothing(paths, list(self._skipped.values()))

    def told(self) -> dict[str, Any]:
        kept = list(self.taken.values())
        totals = {name: sum(item[name] for item in kept) for name in _TOTALS}
        totals["taken_back"] += sum(self.gone.values())
        return {
            "session_id": self._session.id,
            **totals,
            "sources": kept,
            "gone": sorted(self.gone),
            "skipped": list(self._skipped.values()),
        }

    @staticmethod
    def lines(told: dict[str, Any]) -> Iterator[str]:
        counted = f"{_many(told['facts'], 'fact')} from {_many(len(told['sources']), 'file')}"
        yield f"{counted} in session {told['session_id']}; {_counted(told, _TOTALS[1:])}"
        for source in told["sources"]:
            for item in source["superseded_facts"]:
                why = "a later text of the same source" if item["because"] == "same_source" else source["source"]
                by = f"({item['source_label']}) by {item['superseded_by']}"
                yield f"superseded {item['fact_id']} {by}, {why}: {item['text']}"
            for item in source["quarantined_facts"]:
                yield f"quarantined {item['fact_id']} ({source['source']}), {item['because']}: {item['text']}"
        if told["superseded"] or told["quarantined"] or told["taken_back"]:
            yield "Undo it with: forestay relay restore FACT…"
        for item in told["skipped"]:
            yield f"skipped {item['path']}: {item['reason']} {item['fix']}"


async def until_stopped(intake: Intake, paths: list[Path], state: State) -> None:
    """Watch the files until a signal comes."""
    from forestay.surface import until_signalled

    async def ready() -> None:
        note("Watching; Ctrl-C ends it.")

    tasks = [asyncio.create_task(watched(intake, paths, state)), asyncio.create_task(until_signalled(ready=ready))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # an error ends the watch too: the session can no longer be written
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def watched(intake: Intake, paths: list[Path], state: State) -> None:
    """Look at the files every second, for ever; `state` is their state before they were read.

    First take back the sources that were deleted while no command watched.
    """
    for label in await asyncio.to_thread(intake.missing, paths, state):
        note(await intake.take_back(label))
    while True:
        await asyncio.sleep(_LOOKS_SECONDS)
        now = await asyncio.to_thread(state_of, paths)
        changed, gone = changes(state, now)
        for path in changed:
            note(await intake.again(path))
        for path in gone:
            if (label := _label(path)) in intake.taken:
                note(await intake.take_back(label))
        state = now


def _taken(result: ExtractionResult) -> dict[str, Any]:
    return {
        "source": result.source_label,
        "facts": result.facts_extracted,
        "bytes": result.bytes_read,
        "known": result.known,
        "superseded": result.facts_superseded,
        "taken_back": result.facts_taken_back,
        "quarantined": result.facts_quarantined,
        "superseded_facts": msgspec.to_builtins(result.superseded),
        "quarantined_facts": msgspec.to_builtins(result.quarantined),
    }


def _counted(taken: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{taken[name]} {name.replace('_', ' ')}" for name in names)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _progress(files: list[_Source]) -> Iterator[_Source]:
    """Yield the files, with a progress bar on the terminal."""
    if not sys.stderr.isatty() or len(files) < 2:
        yield from files
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(files, description="Reading", console=Console(stderr=True), transient=True)
