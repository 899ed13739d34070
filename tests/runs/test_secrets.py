"""What is sensitive is not shown, wherever it went (H1, H2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forestay.kernel import ManualClock
from forestay.runs.service import Runs
from forestay.runs.types import ForkRequest, RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, workflow

PASSWORD = "hunter2-very-secret"
VARIABLES = [
    {"name": "password", "type": "string", "sensitive": True},
    {"name": "note", "type": "string", "defaultValue": "plain"},
]


def variable(name: str) -> dict[str, Any]:
    return {"type": "variable", "variableName": name}


def passing_on() -> dict[str, Any]:
    return workflow(
        "passing-on",
        [
            node("a", "core.identity", inputs={"p": variable("password")}),
            node("b", "core.transform", config={"assign": {"note": "'it is ' + nodes.a.output.p"}}),
            node("c", "core.channelWrite", config={"channelName": "open", "expression": "variables.note"}),
            node("d", "core.fail", config={"message": "no"}, inputs={"p": variable("note")}),
            node("e", "core.identity", inputs={"all": variable("note")}),
        ],
        [edge("a", "b"), edge("b", "c"), edge("c", "d"), edge("d", "e", triggerRule="any_failed")],
        variables=VARIABLES,
        channels={"open": {"reducer": "append"}},
    )


async def everything_shown(runs: Runs, run_id: str) -> str:
    """Whatever can be read of a run, as one text."""
    events = await runs.events(run_id, "acme")
    shown: list[Any] = [
        await runs.get_run(run_id, "acme"),
        events,
        await runs.events(run_id, "acme", len(events) - 1),
        [event async for event in runs.follow(run_id, "acme", 2)],
        await runs.poll(run_id, "acme", 1),
        await runs.debug_bundle(run_id, "acme"),
        await runs.wait(run_id, "acme"),
    ]
    expressions = ("variables.note", "nodes.a.output", "nodes.e.output", "password", "channels.open")
    shown.extend([await runs.query(run_id, "acme", text) for text in expressions])
    return msgspec.json.encode(shown).decode()


async def test_h1_a_value_that_was_passed_on_is_not_shown(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, passing_on(), {"password": PASSWORD})
        assert (await finish(runs, run_id)).status == "completed"
        shown = await everything_shown(runs, run_id)
        assert PASSWORD not in shown
        assert "it is [REDACTED]" in shown
    async with host() as runs:
        assert PASSWORD not in await everything_shown(runs, run_id), "after a restart"


async def test_h1_the_run_itself_works_with_the_value(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, passing_on(), {"password": PASSWORD})
        await finish(runs, run_id)
        state = await runs._engine.state(run_id)
        assert state.variables["note"] == f"it is {PASSWORD}"


@pytest.mark.parametrize(
    "question",
    ["contains(note, 'hunter')", "contains(nodes.e.output.all, 'hunter')", "'hunter2-very-secret' in [password]"],
)
async def test_h1_nobody_can_ask_what_is_in_a_hidden_value(host: Host, question: str) -> None:
    async with host() as runs:
        run_id = await start(runs, passing_on(), {"password": PASSWORD})
        await finish(runs, run_id)
        assert await runs.query(run_id, "acme", question) is False


async def test_h1_an_overlay_of_a_fork_is_not_shown(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, passing_on(), {"password": PASSWORD})
        await finish(runs, run_id)
        overlay = {"variables": {"password": "another-secret"}}
        made = await runs.fork(run_id, "acme", ForkRequest(mode="branch", from_seq=1, run_options_overlay=overlay))
        await finish(runs, made.run_id)
        shown = await everything_shown(runs, made.run_id)
        assert "another-secret" not in shown and PASSWORD not in shown
        assert PASSWORD not in str(await runs.diff(run_id, made.run_id, "acme"))


async def test_h1_a_sensitive_output_is_hidden_downstream(host: Host) -> None:
    document = workflow(
        "made",
        [
            node("a", "core.transform", config={"outputs": {"t": "'made-up-token'"}}, outputSensitivity={"t": True}),
            node("b", "core.transform", config={"outputs": {"u": "'Bearer ' + nodes.a.output.t"}}),
        ],
        [edge("a", "b")],
    )
    async with host() as runs:
        run_id = await start(runs, document)
        run = await finish(runs, run_id)
        assert run.outputs == {"u": "Bearer [REDACTED]"}
        assert "made-up-token" not in str(await runs.events(run_id, "acme"))


@pytest.mark.parametrize("direction", ["down", "up"])
async def test_h2_parents_and_children_hide_what_they_give_each_other(
    host: Host, clock: ManualClock, direction: str
) -> None:
    down = direction == "down"
    child = workflow(
        "kin-child",
        [node("echo", "core.identity", inputs={"got": variable("got")})],
        variables=[{"name": "got", "type": "string", "sensitive": not down, "defaultValue": PASSWORD}],
    )
    mapping = {"inputMapping": {"got": "password"}} if down else {"outputMapping": {"note": "got"}}
    parent = workflow(
        "kin",
        [
            node("sub", "core.subWorkflow", config={"workflowId": "kin-child", **mapping}),
            node("say", "core.identity", inputs={"x": variable("note")}),
        ],
        [edge("sub", "say")],
        variables=[{"name": "password", "type": "string", "sensitive": down, "defaultValue": "x"}, VARIABLES[1]],
    )  # fmt: skip
    async with host() as runs:
        await runs.put_workflow(child, tenant=None)
        run_id = await start(runs, parent, {"password": PASSWORD} if down else {})
        assert (await finish(runs, run_id)).status == "completed"
        for item in (await runs.list_runs(RunFilter(), "acme")).runs:
            await finish(runs, item.run_id)
            text = f"{await runs.get_run(item.run_id, 'acme')}{await runs.events(item.run_id, 'acme')}"
            assert PASSWORD not in text, item.workflow_id


async def test_h1_a_secret_that_reads_like_a_name_hides_no_name(host: Host) -> None:
    document = workflow(
        "named", [node("gate", "core.identity", inputs={"p": variable("password")})], variables=VARIABLES
    )
    async with host() as runs:
        run_id = await start(runs, document, {"password": "gate"})
        run = await finish(runs, run_id)
        assert run.outputs == {"p": "[REDACTED]"} and set(run.node_states) == {"gate"}
        told = [event.payload for event in await runs.events(run_id, "acme") if event.type == "node.completed"]
        assert told[0]["nodeId"] == "gate" and told[0]["outputs"] == {"p": "[REDACTED]"}
