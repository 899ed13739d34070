"""The agent as a node of a run, through the real host: gates, questions, extensions, workflows, failures."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Models, Problem
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun, RunSnapshot
from tests.runs.documents import node, workflow

EXAMPLES = Path(__file__).parents[2] / "examples" / "harbour"
TENANT = "default"
LISTENER = """
export default function (pi) {
  const heard = [];
  for (const name of ["input", "before_agent_start", "agent_start", "turn_start", "context", "before_provider_request",
                      "message_end", "tool_execution_start", "tool_result", "tool_execution_end", "turn_end"])
    pi.on(name, () => { heard.push(name); });
  pi.on("before_agent_start", () => ({ message: { customType: "tide", content: "The tide is low.", display: true } }));
  pi.on("tool_call", (event) => {
    heard.push("tool_call");
    if (event.toolName === "ls") return { block: true, reason: "The quay is closed." };
    if (event.toolName === "read") event.input.path = "other.md";
  });
  pi.on("tool_result", (event) => event.toolName === "read"
    ? { content: [{ type: "text", text: event.content[0].text.toUpperCase() }] } : undefined);
  pi.registerTool({ name: "heard", label: "Heard", description: "What was heard",
    parameters: { type: "object", properties: {} },
    async execute() { return { content: [{ type: "text", text: heard.join(" ") }] }; } });
}
"""


def played(*turns: Turn) -> dict[str, Any]:
    return {"script": Scripted(Script(turns, position="conversation"))}


def call(name: str, **arguments: Any) -> ScriptedCall:
    return ScriptedCall(name, arguments)


def run(
    tmp_path: Path,
    story: Callable[[Host], Coroutine[Any, Any, None]],
    *turns: Turn,
    agents: Agents | None = None,
    extensions: ExtensionConfig | None = None,
    trust: bool = True,
) -> None:
    async def whole() -> None:
        config = Config(
            models=Models(default="script"), agents=agents or Agents(), extensions=extensions or ExtensionConfig()
        )
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models=played(*turns)) as host:
            if trust:
                await host.extensions.trust.give(host.root)
            await story(host)

    asyncio.run(whole())


async def start(host: Host, question: str = "Where?", tenant: str = TENANT) -> str:
    request = CreateRun(workflow_id="forestay-ask", inputs={"question": question})
    return (await host.runs.create_run(request, tenant)).run_id


async def settled(host: Host, run_id: str, tenant: str = TENANT) -> RunSnapshot:
    """The run at its end, or at a question."""
    async for event in host.runs.follow(run_id, tenant):
        if event.type == "interrupt.requested" and await host.runs.interrupts(run_id, tenant):
            break
    return await host.runs.get_run(run_id, tenant)


async def answer(host: Host, run_id: str, value: dict[str, Any]) -> RunSnapshot:
    await host.runs.resolve_by_node(run_id, "agent", TENANT, {"resumeValue": value}, "me")
    return await settled(host, run_id)


async def types(host: Host, run_id: str) -> list[str]:
    return [event.type for event in await host.runs.events(run_id, TENANT)]


WRITE = Turn("I write.", (call("write", path="out.md", content="seven"),))
END = Turn("Done.")


def test_a3_policy_says_prompt_and_a_person_accepts(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        run_id = await start(host)
        assert (await settled(host, run_id)).status == "waiting-approval"
        assert not (tmp_path / "out.md").exists()
        done = await answer(host, run_id, {"action": "accept"})
        assert done.status == "completed" and done.outputs is not None and done.outputs["output"] == "Done."
        assert (tmp_path / "out.md").read_text() == "seven"
        decisions = [record.payload for record in await host.ledger.read("audit")]
        assert [(item["tool"], item["effect"], item["runId"]) for item in decisions] == [
            ("forestay:write", "prompt", run_id)
        ]

    run(tmp_path, story, WRITE, END)


def test_a_turn_costs_no_more_commits_than_it_has_facts_to_wait_for(tmp_path: Path) -> None:
    """What the loop does itself goes in with what it rests on; the session ends in the commit that ends the node."""

    async def story(host: Host) -> None:
        commits: list[list[str]] = []
        write = host.ledger._writer._write

        def counted(group: Any) -> Any:
            records = write(group)
            if any(record.stream.startswith(("run/", "relay/")) for record in records):
                commits.append([record.type for record in records])
            return records

        host.ledger._writer._write = counted  # type: ignore[method-assign]
        assert (await settled(host, await start(host))).status == "completed"
        recorded = "forestay.effect.recorded"
        assert commits == [
            ["run.started", "node.started"],
            [
                *(recorded, "agent.invocation.started", recorded, "agent.promptResolved"),
                *("crp.session.init", "crp.dispatch.start", "crp.envelope.build_complete"),
            ],
            [
                *("output.chunk", "forestay.relay.answered", recorded, "provider.usage", "agent.reasoned"),
                *("agent.decided", recorded, "agent.invocation.completed", "node.completed", "run.completed"),
                *("crp.window.complete", "crp.dispatch.complete", "crp.session.close"),
            ],
        ], "what the model is asked about is on disk before it is asked; a last answer goes in with the end"
        assert host.relay._loaded() == (0, 0), "a session that has ended is in nobody's memory"

    run(tmp_path, story, END, agents=Agents(context=[]))


def test_a_session_in_which_nothing_had_happened_is_opened_anew_after_a_crash(tmp_path: Path) -> None:
    """The run may know of a session that its process did not live to write."""

    class Known:
        tenant, run_id, node_id, iteration, config = TENANT, "run-1", "agent", 0, {"context": False}

        async def effect(self, key: str, fn: Any, **_: Any) -> Any:
            return "5e0c5f6e-0000-4000-8000-000000000000" if key == "relay/session-0" else await fn()

    async def story(host: Host) -> None:
        kind = host.runs._engine.registry.get("core.agent")
        assert kind is not None
        session = await kind.execute.__self__._session(Known())  # type: ignore[attr-defined]
        assert session.warm.app_id == f"{TENANT}::run-1/agent/0" and not session.warm.closed
        assert await host.ledger.read(f"relay/{session.id}") == [], "nothing has happened in it"
        await session.ingest("The Aurora lies at berth 7.", "note")
        types = [record.type for record in await host.ledger.read(f"relay/{session.id}")]
        assert types[0] == "crp.session.init"

    run(tmp_path, story, END)


def test_a_person_rejects_and_the_agent_goes_on_without(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        run_id = await start(host)
        await settled(host, run_id)
        done = await answer(host, run_id, {"action": "reject", "comment": "not today"})
        assert done.status == "completed" and not (tmp_path / "out.md").exists()

    run(tmp_path, story, WRITE, END)


def test_a_person_edits_what_is_done(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        run_id = await start(host)
        await settled(host, run_id)
        edited = {"path": "elsewhere.md", "content": "eight"}
        done = await answer(host, run_id, {"action": "edit-accept", "editedArtifactData": edited})
        assert done.status == "completed"
        assert (tmp_path / "elsewhere.md").read_text() == "eight" and not (tmp_path / "out.md").exists()

    run(tmp_path, story, WRITE, END)


def test_k2_a_denial_wins_over_an_allowance(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        done = await settled(host, await start(host))
        assert done.status == "completed" and not (tmp_path / "out.md").exists()

    run(tmp_path, story, WRITE, END, agents=Agents(allow=["*"], deny=["write"]))


def test_an_allowed_tool_asks_nobody(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        done = await settled(host, await start(host))
        assert done.status == "completed" and (tmp_path / "out.md").read_text() == "seven"

    run(tmp_path, story, WRITE, END, agents=Agents(allow=["forestay:write"]))


def test_s2_a_tool_cannot_leave_the_project(tmp_path: Path) -> None:
    secret = tmp_path.parent / "secret.txt"
    secret.write_text("hidden")
    (tmp_path / "link").symlink_to(secret)

    async def story(host: Host) -> None:
        run_id = await start(host)
        assert (await settled(host, run_id)).status == "completed"
        returned = [
            event.payload for event in await host.runs.events(run_id, TENANT) if event.type.endswith("Returned")
        ]
        assert [item["status"] for item in returned] == ["error"] * 3
        assert "hidden" not in str(await host.ledger.read(f"run/{run_id}"))

    reads = [call("read", path=path) for path in ("../secret.txt", str(secret), "link")]
    run(tmp_path, story, Turn("", tuple(reads)), END)


def test_two_runs_whose_models_use_the_same_call_ids_do_not_meet(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        runs = [await start(host) for _ in range(3)]
        for run_id in runs:
            assert (await settled(host, run_id)).status == "completed"
            returned = [event for event in await host.runs.events(run_id, TENANT) if event.type.endswith("Returned")]
            assert [event.payload["status"] for event in returned] == ["ok"]

    slow = Turn("", (ScriptedCall("bash", {"command": "sleep 0.3; echo ok"}, id="same"),))
    run(tmp_path, story, slow, END, agents=Agents(allow=["bash"]))


def test_extensions_hear_block_and_change_what_the_agent_does(tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions" / "listener.js").write_text(LISTENER)
    (tmp_path / "note.md").write_text("the note")
    (tmp_path / "other.md").write_text("the other")

    async def story(host: Host) -> None:
        run_id = await start(host)
        done = await settled(host, run_id)
        assert done.status == "completed", done.error
        text = str([(item.payload, item.attrs) for item in await host.ledger.read(f"run/{run_id}")])
        assert "The quay is closed." in text and "THE OTHER" in text and "The tide is low." in text
        heard = (await host.extensions.suite()).tools()
        assert [tool.name for tool in heard] == ["heard"]
        said = (await (await host.extensions.suite()).call_tool("heard", {})).content[0]["text"].split()
        assert said[:4] == ["input", "before_agent_start", "agent_start", "turn_start"]
        first = {name: said.index(name) for name in set(said)}
        assert first["context"] < first["before_provider_request"] < first["tool_execution_start"] < first["tool_call"]
        assert first["tool_call"] < first["tool_result"] < first["turn_end"]

    calls = (call("ls"), call("read", path="note.md"))
    run(tmp_path, story, Turn("", calls), END, extensions=ExtensionConfig(paths=["extensions"]))


OLDER = """
import { Type } from "@sinclair/typebox";
let prepared = 0;
export default function (pi) {
  pi.registerTool({ name: "sum", label: "Sum", description: "Adds a pair",
    parameters: Type.Object({ pair: Type.Tuple([Type.Number(), Type.Number()]), times: Type.Integer() }),
    prepareArguments: (args) => { prepared += 1; return { pair: args.numbers ?? args.pair, times: args.times }; },
    async execute(_id, { pair, times }) {
      return { content: [{ type: "text", text: `${(pair[0] + pair[1]) * times}, prepared ${prepared}` }] };
    } });
  pi.registerTool({ name: "fussy", label: "Fussy", description: "Takes nothing", parameters: { type: "object" },
    prepareArguments: () => { throw new Error("not these"); }, async execute() { return "never"; } });
}
"""
STRICT = ExtensionConfig(ExtensionPolicy(mode="strict"), paths=["extensions"])


def test_p15_a_turn_a_node_and_a_direct_call_prepare_convert_and_validate_alike(tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions" / "older.ts").write_text(OLDER)
    given = {"numbers": ["1", 2], "times": None}
    wanted = "0, prepared"

    async def story(host: Host) -> None:
        run_id = await start(host)
        assert (await settled(host, run_id)).status == "completed"
        returned = [
            (item.payload["key"], item.attrs["p"]["result"]["content"], item.attrs["p"]["result"]["status"])
            for item in await host.ledger.read(f"run/{run_id}")
            if item.type == "forestay.effect.recorded" and item.payload["key"].endswith("/result")
        ]
        assert returned[0][1:] == (f"{wanted} 1", "ok")
        assert returned[1][1:] == ("Error: not these", "error")
        assert returned[2][2] == "error" and "$.times" in returned[2][1]
        config = {"tool": "sum", "arguments": given}
        await host.runs.put_workflow(workflow("one", [node("t", "core.tool", config=config)]), tenant=None)
        second = (await host.runs.create_run(CreateRun(workflow_id="one"), TENANT)).run_id
        done = await settled(host, second)
        assert done.status == "completed", done.error
        assert f"{wanted} 3" in str(done.outputs)
        direct = await (await host.extensions.suite()).call_tool("sum", given)
        assert direct.content[0]["text"] == f"{wanted} 4"

    calls = (ScriptedCall("sum", given), call("fussy"), call("sum", numbers=[1, 2], times="many"))
    run(tmp_path, story, Turn("", calls), END, extensions=STRICT)


def test_s1_a_tool_whose_extension_may_write_is_unsafe(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)

    async def story(host: Host) -> None:
        assert (await settled(host, await start(host))).status == "waiting-approval"

    policy = ExtensionPolicy(mode="strict", default_caps=["read", "write"])
    run(tmp_path, story, Turn("", (call("tally"),)), END, extensions=ExtensionConfig(policy, paths=["extensions"]))


def test_s1_a_tool_whose_extension_can_only_read_asks_nobody(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)

    async def story(host: Host) -> None:
        run_id = await start(host)
        assert (await settled(host, run_id)).status == "completed"
        assert not (await host.extensions.suite()).failures
        denied = [item.payload for item in await host.ledger.read("ext/ext.tally") if item.type == "policy.decision"]
        assert ("http", "deny") in [(item["capability"], item["effect"]) for item in denied]

    policy = ExtensionPolicy(mode="strict", default_caps=["read"])
    run(tmp_path, story, Turn("", (call("tally"),)), END, extensions=ExtensionConfig(policy, paths=["extensions"]))


def test_n1_an_extension_that_nobody_trusts_is_not_executed(tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions" / "listener.js").write_text(LISTENER)

    async def story(host: Host) -> None:
        assert (await settled(host, await start(host))).status == "completed"
        suite = await host.extensions.suite()
        assert not suite.members and await host.extensions.untrusted() == ["extensions/listener.js"]

    run(tmp_path, story, END, extensions=ExtensionConfig(paths=["extensions"]), trust=False)


def test_a_workflow_is_a_tool_that_runs_once_for_a_key(tmp_path: Path) -> None:
    document = workflow("tide", [node("echo", "core.noop")], variables=[{"name": "day", "type": "string"}])

    async def story(host: Host) -> None:
        await host.runs.put_workflow(document, tenant=None)
        run_id = await start(host)
        assert (await settled(host, run_id)).status == "completed"
        from forestay.runs import RunFilter

        page = await host.runs.list_runs(RunFilter(workflow_id="tide"), TENANT)
        assert [item.status for item in page.runs] == ["completed"]

    run(tmp_path, story, Turn("", (call("run_tide", day="Monday"),)), END, agents=Agents(allow=["workflow:*"]))


def test_a_model_that_fails_fails_the_node_with_its_problem(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        done = await settled(host, await start(host))
        assert done.status == "failed" and done.error is not None

    run(tmp_path, story, Turn("", error="provider_error"))


def test_an_agent_that_failed_is_tried_again_in_another_session(tmp_path: Path) -> None:
    """The session of the failed attempt is closed: seed 100524 of the simulation died behind that and ended wrongly."""
    retry = {"retry": {"maxAttempts": 3, "initialDelayMs": 1}}
    document = workflow("again", [node("agent", "core.agent", config={"task": "Where?"}, settings=retry)])
    turns = (Turn("", error="provider_error"), Turn("", error="provider_timeout"), Turn("Berth 7."))

    async def whole() -> None:
        config = Config(models=Models(default="script"))
        models = {"script": Scripted(Script(turns))}
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models=models) as host:
            await host.runs.put_workflow(document, tenant=None)
            run_id = (await host.runs.create_run(CreateRun(workflow_id="again"), TENANT)).run_id
            done = await settled(host, run_id)
            assert done.status == "completed" and (await types(host, run_id)).count("node.retried") == 2
            rows = await host.ledger.query("SELECT closed FROM relay_sessions")
            assert [closed for (closed,) in rows] == [1, 1, 1]

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_an_answer_that_a_limit_cut_is_joined_by_the_relay(tmp_path: Path) -> None:
    text = "The Aurora lies at berth 7 and sails on Thursday with the evening tide; the Petrel stays."

    async def story(host: Host) -> None:
        run_id = await start(host)
        done = await settled(host, run_id)
        assert done.outputs is not None and done.outputs["output"] == text
        events = await host.runs.events(run_id, TENANT)
        (answered,) = [event.payload for event in events if event.type == "forestay.relay.answered"]
        assert answered["windows"] == 2
        chunks = [event.payload for event in events if event.type == "output.chunk"]
        assert "".join(chunk["chunk"] for chunk in chunks) == text
        assert [chunk["isLast"] for chunk in chunks] == [False, True]

    async def whole() -> None:
        model = Scripted(Script((Turn(text, cut=12),)))
        config = Config(models=Models(default="script"))
        async with Host.open(config, root=tmp_path, data=tmp_path / "d", models={"script": model}) as host:
            await story(host)

    asyncio.run(whole())


def test_an_unknown_agent_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        request = CreateRun(workflow_id="forestay-ask", inputs={"question": "?", "agentId": "local.no.body"})
        run_id = (await host.runs.create_run(request, TENANT)).run_id
        done = await settled(host, run_id)
        assert done.status == "failed" and done.error is not None and "local.no.body" in done.error.message

    run(tmp_path, story, END)


def test_two_agents_with_one_id_do_not_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    text = (EXAMPLES / "agents" / "harbourmaster.json").read_text()
    (tmp_path / "a" / "one.json").write_text(text)
    (tmp_path / "a" / "two.json").write_text(text)

    async def story(host: Host) -> None:
        raise AssertionError("it must not open")

    with pytest.raises(Problem, match="two agents"):
        run(tmp_path, story, END, agents=Agents(paths=["a"]))


def test_a_node_calls_a_tool_and_asks_about_what_nobody_allowed(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("berth 7")

    async def story(host: Host) -> None:
        for name, arguments, status in (
            ("read", {"path": "note.md"}, "completed"),
            ("write", {"path": "x", "content": ""}, "waiting-approval"),
        ):
            document = workflow("one", [node("t", "core.tool", config={"tool": name, "arguments": arguments})])
            await host.runs.put_workflow(document, tenant=None)
            run_id = (await host.runs.create_run(CreateRun(workflow_id="one"), TENANT)).run_id
            assert (await settled(host, run_id)).status == status

    run(tmp_path, story, END)


def test_what_the_host_offers_is_what_is_wired(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        assert {"core.agent", "core.ai.callPrompt", "core.tool", "core.http"} <= set(host.runs.node_types)
        assert host.capabilities()["forestay"]["model"] == "scripted"

    run(tmp_path, story, END)
