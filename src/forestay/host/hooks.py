"""The extensions' hooks as the agent loop takes them: pi's merged answers, each in the shape that the loop reads.

K1  A handler that needs a capability which a person must grant parks the node; when the node is executed again, the
    handlers go on where they stood, and what was told before in the same step is not told again.
K2  The skills that were found are named in the system prompt before any extension sees it.
K3  What a person says to a session may be a command of an extension, a shortcut (`/key ctrl+x`) or a line for the shell
    (`!command`), which is performed in place of a turn of the model; a prompt template or a skill, after extensions saw
    the line, is the text that it stands for. Files that it names (`@file`) are read with it. What an extension says in
    the user's name is a text and nothing else, unless it asks for that (`expandPromptTemplates`).
K4  A command, a shortcut or a handler that is begun again in another life asks nothing that was answered and does
    nothing that was done (`kept_calls`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.agents import text_of
from forestay.extensions import PersonShell, command_line, shell_line, skills_prompt
from forestay.host.mentions import mentioned, with_files
from forestay.host.prompts import Prompts
from forestay.host.session_transcript import PLAIN
from forestay.kernel import canonical
from forestay.runs import Execution

if TYPE_CHECKING:
    from forestay.extensions import Extensions
    from forestay.host.tools import HostTools


class Told(msgspec.Struct):
    """What was told in one step of an agent, and answered: by the digest of the event."""

    place: str = ""
    answers: dict[str, Any] = {}


class SuiteHooks:
    """`agents.Hooks` over the loaded extensions, for one execution of a node."""

    def __init__(
        self, suite: Extensions, prompts: Prompts, tools: HostTools, ctx: Execution, told: Told | None = None
    ) -> None:
        self._suite = suite
        self._tools = tools
        self._prompts = prompts
        self._ctx = ctx
        self._before = told or Told()
        self.told = Told()
        self._counts: Counter[str] = Counter()

    def listens(self, *events: str) -> bool:
        return any(map(self._listens, events))

    def _listens(self, event: str) -> bool:
        if event in ("agent_start", "agent_end"):  # the session follows these even when no extension listens
            return True
        if event == "input" and self._ctx.inputs.get("sessionId"):
            return True
        begins = event == "before_agent_start" and (bool(self._skills()) or self._suite.session.waiting)
        return self._heard_by_any(event) or begins

    def _heard_by_any(self, event: str) -> bool:
        hooks = self._suite.hooks
        return bool(hooks.listeners) and hooks.listening(event)

    def _skills(self) -> str:
        resources = self._suite.resources
        return skills_prompt(resources) if resources else ""

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        is_plain = "streamingBehavior" in event or self._ctx.inputs.get("source") == PLAIN
        if event["type"] == "input" and self._ctx.inputs.get("sessionId") and not is_plain:
            return await self._heard(event)
        if event["type"] == "before_agent_start" and (skills := self._skills()):
            event = {**event, "systemPrompt": f"{event.get('systemPrompt', '')}\n\n{skills}".strip()}
            return {"systemPrompt": event["systemPrompt"], **(await self._told(event) or {})}
        return await self._told(event)

    async def _heard(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """What a person says: a command, or a text that extensions see before it is expanded (K3)."""
        if await self._performed(event["text"]):
            return {"action": "handled"}
        is_persons = event.get("source") != "extension"
        names = mentioned(event["text"]) if is_persons else []
        answer = await self._told(event) or {}
        if answer.get("action") == "handled":
            return answer
        text = answer["text"] if answer.get("action") == "transform" else event["text"]
        line = command_line(text)
        meant = self._suite.expanded(line) if line is not None else None
        whole = await with_files(meant or text, names, lambda path: self._tools.read_for(self._ctx, path))
        return {**answer, "action": "transform", "text": whole} if whole != event["text"] else answer

    async def _performed(self, text: str) -> bool:
        """Whether the line is something to do in place of a turn of the model; then it is done (K3)."""
        if (shell := shell_line(text)) is not None and self._ctx.inputs.get("source") != "extension":
            message = await self._tools.run_shell(self._ctx, PersonShell(self._suite, shell), shell.command)
            await self._keep(message)
            return True
        line = command_line(text)
        if line is None:
            return False
        if (extension := self._suite.commander(line.name)) is not None:
            await self._perform(lambda: self._suite.run_command(line.name, line.arguments), line.name, extension)
            return True
        if line.name == "key" and (pressed := self._suite.shortcut(line.arguments)) is not None:
            await self._perform(lambda: self._suite.press(line.arguments), line.arguments.strip(), pressed)
            return True
        return False

    async def _keep(self, message: dict[str, Any]) -> None:
        """What the person ran, in the session once, when the run's log has it."""
        tree, place = self._suite.session.tree, f"{self._ctx.run_id}/shell"
        if not tree.has(place):
            await self._ctx.flush()
            tree.append("message", place=place, message={**message, "timestamp": self._suite.now_ms()})
            await self._suite.session.save()

    async def _perform(self, work: Callable[[], Awaitable[Any]], name: str, extension: str) -> None:
        """Do what an extension registered; what it asks for, the run asks a person about."""
        about = {"command": name}
        await self._prompts.during(self._ctx, work, extension=extension, name="command:", about=about, whole=True)

    async def _told(self, event: dict[str, Any]) -> dict[str, Any] | None:
        heard = self._heard_by_any(event["type"])
        if heard and self._ctx.appends:
            await self._ctx.flush()  # extensions hear of an answer when it is on disk
        asks = self._suite.asks or self._ctx.inputs.get("sessionId")
        answer = await (self._asking(event) if heard and asks else self._suite.emit(event))
        if event["type"] in ("context", "context_with_system"):
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
        name = self._counted(f"{place}hook:{event['type']}:")
        if self._before.place == place and mark in self._before.answers:
            answer = self._before.answers.pop(mark)
        else:
            about = {"event": event["type"]}
            answer = await self._prompts.during(
                self._ctx, lambda: self._suite.emit(event), name=name, about=about, repeats=True
            )
        self.told.answers[mark] = answer
        return answer

    def _counted(self, base: str) -> str:
        """The name of an event among those of its kind in this place: the same in every life (K4)."""
        self._counts[base] += 1
        return f"{base.removeprefix(self._ctx.place)}{self._counts[base]}:"


def _begun(answer: dict[str, Any]) -> dict[str, Any]:
    """Several extensions may each add a message before the agent starts; the loop takes one, so they become one."""
    messages = answer.get("messages")
    if not messages:
        return answer
    text = "\n\n".join(text_of(message.get("content")) for message in messages if isinstance(message, dict))
    return {**answer, "message": {"role": "user", "content": text}}
