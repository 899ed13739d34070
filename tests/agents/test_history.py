"""An agent's work, as a pure fold of its run's log."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.agents.history import agent_work
from forestay.kernel import Record
from forestay.runs import to_event


def logged(*events: tuple[str, dict[str, Any], dict[str, Any]]) -> list[Any]:
    records = [
        Record(
            id=f"r{place}",
            stream="s",
            seq=place,
            ts=1000 + place,
            type=kind,
            payload=payload,
            attrs=attrs,
            prev="",
            hash="",
        )
        for place, (kind, payload, attrs) in enumerate(events)
    ]
    return [to_event(record) for record in records]


def effect(key: str, result: Any, node: str = "n") -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "forestay.effect.recorded", {"key": key}, {"n": node, "p": {"result": result}}


def started(node: str = "n") -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "agent.invocation.started", {"agentId": "a", "resolvedModel": "m"}, {"n": node}


def answered(text: str, *names: str) -> dict[str, Any]:
    calls = [{"name": name, "arguments": {"of": name}} for name in names]
    return {"text": text, "tool_calls": calls, "finish_reason": "tool_calls" if calls else "stop"}


def test_z1_steps_are_the_recorded_effects() -> None:
    asked = {"interruptId": "i", "key": "run:n:0:agent/turn-0/tool-1/approval", "kind": "approval"}
    (work,) = agent_work(
        logged(
            started(),
            effect("agent/begin", {"messages": [{"role": "user", "content": "do"}], "surface": [{"name": "x"}]}),
            (
                "forestay.relay.answered",
                {"sessionId": "s", "windowId": "w", "tier": "A", "factsInEnvelope": 2},
                {"n": "n"},
            ),
            effect("agent/turn-0/model", answered("I call", "x", "y")),
            effect("agent/turn-0/tool-0/gate", {"verdict": "run", "reason": "granted", "arguments": {"of": "other"}}),
            effect("agent/turn-0/tool-0/result", {"content": "done", "status": "ok", "duration_ms": 4}),
            effect("agent/turn-0/tool-1/gate", {"verdict": "prompt", "reason": "must be asked"}),
            ("node.suspended", asked, {"n": "n", "p": {"data": {"title": "May it?"}}}),
        )
    )
    (turn,) = work.turns
    assert (turn.session, turn.window, turn.facts) == ("s", "w", 2)
    first, second = turn.tools
    assert (first.arguments, first.result, first.state) == ({"of": "other"}, "done", "ok")
    assert (second.questions[0].title, second.state, second.arguments) == ("May it?", "waits for a person", {"of": "y"})
    assert [said.content for said in work.seen_before(1)] == ["do", "I call", "done"]


def test_z1_an_answer_belongs_to_the_question_with_its_id() -> None:
    key = "run:n:0:agent/turn-0/tool-0/"
    (work,) = agent_work(
        logged(
            started(),
            effect("agent/turn-0/model", answered("", "x")),
            ("node.suspended", {"interruptId": "i", "key": key + "a"}, {"n": "n", "p": {"data": {"title": "one"}}}),
            ("interrupt.resolved", {"interruptId": "i", "resumeValue": {"action": "reject"}}, {"n": "n"}),
            ("node.suspended", {"interruptId": "j", "key": key + "b"}, {"n": "n", "p": {"data": {"title": "two"}}}),
            ("interrupt.resolved", {"interruptId": "j", "resumeValue": "plain"}, {"n": "n"}),
        )
    )
    assert [(item.title, item.answer) for item in work.turns[0].tools[0].questions] == [
        ("one", {"action": "reject"}),
        ("two", {"value": "plain"}),
    ]


def test_agents_of_different_nodes_and_rounds_are_apart() -> None:
    works = agent_work(
        logged(
            started("a"),
            started("b"),
            effect("agent/turn-0/model", answered("of a"), "a"),
            effect("agent/turn-0/model", answered("of b"), "b"),
            ("agent.invocation.completed", {"outcome": "completed"}, {"n": "a"}),
            started("a"),
            effect("agent/turn-0/model", answered("again"), "a"),
        )
    )
    assert [(work.node, work.turns[0].text, work.outcome) for work in works] == [
        ("a", "of a", "completed"),
        ("b", "of b", ""),
        ("a", "again", ""),
    ]


@pytest.mark.parametrize("result", [None, 3, "x", [], {}, {"tool_calls": []}])
def test_records_of_another_shape_do_not_break_the_view(result: Any) -> None:
    for key in ("agent/begin", "agent/turn-0/model", "agent/turn-0/tool-7/gate", "other"):
        agent_work(logged(started(), effect(key, result)))
