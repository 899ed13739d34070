"""The window engine: one dispatch, from its first window to its last. Everything that asks a model goes through here.

Invariants:

- D1  One natural `stop` is one model call (C1); the tokens put together are the output, byte for byte (C2).
- D2  The engine checks the caps before every window; what is left never gets below zero (C10, C14).
- D3  A window is in the ledger, with its raw text and its facts, before its `window_complete` event. After a kill the
      dispatch continues behind it. With `later`, the caller writes the last window together with its own records.
- D4  A window is asked for again only while nothing of it was shown (C15, `window.py`). The caller's next model is
      asked only before the first window is complete; the model that began an answer finishes it (C18).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import Draft, Problem, canonical
from forestay.models import Message, Model, Params, Reserving, ToolCall, ToolSpec, halves, joined, paired, whole
from forestay.relay import drift, window
from forestay.relay.continuation import Flow, Seam, Structure, is_wall, safe_cut
from forestay.relay.envelope import EMPTY, Packed, envelope
from forestay.relay.extract import units
from forestay.relay.facts import Batch, batches
from forestay.relay.guard import Task, injection_records
from forestay.relay.ingest import ingest, question, shortened
from forestay.relay.report import completed, report_of
from forestay.relay.types import QualityReport, Stop, StreamEvent
from forestay.relay.warm import WINDOW, Dispatch, pack_text
from forestay.relay.window import ALONE, Around, Built, WindowAnswer, ask

if TYPE_CHECKING:
    from forestay.relay.session import Session
    from forestay.relay.tools import Toolbox


class DispatchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How a dispatch is asked, beyond its task."""

    toolbox: Toolbox | None = None  # the context tools, which the relay runs
    tools: tuple[ToolSpec, ...] | None = None  # the caller's; where there are any, calls are handed back
    max_steps: int = 10
    reground: bool = False
    window_tokens: int | None = None
    around: Around = ALONE
    temperature: float | None = None
    later: bool = False

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is told about."""
        return (*(self.toolbox.specs if self.toolbox is not None else ()), *(self.tools or ()))

    @property
    def takes_calls(self) -> bool:
        return self.toolbox is not None or self.tools is not None


PLAIN = DispatchTerms()
_FREE = nullcontext()


async def start(
    session: Session,
    task: Task,
    terms: DispatchTerms,
    *,
    operation: str,
    query: str | None = None,
    remember: bool | None = None,
    key: str = "",
) -> tuple[list[Draft], window.Plan | None]:
    """The records that begin a dispatch (CRP §1.3), and the plan of its first window where that is known already.

    The text of a task that does not fit into the window is ingested first; what is sent is its beginning and its end.
    The model's answer becomes facts where the caller asks for it (C20).
    """
    text = task.task_input
    limit = task.intent.max_output_tokens
    plan = window.plan(
        session.model, session.warm.config, task.system_prompt, text, limit, terms.specs, terms.around
    )  # fmt: skip
    if not (fits := plan.fits):
        if plan.system + plan.reserve + 64 > plan.context_window:
            raise Problem(
                "window_exceeded",
                f"{plan.system} tokens of system prompt and tools and {plan.reserve} of output do not fit into "
                f"{plan.context_window}.",
                at="$.system_prompt",
                limit=plan.context_window,
            )
        await ingest(session, text, trusted=True)
        query = query or f"{task.goal}\n{question(text)}"
        room = (plan.context_window - plan.system - plan.reserve) // 4
        text = shortened(text, room, session.model.count_tokens)
    begun = {
        "dispatch_id": session.relay.ids.uuid4(),
        "kind": operation,
        "system_prompt": task.system_prompt,
        "task_input": text,
        "goal": task.goal,
        "query": query or f"{task.goal}\n{text}".strip(),
        "max_windows": task.intent.max_windows,
        "max_output_tokens": limit,
        # As text: a marker may be a character that the ledger refuses.
        "flags": msgspec.json.encode(task.flags).decode(),
        "auto_ingested": not fits,
        "remember": session.warm.config.remember_answers if remember is None else remember,
        **({"key": key} if key else {}),
    }
    drafts = [Draft("crp.dispatch.start", begun), *injection_records(task.flags)]
    return drafts, plan if fits else None


class WindowEngine:
    """One dispatch under way; `warm.dispatch` is its memory, so that it can be picked up where it stopped."""

    def __init__(self, session: Session, terms: DispatchTerms, plan: window.Plan | None = None) -> None:
        self.session = session
        self.terms = terms
        self._planned = plan  # the first window's, by the first model
        self.pending_calls: tuple[ToolCall, ...] = ()
        self._tools = terms.specs
        self._structure = Structure()
        self._flow = Flow()
        self._first: Built | None = None
        self._built: Built | None = None
        self._shown = False
        self._half = ""  # of a character that two pieces or two windows share
        self._chosen: Model | None = None
        self._began = 0.0
        self._said: set[str] = set()  # the statements of the chain
        self._statements: list[str] = []  # those of its last window
        self._corrected = 0  # facts that its last window corrected

    @property
    def _model(self) -> Model:
        """The model that answers the window under way."""
        assert self._chosen is not None, "a window is asked of a model"
        return self._chosen

    @property
    def state(self) -> Dispatch:
        state = self.session.warm.dispatch
        assert state is not None
        return state

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """The events of the dispatch; a failure is raised as a Problem with the partial output in its details."""
        self._began = self.session.clock.monotonic()
        resumed = bool(self.state.output)
        if resumed:
            self._structure.feed(self.state.output)
            self._flow.alive(self.state.output)
            self._said = set(_statements(self.state.output[: self.state.extracted]))
            shown, self._half = halves(self.state.output)
            yield StreamEvent("token", shown)
            self._shown = True
        going_on = resumed
        while True:
            answer = WindowAnswer()
            join: Callable[[str, str], str] = joined
            try:
                async with aclosing(self._window(going_on, answer)) as pieces:
                    async for piece in pieces:
                        shown, self._half = halves(join(self._half, piece))
                        join = _within
                        if shown:
                            self._shown = True
                            yield StreamEvent("token", shown)
            except Problem as problem:
                if self._built is not None and answer.new:  # cut after it was shown: kept, to go on with (C15)
                    self._complete(self._built, answer, answer.output_tokens(self._model), last=False)
                raise await self._failed(problem) from problem.__cause__
            built = self._built
            assert built is not None, "a window that was answered was built"
            tokens = answer.output_tokens(self._model)
            stop = self._stop(answer, built, tokens)
            calls = answer.calls if self.terms.takes_calls and stop == "complete" else ()
            facts = len(self.session.warm.facts)
            last = stop is not None and not calls
            self._complete(built, answer, tokens, last=last)
            new_facts = [fact.id for fact in self.session.warm.facts[facts:]]
            summary = self._summary(built, answer, tokens)
            again = bool(calls) and self._run_tools(answer, calls)
            report = self._finish(built, answer, stop, resumed) if stop is not None and not again else None
            if report is None and not again:
                self._go_on(built, answer)
            if report is None or not self.terms.later:
                await self.session.flush()
            yield StreamEvent(
                "extraction", {"window_id": built.window_id, "facts_extracted": len(new_facts), "fact_ids": new_facts}
            )
            yield StreamEvent("window_complete", summary)
            if report is not None:
                if self._half or not self._shown:
                    yield StreamEvent("token", self._half)
                yield StreamEvent("done", report)
                return
            going_on = not again
            if going_on:
                yield StreamEvent(
                    "continuation",
                    {"window": summary["window"] + 1, "reason": answer.finish or "limit", "after": built.window_id},
                )

    # One window

    async def _window(self, going_on: bool, answer: WindowAnswer) -> AsyncGenerator[str, None]:
        """The next window, of the first model in the order that answers (D4)."""
        waiting = deque(self._order())
        while True:
            self._chosen = self.session.models.asked = waiting.popleft()
            self._built = None
            self._built = built = await self._build(going_on)
            params = self._params(built)
            try:
                await self._record(built, params)
                async with aclosing(self._ask(built, params, answer)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except Problem as problem:
                if answer.new or not self._fall_back(problem, waiting):
                    raise

    def _order(self) -> list[Model]:
        """The models that may answer the next window: the caller's order, and once one has begun, that one alone."""
        models = self.session.models
        if not self.state.windows:
            return models.ordered(self.session.warm.providers)
        return [self._chosen or models.named(self.state.model)]

    def _fall_back(self, problem: Problem, waiting: deque[Model]) -> bool:
        """Put on record that the chosen model failed; whether another one of the order can take the task over."""
        self._first = None
        failed, key = self._model, problem.key
        while waiting:
            self.session.stage(
                Draft(
                    "crp.dispatch.fallback",
                    {"dispatch_id": self.state.id, "model": failed.name, "problem": key, "next": waiting[0].name},
                )
            )
            if self._takes(waiting[0]):
                return True
            failed, key = waiting.popleft(), "payload_too_large"
        return False

    def _takes(self, model: Model) -> bool:
        """Whether the task fits the window of `model`."""
        try:
            return self._plan(model).fits
        except Problem:  # more output was asked for than this model writes
            return False

    def _plan(self, model: Model) -> window.Plan:
        planned, self._planned = self._planned, None
        if planned is not None:
            return planned
        state, config = self.state, self.session.warm.config
        asked = state.system_prompt, state.task_input, state.max_output_tokens
        return window.plan(model, config, *asked, self._tools, self.terms.around)

    async def _build(self, going_on: bool) -> Built:
        """Divides the tokens and chooses the facts (D2, W1)."""
        session, state = self.session, self.state
        plan = self._plan(self._model)
        reserve = min(plan.reserve, self.terms.window_tokens) if self.terms.window_tokens else plan.reserve
        free = plan.context_window - plan.system - plan.task
        extra, extra_tokens = self._extra(going_on, free - reserve)
        room = free - reserve - extra_tokens
        if room < 0:  # the continuation must fit: the reserve gives way
            reserve, room = reserve + room, 0
        fixed = plan.system + plan.task + extra_tokens
        if reserve < 1:
            raise window.exceeded(fixed + 1, plan.context_window)
        max_tokens, allowed = window.within_caps(session.warm, fixed, reserve, room)
        if max_tokens < reserve or allowed < room:
            left = {"dispatch_id": state.id, "max_tokens": max_tokens, "envelope_tokens": allowed}
            session.stage(Draft("crp.dispatch.budget_warning", left))
        first, anew = self._first, self.terms.reground or state.reground
        query = f"{state.query}\n{state.output[-2000:]}" if anew else state.query
        known = first.packed if first is not None and not anew else None
        limit = min(plan.context_window - max_tokens, fixed + allowed)
        packed, messages, tokens = await self._fitted(known, query, allowed, limit, extra, plan.tools)
        built = Built(
            session.relay.ids.uuid4(),
            messages,
            packed,
            tokens,
            max_tokens,
            min(1.0, packed.tokens / allowed) if allowed else 0.0,
            going_on,
            self.terms.around,
            state.served_by,
        )
        self._first = built if first is None or state.reground else first
        return built

    async def _record(self, built: Built, params: Params) -> None:
        """Records what the model is asked, and reserves what that may cost where there is a budget."""
        said = {
            "dispatch_id": self.state.id,
            "window_id": built.window_id,
            "facts": [item.number for item in built.packed.chosen],
            "input_tokens": built.input_tokens,
            "max_tokens": built.max_tokens,
            "saturation": round(built.saturation, 6),
            "regrounded": self.state.reground,
            "messages": canonical.digest([[item.role, pack_text(item.content)] for item in built.messages]),
        }
        model = self._model
        paid = model.reserving(built.around.spliced(built.messages), params) if isinstance(model, Reserving) else _FREE
        async with paid:
            await self.session.record(Draft("crp.envelope.build_complete", said))

    async def _fitted(
        self, packed: Packed | None, query: str, room: int, limit: int, extra: list[Message], tools: int
    ) -> tuple[Packed, list[Message], int]:
        """The envelope, the messages and their tokens, at most `limit`: counted whole, as the model counts now (W1)."""
        state = self.state
        while True:
            if packed is None or packed.tokens > room:
                packed = await self._envelope(query, room)
            messages = window.first_messages(state.system_prompt, packed.text, state.task_input) + extra
            tokens = window.request_tokens(self._model, messages) + tools
            if tokens <= limit:
                return packed, messages, tokens
            if not packed.text:
                raise window.exceeded(tokens, limit)
            room, packed = packed.tokens - (tokens - limit), None

    async def _envelope(self, query: str, room: int) -> Packed:
        session = self.session
        started = session.clock.monotonic()
        goal, packed = self.state.goal, EMPTY
        if goal or session.warm.facts:
            packed = await envelope(session, query, max(0, room), goal=goal)
        session.relay.meters.took("crp_envelope_seconds", session.clock.monotonic() - started)
        return packed

    def _extra(self, going_on: bool, room: int) -> tuple[list[Message], int]:
        """What follows the first messages, and its tokens: of a continuation the longest form that fits."""
        turns = msgspec.convert(self.state.turns, list[Message])
        output = whole(halves(self.state.output)[0])
        forms = window.continuations(turns, output, self._structure) if going_on else iter([turns])
        for form in forms:
            tokens = window.request_tokens(self._model, form)
            if tokens <= room:
                break
        return form, tokens

    def _params(self, built: Built) -> Params:
        return Params(
            max_tokens=built.max_tokens,
            temperature=self.terms.temperature,
            timeout=self.session.warm.config.provider_timeout,
        )

    def _ask(self, built: Built, params: Params, answer: WindowAnswer) -> AsyncGenerator[str, None]:
        seam = Seam(halves(self.state.output)[0] if built.going_on else "")
        return ask(self._model, built, answer, seam, tools=self._tools, params=params)

    def _stop(self, answer: WindowAnswer, built: Built, tokens: int) -> Stop | None:
        """Why this window is the last one; None when the text goes on (CRP §1.4)."""
        state = self.state
        if answer.finish == "content_filter":
            return "filtered"
        if not is_wall(answer.finish, tokens, built.max_tokens):
            # A limit cut the text, and the model was asked for the rest and said nothing: that is no natural end.
            return "complete" if answer.text or answer.calls or not built.going_on else "no_new_text"
        if state.windows and not answer.new:
            return "no_new_text"
        if not self._flow.alive(answer.new):
            return "information_flow"
        if state.max_windows is not None and state.windows + 1 >= state.max_windows:
            return "max_windows"
        if state.windows >= self.session.warm.config.max_continuations:
            return "max_continuations"
        return None

    def _complete(self, built: Built, answer: WindowAnswer, tokens: int, *, last: bool) -> None:
        """The window and its facts, in one append (D3)."""
        session, state, warm = self.session, self.state, self.session.warm
        self._structure.feed(answer.new)
        output = joined(state.output, answer.new)
        cut = (
            len(output)
            if last
            else safe_cut(output, state.extracted)
            if self._structure.splittable
            else state.extracted
        )
        usage = answer.usage
        drafts = [
            Draft(
                "crp.window.complete",
                {
                    "dispatch_id": state.id,
                    "window_id": built.window_id,
                    "output": pack_text(answer.text),
                    "removed": answer.echo.length,
                    "ambiguous": answer.echo.ambiguous,
                    "other": answer.echo.other,
                    "finish_reason": answer.finish or "unknown",
                    "input_tokens": max(0, usage.input_tokens) if usage is not None else built.input_tokens,
                    "output_tokens": tokens,
                    "counted_by": "provider" if usage is not None else "relay",
                    "model": answer.model,
                    "served_by": answer.served_by,
                    "visible": bool(answer.new),
                    "extracted": cut,
                    "continuation": built.going_on,
                    "tool_calls": len(answer.calls),
                    **({"calls": msgspec.to_builtins(answer.calls)} if answer.calls else {}),
                },
            )
        ]
        piece = output[state.extracted : cut].encode("utf-8", "replace").decode()
        self._statements = [] if last else _statements(piece)
        made: Iterable[Batch] = ()
        if state.remember and piece.strip():
            source = WINDOW + state.id
            made = batches(
                piece,
                source,
                window=warm.windows + 1,
                first=len(warm.facts),
                key=session.key,
                parent=warm.parent,
                base=len(output[: state.extracted].encode("utf-8", "replace")),
                corrects=[source],
            )
        session.stage(*drafts)
        session.stage_facts(made)
        self._corrected = len({item.new for item in session.settle_contradictions()})

    def _go_on(self, built: Built, answer: WindowAnswer) -> None:
        """Another window follows; one that drifted gets facts for what was just written (CRP §1.4)."""
        state = self.state
        new = set(self._statements) - self._said
        self._said |= new
        lost = drift.of_window(len(new), len(self._statements), self._corrected, self._flow.novelty, self._flow.before)
        chain = drift.of_chain(state.degradation, lost)
        self.session.stage(
            Draft(
                "crp.dispatch.continuation",
                {
                    "dispatch_id": state.id,
                    "after": built.window_id,
                    "reason": answer.finish or "limit",
                    "degradation": round(chain, 6),
                    "reground": drift.reground(chain, state.since_grounding + 1),
                },
            )
        )

    def _summary(self, built: Built, answer: WindowAnswer, tokens: int) -> dict[str, Any]:
        return {
            "window_id": built.window_id,
            "window": self.state.windows,
            "finish_reason": answer.finish,
            "output_characters": len(answer.new),
            "echo_characters": answer.echo.length,
            "output_tokens": tokens,
            "model": answer.model,
        }

    # Tools

    def _run_tools(self, answer: WindowAnswer, calls: tuple[ToolCall, ...]) -> bool:
        """Run what the model asked for; False when a call is the caller's to make, or the steps are used up."""
        box = self.terms.toolbox
        spent = self.state.tool_calls >= self.terms.max_steps
        if box is None or spent or not all(box.knows(call.name) for call in calls):
            self.pending_calls = calls
            return False
        messages = self._answered(box, Message("assistant", answer.text, tool_calls=calls))
        self.session.stage(
            Draft(
                "crp.tools.complete",
                {
                    "dispatch_id": self.state.id,
                    "calls": len(calls),
                    "names": [call.name for call in calls],
                    "messages": [msgspec.to_builtins(message) for message in messages],
                },
            )
        )
        return True

    def _answered(self, box: Toolbox, asked: Message) -> list[Message]:
        """The calls and their answers; one that does not fit into the window says so: the model can ask for less."""
        model = self._model
        before = msgspec.convert(self.state.turns, list[Message])
        left = self._plan(model).envelope - window.request_tokens(model, [*before, asked])
        messages = [asked]
        for call in asked.tool_calls:
            result = Message("tool", box.call(call), tool_call_id=call.id)
            needed = window.request_tokens(model, [result])
            if needed > left:
                told = f"The answer has {needed} tokens and {max(0, left)} fit into the window. Ask for less."
                result = Message("tool", canonical.encode({"error": told}).decode(), tool_call_id=call.id)
                needed = window.request_tokens(model, [result])
            left -= needed
            messages.append(result)
        return messages

    # The end

    def _finish(self, built: Built, answer: WindowAnswer, stop: Stop, resumed: bool) -> QualityReport:
        state = self.state
        report = report_of(
            self.session,
            state,
            window_id=built.window_id,
            finish=answer.finish,
            model=answer.model,
            stop=stop,
            resumed=resumed,
        )
        self.session.stage(completed(state, report, stop))
        self._took()
        return report

    def _took(self) -> None:
        session = self.session
        session.relay.meters.took("crp_dispatch_seconds", session.clock.monotonic() - self._began)

    async def _failed(self, problem: Problem) -> Problem:
        """The failure as the caller gets it: with the output so far, and whether `resume` can continue it."""
        state = self.state
        resumable = bool(state.output)
        details = {
            **({"model": self._chosen.name} if self._chosen is not None else {}),
            **problem.details,
            **({"fallbacks": state.fallbacks} if state.fallbacks else {}),
            "partial_output": state.output,
            "windows": state.windows,
            "resumable": resumable,
            "session_id": self.session.id,
        }
        told = Problem(problem.key, problem.message, retry_after_ms=problem.retry_after_ms, **details)
        told.__cause__ = problem.__cause__
        self._took()
        await self.session.record(
            Draft(
                "crp.dispatch.error",
                {"dispatch_id": state.id, "code": problem.row.crp, "problem": problem.key, "resumable": resumable},
            )
        )
        return told


def _within(half: str, piece: str) -> str:
    """The next piece of one window behind the half of a character that was held back."""
    return paired(half + piece)


def _statements(text: str) -> list[str]:
    return [text[unit.start : unit.end] for unit in units(text)]
