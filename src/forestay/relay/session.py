"""A session: the operations of CRP over one stream of the ledger (CRP §1.2).

Invariants:

- O1  Every operation first asks: closed (1005), expired (1003), allowed for the role (1013). A refusal is recorded.
- O2  What changes the state is a record first (`journal.py`).
- O3  `preview_envelope`, `session_status` and `estimate_session` change nothing.
- O4  Dispatches of one session run one after the other.
- O6  A reply is the fold of a dispatch's events; in a stream, a failure is the last event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import Append, Draft, Problem
from forestay.models import DEFAULT_PARAMS, Message, Model, Params, ToolSpec, shown
from forestay.relay import guard, inspect
from forestay.relay.compact import Compaction, due, plan
from forestay.relay.dispatch import PLAIN, DispatchTerms, WindowEngine, start
from forestay.relay.envelope import near
from forestay.relay.evaluation import Evaluation, Labelled, evaluate
from forestay.relay.facts import Fact, fact_id
from forestay.relay.guard import checked, config_of, intent_of
from forestay.relay.ingest import ingest, restore, share, take_back
from forestay.relay.journal import Journal
from forestay.relay.providers import Providers, open_provider
from forestay.relay.ranking import CANDIDATES, rank
from forestay.relay.reasons import Reason, explain
from forestay.relay.report import Piece, Turned, parts, turned
from forestay.relay.types import (
    PROTOCOL_VERSION,
    CostEstimate,
    EnvelopePreview,
    ExtractionResult,
    Pricing,
    QualityReport,
    Reply,
    Restored,
    SessionConfig,
    SessionHandle,
    SessionStatus,
    StreamEvent,
    TaskIntent,
)
from forestay.relay.warm import Warm

if TYPE_CHECKING:
    from forestay.relay.relay import Relay


_DELTA = 0.1
_LEAST_KEPT = 4000  # a snapshot is written when so many facts are in none, and as many as it has
_LISTED = 500  # facts that a question without a limit is answered with


class Session(Journal):
    """One conversation with a model that may last for days. Made by `Relay.init` and `Relay.session`."""

    def __init__(self, relay: Relay, session_id: str, warm: Warm, head: int, key: bytes) -> None:
        super().__init__(relay, session_id, warm, head)
        self.key = key
        self.clock = relay.clock
        self.vectors = relay.vectors_of(session_id)
        self._lock = asyncio.Lock()
        self._compacted_at = warm.kept
        self.models = Providers(relay)
        self._dispatches = guard.Rate(warm.config.dispatches_per_minute, "dispatches")
        self._bytes = guard.Rate(warm.config.ingest_bytes_per_minute, "bytes of ingest")

    @property
    def handle(self) -> SessionHandle:
        warm = self.warm
        return SessionHandle(
            session_id=self.id,
            protocol_version=PROTOCOL_VERSION,
            capabilities=guard.capabilities(warm.role),
            created_at=warm.created_ms / 1000,
            expires_at=warm.expires_ms / 1000,
            app_id=warm.app_id,
            role=warm.role,
            nonce=warm.nonce.hex(),
            signature_required=warm.bound,
        )

    async def catch_up(self) -> None:
        nonce = self.warm.nonce
        await super().catch_up()
        if self.warm.nonce != nonce and self.key:  # another process has reset the session
            self.key = guard.session_key(self.relay.binding(self.id), self.warm.nonce)
            self._compacted_at = 0
        if self.warm.closed and self.key:
            await self._forget()

    # Admission

    async def enter(self, operation: str) -> None:
        """O1."""
        if self._stale:
            await self.refresh()
        warm = self.warm
        if warm.closed:
            raise Problem("session_closed", "The session is closed.", session_id=self.id)
        if warm.expired or self.clock.now_ms() >= warm.expires_ms:
            if not warm.expired:
                await self.record(Draft("crp.session.expire", {}))
            raise Problem(
                "session_expired", "The session has expired.", session_id=self.id, expired_at=warm.expires_ms / 1000
            )
        if not self.key:
            raise _locked(self.id)
        try:
            guard.allow(warm.role, operation)
        except Problem:
            await self.record(Draft("crp.security.rbac_denied", {"operation": operation, "role": warm.role}))
            raise

    async def authenticate(self, method: str, path: str, body: bytes, signature: str | None) -> None:
        """1012 unless the caller signed this request, when the session was opened with a binding secret (C11)."""
        if not self.warm.bound or self.warm.closed:
            return
        try:
            if not self.key:
                raise _locked(self.id)
            guard.check_signature(self.key, method, path, body, signature)
        except Problem as problem:
            await self.record(
                Draft("crp.security.signature_invalid", {"method": method, "path": path, "message": problem.message})
            )
            raise

    # Models

    @property
    def model(self) -> Model:
        return self.models.asked or self.models.ordered(self.warm.providers)[0]

    async def register_provider(
        self,
        provider_type: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        priority: int = 10,
    ) -> dict[str, Any]:
        """A provider of this session's own, in place of the relay's model; several are asked by priority, lowest first.

        The next one is asked only when one fails before the first token of an answer. Keys are kept in memory only.
        """
        await self.enter("register_provider")
        opened = open_provider(provider_type, model, api_key=api_key, base_url=base_url)
        self.models.open(opened, priority)
        await self.record(
            Draft(
                "crp.session.provider",
                {"provider": opened.name, "priority": priority, "base_url": shown(base_url) if base_url else None},
            )
        )
        return {"provider": opened.name, "priority": priority, "registered": True}

    def use_model(self, model: Model, priority: int = 10) -> None:
        """A model object of the caller's, as `register_provider` takes one, for this session and this process. It takes
        the place of one with its name and priority."""
        self.models.lend(model, priority)

    # Dispatching

    async def dispatch(self, system_prompt: str, task_input: str, **options: Any) -> Reply:
        """The model's answer, whole and unaltered, with its report: the fold of `events` (C2)."""
        return await fold(self.events(system_prompt, task_input, **options))

    async def dispatch_intent(self, intent: TaskIntent) -> Reply:
        async with self.begun(intent, operation="dispatch_intent") as engine:
            return await fold(engine.events())

    async def stream(self, system_prompt: str, task_input: str, **options: Any) -> AsyncGenerator[StreamEvent, None]:
        """The events of a dispatch; the last is `done` or `error` (CRP §1.12)."""
        async with aclosing(told(self.events(system_prompt, task_input, **options))) as events:
            async for event in events:
                yield event

    async def resume(self) -> Reply:
        """Go on with the dispatch that a crash, a cut or a cap interrupted."""
        return await fold(self.resumed_events())

    async def events(
        self,
        system_prompt: str,
        task_input: str,
        *,
        max_windows: int | None = None,
        max_output_tokens: int | None = None,
        description: str = "",
        **options: Any,
    ) -> AsyncGenerator[StreamEvent, None]:
        """A dispatch as events; failures are raised. `options` are those of `begun`."""
        intent = intent_of(
            system_prompt=system_prompt,
            task_input=task_input,
            max_windows=max_windows,
            max_output_tokens=max_output_tokens,
            description=description,
        )
        async with self.begun(intent, **options) as engine, aclosing(engine.events()) as events:
            async for event in events:
                yield event

    @asynccontextmanager
    async def begun(
        self,
        intent: TaskIntent,
        terms: DispatchTerms = PLAIN,
        *,
        operation: str = "dispatch",
        query: str | None = None,
        remember: bool | None = None,
        key: str = "",
    ) -> AsyncIterator[WindowEngine]:
        """A dispatch that has begun, alone in its session (O4): the engine's `events` carry it out.

        With `remember` the answer becomes facts (C20); None leaves it to the session's `remember_answers`.
        """
        await self.enter(operation)
        task = checked(intent)
        await self._take(self._dispatches, 1)
        async with self._lock, self.alone():
            await self.enter(operation)
            begun, plan = await start(
                self, task, terms, operation=operation, query=query, remember=remember, key=key
            )  # fmt: skip
            self.stage(*begun)
            with self.models.asking():
                yield WindowEngine(self, terms, plan)

    @asynccontextmanager
    async def _again(self, terms: DispatchTerms = PLAIN) -> AsyncIterator[WindowEngine]:
        """The interrupted dispatch, ready to continue."""
        await self.enter("dispatch")
        async with self._lock, self.alone():
            if self.warm.dispatch is None:
                raise Problem(
                    "not_found", "There is no interrupted dispatch.", session_id=self.id, fix="Dispatch a task."
                )
            with self.models.asking():
                yield WindowEngine(self, terms)

    async def resumed_events(self) -> AsyncGenerator[StreamEvent, None]:
        async with self._again() as engine, aclosing(engine.events()) as events:
            async for event in events:
                yield event

    async def turn(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        params: Params = DEFAULT_PARAMS,
        *,
        key: str = "",
        heard: Callable[[Piece], Awaitable[None]] | None = None,
    ) -> Turned:
        """One turn of a conversation: the answer to its last message, with the facts that the task calls for.

        `heard` is called with each new piece. A turn under a `key` is asked once in the session's life (T1). The caller
        writes its end, with `flush` or together with records of its own (`give`).
        """
        if key in self.warm.answered:
            return (await self.relay.turns(self.id))[key]
        system, task, around = parts(messages)
        terms = DispatchTerms(tools=tuple(tools), around=around, temperature=params.temperature, later=True)
        intent = intent_of(system_prompt=system, task_input=task, max_output_tokens=params.max_tokens)
        pending = self.warm.dispatch
        goes_on = bool(key) and pending is not None and pending.key == key
        async with self._again(terms) if goes_on else self.begun(intent, terms, key=key) as engine:
            state = engine.state
            known, number, stop = bool(state.output), state.windows, None
            async with aclosing(engine.events()) as events:
                async for event in events:
                    if event.event_type == "done":
                        stop = event.data.telemetry.stopped_by
                    elif event.event_type == "continuation":
                        number += 1
                    elif event.event_type == "token" and heard is not None and not known:
                        await heard(Piece(event.data, number))
                    known = False  # what was said before the interruption comes first, and was heard then
            if heard is not None:
                await heard(Piece("", number, last=True))
        assert stop is not None, "a dispatch ends with done, or raises"
        return turned(state, stop)

    async def _take(self, rate: guard.Rate, amount: int) -> None:
        try:
            rate.take(self.clock, amount)
        except Problem as problem:
            await self.record(Draft("crp.security.rate_limited", {"what": rate.what, "limit": rate.limit}))
            raise problem

    # Facts

    async def ingest(
        self, raw_text: str, source_label: str | None = None, *, supersedes: Sequence[str] = (), whole: bool = False
    ) -> ExtractionResult:
        """Keep everything that `raw_text` says; no model is asked (C6).

        A later text under the same label corrects the earlier one, and those whose labels `supersedes` names (C16).
        With `whole` it replaces the earlier one: what it no longer says is taken back.
        """
        await self.enter("ingest")
        size = guard.check_text(raw_text, "raw_text")
        await self._take(self._bytes, size)
        async with self._lock, self.alone():
            result = await ingest(self, raw_text, source_label, supersedes, whole=whole)
            if due(len(self.warm.facts), self._compacted_at):
                await self._compact()
            if self.vectors is not None:
                await self.vectors.catch_up(self.warm.facts)
            await self.keep(max(_LEAST_KEPT, self.warm.kept))
            return result

    async def keep(self, least: int) -> None:
        """Writes a snapshot where so many facts or records are in none, and nobody changes the session meanwhile."""
        warm, head = self.warm, self.head
        new = max(len(warm.facts) - warm.kept, head - warm.kept_to)
        if new >= least and self.key and not warm.expired and self.rests():
            await self.relay.keep(self, lambda: self.warm is warm and self.head == head and self.rests())

    async def take_back(self, source_label: str) -> int:
        """The source is gone: its facts are kept and no longer shown. How many facts that are."""
        await self.enter("ingest")
        async with self._lock, self.alone():
            return await take_back(self, source_label)

    async def compact(self) -> Compaction:
        """Moves copies and superseded facts to the cold index now. `ingest` does it when a session has many facts."""
        await self.enter("ingest")
        async with self._lock, self.alone():
            return await self._compact()

    async def _compact(self) -> Compaction:
        warm = self.warm
        self._compacted_at = len(warm.facts)
        if warm.dispatch is not None:  # its report still asks the index about the facts it was shown
            return Compaction()
        found = plan(warm.facts, [number for number in range(len(warm.facts)) if number in warm.cold])
        if found:
            await self.record(found.draft())
        return found

    async def facts(
        self,
        query: str | None = None,
        *,
        top_k: int | None = None,
        include_superseded: bool = False,
        quarantined: bool = False,
    ) -> list[tuple[Fact, float]]:
        """Facts with their scores: the best for `query`, or without one all of them, newest first.

        With `quarantined`, the facts in quarantine and no others, whatever the query.
        """
        await self.enter("facts")
        warm = self.warm
        if quarantined:
            found = [(fact, fact.confidence) for fact in reversed(warm.facts) if fact.quarantined]
        elif query:
            alike = await near(self, query, cold=include_superseded)
            ranked = rank(warm, query, limit=max(top_k or _LISTED, CANDIDATES), near=alike, cold=include_superseded)
            found = [(warm.facts[item.number], item.score) for item in ranked]
        else:
            found = [(fact, fact.confidence) for fact in reversed(warm.facts)]
        kept = [item for item in found if include_superseded or quarantined or item[0].superseded_by < 0]
        return kept[:top_k] if top_k is not None else kept

    async def explain(
        self, query: str, *, top_k: int = 10, include_superseded: bool = False
    ) -> list[tuple[Fact, Reason]]:
        """The best facts for `query`, each with the reasons for its place."""
        await self.enter("facts")
        alike = await near(self, query, cold=include_superseded)
        ranked = rank(self.warm, query, limit=max(top_k, CANDIDATES), near=alike, cold=include_superseded)
        facts = self.warm.facts
        kept = [item for item in ranked if include_superseded or facts[item.number].superseded_by < 0][:top_k]
        reasons = explain(self.warm, query, kept, alike.likeness)
        return [(facts[item.number], reason) for item, reason in zip(kept, reasons, strict=True)]

    async def evaluate(self, questions: Sequence[Labelled]) -> Evaluation:
        """Recall on labelled questions, with every signal of the ranking and with each one left out."""
        await self.enter("facts")
        alike = {} if self.vectors is None else {item.question: await near(self, item.question) for item in questions}
        return await evaluate(self.warm, questions, alike)

    async def fact_feedback(self, fact_id: str, action: str, delta: float | None = None) -> Fact:
        await self.enter("fact_feedback")
        fact = self.fact(fact_id)
        step = abs(_DELTA if delta is None else delta)
        change = {"boost": step, "penalize": -step, "reject": 0.0}.get(action)
        if change is None:
            raise Problem(
                "invalid_request", f"{action!r} is not an action.", at="$.action", fix="Use boost, penalize or reject."
            )
        confidence = min(1.0, max(0.0, fact.confidence + change))
        await self.record(
            Draft("crp.facts.feedback", {"fact": fact.number, "action": action, "confidence": confidence})
        )
        return fact

    async def restore_facts(
        self, fact_ids: Sequence[str] | None = None, *, source_label: str | None = None
    ) -> Restored:
        """Undo quarantine, a rejection or a correction: of these facts, or of every fact of one source (C16)."""
        await self.enter("restore_facts")
        async with self._lock, self.alone():
            return await restore(self, fact_ids, source_label)

    def fact(self, id: str) -> Fact:
        number = fact_id(id)
        if number is None or number >= len(self.warm.facts):
            raise Problem(
                "not_found", f"There is no fact {id[:40]!r} in this session.", at="$.fact_id", session_id=self.id
            )
        return self.warm.facts[number]

    async def share_facts(self, target: Session, fact_ids: Sequence[str] | None = None) -> int:
        """Copy facts into another session of the same app; their source names this session."""
        await self.enter("share_facts")
        await target.enter("ingest")
        async with target._lock, target.alone():
            return await share(self, target, fact_ids)

    # Looking (O3)

    async def session_status(self) -> SessionStatus:
        await self.enter("session_status")
        return inspect.status(self)

    async def preview_envelope(
        self, system_prompt: str, task_input: str, *, max_output_tokens: int | None = None, description: str = ""
    ) -> EnvelopePreview:
        """The envelope that `dispatch` would send now, and why each fact is in it."""
        await self.enter("preview_envelope")
        return await inspect.preview(self, system_prompt, task_input, max_output_tokens, description)

    async def estimate_session(
        self,
        planned_dispatches: int = 1,
        avg_input_tokens: int | None = None,
        avg_output_tokens: int | None = None,
        pricing: Pricing | None = None,
    ) -> CostEstimate:
        """What so many dispatches would cost; sizes that are not given come from what the session has seen."""
        await self.enter("estimate_session")
        return inspect.estimate(self, planned_dispatches, avg_input_tokens, avg_output_tokens, pricing)

    async def estimate_task(self, system_prompt: str, task_input: str) -> CostEstimate:
        """As `estimate_session`, for one dispatch of this task with the envelope it would get."""
        await self.enter("estimate_session")
        return await inspect.estimate_task(self, system_prompt, task_input)

    async def audit(self) -> list[dict[str, Any]]:
        """Every record as the contract's event: what the model was told and said can be read off it."""
        await self.enter("session_status")
        return [inspect.audit_event(self.id, record) for record in await self.relay.ledger.read(self.stream_name)]

    # Settings and the end

    async def configure(self, **changes: Any) -> SessionConfig:
        await self.enter("configure")
        if changes.get("structural_validation") is False:
            raise Problem(
                "security_invariant", "Structural validation cannot be switched off.", at="$.structural_validation"
            )
        config = config_of({**msgspec.to_builtins(self.warm.config), **changes})
        expires = self.warm.created_ms + 1000 * config.session_timeout
        await self.record(
            Draft(
                "crp.session.configure",
                {"config": msgspec.to_builtins(config), "changed": sorted(changes), "expires_ms": expires},
            )
        )
        self._dispatches.limit = config.dispatches_per_minute
        self._bytes.limit = config.ingest_bytes_per_minute
        return config

    async def reset_session(self) -> SessionHandle:
        """Begin anew under the same id: facts and counters are gone from the warm state, the key is another one."""
        await self.enter("reset_session")
        async with self._lock, self.alone():
            nonce = self.relay.randomness.bytes(32)
            secret = self.relay.binding(self.id)
            key = guard.session_key(secret, nonce)
            await self.record(Draft("crp.session.reset", {"nonce": nonce.hex(), "proof": guard.key_proof(key)}))
            self.key = key
            self._compacted_at = 0
            self.relay.forget_snapshot(self.id)
        return self.handle

    async def export_state(self, passphrase: bytes | str) -> bytes:
        await self.enter("export_state")
        from forestay.relay import state

        async with self._lock, self.alone():
            return await state.export(self, passphrase)

    async def close(self, *, failed: bool = False, request: str | None = None) -> None:
        """The end: later calls are 1005, and the key is forgotten. `failed` says that its caller did not succeed, and
        may try again in another session. `request` names the request that asks for it: when it comes again after a
        crash, the record of the close says that it is done."""
        await self.refresh()
        if request is not None and self.warm.closed_by == request:
            return
        await self.enter("close")
        end = self._end()
        more = {**({"failed": True} if failed else {}), **({"request": request} if request is not None else {})}
        await self.record(Draft(end.type, {**end.payload, **more}))
        await self._forget()

    async def closing(self) -> Append:
        """As `close`, for a caller who commits the end together with records of its own.

        The session leaves memory at once; when that commit fails, the log still has it open.
        """
        await self.enter("close")
        end = self.give(self._end())
        await self._forget()
        self.relay.drop(self.id)
        return end

    def _end(self) -> Draft:
        return Draft("crp.session.close", {"windows": self.warm.windows, "facts": len(self.warm.facts)})

    async def _forget(self) -> None:
        self.key = b""
        if self.vectors is not None:
            self.vectors.forget()
        self.relay.forget(self.id)
        await self.models.aclose()


def _locked(session_id: str) -> Problem:
    return Problem(
        "signature_invalid",
        "The session was opened with a binding secret; resume it with that secret first.",
        session_id=session_id,
    )


async def fold(events: AsyncGenerator[StreamEvent, None]) -> Reply:
    """A stream of events as one reply (C2)."""
    texts: list[str] = []
    report: QualityReport | None = None
    async with aclosing(events):
        async for event in events:
            if event.event_type == "token":
                texts.append(event.data)
            elif event.event_type == "done":
                report = event.data
    assert report is not None, "a stream ends with done, or raises"
    return Reply("".join(texts), report)


async def told(events: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
    """Events whose last one is `error` where the dispatch fails."""
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except Problem as problem:
        yield StreamEvent("error", error_body(problem))


def error_body(problem: Problem) -> dict[str, Any]:
    """`{code, message, details}`, with the partial output as the model wrote it: it is not ours to redact."""
    body = problem.as_crp()
    if "partial_output" in problem.details:
        body["details"]["partial_output"] = problem.details["partial_output"]
    return body
