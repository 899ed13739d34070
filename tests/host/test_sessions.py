"""A conversation through the real host: turns go on with what was said, extensions see the session and change it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Models, Problem
from forestay.models import Deltas, Message, Script, Scripted, ScriptedCall, Turn
from forestay.sessions import SessionTree

TODO = """
export default function (pi) {
  let todos = [];
  const heard = [];
  const rebuild = (ctx) => {
    todos = [];
    for (const entry of ctx.sessionManager.getBranch())
      if (entry.type === "message" && entry.message.role === "toolResult" && entry.message.toolName === "todo")
        todos = entry.message.details.todos;
  };
  for (const name of ["session_start", "session_tree"])
    pi.on(name, (event, ctx) => { heard.push(name + ":" + (event.reason ?? "")); rebuild(ctx); });
  pi.on("before_agent_start", () => ({ message: { customType: "tide", content: "The tide is low.", display: false } }));
  pi.on("agent_end", (event, ctx) => pi.appendEntry("ended", {
    messages: event.messages.length, usage: ctx.getContextUsage(), session: ctx.sessionManager.getSessionId() }));
  pi.registerTool({ name: "todo", label: "Todo", description: "Keep a todo",
    parameters: { type: "object", properties: { text: { type: "string" } } },
    async execute(id, params) {
      todos = [...todos, params.text];
      return { content: [{ type: "text", text: `${todos.length} kept` }], details: { todos } };
    } });
  pi.registerCommand("state", { handler: async (args, ctx) => ({ todos, heard, id: ctx.sessionManager.getSessionId(),
    entries: ctx.sessionManager.getEntries().length, ui: ctx.hasUI }) });
}
"""


class Heard(Scripted):
    """The scripted model, which remembers what it was shown."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__(Script(turns, position="conversation"))
        self.shown: list[list[Message]] = []

    def stream(self, messages: Sequence[Message], **more: Any) -> Deltas:
        self.shown.append(list(messages))
        return super().stream(messages, **more)


Story = Callable[[Host, Heard], Coroutine[Any, Any, None]]


def live(folder: Path, story: Story, *turns: Turn) -> None:
    async def whole() -> None:
        (folder / "todo.ts").write_text(TODO)
        model = Heard(*turns)
        config = Config(
            models=Models(default="heard"),
            agents=Agents(allow=["*"]),
            extensions=ExtensionConfig(paths=["todo.ts"], policy=ExtensionPolicy(mode="permissive")),
        )
        async with Host.open(config, root=folder, data=folder / ".forestay", models={"heard": model}) as host:
            await host.extensions.trust.give(host.root)
            await story(host, model)

    asyncio.run(whole())


async def turn(host: Host, tree: SessionTree, text: str = "", tenant: str = "default") -> Any:
    run_id = await host.turns.start(tree, text, tenant=tenant)
    return await host.runs.wait(run_id, tenant)


def roles(tree: SessionTree) -> list[str]:
    return [entry["message"]["role"] if entry["type"] == "message" else entry["type"] for entry in tree.branch()]


KEEP = Turn("I keep it.", (ScriptedCall("todo", {"text": "paint"}),))
MORE = Turn("", (ScriptedCall("todo", {"text": "moor"}),))


@pytest.mark.api("ctx.getContextUsage|ctx.sessionManager")
def test_a_turn_goes_on_with_what_was_said(tmp_path: Path) -> None:
    async def story(host: Host, model: Heard) -> None:
        tree = host.sessions.new()
        assert (await turn(host, tree, "Keep paint.")).outputs["output"] == "Kept."
        said = ["user", "custom_message", "assistant", "toolResult", "assistant", "custom"]
        assert roles(tree) == said
        assert (await turn(host, tree, "And moor.")).outputs["output"] == "Both kept."
        assert roles(tree) == said * 2
        shown = [(message.role, message.content) for message in model.shown[2]]
        assert shown[1:] == [
            ("user", "Keep paint."), ("user", "The tide is low."), ("assistant", "I keep it."), ("tool", "1 kept"),
            ("assistant", "Kept."), ("user", "And moor."), ("user", "The tide is low."),
        ]  # fmt: skip
        result, answer = (tree.branch()[at]["message"] for at in (3, 4))
        assert (result["toolName"], result["isError"], result["details"]) == ("todo", False, {"todos": ["paint"]})
        assert (answer["stopReason"], answer["provider"], answer["content"]) == (
            "stop", "scripted", [{"type": "text", "text": "Kept."}],
        )  # fmt: skip
        first, second = (entry["data"] for entry in tree.entries if entry["type"] == "custom")
        assert first["messages"] == second["messages"] == 5, "the messages of this turn, not of those before"
        assert second["usage"]["tokens"] > 0 and second["session"] == tree.id
        again = await host.sessions.open(tree.id)
        assert again.entries == tree.entries and (await host.sessions.list())[0].entries == 12

    live(tmp_path, story, KEEP, Turn("Kept."), MORE, Turn("Both kept."))


def test_extensions_live_in_the_session_of_the_turn(tmp_path: Path) -> None:
    async def story(host: Host, model: Heard) -> None:
        first, second = host.sessions.new(), host.sessions.new()
        await turn(host, first, "Keep paint.")
        suite = await host.extensions.suite()
        state = await suite.run_command("state")
        assert (state["todos"], state["heard"], state["id"]) == (["paint"], ["session_start:startup"], first.id)
        await turn(host, second, "Hello.")
        state = await suite.run_command("state")
        assert (state["todos"], state["heard"][-1], state["id"]) == (["paint"], "session_start:resume", second.id)
        assert state["entries"] == len(second.entries) and state["ui"] is False
        leaf = first.entries[3]["id"]
        await host.turns.move(first, first.entries[0]["id"])
        assert first.leaf is None
        await host.turns.move(first, leaf)
        await turn(host, first)
        assert roles(first)[-2:] == ["assistant", "custom"] and (await suite.run_command("state"))["id"] == first.id

    live(tmp_path, story, KEEP, Turn("Kept."), Turn("Again."))


