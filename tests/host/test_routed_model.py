"""Models that an extension routes, for agents of the host (O1 to O3), and what it says to an agent (H1, H2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Models
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun, ForkRequest
from forestay.sessions import SessionTree, text_of

TIDE = """
export default function (pi) {
  pi.registerVirtualModel({ provider: "tide", id: "auto", route: (request, ctx) =>
    JSON.stringify(request.messages).includes("wrong") ? { model: { provider: "no", id: "where" } }
      : { model: ctx.modelRegistry.find("flood", "flood") } });
  pi.registerCommand("drop", { handler: async () => pi.unregisterVirtualModel("tide", "auto") });
  pi.registerCommand("say", { handler: async (args) => pi.sendUserMessage("/drop !ls @tide.ts") });
  pi.registerCommand("run", { handler: async (args) => pi.sendUserMessage("/drop", { expandPromptTemplates: true }) });
  pi.on("tool_call", () => pi.sendMessage({ customType: "tide", content: "Heard late.", display: true }));
  pi.on("agent_end", (event, ctx) => pi.appendEntry("ended", { error: event.error ?? null, idle: ctx.isIdle() }));
  pi.registerCommand("idle", { handler: async (args, ctx) => pi.appendEntry("idle", ctx.isIdle()) });
}
"""
Story = Callable[[Host, SessionTree], Coroutine[Any, Any, None]]


def live(folder: Path, story: Story, **models: Any) -> None:
    (folder / "tide.ts").write_text(TIDE)
    config = Config(
        models=Models(default="ebb", classes={"writing": "flood"}, **models),
        agents=Agents(allow=["*"]),
        extensions=ExtensionConfig(paths=["tide.ts"], policy=ExtensionPolicy(mode="permissive")),
    )
    looks = Turn("", (ScriptedCall("ls"),), when="Steer")
    ebb = Script((Turn("Wait.", when="long", delay=600), looks, Turn("Ebb.", repeat=True)), name="ebb")
    own = {"ebb": Scripted(ebb), "flood": Scripted(Script((Turn("Flood.", repeat=True),), name="flood"))}

    async def whole() -> None:
        async with Host.open(config, root=folder, data=folder / ".forestay", models=own) as host:
            await host.extensions.trust.give(host.root)
            await story(host, host.sessions.new())

    asyncio.run(whole())


async def said(host: Host, tree: SessionTree, text: str, **how: Any) -> str:
    """What is answered last, when nothing goes on any more."""
    await host.turns.start(tree, text, **how)
    while (run_id := await host.turns.under_way(tree)) is not None:
        await host.runs.wait(run_id, "default")
    messages = [entry["message"] for entry in tree.branch() if entry["type"] == "message"]
    return text_of(messages[-1]["content"]) or str(messages[-1].get("errorMessage"))


@pytest.mark.api("pi.registerVirtualModel")
def test_settings_and_runs_name_a_routed_model_and_the_writer_is_on_record(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        assert await said(host, tree, "How deep?") == "Flood."
        (answer,) = [entry["message"] for entry in tree.branch() if entry.get("message", {}).get("stopReason")]
        assert (answer["provider"], answer["model"]) == ("flood", "flood")
        request = CreateRun("forestay-ask", {"question": "How deep?"}, configurable={"model": "ebb"})
        run = await host.runs.create_run(request, "default")
        assert (await host.runs.wait(run.run_id, "default")).outputs["output"] == "Ebb."
        told = await said(host, tree, "Go wrong.")
        assert told == "tide/auto was routed to no/where, which is no model here."

    live(tmp_path, story, agents={"core.forestay.assistant": "tide/auto"})


@pytest.mark.api("pi.setModel|pi.unregisterVirtualModel")
def test_a_model_that_was_chosen_and_is_gone_leaves_the_agent_its_own(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        tree.append("model_change", provider="tide", modelId="auto")
        assert await said(host, tree, "How deep?") == "Flood."
        assert await said(host, tree, "How deep?", model="ebb") == "Ebb.", "a person's own choice comes first"
        await said(host, tree, "/drop")
        assert await said(host, tree, "How deep?") == "Ebb."
        tree.append("model_change", provider="flood", modelId="flood")
        assert await said(host, tree, "How deep?") == "Flood."

    live(tmp_path, story)


@pytest.mark.api("pi.sendUserMessage")
def test_what_an_extension_says_is_a_text_unless_it_wants_more(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        assert await said(host, tree, "/say") == "Ebb."
        first = next(entry for entry in tree.branch() if entry["type"] == "message")
        assert text_of(first["message"]["content"]) == "/drop !ls @tide.ts"
        tree.append("model_change", provider="tide", modelId="auto")
        await said(host, tree, "/run")
        assert await said(host, tree, "How deep?") == "Ebb.", "the command was performed"

    live(tmp_path, story)


@pytest.mark.api("event.agent_end|ctx.isIdle")
def test_extensions_hear_that_an_agent_was_ended(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        run_id = await host.turns.start(tree, "Take a long look.")
        async for event in host.runs.follow(run_id, "default"):
            if event.type == "agent.invocation.started":
                break
        suite = await host.extensions.suite()
        while suite.session.idle:
            await asyncio.sleep(0)
        await host.turns.cancel(tree, "ebb")
        await said(host, tree, "/idle")
        kept = [entry["data"] for entry in tree.entries if entry["type"] == "custom"]
        assert kept == [{"error": "cancelled", "idle": False}, True]

    live(tmp_path, story)


@pytest.mark.api("pi.sendUserMessage|pi.sendMessage")
def test_what_an_agent_heard_is_played_again_as_it_was(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        assert await said(host, tree, "Steer me.") == "Ebb."
        kinds = [_kind(entry) for entry in tree.branch()]
        assert kinds == ["user", "assistant", "toolResult", "tide", "assistant", "ended"], "it parts no call and result"
        assert tree.turn is not None
        before, entries = await events(host, tree.turn.run_id), len(tree.entries)
        made = await host.runs.fork(tree.turn.run_id, "default", ForkRequest("replay", 0))
        done = await host.runs.wait(made.run_id, "default")
        assert done.outputs["output"] == "Ebb." and await events(host, made.run_id) == before
        assert len(tree.entries) == entries, "a replay leaves the session as it is"

    live(tmp_path, story)


def _kind(entry: dict[str, Any]) -> str:
    return str(entry.get("customType") or entry["message"]["role"])


async def events(host: Host, run_id: str) -> list[Any]:
    told = [event async for event in host.runs.follow(run_id, "default")]
    return [(event.type, event.payload.get("toolName")) for event in told if event.type.startswith("agent.")]
