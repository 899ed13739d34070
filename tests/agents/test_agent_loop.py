"""The loop: allowlist, gates, extensions, approvals, structured answers (A1 to A5, P1 to P3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from forestay.agents import Kept
from forestay.kernel import Problem
from forestay.models import Message, ScriptedCall, Turn, Usage
from forestay.tools import ApprovalAnswer, Tool, ToolOutcome, ToolSource
from tests.agents.world import Listener, Policy, Tools, World, decided, manifest

CALL = Turn("I look.", (ScriptedCall("do_read", {"x": 1}),))
DONE = Turn("Done.")
NUMBER = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}


def conversation(world: World, turn: int) -> list[Message]:
    """What the model was shown on its `turn`-th call."""
    messages: list[Message] = world.model.seen[turn][0]
    return messages


async def test_an_answer_without_tools() -> None:
    world = World([DONE])
    result = await world.start("Say so.")
    assert (result.outcome, result.output, result.turns) == ("completed", "Done.", 1)
    assert [message.role for message in conversation(world, 0)] == ["system", "user"]
    assert conversation(world, 0)[1].content == "Say so."


async def test_a_tools_result_is_shown_to_the_model() -> None:
    world = World([CALL, DONE])
    result = await world.start()
    assert conversation(world, 1)[-1] == Message("tool", "do_read did 1", tool_call_id="call_0_0")
    assert result.usage == Usage(*(sum(part) for part in zip(*_usages(world), strict=True)))


def _usages(world: World) -> list[tuple[int, int]]:
    return [(p["inputTokens"], p["outputTokens"]) for kind, p in world.events if kind == "provider.usage"]


async def test_a3_a_tool_off_the_allowlist_is_neither_offered_nor_called() -> None:
    world = World([CALL, DONE], manifest(tool_allowlist=("test:do_pure",)))
    result = await world.start()
    assert result.outcome == "completed"
    assert [spec.name for spec in world.model.seen[0][1]] == ["do_pure"]
    assert "There is no tool 'do_read'" in conversation(world, 1)[-1].content
    assert not world.tools.done
    assert "agent.toolCalled" not in [kind for kind, _ in world.events]


async def test_without_an_allowlist_there_are_no_tools() -> None:
    world = World([CALL, DONE], manifest(tool_allowlist=()))
    await world.start()
    assert world.model.seen[0][1] == [] and not world.tools.done


async def test_policy_denies() -> None:
    world = World([CALL, DONE], policy=Policy(do_read=decided("deny", "not today")))
    await world.start()
    assert conversation(world, 1)[-1].content == "not today"
    assert not world.tools.done
    assert [p["status"] for kind, p in world.events if kind == "agent.toolReturned"] == ["forbidden"]


@pytest.mark.parametrize(
    ("answer", "content", "done"),
    [
        (ApprovalAnswer("accept"), "do_read did 1", 1),
        (ApprovalAnswer("reject", note="Too early."), "A person refused this call. Too early.", 0),
        (ApprovalAnswer("edit-accept", {"x": "2"}), "do_read did 2", 1),
        (ApprovalAnswer("edit-accept", {"x": []}), "The edited arguments do not fit", 0),
    ],
)
async def test_policy_prompts_a_person(answer: ApprovalAnswer, content: str, done: int) -> None:
    world = World([CALL, DONE], policy=Policy(do_read=decided("prompt", "reading is asked for")), answer=answer)
    await world.start()
    (request,) = world.person.asked
    assert (request.kind, request.tool, request.arguments) == ("approval", "do_read", {"x": 1})
    assert request.reason == "reading is asked for"
    assert content in conversation(world, 1)[-1].content
    assert sum(world.tools.done.values()) == done


async def test_arguments_are_coerced_or_refused_before_anybody_is_asked() -> None:
    calls = (ScriptedCall("do_read", {"x": "4"}), ScriptedCall("do_read", {"x": "four"}))
    world = World([Turn("", calls), DONE])
    await world.start()
    good, bad = conversation(world, 1)[-2:]
    assert good.content == "do_read did 4"
    assert "$.x" in bad.content
    assert world.policy.asked == ["do_read"]


async def test_a_tool_prepares_its_arguments_once_and_before_they_are_validated() -> None:
    needs = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    tool = Tool("do_old", "Once took `old`.", needs, "read", id="test:do_old", prepares=True)
    world = World([Turn("", (ScriptedCall("do_old", {"old": "4"}),)), DONE])
    world.tools = Tools(world.log, (tool,))
    await world.start()
    await world.start()
    assert conversation(world, 1)[-1].content == "do_old did 4"
    assert world.tools.done["prepare do_old"] == 1


async def test_a_failing_tool_is_an_answer() -> None:
    world = World([Turn("", (ScriptedCall("do_read", {"x": 13}),)), DONE])
    assert (await world.start()).outcome == "completed"
    assert conversation(world, 1)[-1].content == "Thirteen does not work."
    assert [p["status"] for kind, p in world.events if kind == "agent.toolReturned"] == ["error"]


async def test_calls_with_the_same_id_are_told_apart() -> None:
    calls = (ScriptedCall("do_read", {"x": 1}, "same"), ScriptedCall("do_read", {"x": 2}, "same"))
    world = World([Turn("", calls), DONE])
    await world.start()
    results = [message for message in conversation(world, 1) if message.role == "tool"]
    assert [(m.tool_call_id, m.content) for m in results] == [("same", "do_read did 1"), ("same_1", "do_read did 2")]


async def test_a4_turns_are_bounded() -> None:
    world = World([CALL] * 9, manifest(turns=3))
    result = await world.start()
    assert result.outcome == "failed" and result.problem is not None
    assert result.problem.key == "agent_turns_exhausted"
    assert world.model.calls == 3


@pytest.mark.parametrize(
    ("turn", "outcome", "key"),
    [
        (Turn("no", finish_reason="content_filter"), "refused", "agent_refused"),
        (Turn("half", finish_reason="length"), "failed", "agent_cut"),
        (Turn("", finish_reason="error"), "failed", "provider_error"),
        (Turn(" \n"), "failed", "provider_error"),
        (Turn(error="provider_timeout"), "failed", "provider_timeout"),
    ],
)
async def test_bad_ends(turn: Turn, outcome: str, key: str) -> None:
    world = World([turn])
    result = await world.start()
    assert result.outcome == outcome and result.problem is not None and result.problem.key == key
    assert world.events[-1][0] == "agent.invocation.completed" and world.events[-1][1]["outcome"] == outcome


async def test_a_model_may_say_nothing_after_a_tool_call() -> None:
    world = World([Turn("", (ScriptedCall("do_read", {"x": 1}),)), Turn("")])
    result = await world.start()
    assert (result.outcome, result.output) == ("completed", "")


async def test_a_model_that_failed_is_asked_again_by_the_next_life() -> None:
    world = World([Turn(error="provider_timeout")])
    await world.start()
    world.model._turns = (DONE,)
    world.log.lines = [line for line in world.log.lines if "agent.invocation.completed" not in line]
    assert (await world.start()).output == "Done."


async def test_the_task_has_to_fit_its_schema() -> None:
    world = World([DONE], manifest(task_schema=NUMBER))
    result = await world.start({"n": 0})
    assert result.problem is not None and result.problem.key == "agent_input_invalid"
    assert result.problem.details["at"] == "$.n"
    assert world.model.calls == 0
    assert [kind for kind, _ in world.events] == ["agent.invocation.started", "agent.invocation.completed"]
    assert (await World([DONE], manifest(task_schema=NUMBER)).start({"n": 1})).output == "Done."


async def test_a5_an_answer_is_repaired_until_it_fits() -> None:
    world = World([Turn("five"), Turn('{"n": 0}'), Turn('```json\n{"n": 5}\n```')], manifest(return_schema=NUMBER))
    result = await world.start()
    assert (result.outcome, result.output, result.validated) == ("completed", {"n": 5}, True)
    assert "JSON Schema" in conversation(world, 0)[0].content
    assert "$.n" in conversation(world, 2)[-1].content


async def test_a5_repairs_are_bounded_and_then_the_invocation_fails() -> None:
    world = World([Turn("nonsense")] * 9, manifest(return_schema=NUMBER, repairs=2))
    result = await world.start()
    assert result.outcome == "failed" and result.validated is False
    assert result.problem is not None and result.problem.key == "agent_output_invalid"
    assert world.model.calls == 3
    assert world.events[-1][1]["schemaValidated"] is False


@pytest.mark.parametrize(
    ("confidence", "answer", "outcome", "asked"),
    [
        (0.9, "accept", "completed", 0),
        (0.4, "accept", "completed", 1),
        (0.4, "reject", "escalated", 1),
    ],
)
async def test_an_unsure_answer_is_confirmed(confidence: float, answer: Any, outcome: str, asked: int) -> None:
    schema = {"type": "object", "properties": {"confidence": {"type": "number"}}}
    world = World(
        [Turn(json.dumps({"confidence": confidence}))], manifest(return_schema=schema), answer=ApprovalAnswer(answer)
    )
    assert (await world.start()).outcome == outcome
    assert [request.kind for request in world.person.asked] == ["low-confidence"] * asked
    assert [kind for kind, _ in world.events].count("agent.decided") == 1


@pytest.mark.api(
    "event.input|event.before_agent_start|event.agent_start|event.turn_start|event.message_start",
    "event.message_update|event.message_end|event.context|event.context_with_system",
    "event.before_provider_request|event.after_provider_response|event.tool_execution_start",
    "event.tool_call|event.tool_execution_update|event.tool_result|event.tool_execution_end",
    "event.turn_end|event.agent_end|event.provider_stream_event",
)
async def test_extensions_hear_everything_in_pis_order() -> None:
    hooks = Listener()
    await World([CALL, DONE], hooks=hooks).start()
    streamed = [at for at, kind in enumerate(hooks.types) if kind == "provider_stream_event"]
    assert streamed and {hooks.types[at + 1] for at in streamed} == {"message_update"}
    types = [kind for kind in hooks.types if kind != "provider_stream_event"]
    assert [kind for at, kind in enumerate(types) if types[at - 1 : at] != [kind]] == [
        "input", "before_agent_start", "agent_start",
        "turn_start", "message_start", "message_end",
        "context", "context_with_system", "before_provider_request",
        "after_provider_response", "message_start", "message_update", "message_end",
        "tool_execution_start", "tool_call", "tool_execution_update", "tool_result", "tool_execution_end",
        "message_start", "message_end", "turn_end",
        "turn_start",
        "context", "context_with_system", "before_provider_request",
        "after_provider_response", "message_start", "message_update", "message_end", "turn_end",
        "agent_end",
    ]  # fmt: skip
    ends = [event for event in hooks.events if event["type"] == "turn_end"]
    assert [event["turnIndex"] for event in ends] == [0, 1]
    assert len(ends[0]["toolResults"]) == 1 and ends[1]["toolResults"] == []


@pytest.mark.parametrize(
    ("turn", "error"),
    [(DONE, None), (Turn("", finish_reason="error"), "provider_error"), (Turn(error="rate_limited"), "rate_limited")],
)
async def test_extensions_hear_the_end_however_it_ends(turn: Turn, error: str | None) -> None:
    hooks = Listener()
    await World([turn], hooks=hooks).start()
    assert hooks.types.count("agent_end") == 1
    assert hooks.events[-1]["type"] == "agent_end" and hooks.events[-1]["error"] == error


async def test_p2_a_recorded_life_tells_nobody_again() -> None:
    hooks = Listener()
    world = World([CALL, DONE], hooks=hooks)
    first = await world.start()
    told = len(hooks.events)
    assert await world.start() == first
    assert len(hooks.events) == told and world.model.calls == 2


async def test_an_extension_changes_the_prompt_and_adds_a_message() -> None:
    more = {"systemPrompt": "Be better.", "message": {"role": "user", "content": "And be quick."}}
    world = World([DONE], hooks=Listener(before_agent_start=more))
    await world.start()
    assert [message.content for message in conversation(world, 0)] == ["Be better.", "Do it.", "And be quick."]


async def test_an_extension_changes_what_was_asked() -> None:
    world = World([DONE], hooks=Listener(input={"action": "transform", "text": "Do it well."}))
    await world.start()
    assert [message.content for message in conversation(world, 0)] == ["Be good.", "Do it well."]


async def test_an_extension_takes_the_task_upon_itself() -> None:
    hooks = Listener(input={"action": "handled"})
    world = World([DONE], hooks=hooks)
    result = await world.start()
    assert (result.outcome, result.output, result.turns) == ("handed-off", "", 0)
    assert world.model.calls == 0 and hooks.types == ["input"]
    assert await world.start() == result and hooks.types == ["input"], "it is on record"


async def test_an_extension_changes_the_context_but_not_the_record() -> None:
    shorter = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Only this."}]}]}
    world = World([DONE], hooks=Listener(context=shorter))
    await world.start()
    assert [message.content for message in conversation(world, 0)] == ["Be good.", "Only this."]


async def test_an_extension_changes_the_request() -> None:
    def cooler(event: dict[str, Any]) -> dict[str, Any]:
        return {**event["payload"], "temperature": 0, "max_tokens": 9, "model": "mine"}

    world = World([DONE], hooks=Listener(before_provider_request=cooler))
    await world.start()
    params = world.model.seen[0][2]
    assert (params.temperature, params.max_tokens) == (0, 9)


@pytest.mark.parametrize(
    ("answer", "content", "done"),
    [
        ({"block": True, "reason": "No."}, "No.", 0),
        (Problem("extension_failed", "It threw."), "It threw.", 0),
        ({"input": {"x": 3}}, "do_read did 3", 1),
        ({"input": {"x": "three"}}, "$.x", 0),
        ({"block": False}, "do_read did 1", 1),
    ],
)
async def test_p3_an_extension_blocks_or_changes_a_call(answer: Any, content: str, done: int) -> None:
    world = World([CALL, DONE], hooks=Listener(tool_call=answer))
    await world.start()
    assert content in conversation(world, 1)[-1].content
    assert sum(world.tools.done.values()) == done


async def test_p1_a_replaced_result_is_what_the_model_reads_in_every_life() -> None:
    replaced = {"content": [{"type": "text", "text": "censored"}], "isError": True}
    world = World([CALL, DONE], hooks=Listener(tool_result=replaced))
    await world.start()
    assert conversation(world, 1)[-1].content == "censored"
    assert [p["status"] for kind, p in world.events if kind == "agent.toolReturned"] == ["error"]
    world.hooks = None
    assert (await world.start()).output == "Done."


class Notes:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    async def recall(self, agent_id: str, task: str) -> Sequence[str]:
        return list(self.entries)

    async def read(self, ids: Sequence[str]) -> Sequence[str]:
        return [self.entries[name] for name in ids if name in self.entries]

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> Kept:
        self.entries[idempotency_key] = entry
        return Kept(agent_id, idempotency_key)


async def test_memory_is_recalled_and_kept_when_the_manifest_says_so() -> None:
    from forestay.agents.manifest import MemoryShape

    notes = Notes()
    notes.entries["earlier"] = "The sky is blue."
    world = World([DONE], manifest(memory=MemoryShape(long_term=True)), memory=notes)
    await world.start()
    await world.start()
    assert "The sky is blue." in conversation(world, 0)[1].content
    kept = list(notes.entries.values())
    assert (kept[0], len(kept)) == ("The sky is blue.", 2)
    assert kept[1].endswith("\nDone.") and conversation(world, 0)[-1].content in kept[1]
    other = World([DONE], memory=notes)
    await other.start()
    assert len(conversation(other, 0)) == 2


async def test_of_two_tools_with_one_name_the_first_is_kept() -> None:
    schema: dict[str, Any] = {"type": "object"}

    class Two(ToolSource):
        kind = "test"

        async def list(self) -> Sequence[Tool]:
            return [Tool("t", "first", schema, id="test:a"), Tool("t", "second", schema, id="test:b")]

        async def call(self, tool: Tool, arguments: Any, **more: Any) -> ToolOutcome:
            return ToolOutcome(tool.description)

    world = World([Turn("", (ScriptedCall("t"),)), DONE], tools=Two())
    await world.start()
    assert conversation(world, 1)[-1].content == "first"
