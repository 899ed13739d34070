"""Reads relay sessions back from the ledger: their facts and sources, a model's input, and the quality of its answers.

Y1  Reading changes nothing: a session is folded from its records, never resumed, and no record is written.
Y2  A closed session is shown as it was when it closed; the ledger still has what the session's memory has dropped.
Y3  A model's input is rebuilt from the recorded facts and compared with the recorded hash.
Y4  Reading does not block others: records are read page by page, the folded state is kept for the next call, and a
    session of more than MOST_RECORDS records is not folded at all.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from operator import itemgetter
from typing import Any

import msgspec

from forestay.kernel import Problem, Record, canonical
from forestay.models import Message
from forestay.relay import guard, inspect, window
from forestay.relay.envelope import pack
from forestay.relay.facts import Batch, Fact
from forestay.relay.ranking import Ranked, rank
from forestay.relay.relay import Relay
from forestay.relay.session import Session
from forestay.relay.types import EnvelopePreview
from forestay.relay.warm import Warm, pack_text, unpack_text

CLOSED = "crp.session.close"
EXTRACTED = "crp.extraction.complete"
MOST_RECORDS = 20_000
_PAGE = 50
_KEPT = 4
_AROUND = 480
_PLENTY = 1 << 40


class SessionLine(msgspec.Struct, frozen=True):
    """A session's line in the list."""

    id: str
    app: str
    role: str
    state: str
    windows: int
    facts: int
    input_tokens: int
    output_tokens: int
    max_windows: int | None
    max_input: int | None
    max_output: int | None
    created_ms: int
    expires_ms: int


class Passage(msgspec.Struct, frozen=True):
    """A fact in its source: the text before it, its own text, the text after it."""

    before: str
    own: str
    after: str
    cut_before: bool
    cut_after: bool


class WindowSeen(msgspec.Struct, kw_only=True):
    """One window of a dispatch."""

    id: str
    seq: int
    facts: tuple[int, ...]
    input_tokens: int
    saturation: float
    digest: str
    said_at: int | None = None  # the record with its output
    output_tokens: int = 0
    finish: str = "under way"
    model: str = ""
    removed: int = 0
    tool_calls: int = 0


class DispatchSeen(msgspec.Struct, kw_only=True):
    """One dispatch, from its start to its report."""

    id: str
    at: int
    kind: str
    system_prompt: str
    task: str
    goal: str
    flags: dict[str, Any]
    windows: list[WindowSeen]
    tier: str = ""
    stopped_by: str = "under way"
    groundedness: float | None = None
    facts_extracted: int = 0
    problem: str = ""
    ended_at: int | None = None

    @property
    def input_tokens(self) -> int:
        return sum(item.input_tokens for item in self.windows)

    @property
    def output_tokens(self) -> int:
        return sum(item.output_tokens for item in self.windows)


class Shown(msgspec.Struct, frozen=True):
    """A model's input in one window; `proven` when its hash is the one in the ledger."""

    messages: tuple[Message, ...]
    envelope: str
    facts: tuple[Fact, ...]
    proven: bool
    output: str | None
    """The model's output; None until the window completes."""


