"""What a person does in a session beside talking: shell lines, shortcuts, files by name; and what extensions draw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.host.mentions import MOST, addressed, mentioned
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Models
from forestay.models import DEFAULT_PARAMS, Deltas, Message, Params, Script, Scripted, ScriptedCall, ToolSpec, Turn
from forestay.runs import RunEvent
from forestay.sessions import SessionTree, role_of, text_of

QUAY = """
import { Text } from "@mariozechner/pi-tui";
export default function (pi) {
  pi.on("user_bash", (event) => {
    if (event.command === "tide") return { result: { output: "high", exitCode: 0 } };
    if (event.command.startsWith("far ")) return { operations: { exec: async (command, cwd, { onData }) => {
      onData(Buffer.from("there: " + command)); return { exitCode: 3 };
    } } };
  });
  pi.registerShortcut("ctrl+g", { description: "Sound the horn", handler: async (ctx) => {
    pi.appendEntry("horn", { sounded: true });
  } });
  pi.registerCommand("draft", { handler: async (args, ctx) => ctx.ui.setEditorText(args) });
  pi.registerCommand("tell", { handler: async (args) =>
    pi.sendMessage({ customType: "log", content: args, display: true, details: { n: 1 } }) });
  pi.registerMessageRenderer("log", (message, options, theme) =>
    new Text("LOG " + message.content + " \\u001b[31m\\u001b[2J" + message.details.n, 0, 0));
  pi.registerEntryRenderer("horn", (entry) => new Text("HORN " + entry.data.sounded, 0, 0));
  pi.registerTool({ name: "sound", label: "Sound", description: "Sound the depth",
    parameters: { type: "object", properties: { at: { type: "string" } } },
    execute: async (id, params) => ({ content: [{ type: "text", text: "4 fathoms" }], details: { depth: 4 } }),
    renderCall: (args) => new Text("sounding at " + args.at, 0, 0),
    renderResult: (result) => ({ render: (width) => ["depth " + result.details.depth, "x".repeat(1000)] }),
  });
}
"""

PAINTER = """
export default function (pi) {
  pi.registerToolRenderer((name, next) => (name === "read"
    ? { renderCall: (args) => ({ render: (width) => [`reads ${args.path} at ${width}`] }) } : next()));
  pi.registerToolRenderer(() => undefined);
  pi.registerMarkdownTransformer((text, about) =>
    about.messageType === "assistant" ? text.replace("fathoms", "metres") : text);
}
"""


class Heard(Scripted):
    """A scripted model that keeps what it was asked last."""

    last: tuple[str, ...] = ()

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        Heard.last = tuple(message.content for message in messages)
        return super().stream(messages, tools=tools, params=params)


Story = Callable[[Host, SessionTree], Coroutine[Any, Any, None]]


def live(folder: Path, story: Story, *turns: Turn, allow: tuple[str, ...] = ("*",), deny: tuple[str, ...] = ()) -> None:
    (folder / "quay.ts").write_text(QUAY)
    (folder / "painter.ts").write_text(PAINTER)
    config = Config(
        models=Models(default="said"),
        agents=Agents(allow=list(allow), deny=list(deny)),
        extensions=ExtensionConfig(paths=["quay.ts", "painter.ts"], policy=ExtensionPolicy(mode="permissive")),
    )

    async def whole() -> None:
        models = {"said": Heard(Script(turns, position="conversation"))}
        async with Host.open(config, root=folder, data=folder / ".forestay", models=models) as host:
            await host.extensions.trust.give(host.root)
            tree = host.sessions.new()
            with host.fronts.room(tree).followed():  # somebody is there
                await story(host, tree)

    asyncio.run(whole())


async def say(host: Host, tree: SessionTree, message: str, answer: dict[str, Any] | None = None) -> str:
    """Say something; what the run asks meanwhile is answered. The status that it ends with."""
    run_id = await host.fronts.say(tree, message, tenant="default", principal=None)
    async for event in host.runs.follow(run_id, "default"):
        if isinstance(event, RunEvent) and event.type == "interrupt.requested":
            assert answer is not None, "nothing was to be asked"
            for item in await host.runs.interrupts(run_id, "default"):
                await host.runs.resolve_by_node(run_id, item.node_id, "default", {"resumeValue": answer}, "test")
    return (await host.runs.get_run(run_id, "default")).status


def ran(tree: SessionTree) -> list[dict[str, Any]]:
    found = [entry["message"] for entry in tree.branch() if entry["type"] == "message"]
    keys = ("command", "output", "exitCode", "excludeFromContext")
    return [{key: item[key] for key in keys if key in item} for item in found if item["role"] == "bashExecution"]


def said_last(tree: SessionTree) -> str:
    users = [entry["message"] for entry in tree.branch() if role_of(entry) == "user"]
    return text_of(users[-1]["content"])


@pytest.mark.api("event.user_bash")
def test_a_shell_line_is_run_kept_and_shown_to_the_model_unless_it_is_excluded(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        for line in ("!echo to the model; exit 2", "!!echo not to it", "!tide", "!far ls"):
            assert await say(host, tree, line) == "completed"
        assert ran(tree) == [
            {"command": "echo to the model; exit 2", "output": "to the model", "exitCode": 2},
            {"command": "echo not to it", "output": "not to it", "exitCode": 0, "excludeFromContext": True},
            {"command": "tide", "output": "high", "exitCode": 0},
            {"command": "far ls", "output": "there: far ls", "exitCode": 3},
        ]
        await say(host, tree, "Well?")
        told = "\n".join(Heard.last)
        assert "Ran `echo to the model; exit 2`" in told and "Command exited with code 2" in told
        assert "not to it" not in told and "there: far ls" in told

    live(tmp_path, story, Turn("Aye."))


def test_a_shell_line_of_somebody_who_is_not_at_the_terminal_is_asked_about(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        assert await say(host, tree, "!echo no > file", {"action": "reject"}) == "failed"
        assert ran(tree) == [] and not (tmp_path / "file").exists()
        assert await say(host, tree, "!echo yes > file", {"action": "accept"}) == "completed"
        assert (tmp_path / "file").read_text() == "yes\n" and len(ran(tree)) == 1

    live(tmp_path, story, allow=())


def test_a_denied_shell_runs_nothing(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        assert await say(host, tree, "!echo no > file") == "failed"
        assert not (tmp_path / "file").exists()

    live(tmp_path, story, deny=("bash",))


def test_a_file_that_a_person_names_is_read_and_one_that_an_extension_names_is_not(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Berth 7.")
    (tmp_path / ".forestay").mkdir()
    (tmp_path / ".forestay" / "own").write_text("secret")

    async def story(host: Host, tree: SessionTree) -> None:
        await say(host, tree, "What says @notes.md, @.forestay/own and @nobody?")
        asked = said_last(tree)
        assert asked.startswith("What says @notes.md, @.forestay/own and @nobody?")
        assert '<file name="notes.md">\nBerth 7.' in asked and "secret" not in asked and asked.count("<file") == 1
        await say(host, tree, "/draft Look at @notes.md")
        assert host.fronts.room(tree).draft == "Look at @notes.md"
        await say(host, tree, "Look at @notes.md")  # the extension's own words, only sent
        assert said_last(tree) == "Look at @notes.md"
        await say(host, tree, "/draft !echo mine > file")
        await say(host, tree, "!echo mine > file")
        assert not (tmp_path / "file").exists() and said_last(tree) == "!echo mine > file"

    live(tmp_path, story, *(Turn(f"Answer {number}.") for number in range(3)))


@pytest.mark.api("pi.registerShortcut|pi.registerMessageRenderer|pi.registerEntryRenderer|pi.registerTool")
def test_a_shortcut_is_a_message_and_extensions_draw_what_is_theirs(tmp_path: Path) -> None:
    async def story(host: Host, tree: SessionTree) -> None:
        assert await say(host, tree, "Sound.") == "completed"
        assert await say(host, tree, "/key ctrl+g") == "completed"
        assert await say(host, tree, "/tell fog") == "completed"
        found = host.fronts.commands("default") or []
        assert ("key ctrl+g", "Sound the horn", "shortcut") in [(c.name, c.description, c.source) for c in found]
        drawn = list((await host.fronts.drawn(tree)).values())
        assert {item.extension for item in drawn} == {"quay"}
        assert [item.lines[0].rstrip() for item in drawn] == [
            "sounding at the bar",
            "depth 4",
            "HORN true",
            "LOG fog \\x1b[2J1",
        ]
        assert len(drawn[1].lines[1]) == 401, "a line is cut"

    live(tmp_path, story, Turn("", (ScriptedCall("sound", {"at": "the bar"}),)), Turn("Deep."))


@pytest.mark.api("pi.registerToolRenderer|pi.registerMarkdownTransformer")
def test_an_extension_draws_the_tools_of_others_and_changes_how_texts_are_shown(tmp_path: Path) -> None:
    (tmp_path / "chart.md").write_text("4 fathoms\n")

    async def story(host: Host, tree: SessionTree) -> None:
        host.fronts.room(tree).columns = 66
        assert await say(host, tree, "How many fathoms?") == "completed"
        drawn = await host.fronts.drawn(tree)
        assert [(item.extension, *item.lines) for item in drawn.values()] == [
            ("painter", "reads chart.md at 66"),
            ("painter", "It has 4 metres."),
        ]
        assert text_of(tree.branch()[-1]["message"]["content"]) == "It has 4 fathoms.", "what was said stays"

    live(tmp_path, story, Turn("", (ScriptedCall("read", {"path": "chart.md"}),)), Turn("It has 4 fathoms."))


def test_a_text_names_files() -> None:
    assert mentioned('See @src/a.py, and (not mail@host.org) @"with space.md" @src/a.py.') == [
        "src/a.py",
        "with space.md",
    ]
    assert mentioned("@") == [] and mentioned("a@b.c") == []
    assert len(mentioned(" ".join(f"@f{number}" for number in range(50)))) == MOST


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("@vendor.acme.desk When do you open?", "vendor.acme.desk"),
        ("  @vendor.acme.desk, please", "vendor.acme.desk"),
        ("@vendor.acme.desk", "vendor.acme.desk"),
        ("Ask @vendor.acme.desk", None),
        ("@src/a.py", None),
        ("@", None),
        ("@ vendor", None),
    ],
)
def test_m3_a_message_begins_with_who_is_to_answer(text: str, name: str | None) -> None:
    assert addressed(text) == name
