"""Relay sessions as a person looks at them: facts and where they came from, what a model was shown, how answers fared.

Y1  Looking changes nothing: a session is folded from its records, never resumed, and no record is written.
Y2  A closed session is shown as it stood when it was closed; the ledger still has what its memory let go.
Y3  What a model was shown is put together again from the facts on record, and compared with the hash on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.kernel import canonical
from holdfast.kernel.ledger import Record
from holdfast.kernel.problems import Problem
from holdfast.models.protocol import Message
from holdfast.relay import EnvelopePreview, Relay, Session, guard, looking, window
from holdfast.relay.facts import Batch, Fact
from holdfast.relay.pack import pack
from holdfast.relay.rank import Ranked, rank
from holdfast.relay.warm import Warm, pack_text, unpack_text

_AROUND = 480
_PLENTY = 1 << 40


class SessionLine(msgspec.Struct, frozen=True):
    """A session in the list."""

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
    """A fact in its source: what stands before it, the fact's own bytes, what stands after."""

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
    output: str = ""
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
    """What the relay put before the model in one window; `proven` when it hashes to what the ledger recorded."""

    messages: tuple[Message, ...]
    envelope: str
    facts: tuple[Fact, ...]
    proven: bool


class SessionView:
    """One session, folded from its records (Y1, Y2)."""

    def __init__(self, relay: Relay, session_id: str, records: Sequence[Record]) -> None:
        self.id = session_id
        self.records = records
        self.warm = folded(records)
        self.closed = any(record.type == "crp.session.close" for record in records)
        self.dispatches = dispatches(records)
        self._relay = relay

    @property
    def state(self) -> str:
        if self.closed:
            return "closed"
        return "expired" if self._relay.clock.now_ms() >= self.warm.expires_ms else "open"

    @property
    def sources(self) -> list[tuple[str, int]]:
        """Where the facts came from, and how many of each."""
        counted: dict[str, int] = {}
        for fact in self.warm.facts:
            counted[fact.source] = counted.get(fact.source, 0) + 1
        return list(counted.items())

    def found(self, query: str) -> list[tuple[Fact, float]]:
        """Facts with their score for `query`; without one every fact in its order."""
        if not query.strip():
            return [(fact, fact.confidence) for fact in self.warm.facts]
        return [(self.warm.facts[item.number], item.score) for item in rank(self.warm, query, limit=500)]

    def fact(self, number: int) -> Fact:
        if not 0 <= number < len(self.warm.facts):
            raise Problem("not_found", "There is no such fact in this session.", session_id=self.id)
        return self.warm.facts[number]

    def passage(self, fact: Fact) -> Passage:
        """The fact inside the text it was cut out of."""
        for batch in _batches(self.records):
            if batch.first <= fact.number < batch.first + len(batch.rows):
                return _passage(batch, fact)
        raise Problem("not_found", "The source of this fact is not on record.", session_id=self.id)

    def preview(self, system_prompt: str, task: str) -> EnvelopePreview:
        """What the model would be shown for `task`, and why each fact is there."""
        if self.warm.bound:
            raise Problem(
                "permission_denied",
                "Only the caller who opened this session with a key of their own can look ahead.",
                session_id=self.id,
            )
        key = guard.session_key(self._relay.binding(self.id), self.warm.nonce)
        session = Session(self._relay, self.id, self.warm, len(self.records) - 1, key)
        return looking.preview(session, system_prompt, task, None, "")

    def shown(self, window_id: str) -> Shown:
        """What the relay put before the model in this window (Y3)."""
        for dispatch in self.dispatches:
            for item in dispatch.windows:
                if item.id == window_id:
                    return self._shown(dispatch, item)
        raise Problem("not_found", "There is no such window in this session.", session_id=self.id)

    def _shown(self, dispatch: DispatchSeen, item: WindowSeen) -> Shown:
        warm = folded(self.records[: item.seq])
        ranked = [Ranked(number, 0.0, 0.0, 0.0, 0.0, 0.0) for number in item.facts]
        others = frozenset(range(len(warm.facts))) - frozenset(item.facts)
        packed = pack(warm, ranked, _PLENTY, len, goal=dispatch.goal, exclude=others)
        messages = window.first_messages(dispatch.system_prompt, packed.text, dispatch.task)
        digest = canonical.digest([[message.role, pack_text(message.content)] for message in messages])
        facts = tuple(warm.facts[number] for number in item.facts)
        return Shown(tuple(messages), packed.text, facts, digest == item.digest)


