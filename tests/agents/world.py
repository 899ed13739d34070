"""A small world for agents: a durable log that can die at any boundary, tools with real consequences, a person."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from forestay.agents import (
    Agent,
    AgentEvent,
    AgentManifest,
    AgentResult,
    Direct,
    Invocation,
)
from forestay.kernel import Decision, Effect, ManualClock, Problem
from forestay.models import Script, Scripted, Turn
from forestay.tools import (
    ApprovalAnswer,
    ApprovalRequest,
    EffectClass,
    Guarded,
    Tool,
    ToolOutcome,
    ToolSource,
)

ANY = {"type": "object", "properties": {"x": {"type": "number"}}}
CLASSES: tuple[EffectClass, ...] = ("pure", "read", "write", "unsafe")
TOOLS = tuple(
    Tool(f"do_{cls}", f"A {cls} tool.", ANY, cls, id=f"test:do_{cls}", takes_key=cls == "write") for cls in CLASSES
)


def decided(effect: Effect, reason: str = "") -> Decision:
    return Decision(effect, "test", reason, {})


class Killed(BaseException):
    """The process is gone. Nothing catches it."""


class Log:
    """What survives: lines of JSON. Each write is a boundary at which the process may die."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.boundaries = 0
        self.die_at: int | None = None

    def boundary(self) -> None:
        self.boundaries += 1
        if self.boundaries == self.die_at:
            raise Killed

    def write(self, *entry: Any) -> None:
        self.lines.append(json.dumps(entry))
        self.boundary()

    def entries(self, kind: str) -> list[list[Any]]:
        return [entry for line in self.lines if (entry := json.loads(line))[0] == kind]


