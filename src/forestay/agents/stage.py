"""What an invocation works with, and the two things every step does: happen once, and be told to the extensions.

P1  What influenced the loop is inside the recorded value: the answer, the arguments after an extension changed them,
    the result after an extension replaced it. A replay asks nobody.
P2  Extensions hear of a step while it is performed. A step that is performed again after a crash tells them again;
    a recorded one does not.
P3  A `tool_call` listener that fails blocks the call (fails closed, Pi P10); any other is its own host's to record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from forestay.agents import pi
from forestay.agents.decide import AgentState
from forestay.agents.events import Invocation
from forestay.agents.manifest import AgentManifest
from forestay.agents.ports import AgentModel, Hooks, Memory, Transcript
from forestay.kernel import Clock
from forestay.models import Message
from forestay.tools import Approvals, EffectClass, Effects, Gate, ToolSource

T = TypeVar("T")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one invocation touches."""

    manifest: AgentManifest
    invocation: Invocation
    model: AgentModel
    tools: ToolSource
    effects: Effects
    hooks: Hooks
    gate: Gate
    approvals: Approvals
    memory: Memory | None
    clock: Clock
    transcript: Transcript | None = None

    async def once(
        self,
        key: str,
        body: Callable[[], Awaitable[T]],
        cls: EffectClass,
        type: type[T],
        identity: str | None = None,
        *,
        later: bool = False,
    ) -> T:
        """The recorded value of `key`, typed; JSON in the record."""
        made: list[T] = []

        async def plain() -> Any:
            made.append(await body())
            return msgspec.to_builtins(made[0])

        done = await self.effects.perform(key, plain, cls=cls, idempotency_key=identity, later=later)
        return made[0] if made else msgspec.convert(done, type)

    async def step(self, key: str, body: Callable[[], Awaitable[T]], type: type[T]) -> T:
        """As `once`, for what the loop does itself: it may be repeated, so it is recorded with what comes next."""
        return await self.once(key, body, "read", type, later=True)

    async def tell(self, event: str, **payload: Any) -> dict[str, Any] | None:
        """The extensions' merged answer to `event`, or None."""
        return await self.hooks.emit({"type": event, **payload}) if self.hooks.listens(event) else None

    async def tell_message(self, message: Message, *events: str) -> None:
        events = events or ("message_start", "message_end")
        if not self.hooks.listens(*events):  # what nobody wants is not even put together
            return
        for event in events:
            if self.hooks.listens(event):
                await self.hooks.emit({"type": event, "message": pi.to_pi(message)})

    async def tell_turn_end(self, state: AgentState) -> None:
        """The end of the turn that the conversation ends with, if there was one."""
        if not state.turns or not self.hooks.listens("turn_end"):
            return
        at = max(index for index, message in enumerate(state.messages) if message.role == "assistant")
        results = [pi.to_pi(message) for message in state.messages[at + 1 :] if message.role == "tool"]
        await self.tell(
            "turn_end", turnIndex=state.turns - 1, message=pi.to_pi(state.messages[at]), toolResults=results
        )