async def sessions(relay: Relay, *, after: int = 0, limit: int = 50) -> list[SessionLine]:
    """Sessions, the newest first, closed ones included."""
    now = relay.clock.now_ms()
    rows = await relay.ledger.query(
        "SELECT id, app, role, CASE WHEN closed = 1 THEN 'closed' WHEN expires_ms <= ? THEN 'expired' ELSE 'open' END, "
        "windows, facts, input_tokens, output_tokens, max_windows, max_input, max_output, created_ms, expires_ms "
        "FROM relay_sessions ORDER BY created_ms DESC, id LIMIT ? OFFSET ?",
        (now, limit, after),
    )
    return [SessionLine(*row) for row in rows]


async def session(relay: Relay, session_id: str) -> SessionView:
    plain = len(session_id) == 36 and all(character in "0123456789abcdef-" for character in session_id)
    records = await relay.ledger.read(f"relay/{session_id}") if plain else []
    if not records:
        raise Problem("not_found", "There is no such session.", session_id=session_id[:80])
    return SessionView(relay, session_id, records)


def folded(records: Iterable[Record]) -> Warm:
    """The state after these records, as if nobody had closed the session (Y2)."""
    warm = Warm()
    for record in records:
        if record.type != "crp.session.close":
            warm.apply(record.type, record.payload)
    return warm


def dispatches(records: Iterable[Record]) -> list[DispatchSeen]:
    """Every dispatch with its windows and its report, oldest first."""
    found: dict[str, DispatchSeen] = {}
    for record in records:
        payload = record.payload
        if record.type == "crp.dispatch.start":
            found[payload["dispatch_id"]] = _started(record)
            continue
        dispatch = found.get(payload.get("dispatch_id", "")) if isinstance(payload, dict) else None
        if dispatch is None:
            continue
        if record.type == "crp.envelope.build_complete":
            dispatch.windows.append(_built(record))
        elif record.type == "crp.window.complete":
            _completed(dispatch, payload)
        elif record.type == "crp.dispatch.complete":
            dispatch.tier, dispatch.stopped_by = payload["tier"], payload["stopped_by"]
            dispatch.groundedness, dispatch.facts_extracted = payload["groundedness"], payload["facts_extracted"]
            dispatch.ended_at = record.ts
        elif record.type == "crp.dispatch.error":
            dispatch.stopped_by, dispatch.problem, dispatch.ended_at = "error", payload["problem"], record.ts
    return list(found.values())


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


def _completed(dispatch: DispatchSeen, payload: dict[str, Any]) -> None:
    for item in dispatch.windows:
        if item.id == payload["window_id"]:
            item.output = unpack_text(payload["output"])
            item.input_tokens, item.output_tokens = payload["input_tokens"], payload["output_tokens"]
            item.finish, item.model = payload["finish_reason"], payload["model"]
            item.removed, item.tool_calls = payload["removed"], payload["tool_calls"]


def _batches(records: Iterable[Record]) -> Iterable[Batch]:
    for record in records:
        if record.type == "crp.extraction.complete":
            yield record.payload if isinstance(record.payload, Batch) else msgspec.convert(record.payload, Batch)


def _passage(batch: Batch, fact: Fact) -> Passage:
    if not batch.text:  # shared from another session: the fact came without its surroundings
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
