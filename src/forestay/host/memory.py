"""What an agent keeps between runs: entries of a ledger stream, recalled by the words they share with the task.

Y1  An entry is kept once for its key, however often it is remembered.
Y2  Memory belongs to a tenant and an agent; no other reads it.
Y3  What is recalled is bounded: the last thousand entries are looked at, the best few are given.
"""

from __future__ import annotations

from collections.abc import Sequence

from forestay.kernel import Draft, Ledger, Problem, Record, redact_text
from forestay.models import STOP, words

_LOOKED_AT = 1_000
_RECALLED = 5
_LONGEST = 4_000


class LedgerMemory:
    """`agents.Memory` of one tenant."""

    def __init__(self, ledger: Ledger, tenant: str) -> None:
        self._ledger = ledger
        self._tenant = tenant

    async def recall(self, agent_id: str, task: str) -> Sequence[str]:
        return _best(task, [str(record.payload["entry"]) for record in await self._records(agent_id)])

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> None:
        stream = self._stream(agent_id)
        payload = {"entry": redact_text(entry)[:_LONGEST], "key": idempotency_key}
        while True:
            head = await self._ledger.head(stream)
            if any(record.payload["key"] == idempotency_key for record in await self._records(agent_id)):
                return
            try:
                await self._ledger.append(stream, [Draft("memory.kept", payload)], expect=head.seq)
            except Problem as problem:
                if problem.key != "ledger_conflict":
                    raise
            else:
                return

    async def _records(self, agent_id: str) -> list[Record]:
        stream = self._stream(agent_id)
        head = await self._ledger.head(stream)
        return await self._ledger.read(stream, max(0, head.seq - _LOOKED_AT + 1))

    def _stream(self, agent_id: str) -> str:
        return f"context/{self._tenant}/{agent_id}"


class SeededMemory:
    """`agents.Memory` of a task that is evaluated: it knows what it was given, and keeps nothing."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = entries

    async def recall(self, agent_id: str, task: str) -> Sequence[str]:
        return _best(task, self._entries)

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> None:
        """The next task begins without it."""


def _best(task: str, entries: Sequence[str]) -> list[str]:
    """The entries that share the most words with the task; of equals, the later ones."""
    wanted = _content(task)
    scored = [(len(wanted & _content(entry)), place, entry) for place, entry in enumerate(entries)]
    return [entry for _, _, entry in sorted((item for item in scored if item[0]), reverse=True)[:_RECALLED]]


def _content(text: str) -> frozenset[str]:
    return frozenset(word for word in words(text) if word not in STOP)
