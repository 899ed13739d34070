"""An agent's model call through the relay: facts go in, windows are kept, and each answer is paid for once.

C1  What a model answered is an effect of the run before anybody sees it; whoever asks again after a crash is given
    that answer, and the provider is not called.
C2  The relay shares out the window, adds the facts and joins what a limit cut; the conversation around the prompt
    (a memory, tool calls and their results) is spliced in as it is.
    One model writes an answer: a host that was started again with another one does not go on with it.
C3  Text reaches the run's log while it is written, as `output.chunk`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.models import (
    DEFAULT_PARAMS,
    Completion,
    Delta,
    Message,
    Model,
    Params,
    ToolSpec,
    Usage,
    fold,
    message_tokens,
    whole,
)
from forestay.relay import QualityReport, Run, Session, Telemetry, pack_text, unpack_text
from forestay.runs import Execution

_CHUNK_CHARACTERS = 160
_LEAST_WINDOW = 256  # tokens
_CUT = frozenset({"max_windows", "max_continuations", "no_new_text", "information_flow"})


class Conversation:
    """A model as the relay sees it during one agent's conversation (C1, C2)."""

    def __init__(self, ctx: Execution, model: Model) -> None:
        self.name = model.name
        self.max_output_tokens = model.max_output_tokens
        self.ctx = ctx
        self._model = model
        self._before: tuple[Message, ...] = ()
        self._since: tuple[Message, ...] = ()
        self._turn = 0
        self._windows = 0
        self._writer = ""  # the model that wrote the windows before
        self._params = DEFAULT_PARAMS

    def begin(self, before: Sequence[Message], since: Sequence[Message], turn: int, params: Params) -> None:
        """The next question: what was said before and since the prompt, and which turn this is."""
        self._before = tuple(before)
        self._since = tuple(since)
        self._turn = turn
        self._windows = 0
        self._writer = ""
        self._params = params
        if self._model.context_window - self._spent < _LEAST_WINDOW:
            raise Problem(
                "window_exceeded",
                f"The conversation has {self._spent} tokens; the window of {self.name} has "
                f"{self._model.context_window}.",
                fix="Begin a new conversation, let tools answer with less, or use a model with a larger window.",
            )

    @property
    def _spent(self) -> int:
        return sum(message_tokens(self.count_tokens, message) for message in (*self._before, *self._since))

    @property
    def context_window(self) -> int:
        return max(_LEAST_WINDOW, self._model.context_window - self._spent)

    def count_tokens(self, text: str) -> int:
        return self._model.count_tokens(text)

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> AsyncIterator[Delta]:
        asked = self._spliced(messages)
        wanted = Params(max_tokens=params.max_tokens, temperature=self._params.temperature, timeout=params.timeout)

        async def ask() -> dict[str, Any]:
            if self._writer not in ("", self.name):
                raise Problem(
                    "provider_missing",
                    f"{self._writer} began this answer, and the host now asks {self.name}. No other model goes on.",
                    model=self._writer,
                    fix="Configure that model again, or start the run anew.",
                )
            answer = await fold(self._heard(self._model.stream(asked, tools=tools, params=wanted)))
            if answer.finish_reason == "error":  # not put on record: whoever tries again asks again
                raise Problem("provider_error", "The model ended with an error.", model=self.name)
            made: dict[str, Any] = msgspec.to_builtins(answer)
            return {**made, "text": pack_text(answer.text), "model": self.name}  # the text may end in half a character

        key = f"model/turn-{self._turn}/window-{self._windows}"
        kept: dict[str, Any] = await self.ctx.effect(key, ask, provider=f"model:{self.name}")
        answer = msgspec.convert({**kept, "text": unpack_text(kept["text"])}, Completion)
        self._writer = kept.get("model", self.name)
        self._windows += 1
        yield Delta(answer.text, answer.tool_calls, answer.finish_reason, answer.usage, answer.served_by)

    def _spliced(self, messages: Sequence[Message]) -> list[Message]:
        """The relay's messages with the conversation around the prompt."""
        at = next(index for index, message in enumerate(messages) if message.role == "user")
        return [*messages[:at], *self._before, messages[at], *self._since, *messages[at + 1 :]]

    async def _heard(self, deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        """C3: chunks of a readable size, because each is a record on disk."""
        waiting = ""
        async for delta in deltas:
            waiting += delta.text
            if len(waiting) >= _CHUNK_CHARACTERS or (waiting and delta.finish_reason is not None):
                await self._say(waiting, last=delta.finish_reason is not None)
                waiting = ""
            yield delta

    async def _say(self, text: str, *, last: bool) -> None:
        ctx = self.ctx
        ctx.emit("output.chunk", {"nodeId": ctx.node_id, "runId": ctx.run_id, "chunk": whole(text), "isLast": last})
        if not last:  # the last one goes into the log with the answer itself, a moment later
            await ctx.flush()


class RelayCaller:
    """`agents.ModelCaller` over one relay session."""

    records = True  # C1

    def __init__(self, session: Session, talk: Conversation) -> None:
        self._session = session
        self._talk = talk

    @property
    def name(self) -> str:
        return self._talk.name

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> AsyncIterator[Delta]:
        system, before, task, since = _parts(messages)
        self._talk.begin(before, since, sum(message.role == "assistant" for message in messages), params)
        toolbox = self._session.toolbox()
        toolbox.specs = tuple(tools)  # the relay's own context tools are not the agent's: its allowlist decides
        engines: list[Run] = []
        events = self._session.events(
            system, task, max_output_tokens=params.max_tokens, run={"toolbox": toolbox}, holder=engines
        )
        async for event in events:
            if event.event_type == "token" and event.data:
                yield Delta(whole(event.data))
            elif event.event_type == "done":
                self._report(event.data)
                yield _end(event.data, engines[0])

    def _report(self, report: QualityReport) -> None:
        """What the relay says of the answer, in the run's log."""
        telemetry = _telemetry(report)
        told = {
            "nodeId": self._talk.ctx.node_id,
            "sessionId": report.session_id,
            "windowId": report.window_id,
            "windows": telemetry.windows,
            "tier": report.quality_tier,
            "factsInEnvelope": telemetry.facts_in_envelope,
        }
        self._talk.ctx.emit("forestay.relay.answered", told)


def _parts(messages: Sequence[Message]) -> tuple[str, list[Message], str, list[Message]]:
    """The system prompt, what was said before the task (a memory), the task, and everything said since.

    An extension may take the task out of the conversation; what the user says last is then what is asked.
    """
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    spoken = [message for message in messages if message.role != "system"]
    asked = [index for index, message in enumerate(spoken) if message.role == "user"]
    if not asked:
        return system, [], "", spoken
    at = next((index for index in asked if spoken[index].task), asked[-1])
    return system, spoken[:at], spoken[at].content, spoken[at + 1 :]


def _telemetry(report: QualityReport) -> Telemetry:
    assert report.telemetry is not None, "the engine measures every dispatch"
    return report.telemetry


def _end(report: QualityReport, engine: Run) -> Delta:
    telemetry = _telemetry(report)
    usage = Usage(telemetry.input_tokens, telemetry.output_tokens)
    if engine.pending_calls:
        return Delta(tool_calls=engine.pending_calls, finish_reason="tool_calls", usage=usage)
    if telemetry.stopped_by == "filtered":
        return Delta(finish_reason="content_filter", usage=usage)
    return Delta(finish_reason="length" if telemetry.stopped_by in _CUT else "stop", usage=usage)