class SessionHistory:
    """One session, folded from its records (Y1, Y2). It keeps the folded state and reads only new records (Y4)."""

    def __init__(self, relay: Relay, session_id: str) -> None:
        self.id = session_id
        self.warm = Warm()
        self.closed = False
        self.seq = -1
        self._relay = relay
        self._dispatches: dict[str, DispatchSeen] = {}
        self._places: list[tuple[int, int]] = []  # the first fact of each batch, and the record that holds it
        self._alone = asyncio.Lock()

    async def catch_up(self) -> None:
        """Fold the records that are new since the last call."""
        async with self._alone:
            async for record in _records(self._relay, self.id, self.seq + 1):
                self._take(record)

    def _take(self, record: Record) -> None:
        self.seq = record.seq
        self.closed = self.closed or record.type == CLOSED
        if record.type == "crp.session.reset":
            self._places.clear()  # its facts are numbered from 0 again
        elif record.type == EXTRACTED:
            self._places.append((_batch(record).first, record.seq))
        fold(self.warm, record)
        take(self._dispatches, record)

    @property
    def dispatches(self) -> list[DispatchSeen]:
        """Every dispatch, oldest first."""
        return list(self._dispatches.values())

    @property
    def state(self) -> str:
        if self.closed:
            return "closed"
        return "expired" if self._relay.clock.now_ms() >= self.warm.expires_ms else "open"

    def found(self, query: str) -> list[tuple[Fact, float]]:
        """Return facts with their score for `query`; for an empty query, every fact in its order."""
        if not query.strip():
            return [(fact, fact.confidence) for fact in self.warm.facts]
        return [(self.warm.facts[item.number], item.score) for item in rank(self.warm, query, limit=500)]

    def fact(self, number: int) -> Fact:
        if not 0 <= number < len(self.warm.facts):
            raise Problem("not_found", "There is no such fact in this session.", session_id=self.id)
        return self.warm.facts[number]

    async def passage(self, fact: Fact) -> Passage:
        """Return the fact inside the text that it comes from; reads one record."""
        place = bisect_right(self._places, fact.number, key=itemgetter(0)) - 1
        if place < 0:
            raise Problem("not_found", "The source of this fact is not on record.", session_id=self.id)
        (record,) = await self._relay.ledger.read(_stream(self.id), self._places[place][1], 1)
        return _passage(_batch(record), fact)

    async def preview(self, system_prompt: str, task: str) -> EnvelopePreview:
        """Return the envelope that a dispatch would build for `task`, and why each fact is in it."""
        if self.warm.bound:
            raise Problem(
                "permission_denied",
                "Only the caller who opened this session with a key of their own can look ahead.",
                session_id=self.id,
            )
        key = guard.session_key(self._relay.binding(self.id), self.warm.nonce)
        session = Session(self._relay, self.id, self.warm, self.seq, key)
        if (live := self._relay.loaded(self.id)) is not None:
            session.models = live.models  # its providers' keys are in memory only
        return await inspect.preview(session, system_prompt, task, None, "")

    async def shown(self, window_id: str) -> Shown:
        """Rebuild the model's input in this window (Y3)."""
        for dispatch in self._dispatches.values():
            for item in dispatch.windows:
                if item.id == window_id:
                    return await self._shown(dispatch, item)
        raise Problem("not_found", "There is no such window in this session.", session_id=self.id)

    async def _shown(self, dispatch: DispatchSeen, item: WindowSeen) -> Shown:
        warm = Warm()
        async for record in _records(self._relay, self.id, 0, item.seq):
            fold(warm, record)
        ranked = [Ranked(number, 0.0, 0.0, 0.0, 0.0, 0.0) for number in item.facts]
        others = frozenset(range(len(warm.facts))) - frozenset(item.facts)
        packed = pack(warm, ranked, _PLENTY, len, goal=dispatch.goal, exclude=others)
        messages = window.first_messages(dispatch.system_prompt, packed.text, dispatch.task)
        digest = canonical.digest([[message.role, pack_text(message.content)] for message in messages])
        facts = tuple(warm.facts[number] for number in item.facts)
        return Shown(tuple(messages), packed.text, facts, digest == item.digest, await self._said(item))

    async def _said(self, item: WindowSeen) -> str | None:
        if item.said_at is None:
            return None
        (record,) = await self._relay.ledger.read(_stream(self.id), item.said_at, 1)
        return unpack_text(record.payload["output"])


class SessionHistories:
    """Reads sessions, and keeps the folded state of the last few (Y4)."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._kept: dict[str, SessionHistory] = {}

    async def session(self, session_id: str) -> SessionHistory:
        """Return the session, folded from all its records."""
        plain = len(session_id) == 36 and all(character in "0123456789abcdef-" for character in session_id)
        head = (await self._relay.ledger.head(_stream(session_id))).seq if plain else -1
        if head < 0:
            raise Problem("not_found", "There is no such session.", session_id=session_id[:80])
        if head >= MOST_RECORDS:
            raise Problem(
                "payload_too_large",
                "This session is too large to be shown on a page.",
                records=head + 1,
                limit=MOST_RECORDS,
                fix=f"Read its records in the ledger: {_stream(session_id)}.",
            )
        view = self._kept.pop(session_id, None) or SessionHistory(self._relay, session_id)
        self._kept[session_id] = view
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        await view.catch_up()
        return view


async def sessions(relay: Relay, *, after: int = 0, limit: int = 50) -> list[SessionLine]:
    """List sessions, the newest first, closed ones included."""
    now = relay.clock.now_ms()
    rows = await relay.ledger.query(
        "SELECT id, app, role, CASE WHEN closed = 1 THEN 'closed' WHEN expires_ms <= ? THEN 'expired' ELSE 'open' END, "
        "windows, facts, input_tokens, output_tokens, max_windows, max_input, max_output, created_ms, expires_ms "
        "FROM relay_sessions ORDER BY created_ms DESC, id LIMIT ? OFFSET ?",
        (now, limit, after),
    )
    return [SessionLine(*row) for row in rows]


def fold(warm: Warm, record: Record) -> None:
    """Fold a record into the state, but not the session's closing (Y2)."""
    if record.type != CLOSED:
        warm.apply(record.type, record.payload)