class Journal:
    """A log that only knows what was recorded, as a run's node gives it; what is for later is lost with the process."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._later: list[tuple[Any, ...]] = []

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], /, *, later: bool = False) -> Any:
        for _, known, value in self.entries("done"):
            if known == key:
                return value
        if not later:
            self.flush()
        self._log.boundary()  # nothing done, nothing recorded
        value = json.loads(json.dumps(await fn()))
        self._log.boundary()  # done in the world, not recorded
        self._later.append(("done", key, value))
        if not later:
            self.flush()
        return value

    def say(self, *entry: Any) -> None:
        """An event: behind what is for later, when there is something."""
        self._later.append(entry)
        if len(self._later) == 1:
            self.flush()

    def entries(self, kind: str) -> list[Any]:
        return [*self._log.entries(kind), *(entry for entry in self._later if entry[0] == kind)]

    def flush(self) -> None:
        later, self._later = self._later, []
        for entry in later:
            self._log.write(*entry)


class Tools(ToolSource):
    """Tools whose consequences outlive the process; a key is honoured once."""

    kind = "test"

    def __init__(self, log: Log, tools: Sequence[Tool] = TOOLS) -> None:
        self._log = log
        self._tools = tools
        self.done: Counter[str] = Counter()
        self.keys: dict[str, int] = {}

    async def list(self) -> Sequence[Tool]:
        return self._tools

    async def prepare(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        self.done[f"prepare {tool.name}"] += 1
        return {"x": arguments.get("old", arguments.get("x"))}

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Any
    ) -> ToolOutcome:
        if arguments.get("x") == 13:
            raise Problem("io_failed", "Thirteen does not work.")
        if idempotency_key is None or idempotency_key not in self.keys:
            self.done[f"{tool.name}:{call_id}"] += 1
        if idempotency_key is not None:
            self.keys[idempotency_key] = self.keys.get(idempotency_key, 0) + 1
        await update({"half": True})
        return ToolOutcome(f"{tool.name} did {arguments.get('x')}")


class Person:
    """Answers once for a key and is remembered; looks at the world before saying whether to do a thing again."""

    def __init__(self, log: Log, tools: Tools, answer: ApprovalAnswer | None = None) -> None:
        self._log = log
        self._tools = tools
        self._answer = answer or ApprovalAnswer("accept")
        self.journal = Journal(log)
        self.asked: list[ApprovalRequest] = []

    async def ask(self, key: str, request: ApprovalRequest) -> ApprovalAnswer:
        for _, known, value in self._log.entries("approval"):
            if known == key:
                return msgspec.convert(value, ApprovalAnswer)
        self.journal.flush()  # a node that waits has said everything
        self.asked.append(request)
        answer = self._answer
        if request.kind == "uncertain-effect":
            happened = self._tools.done[f"{request.tool}:{request.known['callId']}"]
            answer = ApprovalAnswer("reject", note="I looked: it was done.") if happened else ApprovalAnswer("accept")
        self._log.write("approval", key, msgspec.to_builtins(answer))
        return answer


class Policy:
    def __init__(self, **decisions: Decision) -> None:
        self._decisions = decisions
        self.asked: list[str] = []

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        self.asked.append(tool.name)
        return self._decisions.get(tool.name, decided("allow"))


class Listener:
    """Hooks that note every event and answer as told; `answers` maps a type to a value or a function of the event."""

    def __init__(self, **answers: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self._answers = answers

    def listens(self, *events: str) -> bool:
        return True

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        self.events.append(json.loads(json.dumps(event)))
        answer = self._answers.get(event["type"])
        if isinstance(answer, Problem):
            raise answer
        return answer(event) if callable(answer) else answer

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


class OnceModel:
    """A scripted model that finds its turn by the conversation, and refuses to answer what the log already holds."""

    def __init__(self, turns: Sequence[Turn], log: Log) -> None:
        self._turns = tuple(turns)
        self._log = log
        self.name = "scripted:test"
        self.calls = 0
        self.seen: list[Any] = []

    def stream(self, messages: Any, *, tools: Any = (), params: Any = None) -> Any:
        turn = sum(message.role == "assistant" for message in messages)
        recorded = {entry[1] for entry in self._log.entries("done")}
        assert f"agent/turn-{turn}/model" not in recorded, "a recorded answer was asked again"
        self.calls += 1
        self.seen.append((list(messages), list(tools), params))
        return Scripted(Script(self._turns, position="conversation")).stream(messages)


def manifest(**more: Any) -> AgentManifest:
    settings: dict[str, Any] = {"instructions": "Be good.", "tool_allowlist": ("test:*",), **more}
    return AgentManifest(agent_id="local.test.agent", persona="Tester", model_class="general", **settings)


class World:
    """Everything of one run that survives a restart, and `start` to live through it once."""

    def __init__(self, turns: Sequence[Turn], agent: AgentManifest | None = None, **parts: Any) -> None:
        self.log = Log()
        self.turns = turns
        self.manifest = agent or manifest()
        self.tools = parts.pop("tools", None) or Tools(self.log)
        self.person = Person(self.log, self.tools, parts.pop("answer", None))
        self.policy = parts.pop("policy", None) or Policy()
        self.hooks = parts.pop("hooks", None)
        self.parts = parts
        self.model = OnceModel(turns, self.log)
        self.clock = ManualClock()
        self.lives = 0

    @property
    def recorded(self) -> list[list[Any]]:
        """Keys and values of the effects; which life began one is no part of what happened."""
        return [entry[1:] for entry in self.log.entries("done") if not entry[1].endswith("#begun")]

    async def start(self, task: Any = "Do it.") -> AgentResult:
        """One life of the process: replays what the log holds, goes on from there."""
        self.lives += 1
        journal = self.person.journal = Journal(self.log)
        effects = Guarded(journal.once, f"life-{self.lives}", self.clock)
        agent = Agent(
            self.manifest,
            model=Direct(self.model, effects),
            tools=self.tools,
            effects=effects,
            gate=self.policy,
            approvals=self.person,
            hooks=self.hooks,
            clock=self.clock,
            **self.parts,
        )
        async for item in agent.invoke(Invocation(id="run-1:ask", task=task, node_id="ask")):
            if isinstance(item, AgentResult):
                journal.flush()
                return item
            self._append(journal, item)
        raise AssertionError("an invocation ends with its result")

    def _append(self, journal: Journal, event: AgentEvent) -> None:
        payload = json.loads(json.dumps(event.payload))
        for _, key, type, known in journal.entries("event"):
            if key == event.key:
                assert (type, known) == (event.type, payload), "a replay told another story"
                return
        journal.say("event", event.key, event.type, payload)

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(entry[2], entry[3]) for entry in self.log.entries("event")]

    def live(self, deaths: Sequence[int] = (), task: Any = "Do it.") -> AgentResult:
        """Die at each of `deaths` (boundaries counted from each start), then live to the end."""
        for death in (*deaths, None):
            self.log.boundaries, self.log.die_at = 0, death
            try:
                return ManualClock().run(self.start(task))
            except Killed:
                continue
        raise AssertionError("the last life has no death")
