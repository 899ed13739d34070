"""Killed anywhere, an invocation resumes to the same end, with every effect once and no recorded answer asked again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.models import ScriptedCall, Turn
from forestay.tools import ApprovalAnswer, EffectClass, recover
from tests.agents.world import CLASSES, Policy, World, decided

CALLS = st.builds(
    lambda cls, x: ScriptedCall(f"do_{cls}", {"x": x}),
    st.sampled_from((*CLASSES, "unsafe", "unsafe")),
    st.integers(0, 13),
)
SAFE_CALLS = st.builds(
    lambda cls, x: ScriptedCall(f"do_{cls}", {"x": x}), st.sampled_from(CLASSES[:3]), st.integers(0, 13)
)


def conversation(calls: Any, least: int = 0) -> Any:
    """A few turns with tool calls, then an answer."""
    return st.lists(st.lists(calls, min_size=1, max_size=3), min_size=least, max_size=3).map(
        lambda turns: [*(Turn("thinking", tuple(batch)) for batch in turns), Turn("The answer.")]
    )


@pytest.mark.parametrize(
    ("cls", "key", "decision"),
    [
        ("pure", None, "again"),
        ("read", None, "again"),
        ("write", "k", "again"),
        ("write", None, "ask"),
        ("unsafe", None, "ask"),
        ("unsafe", "k", "ask"),
    ],
)
def test_the_effect_class_decides(cls: EffectClass, key: str | None, decision: str) -> None:
    assert recover(cls, key) == decision


@settings(max_examples=60, deadline=None)
@given(conversation(SAFE_CALLS), st.lists(st.integers(1, 60), max_size=4))
def test_killed_anywhere_it_ends_the_same(turns: list[Turn], deaths: list[int]) -> None:
    """Tools that can be repeated: result, events and conversation are those of a life without death."""
    calm, troubled = World(turns), World(turns)
    expected, result = calm.live(), troubled.live(deaths)
    assert result == expected
    assert troubled.events == calm.events
    assert troubled.recorded == calm.recorded
    assert not troubled.person.asked
    assert _lasting(troubled) == _lasting(calm)


@settings(max_examples=60, deadline=None)
@given(conversation(CALLS, least=1), st.lists(st.integers(8, 40), min_size=1, max_size=4))
def test_an_unsafe_effect_happens_exactly_once(turns: list[Turn], deaths: list[int]) -> None:
    """When nobody knows, a person is asked; one who looks and says the truth keeps every effect at exactly one."""
    calm, troubled = World(turns), World(turns)
    expected, result = calm.live(), troubled.live(deaths)
    assert (result.outcome, result.output) == (expected.outcome, expected.output)
    assert [kind for kind, _ in troubled.events] == [kind for kind, _ in calm.events]
    assert _lasting(troubled) == _lasting(calm)
    assert set(_lasting(troubled).values()) <= {1}


def _lasting(world: World) -> dict[str, int]:
    """What was done to the world by tools that change it."""
    return {key: count for key, count in world.tools.done.items() if key.startswith(("do_unsafe", "do_write"))}


def test_every_boundary_of_a_turn_with_three_tool_calls() -> None:
    """Not a sample: one death at each boundary, and a second one at each boundary after it."""
    calls = tuple(ScriptedCall(name, {"x": 1}) for name in ("do_read", "do_write", "do_unsafe"))
    turns = [Turn("hm", calls), Turn("Done.")]
    calm = World(turns)
    expected = calm.live()
    total = calm.log.boundaries
    assert total > 40
    for death in range(1, total + 1):
        world = World(turns)
        result = world.live([death])
        assert (result.outcome, result.output) == (expected.outcome, expected.output)
        assert [kind for kind, _ in world.events] == [kind for kind, _ in calm.events]
        assert world.tools.done["do_write:call_0_1"] == world.tools.done["do_unsafe:call_0_2"] == 1
        assert world.model.calls <= calm.model.calls + 1  # an answer that was on its way when it died


def test_a_begun_unsafe_call_tells_the_person_what_is_known() -> None:
    turns = [Turn("", (ScriptedCall("do_unsafe", {"x": 5}),)), Turn("Done.")]
    calm = World(turns)
    calm.live()
    assert not calm.person.asked
    asked = []
    for death in range(1, calm.log.boundaries + 1):
        world = World(turns)
        world.live([death])
        asked += world.person.asked
    assert len(asked) == 3  # the mark is on disk; the call is about to begin; it is done and not recorded
    for request in asked:
        assert request.kind == "uncertain-effect" and request.tool == "do_unsafe" and request.arguments == {"x": 5}
        assert request.known["effect"] == "unsafe" and request.known["effect_key"] == "agent/turn-0/tool-0/call"
        assert request.known["begun_at"].startswith("2026-01-01T")


def test_an_approval_survives_the_crash_and_is_asked_once() -> None:
    turns = [Turn("", (ScriptedCall("do_unsafe", {"x": 5}),)), Turn("Done.")]
    policy = Policy(do_unsafe=decided("prompt", "unsafe tools are asked for"))
    calm = World(turns, policy=policy)
    calm.live()
    for death in range(1, calm.log.boundaries + 1):
        world = World(turns, policy=policy, answer=ApprovalAnswer("edit-accept", {"x": 6}))
        assert world.live([death]).output == "Done."
        assert sum(request.kind == "approval" for request in world.person.asked) == 1
        assert world.tools.done["do_unsafe:call_0_0"] == 1
