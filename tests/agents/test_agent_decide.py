"""`decide` and `evolve` alone: pure, ordered, bounded (A1, A2, A4), with an ear for who speaks meanwhile (A7)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.agents.decide import AgentState, decide, evolve
from forestay.agents.steps import (
    Answered,
    Approved,
    AskApproval,
    Begin,
    Begun,
    CallModel,
    CallTool,
    Confirm,
    Confirmed,
    Correct,
    Corrected,
    Fail,
    Finish,
    GateCall,
    Gated,
    Interjected,
    Interjection,
    Listen,
    Record,
    RefuseCall,
    Returned,
)
from forestay.models import Message, ToolCall
from forestay.tools import Tool
from tests.agents.world import TOOLS, manifest

NAMES = st.sampled_from([*(tool.name for tool in TOOLS), "absent"])
REASONS = st.sampled_from(["stop", "length", "content_filter", "error", "tool_calls"])
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"confidence": {"type": "number"}}}


def respond(data: st.DataObject, step: Any, turn: int) -> Record | None:
    """Any record that the world may give back for a step; None at the end."""
    match step:
        case Begin():
            return Begun((Message("system", "s"), Message("user", "u")), TOOLS)
        case CallModel():
            names = data.draw(st.lists(NAMES, max_size=3))
            calls = tuple(ToolCall(f"c{turn}_{n}", name, {}) for n, name in enumerate(names))
            text = data.draw(st.sampled_from(["", "x", "{}", '{"confidence": 0.1}', '{"confidence": 0.9}', "{"]))
            return Answered(text, calls, data.draw(REASONS))
        case GateCall(call):
            absent = call.name == "absent"
            return Gated("refuse" if absent else data.draw(st.sampled_from(["run", "prompt", "refuse"])))
        case AskApproval():
            return Approved(data.draw(st.sampled_from(["accept", "reject", "edit-accept"])))
        case CallTool() | RefuseCall():
            return Returned("r")
        case Listen(takes):
            said = data.draw(st.lists(st.booleans(), max_size=2)) if takes else []
            return Interjected(tuple(Interjection(str(n), "and?", wants_answer=wants) for n, wants in enumerate(said)))
        case Correct(message):
            return Corrected(message)
        case Confirm():
            return Confirmed(data.draw(st.booleans()))
        case _:
            return None


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_any_world_ends_and_keeps_the_order(data: st.DataObject, with_schema: bool) -> None:
    agent = manifest(turns=4, repairs=2, return_schema=SCHEMA if with_schema else None)
    state = AgentState(agent, hears=data.draw(st.booleans()))
    steps: list[Any] = []
    for _ in range(200):
        step = decide(state)
        assert decide(state) == step  # A1
        if isinstance(step, Listen):  # A7
            assert state.hears and not state.waiting and state.listened < state.turns
            assert not (step.takes and state.turns == agent.turns), "what cannot be answered waits"
        steps.append(step)
        record = respond(data, step, state.turns)
        if record is None:
            break
        state = evolve(state, record)
    assert isinstance(steps[-1], Finish | Fail)  # A4
    assert sum(isinstance(step, CallModel) for step in steps) <= agent.turns
    for step in steps:
        if isinstance(step, CallModel):
            _paired(step.messages)
        if isinstance(step, CallTool):
            assert step.tool in TOOLS  # A3
        if isinstance(step, Finish) and with_schema:
            assert isinstance(step.output, dict) and step.validated  # A5


def _paired(messages: tuple[Message, ...]) -> None:
    """Every call of an answer is answered by its own tool message, in order, before anything else is said (A2)."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert not waiting
        waiting += [call.id for call in message.tool_calls]
    assert not waiting


@given(st.lists(st.sampled_from([*(tool.name for tool in TOOLS), "brought", "absent"]), min_size=1, max_size=6))
def test_a6_the_callers_calls_are_handed_over_when_the_others_are_settled(names: list[str]) -> None:
    brought = Tool("brought", "", {"type": "object"}, "unsafe", "caller:brought")
    state = evolve(AgentState(manifest()), Begun((Message("system", "s"), Message("user", "u")), (*TOOLS, brought)))
    calls = tuple(ToolCall(f"c{number}", name, {}) for number, name in enumerate(names))
    state = evolve(state, Answered("say", calls, "tool_calls"))
    settled: list[str] = []
    while isinstance(step := decide(state), GateCall):
        settled.append(step.call.id)
        state = evolve(evolve(state, Gated("refuse")), Returned("r"))
    own = [call.id for call in calls if call.name != "brought"]
    assert settled == own
    if len(own) == len(calls):
        assert isinstance(step, CallModel)
    else:
        assert isinstance(step, Finish) and step.outcome == "handed-off" and step.output == "say"
        assert [call.id for call in step.calls] == [call.id for call in calls if call.name == "brought"]
