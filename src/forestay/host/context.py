"""What an agent may quote from: text files of the project, taken into a relay session of its own.

Bounded, because a folder is not: so many files, so many bytes. Nothing outside the project is read, whatever links say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from forestay.relay import Relay

MOST_FILES = 200
MOST_BYTES = 2 * 1024 * 1024
_SKIPPED = frozenset({"node_modules", "__pycache__", "site"})


def texts(root: Path, patterns: Sequence[str], *, apart: Path | None = None) -> Iterator[tuple[str, str]]:
    """The files that `patterns` name, by their name in the project; `apart` is the host's own folder."""
    base = root.resolve()
    seen: set[Path] = set()
    left = MOST_BYTES
    for pattern in patterns:
        for path in sorted(base.glob(pattern)):
            real = path.resolve()
            if real in seen or not real.is_file() or not _is_ours(base, real, apart):
                continue
            size = real.stat().st_size
            if len(seen) >= MOST_FILES or size > left:
                return
            seen.add(real)
            left -= size
            yield path.relative_to(base).as_posix(), real.read_text("utf-8", "replace").replace("\0", "\ufffd")


def _is_ours(base: Path, real: Path, apart: Path | None) -> bool:
    if not real.is_relative_to(base) or (apart is not None and real.is_relative_to(apart.resolve())):
        return False
    return not any(part.startswith(".") or part in _SKIPPED for part in real.relative_to(base).parts)


async def open_session(relay: Relay, app: str, sources: Iterator[tuple[str, str]]) -> str:
    """A new session that holds `sources`; its id. One that holds nothing is in the ledger when it is first used."""
    limits = {"session_timeout": 604_800, "dispatches_per_minute": 100_000, "max_continuations": 50}
    session = await relay.init(app, config=limits, later=True)
    for name, text in sources:
        if text.strip():
            await session.ingest(text, name)
    return session.id