def test_a_move_is_told_and_the_branch_that_was_left_stays(tmp_path: Path) -> None:
    async def story(host: Host, model: Heard) -> None:
        tree = host.sessions.new()
        await turn(host, tree, "Keep paint.")
        await turn(host, tree, "And moor.")
        suite = await host.extensions.suite()
        assert (await suite.run_command("state"))["todos"] == ["paint", "moor"]
        second = next(entry["id"] for entry in tree.entries[5:] if entry["type"] == "message")
        assert await host.turns.move(tree, second) == "And moor."
        state = await suite.run_command("state")
        assert (state["todos"], state["heard"][-1]) == (["paint"], "session_tree:")
        assert len(tree.branch()) == 6 and len(tree.entries) == 12
        fork, draft = await host.sessions.fork(tree.id, second, before=True)
        assert draft == "And moor." and [item["id"] for item in fork.entries] == [item["id"] for item in tree.branch()]

    live(tmp_path, story, KEEP, Turn("Kept."), MORE, Turn("Both kept."))


def test_a_turn_that_failed_or_was_cancelled_says_so_and_the_next_one_is_whole(tmp_path: Path) -> None:
    async def story(host: Host, model: Heard) -> None:
        tree = host.sessions.new()
        tree.append("message", message={"role": "user", "content": "Before."})
        call = {"type": "toolCall", "id": "c1", "name": "todo", "arguments": {}}
        tree.append("message", message={"role": "assistant", "content": [call], "stopReason": "toolUse"})
        assert (await turn(host, tree, "Go on.")).status == "completed"
        assert [(item.role, item.content[:9]) for item in model.shown[-1][1:4]] == [
            ("user", "Before."), ("assistant", ""), ("tool", "No result"),
        ]  # fmt: skip
        failed = await turn(host, tree, "Once more.")
        assert failed.status == "failed"
        last = [entry for entry in tree.branch() if entry["type"] == "message"][-1]["message"]
        assert (last["role"], last["stopReason"], last["content"]) == ("assistant", "error", [])
        assert last["errorMessage"]

    live(tmp_path, story, Turn("unused"), Turn("Gone on."))


def test_m3_an_agent_that_is_mentioned_answers_and_the_log_says_so(tmp_path: Path) -> None:
    async def story(host: Host, model: Heard) -> None:
        desk = "vendor.acme.desk"
        manifest = {"agentId": desk, "persona": "Desk", "modelClass": "general", "systemPrompt": "You are the desk."}
        await host.directory.install("ann", {"name": desk, "version": "1.0.0", "agents": [manifest]})
        tree = await host.sessions.create("ann")
        sources = []
        for text in (f"@{desk} When do you open?", "And when do you close?", "@vendor.acme.nobody Hello?"):
            run_id = await host.turns.start(tree, text, tenant="ann")
            await host.runs.wait(run_id, "ann")
            events = await host.runs.events(run_id, "ann")
            (began,) = [event.payload for event in events if event.type == "agent.invocation.started"]
            sources.append((began["agentId"] == desk, began["source"]))
        assert sources == [(True, "chat-mention"), (False, "workflow-node"), (False, "workflow-node")]
        run_id = await host.turns.start(tree, f"@{desk} Hello?", tenant="ann", source="rpc", by_person=False)
        assert (await host.runs.wait(run_id, "ann")).outputs["agentId"] != desk, "another program does not choose"

    live(tmp_path, story, *[Turn("At nine.")] * 4)


def test_another_tenants_session_is_not_there_and_its_turns_have_no_extensions(tmp_path: Path) -> None:
    async def story(host: Host, model: Heard) -> None:
        hers = await host.sessions.create("ann")
        with pytest.raises(Problem):
            await host.sessions.open(hers.id)
        assert (await turn(host, hers, "Hello.", tenant="ann")).outputs["output"] == "Hello, Ann."
        assert roles(hers) == ["user", "assistant"] and host.extensions.opened is None
        run_id = await host.turns.start(host.sessions.new(), "Hello.")
        assert (await host.runs.wait(run_id, "default")).status == "completed"
        stolen = {"question": "?", "sessionId": hers.id}
        from forestay.runs import CreateRun

        made = await host.runs.create_run(CreateRun("forestay-ask", inputs=stolen), "default")
        ended = await host.runs.wait(made.run_id, "default")
        assert ended.status == "failed" and ended.error is not None and "no session" in ended.error.message
        assert roles(hers) == ["user", "assistant"]

    live(tmp_path, story, Turn("Hello, Ann."))


def test_one_turn_at_a_time(tmp_path: Path) -> None:
    async def story(host: Host, model: Heard) -> None:
        tree = host.sessions.new()
        run_id = await host.turns.start(tree, "Keep paint.")
        with pytest.raises(Problem, match="under way"):
            await host.turns.start(tree, "And moor.")
        await host.turns.cancel(tree, "heard")
        assert (await host.runs.get_run(run_id, "default")).status == "cancelled"
        last = tree.branch()[-1]["message"]
        assert (last["role"], last["stopReason"]) == ("assistant", "aborted")
        assert await host.turns.under_way(tree) is None
        assert (await turn(host, tree, "And moor.")).status == "completed"

    live(tmp_path, story, Turn("Kept."), Turn("Kept."), Turn("Kept."))
