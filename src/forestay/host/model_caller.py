"""An agent's model through a relay session: facts go in, windows are kept, and each answer is paid for once.

C1  An answer is in the ledger before a gate decides about its tool calls and before an extension hears of it. A last
    answer without listeners is written with the end of the node. After a crash the model is asked only for what the
    ledger does not hold.
C2  The relay divides the window, adds the facts and joins what a limit cut. One model writes an answer: after a restart
    with another model, the host does not continue it.
C3  Text reaches the run's log while it is written, as `output.chunk`.
C4  The answer stands once, in the session's stream; the run's log names the session and the answer's digest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from forestay.agents import Heard
from forestay.kernel import Problem
from forestay.models import DEFAULT_PARAMS, Completion, Delta, Deltas, Message, Model, Params, ToolSpec, whole
from forestay.relay import Piece, Relay, Session, Turned, unpack_text
from forestay.runs import Execution

_CHUNK_CHARACTERS = 160


class RelayModel:
    """`agents.AgentModel` over one relay session, for one execution of a node."""

    def __init__(self, ctx: Execution, relay: Relay, session: Session, model: Model) -> None:
        self.name = model.name
        self._ctx = ctx
        self._relay = relay
        self._session = session
        self._model = model
        self._known: dict[tuple[str, str], Turned] = {}  # by session and key
        session.write = ctx.write  # with the node's own records

    async def once(self, key: str, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        async def reference() -> dict[str, Any]:
            await ask()
            return {"session": self._session.id, "digest": self._known[self._session.id, key].digest}

        kept: dict[str, Any] = await self._ctx.effect(key, reference, provider=f"model:{self.name}", later=True)
        if "text" in kept:  # until 0.2 the run's log had a copy of it
            return msgspec.convert({**kept, "served_by": ""}, Completion)
        return (await self._recalled(key, **kept)).answer

    async def turn(
        self, key: str, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params, heard: Heard
    ) -> Completion:
        chunks = _Chunks(self._ctx)

        async def both(piece: Piece) -> None:
            await chunks.take(piece)
            if text := whole(piece.text):
                await heard(text)

        session = self._session
        session.use_model(_former(self._ctx, self._model, key), priority=0)
        turned = await session.turn(messages, tools, params, key=key, heard=both)
        self._known[session.id, key] = turned
        self._ctx.say(
            "forestay.relay.answered",
            {
                "nodeId": self._ctx.node_id,
                "sessionId": session.id,
                "windowId": turned.window_id,
                "windows": turned.windows,
                "tier": turned.tier,
                "factsInEnvelope": turned.facts_in_envelope,
            },
        )
        if turned.answer.tool_calls:
            await session.flush()
        else:
            self._ctx.along(session.give())
        return turned.answer

    async def _recalled(self, key: str, session: str, digest: str) -> Turned:
        """The answer that the run's log names (C4)."""
        if (session, key) not in self._known:
            self._known |= {(session, name): turn for name, turn in (await self._relay.turns(session)).items()}
        found = self._known.get((session, key))
        if found is None or found.digest != digest:
            raise Problem(
                "chain_broken",
                "The answer that the run's log names is not in the relay's session.",
                stream=f"relay/{session}",
                turn=key,
            )
        return found


class _Chunks:
    """C3: chunks of a readable size, because each is a record on disk. Each window counts its own."""

    def __init__(self, ctx: Execution) -> None:
        self._ctx = ctx
        self._window = 0
        self._waiting = ""

    async def take(self, piece: Piece) -> None:
        if piece.window != self._window:
            self._say(last=False)
            self._window = piece.window
        self._waiting += piece.text
        if piece.last:
            self._say(last=True)
        elif len(self._waiting) >= _CHUNK_CHARACTERS:
            self._say(last=False)
            await self._ctx.flush()

    def _say(self, *, last: bool) -> None:
        text, self._waiting = whole(self._waiting), ""
        if text:
            ctx = self._ctx
            chunk = {"nodeId": ctx.node_id, "runId": ctx.run_id, "chunk": text, "isLast": last}
            ctx.say("output.chunk", chunk, place=f"window-{self._window}>")


def _former(ctx: Execution, model: Model, key: str) -> Model:
    """The model; where a host of 0.2 died inside this turn, one that first says again what it had said by then."""
    turn = key.split("/")[1]
    said: list[dict[str, Any]] = []
    while (kept := ctx.recorded(f"model/{turn}/window-{len(said)}")) is not None:
        said.append(kept)
    return _Former(model, said) if said else model


class _Former:
    """A model behind the answers that 0.2 recorded as effects of the run."""

    def __init__(self, model: Model, said: list[dict[str, Any]]) -> None:
        self.name = model.name
        self.context_window = model.context_window
        self.max_output_tokens = model.max_output_tokens
        self.count_tokens = model.count_tokens
        self._model = model
        self._said = said
        self._writer = model.name  # of the answer that is being written

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        if self._said:
            kept = self._said.pop(0)
            answer = msgspec.convert({**kept, "text": unpack_text(kept["text"])}, Completion)
            self._writer = kept.get("model", self.name) if answer.finish_reason == "length" else self.name
            yield Delta(answer.text, answer.tool_calls, answer.finish_reason, answer.usage, answer.served_by)
            return
        if self._writer != self.name:
            raise Problem(
                "provider_missing",
                f"{self._writer} began this answer, and the host now asks {self.name}. No other model goes on.",
                model=self._writer,
                fix="Configure that model again, or start the run anew.",
            )
        async for delta in self._model.stream(messages, tools=tools, params=params):
            yield delta
