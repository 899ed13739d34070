"""A session with front ends: dialogs, notices and commands of extensions through their room, and turns that they ask
for, on the real host with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host, SessionState
from forestay.host.session_room import GRACE_SECONDS
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Models, Problem
from forestay.models import Script, Scripted, Turn
from forestay.sessions import SessionTree, text_of

HARBOUR = """
export default function (pi) {
  let again = 0;
  pi.on("session_start", (event, ctx) => { if (ctx.hasUI) ctx.ui.setStatus("tide", "high"); });
  pi.on("agent_end", () => { if (again-- > 0) pi.sendUserMessage("And then?"); });
  pi.registerCommand("berth", { description: "Choose a berth", handler: async (args, ctx) => {
    const chosen = await ctx.ui.select("Which berth?", ["north \\u001b[31m", "south"]);
    const sure = await ctx.ui.confirm("Sure?", "It is far.");
    const name = await ctx.ui.input("Her name?");
    const log = await ctx.ui.editor("The log", "calm");
    const said = { args, chosen: chosen ?? null, sure, name: name ?? null, log: log ?? null };
    pi.appendEntry("berth", { ...said, ui: ctx.hasUI });
    ctx.ui.notify("Moored\\nat " + (chosen ?? "no berth"), "warning");
    ctx.ui.setWidget("map", ["~~~", "~x~"]);
  } });
  pi.registerCommand("loop", { handler: async (args) => { again = Number(args); pi.sendUserMessage("Go on."); } });
  pi.registerCommand("wake", { handler: async () => pi.sendMessage(
    { customType: "bell", content: "Ding.", display: true }, { triggerTurn: true }) });
  pi.registerCommand("flood", { handler: async (args, ctx) => {
    for (let at = 0; at < 30; at += 1) ctx.ui.notify("x".repeat(2000) + at);
    const answers = [];
    for (let at = 0; at < 15; at += 1) answers.push(ctx.ui.confirm("Again?", ""));
    ctx.ui.setWidget("big", Array.from({ length: 100 }, () => "w".repeat(5000)));
    ctx.ui.setWidget("vast", ["v".repeat(3000000)]);
    pi.appendEntry("flood", await Promise.all(answers));
  } });
  pi.registerCommand("later", { handler: async (args, ctx) => {
    void (async () => pi.appendEntry("later", { name: await ctx.ui.input("Her name?") }))();
  } });
  pi.registerCommand("fail", { handler: async () => { throw new Error("no wind"); } });
}
"""
Story = Callable[[Host, SessionTree], Coroutine[Any, Any, None]]


def harbour(folder: Path) -> Config:
    """The settings of a project with the extension above; its model is called `said`."""
    (folder / "harbour.ts").write_text(HARBOUR)
    return Config(
        models=Models(default="said"),
        agents=Agents(allow=["*"]),
        extensions=ExtensionConfig(paths=["harbour.ts"], policy=ExtensionPolicy(mode="permissive")),
    )


def live(folder: Path, story: Story, *turns: Turn) -> None:
    async def whole() -> None:
        models = {"said": Scripted(Script(turns, position="conversation"))}
        async with Host.open(harbour(folder), root=folder, data=folder / ".forestay", models=models) as host:
            await host.extensions.trust.give(host.root)
            await story(host, host.sessions.new())

    asyncio.run(whole())


class Person:
    """A front end: it keeps the last state, and waits for the next one that fits."""

    def __init__(self, host: Host, tree: SessionTree) -> None:
        self._host, self._tree = host, tree
        self.state: SessionState | None = None
        self._stir = asyncio.Event()

    async def follow(self) -> None:
        async with aclosing(self._host.fronts.states(self._tree)) as states:
            async for self.state in states:
                self._stir.set()

    async def until(self, fits: Callable[[SessionState], bool]) -> SessionState:
        async with asyncio.timeout(20):
            while self.state is None or not fits(self.state):
                self._stir.clear()
                await self._stir.wait()
        return self.state

    async def answer(self, operation: str, value: Any) -> Any:
        state = await self.until(lambda state: any(item.operation == operation for item in state.ui.dialogs))
        dialog = next(item for item in state.ui.dialogs if item.operation == operation)
        await self._host.fronts.answer(self._tree, dialog.request_id, value)
        return dialog

    async def say(self, message: str) -> str:
        return await self._host.fronts.say(self._tree, message, tenant="default", principal=None)


@asynccontextmanager
async def person(host: Host, tree: SessionTree) -> AsyncIterator[Person]:
    found = Person(host, tree)
    task = asyncio.ensure_future(found.follow())
    await found.until(lambda _: True)
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def kept(tree: SessionTree, kind: str) -> list[Any]:
    return [entry["data"] for entry in tree.entries if entry.get("customType") == kind]


def said(tree: SessionTree) -> list[str]:
    return [text_of(entry["message"]["content"]) for entry in tree.branch() if entry["type"] == "message"]


@pytest.mark.api(
    "pi.registerCommand|ctx.hasUI|ctx.ui.select|ctx.ui.confirm|ctx.ui.input|ctx.ui.editor",
    "ctx.ui.notify|ctx.ui.setWidget|pi.appendEntry",
)
def test_a_command_is_a_turn_whose_dialogs_a_front_end_answers(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        assert host.fronts.commands("default") is None
        async with person(host, tree) as she:
            run_id = await she.say("/berth for two")
            dialog = await she.answer("select", 0)
            assert (dialog.extension, dialog.title) == ("harbour", "Which berth?")
            assert dialog.options == ["north \\x1b[31m", "south"], "control characters are spelled out"
            with pytest.raises(Problem, match="true or false"):
                await she.answer("confirm", "yes")
            assert (await she.answer("confirm", True)).lines == ["It is far."]
            await she.answer("input", "Aurora")
            assert (await she.answer("editor", None)).text == "calm"
            run = await host.runs.wait(run_id, "default")
            assert (run.status, run.outputs["outcome"]) == ("completed", "handed-off")
            answers = {"args": "for two", "chosen": "north \x1b[31m", "sure": True, "name": "Aurora", "log": None}
            assert kept(tree, "berth") == [{**answers, "ui": True}]
            state = await she.until(lambda state: bool(state.ui.notices) and state.run_id is None)
            assert [(item.level, item.lines[0]) for item in state.ui.notices] == [("warning", "Moored")]
            places = {(item.kind, item.key): item.lines for item in state.ui.places}
            assert places == {("status", "tide"): ["high"], ("widget", "map"): ["~~~", "~x~"]}
            assert state.ui.dialogs == [] and state.living == tree.id
            assert said(tree) == [], "a command is no message of the conversation"
            await host.runs.wait(await she.say("/later"), "default")
            await she.answer("input", "Borealis")
            await she.until(lambda state: kept(tree, "later") == [{"name": "Borealis"}])
        names = [item.name for item in host.fronts.commands("default") or []]
        assert {"berth", "loop"} <= set(names) and host.fronts.commands("other") == []

    live(tmp_path, story)


def test_without_a_person_dialogs_have_their_defaults_at_once(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        run_id = await host.turns.start(tree, "/berth")
        assert (await host.runs.wait(run_id, "default")).status == "completed"
        nothing = {"args": "", "chosen": None, "sure": False, "name": None, "log": None, "ui": False}
        assert kept(tree, "berth") == [nothing]
        run_id = await host.turns.start(tree, "/fail")
        failed = await host.runs.wait(run_id, "default")
        assert failed.status == "failed" and failed.error is not None and "no wind" in failed.error.message

    live(tmp_path, story)


def test_turns_that_extensions_ask_for_begin_by_themselves(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        async with person(host, tree) as she:
            await she.say("/loop 2")
            await she.until(lambda state: state.run_id is None and len(said(tree)) == 6)
            assert said(tree) == ["Go on.", "One.", "And then?", "Two.", "And then?", "Three."]
            await she.say("/wake")
            await she.until(lambda state: state.run_id is None and len(said(tree)) == 7)
            assert said(tree)[-1] == "Four."

    live(tmp_path, story, Turn("One."), Turn("Two."), Turn("Three."), Turn("Four."))


def test_a_flood_is_bounded_and_told(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        async with person(host, tree) as she:
            run_id = await she.say("/flood")
            state = await she.until(lambda state: len(state.ui.dialogs) == 10)
            assert len(state.ui.notices) == 20 and max(len(item.lines[0]) for item in state.ui.notices) <= 401
            for dialog in state.ui.dialogs:
                await host.fronts.answer(tree, dialog.request_id, True)
            await host.runs.wait(run_id, "default")
            assert kept(tree, "flood") == [[True] * 10 + [False] * 5]
            state = await host.fronts.state(tree)
            assert state.ui.left_out == {"notices": 10, "dialogs": 5}
            widget, vast = [item for item in state.ui.places if item.kind == "widget"]
            assert len(widget.lines) == 21 and {len(line) for line in widget.lines[:20]} == {401}
            assert [len(line) for line in vast.lines] == [401], "what nobody shows is cut before it is sent"

    live(tmp_path, story)


def test_a_dialog_outlives_a_page_that_is_loaded_again_but_not_its_person(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        async with person(host, tree) as she:
            run_id = await she.say("/berth")
            await she.until(lambda state: bool(state.ui.dialogs))
        async with person(host, tree) as she:
            await she.answer("select", "south")
            await she.until(lambda state: any(item.operation == "confirm" for item in state.ui.dialogs))
        loop = asyncio.get_running_loop()
        left = [handle for handle in loop._scheduled if "_left" in repr(handle)]  # type: ignore[attr-defined]
        assert len([handle for handle in left if not handle.cancelled()]) == 1
        assert left[-1].when() <= loop.time() + GRACE_SECONDS
        host.fronts.room(tree)._left()  # the time is over
        run = await host.runs.wait(run_id, "default")
        assert run.status == "completed", run.error
        (answer,) = kept(tree, "berth")
        assert (answer["chosen"], answer["sure"], answer["name"]) == ("south", False, None)
        assert answer["ui"] is False, "she is gone"

    live(tmp_path, story)


def test_ending_a_turn_gives_up_its_dialogs(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        async with person(host, tree) as she:
            run_id = await she.say("/berth")
            await she.until(lambda state: bool(state.ui.dialogs))
            with pytest.raises(Problem, match="under way"):
                await she.say("Hello?")
            await host.fronts.cancel(tree, "said", "default")
            assert (await host.runs.get_run(run_id, "default")).status == "cancelled"
            state = await she.until(lambda state: state.run_id is None)
            assert state.ui.dialogs == []

    live(tmp_path, story)