def take(found: dict[str, DispatchSeen], record: Record) -> None:
    """Fold a record into the dispatches: their starts, their windows, their reports."""
    payload = record.payload
    if record.type == "crp.dispatch.start":
        found[payload["dispatch_id"]] = _started(record)
        return
    dispatch = found.get(payload.get("dispatch_id", "")) if isinstance(payload, dict) else None
    if dispatch is None:
        return
    if record.type == "crp.envelope.build_complete":
        dispatch.windows.append(_built(record))
    elif record.type == "crp.window.complete":
        _completed(dispatch, record)
    elif record.type == "crp.dispatch.complete":
        dispatch.tier, dispatch.stopped_by = payload["tier"], payload["stopped_by"]
        dispatch.groundedness, dispatch.facts_extracted = payload["groundedness"], payload["facts_extracted"]
        dispatch.ended_at = record.ts
    elif record.type == "crp.dispatch.error":
        dispatch.stopped_by, dispatch.problem, dispatch.ended_at = "error", payload["problem"], record.ts
        _unanswered(dispatch)
    elif record.type == "crp.dispatch.fallback":
        _unanswered(dispatch, payload["model"])


async def _records(relay: Relay, session_id: str, start: int, end: int | None = None) -> AsyncIterator[Record]:
    """Yield the session's records before `end`, read page by page; yield to other tasks after each batch (Y4)."""
    while end is None or start < end:
        limit = _PAGE if end is None else min(_PAGE, end - start)
        page = await relay.ledger.read(_stream(session_id), start, limit)
        for record in page:
            yield record
            if record.type == EXTRACTED:
                await asyncio.sleep(0)
        if len(page) < limit:
            return
        start = page[-1].seq + 1


def _stream(session_id: str) -> str:
    return f"relay/{session_id}"


def _started(record: Record) -> DispatchSeen:
    payload = record.payload
    return DispatchSeen(
        id=payload["dispatch_id"],
        at=record.ts,
        kind=payload["kind"],
        system_prompt=payload["system_prompt"],
        task=payload["task_input"],
        goal=payload["goal"],
        flags=msgspec.json.decode(payload["flags"]),
        windows=[],
    )


def _built(record: Record) -> WindowSeen:
    payload = record.payload
    return WindowSeen(
        id=payload["window_id"],
        seq=record.seq,
        facts=tuple(payload["facts"]),
        input_tokens=payload["input_tokens"],
        saturation=payload["saturation"],
        digest=payload["messages"],
    )


def _completed(dispatch: DispatchSeen, record: Record) -> None:
    payload = record.payload
    for item in dispatch.windows:
        if item.id == payload["window_id"]:
            item.said_at = record.seq
            item.input_tokens, item.output_tokens = payload["input_tokens"], payload["output_tokens"]
            item.finish, item.model = payload["finish_reason"], payload["model"]
            item.removed, item.tool_calls = payload["removed"], payload["tool_calls"]


def _unanswered(dispatch: DispatchSeen, model: str = "") -> None:
    """Mark the last window as failed: it was built, and its model gave no answer."""
    for item in dispatch.windows[-1:]:
        if item.said_at is None:
            item.finish, item.model = "failed", item.model or model


def _batch(record: Record) -> Batch:
    return record.payload if isinstance(record.payload, Batch) else msgspec.convert(record.payload, Batch)


def _passage(batch: Batch, fact: Fact) -> Passage:
    if not batch.text:  # shared from another session: without the text around the fact
        return Passage("", fact.text, "", False, False)
    data = batch.text.encode()
    start, end = fact.start - batch.base, fact.end - batch.base
    first, last = max(0, start - _AROUND), min(len(data), end + _AROUND)
    return Passage(
        data[first:start].decode("utf-8", "ignore"),
        data[start:end].decode("utf-8", "ignore"),
        data[end:last].decode("utf-8", "ignore"),
        first > 0 or batch.base > 0,
        last < len(data),
    )
