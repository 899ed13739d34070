"""The extensions' hooks as the agent loop takes them: pi's merged answers, each in the shape that the loop reads.

K1  A handler that needs a capability which a person must grant parks the node; when the node is executed again, the
    handlers go on where they stood, and what was told before in the same step is not told again.
K2  The skills that were found are named in the system prompt before any extension sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from forestay.agents import text_of
from forestay.extensions import skills_prompt
from forestay.host.prompts import Prompts
from forestay.kernel import canonical
from forestay.runs import Execution

if TYPE_CHECKING:
    from forestay.extensions import Extensions


class Told(msgspec.Struct):
    """What was told in one step of an agent, and answered: by the digest of the event."""

    place: str = ""
    answers: dict[str, Any] = {}


class SuiteHooks:
    """`agents.Hooks` over the loaded extensions, for one execution of a node."""

    def __init__(self, suite: Extensions, prompts: Prompts, ctx: Execution, told: Told | None = None) -> None:
        self._suite = suite
        self._prompts = prompts
        self._ctx = ctx
        self._before = told or Told()
        self.told = Told()

    def listens(self, event: str) -> bool:
        if event in ("agent_start", "agent_end"):  # the session follows these, whoever listens
            return True
        begins = event == "before_agent_start" and (bool(self._skills()) or self._suite.session.waiting)
        return self._suite.hooks.listening(event) or begins

    def _skills(self) -> str:
        return skills_prompt(self._suite.resources)

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        if event["type"] == "before_agent_start" and (skills := self._skills()):
            event = {**event, "systemPrompt": f"{event.get('systemPrompt', '')}\n\n{skills}".strip()}
            return {"systemPrompt": event["systemPrompt"], **(await self._told(event) or {})}
        return await self._told(event)

    async def _told(self, event: dict[str, Any]) -> dict[str, Any] | None:
        heard = self._suite.hooks.listening(event["type"])
        if heard and self._ctx.appends:
            await self._ctx.flush()  # extensions hear of an answer when it is on disk
        answer = await (self._asking(event) if heard and self._suite.asks else self._suite.emit(event))
        if event["type"] == "context":
            return {"messages": answer} if isinstance(answer, list) else None
        if not isinstance(answer, dict):
            return None
        return _begun(answer) if event["type"] == "before_agent_start" else answer

    async def _asking(self, event: dict[str, Any]) -> Any:
        """As `suite.emit`, but a handler may ask a person meanwhile (K1)."""
        place = self._ctx.place
        if self.told.place != place:
            self.told = Told(place, {})
        mark = canonical.digest(event)
        if self._before.place == place and mark in self._before.answers:
            answer = self._before.answers.pop(mark)
        else:
            about = {"event": event["type"]}
            answer = await self._prompts.during(
                self._ctx, lambda: self._suite.emit(event), name=f"hook:{mark[-16:]}:", about=about, repeats=True
            )
        self.told.answers[mark] = answer
        return answer


def _begun(answer: dict[str, Any]) -> dict[str, Any]:
    """Several extensions may each add a message before the agent starts; the loop takes one, so they become one."""
    messages = answer.get("messages")
    if not messages:
        return answer
    text = "\n\n".join(text_of(message.get("content")) for message in messages if isinstance(message, dict))
    return {**answer, "message": {"role": "user", "content": text}}
