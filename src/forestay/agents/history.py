"""Reads an agent's work inside a run, step by step, from the run's log.

Z1  Everything shown is on record: prompts, answers, arguments and results are the recorded effects of the run.
Z2  A turn's record names its window of the relay. The relay knows which facts were in that window.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

_KEY = re.compile(r"agent/turn-(\d+)/(?:model|tool-(\d+)/(\w+))")
_CALL = re.compile(r"agent/turn-(\d+)/tool-(\d+)/")
_NAMED = {"session", "digest"}  # the log only names an answer; until 0.2 it held the answer itself


class Logged(Protocol):
    """An event in a run's log, with its private part."""

    type: str
    payload: dict[str, Any]
    node: str | None
    private: dict[str, Any] | None
    ts: int


class AnswerTurn(Protocol):
    """One turn of a relay session."""

    @property
    def answer(self) -> Any: ...


Answers = Mapping[str, Mapping[str, AnswerTurn]]
"""The turns of relay sessions, by session and key."""


class Turns(Protocol):
    """The relay; it holds the answers that a run's log names."""

    async def turns(self, session_id: str, /) -> Mapping[str, AnswerTurn]: ...


class Said(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: str
    content: str


class Asked(msgspec.Struct, kw_only=True):
    """A question to a person, and their answer."""

    id: str
    kind: str
    data: dict[str, Any]
    answer: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        return str(self.data.get("title") or self.data.get("message") or self.data.get("description") or self.kind)

    @property
    def edited(self) -> Any:
        """The arguments that a person wrote in place of the model's; None when the person kept them."""
        changed = (self.answer or {}).get("editedArtifactData")
        return changed.get("arguments", changed) if isinstance(changed, dict) else None


class ToolStep(msgspec.Struct, kw_only=True):
    """A tool call: its arguments, the gate's verdict, the questions to people, and its result."""

    name: str
    arguments: Any
    at: int | None = None
    verdict: str = ""
    reason: str = ""
    questions: list[Asked] = []
    result: str | None = None
    status: str = ""
    duration_ms: int | None = None

    @property
    def state(self) -> str:
        if self.status:
            return self.status
        return "waits for a person" if any(item.answer is None for item in self.questions) else "under way"


class TurnStep(msgspec.Struct, kw_only=True):
    """One answer of the model, and its tool calls."""

    number: int
    at: int | None = None
    text: str = ""
    finish: str = "under way"
    input_tokens: int | None = None
    output_tokens: int | None = None
    session: str = ""
    window: str = ""
    tier: str = ""
    facts: int | None = None
    tools: list[ToolStep] = []


class ToolOffered(msgspec.Struct, frozen=True):
    """A tool in the form that the model got, and its effect class."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: str


class AgentWork(msgspec.Struct, kw_only=True):
    """One invocation of an agent."""

    node: str
    agent: str = ""
    model: str = ""
    provider: str = ""
    prompt: list[Said] = []
    surface: list[ToolOffered] = []
    turns: list[TurnStep] = []
    outcome: str = ""

    @property
    def tools(self) -> list[str]:
        return [tool.name for tool in self.surface]

    def turn(self, number: int) -> TurnStep:
        while len(self.turns) <= number:
            self.turns.append(TurnStep(number=len(self.turns), tools=[]))
        return self.turns[number]

    def seen_before(self, number: int) -> list[Said]:
        """Return the conversation that the model answered with its answer `number`."""
        told = list(self.prompt)
        for turn in self.turns[:number]:
            calls = ", ".join(step.name for step in turn.tools)
            told.append(Said("assistant", turn.text or (f"calls {calls}" if calls else "")))
            told.extend(Said(f"tool {step.name}", step.result) for step in turn.tools if step.result is not None)
        return told


async def read_work(events: Sequence[Logged], relay: Turns) -> list[AgentWork]:
    """Return `agent_work` with the answers that the run's log names and the relay's sessions hold."""
    results = [(event.private or {}).get("result") for event in events if event.type == "forestay.effect.recorded"]
    named = {result["session"] for result in results if isinstance(result, dict) and {*result} >= _NAMED}
    return agent_work(events, {session: await relay.turns(session) for session in named})


def agent_work(events: Iterable[Logged], answers: Answers | None = None) -> list[AgentWork]:
    """Return the invocations of agents in a run's log, in order."""
    found: list[AgentWork] = []
    current: dict[str, AgentWork] = {}
    for event in events:
        node = event.node or ""
        if event.type == "agent.invocation.started":
            current[node] = _invoked(node, event.payload)
            found.append(current[node])
        elif (work := current.get(node)) is not None:
            _note(work, event, answers or {})
    return found


def _invoked(node: str, payload: dict[str, Any]) -> AgentWork:
    return AgentWork(
        node=node,
        agent=str(payload.get("agentId", "")),
        model=str(payload.get("resolvedModel", "")),
        provider=str(payload.get("resolvedProvider", "")),
        prompt=[],
        surface=[],
        turns=[],
    )


def _note(work: AgentWork, event: Logged, answers: Answers) -> None:
    payload = event.payload if isinstance(event.payload, dict) else {}
    private = event.private or {}
    kind = event.type
    if kind == "forestay.effect.recorded":
        key, result = str(payload.get("key", "")), private.get("result")
        if isinstance(result, dict) and {*result} >= _NAMED:
            turn = answers.get(result["session"], {}).get(key)
            result = msgspec.to_builtins(turn.answer) if turn is not None else {}
        _effect(work, key, result, event.ts)
    elif kind == "forestay.relay.answered":
        _answered_by_relay(work, payload)
    elif kind == "node.suspended":
        _asked(work, payload, private.get("data"))
    elif kind == "interrupt.resolved":
        _told(work, payload)
    elif kind == "agent.invocation.completed":
        work.outcome = str(payload.get("outcome", ""))


def _offered(tool: dict[str, Any]) -> ToolOffered:
    text = {name: str(tool.get(name, "")) for name in ("name", "description", "effect")}
    return ToolOffered(text["name"], text["description"], tool.get("parameters") or {}, text["effect"])


def _effect(work: AgentWork, key: str, result: Any, at: int) -> None:
    if not isinstance(result, dict):
        return
    if key == "agent/begin":
        work.prompt = [_message(item) for item in result.get("messages", ())]
        work.surface = [_offered(tool) for tool in result.get("surface", ())]
        return
    match = _KEY.fullmatch(key)
    if match is None:
        return
    turn = work.turn(int(match[1]))
    if match[2] is None:
        _answered(turn, result, at)
    elif int(match[2]) < len(turn.tools):
        _tool(turn.tools[int(match[2])], match[3], result, at)


def _answered(turn: TurnStep, result: dict[str, Any], at: int) -> None:
    usage = result.get("usage") or {}
    turn.at, turn.text, turn.finish = at, str(result.get("text", "")), str(result.get("finish_reason", ""))
    turn.input_tokens, turn.output_tokens = usage.get("input_tokens"), usage.get("output_tokens")
    turn.tools = [
        ToolStep(name=str(call.get("name", "")), arguments=call.get("arguments", {}), questions=[])
        for call in result.get("tool_calls", ())
    ]


def _tool(step: ToolStep, stage: str, result: dict[str, Any], at: int) -> None:
    if stage == "gate":
        step.at, step.verdict, step.reason = at, str(result.get("verdict", "")), str(result.get("reason", ""))
        step.arguments = result.get("arguments") or step.arguments
    elif stage == "result":
        step.result, step.status = str(result.get("content", "")), str(result.get("status", ""))
        step.duration_ms = result.get("duration_ms")


def _answered_by_relay(work: AgentWork, payload: dict[str, Any]) -> None:
    """Note the relay's record. It comes before the answer's record, so it belongs to the turn that is still open."""
    number = next((turn.number for turn in work.turns if turn.at is None), len(work.turns))
    turn = work.turn(number)
    turn.session, turn.window = str(payload.get("sessionId", "")), str(payload.get("windowId", ""))
    turn.tier, turn.facts = str(payload.get("tier", "")), payload.get("factsInEnvelope")


def _asked(work: AgentWork, payload: dict[str, Any], data: Any) -> None:
    """Note a question. Its key names its tool call; without one it belongs to the first call that has not returned."""
    named = _CALL.search(str(payload.get("key", "")))
    waiting = [step for step in _steps(work) if not step.status]
    if named is not None and int(named[1]) < len(work.turns) and int(named[2]) < len(work.turns[int(named[1])].tools):
        waiting = [work.turns[int(named[1])].tools[int(named[2])]]
    if waiting:
        known = str(payload.get("interruptId", "")), str(payload.get("kind", ""))
        waiting[0].questions.append(Asked(id=known[0], kind=known[1], data=data if isinstance(data, dict) else {}))


def _told(work: AgentWork, payload: dict[str, Any]) -> None:
    value = payload.get("resumeValue")
    for step in _steps(work):
        for item in step.questions:
            if item.id == payload.get("interruptId"):
                item.answer = value if isinstance(value, dict) else {"value": value}


def _steps(work: AgentWork) -> Iterable[ToolStep]:
    return (step for turn in work.turns for step in turn.tools)


def _message(item: dict[str, Any]) -> Said:
    calls = ", ".join(str(call.get("name", "")) for call in item.get("tool_calls") or ())
    return Said(str(item.get("role", "")), str(item.get("content") or (f"calls {calls}" if calls else "")))
