"""OpenWOP RFC 0077: the order of an invocation's events, and payloads without content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from forestay.models import ScriptedCall, Turn
from tests.agents.world import World, manifest

SCHEMAS = Path(__file__).parents[3] / "shared" / "reference" / "openwop" / "schemas"
SECRET = "swordfish-in-the-content"
FORBIDDEN = {"prompt", "result", "body", "input", "inputs", "output", "outputs", "secret", "content", "text"}
DEFINITIONS = {
    "agent.invocation.started": "agentInvocationStarted",
    "agent.promptResolved": "agentPromptResolved",
    "provider.usage": "providerUsage",
    "tool.session.opened": "toolSessionOpened",
    "tool.session.closed": "toolSessionClosed",
    "agent.reasoned": "agentReasoned",
    "agent.toolCalled": "agentToolCalled",
    "agent.toolReturned": "agentToolReturned",
    "agent.decided": "agentDecided",
    "agent.invocation.completed": "agentInvocationCompleted",
}


def turns() -> list[Turn]:
    calls = (ScriptedCall("do_read", {"x": 1, "password": SECRET}), ScriptedCall("do_pure", {"x": 2}))
    return [Turn(f"thinking of {SECRET}", calls), Turn(f"The answer is {SECRET}.")]


async def life(**more: Any) -> World:
    world = World(turns(), manifest(instructions=f"Never say {SECRET}."), **more)
    result = await world.start(f"Find {SECRET}.")
    assert result.output == f"The answer is {SECRET}."
    return world


async def test_the_order_of_events() -> None:
    world = await life()
    assert [kind for kind, _ in world.events] == [
        "agent.invocation.started",
        "agent.promptResolved",
        "provider.usage",
        "agent.reasoned",
        "tool.session.opened",
        "agent.toolCalled",
        "agent.toolReturned",
        "tool.session.opened",
        "agent.toolCalled",
        "agent.toolReturned",
        "provider.usage",
        "agent.reasoned",
        "agent.decided",
        "tool.session.closed",
        "tool.session.closed",
        "agent.invocation.completed",
    ]


async def test_calls_and_returns_pair_by_call_id() -> None:
    world = await life()
    called = [payload["callId"] for kind, payload in world.events if kind == "agent.toolCalled"]
    returned = [payload["callId"] for kind, payload in world.events if kind == "agent.toolReturned"]
    assert called == returned and len(set(called)) == 2


async def test_payloads_carry_no_content() -> None:
    world = await life()
    assert SECRET not in json.dumps(world.events)
    for _, payload in world.events:
        assert not FORBIDDEN & payload.keys()


async def test_reasoning_is_told_only_when_asked_for_and_never_the_answer() -> None:
    world = World([Turn("I look first.", (ScriptedCall("do_read", {"x": 1}),)), Turn("Blue.")], verbosity="summary")
    await world.start()
    told = [(p["reasoning"], p["verbosity"]) for kind, p in world.events if kind == "agent.reasoned"]
    assert told == [("I look first.", "summary"), ("", "off")]


async def test_arguments_are_hashed_without_their_secrets() -> None:
    hashes = []
    for password in ("one", "two"):
        world = World([Turn("", (ScriptedCall("do_read", {"x": 1, "password": password}),)), Turn("Done.")])
        await world.start()
        hashes += [payload["argsHash"] for kind, payload in world.events if kind == "agent.toolCalled"]
    assert hashes[0] == hashes[1] and hashes[0].startswith("sha256:")


@pytest.mark.skipif(not SCHEMAS.is_dir(), reason="the contract's schemas are not beside the project")
async def test_payloads_fit_the_contracts_schemas() -> None:
    base = "https://openwop.dev/spec/v1/"
    registry = [(base + file.name, json.loads(file.read_text())) for file in SCHEMAS.glob("*.json")]
    payloads = dict(registry)[f"{base}run-event-payloads.schema.json"]
    resources = jsonschema_rs.Registry(registry)
    world = await life()
    for kind, payload in world.events:
        schema = {"$ref": f"{payloads['$id']}#/$defs/{DEFINITIONS[kind]}"}
        jsonschema_rs.validator_for(schema, registry=resources).validate(payload)
