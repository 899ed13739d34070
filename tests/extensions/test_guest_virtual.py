"""The virtual packages: facts about pi's own, observed on its published version, kept by ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.dispatcher_world import World
from tests.extensions.guest_run import run, run_async

RESET = "\u001b[0m"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, mode="permissive")
    yield world
    world.close()


def tui(world: World, expression: str) -> Any:
    return run(world, f'const t = require("@mariozechner/pi-tui"); return {expression};')


def test_columns(world: World) -> None:
    texts = '["abc","日本","a\\tb","\\u001b[31mred\\u001b[0m","e\\u0301","👨‍👩‍👧","🇩🇪","\\u200b","한","…","☃️","✓","→"]'
    assert tui(world, f"{texts}.map(t.visibleWidth)") == [3, 4, 5, 3, 1, 2, 2, 0, 2, 1, 2, 1, 1]
    assert tui(world, '[t.truncateToWidth("hello world",8), t.truncateToWidth("hello",8,"...",true)]') == [
        f"hello{RESET}...{RESET}",
        "hello   ",
    ]
    assert tui(
        world,
        '[t.truncateToWidth("日本語テキスト",7,"…"), t.truncateToWidth("abc",0), t.truncateToWidth("hello world",8,"")]',
    ) == [
        f"日本語{RESET}…{RESET}",
        "",
        f"hello wo{RESET}",
    ]
    assert tui(
        world, '[t.wrapTextWithAnsi("the quick brown fox jumps",10), t.wrapTextWithAnsi("averyveryverylongword x",8)]'
    ) == [
        ["the quick", "brown fox", "jumps"],
        ["averyver", "yverylon", "gword x"],
    ]
    assert tui(world, 't.wrapTextWithAnsi("\\u001b[31mthe quick brown\\u001b[0m fox",10)') == [
        "\u001b[31mthe quick",
        "\u001b[31mbrown\u001b[0m fox",
    ]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ("\u001b", "escape"), ("\r", "enter"), ("\n", "enter"), ("\t", "tab"), ("\u007f", "backspace"), (" ", "space"), ("a", "a"),
        ("A", "shift+a"), ("\u0001", "ctrl+a"), ("\u0003", "ctrl+c"), ("\u001b[A", "up"), ("\u001bOA", "up"), ("\u001b[H", "home"),
        ("\u001b[5~", "pageUp"), ("\u001b[3~", "delete"), ("\u001bOP", "f1"), ("\u001b[24~", "f12"), ("\u001ba", "alt+a"),
        ("\u001b[1;5A", "ctrl+up"), ("\u001b[Z", "shift+tab"), ("\u001b\r", "alt+enter"), ("\u001b[97;5u", "ctrl+a"),
        ("\u001b[13;2u", "shift+enter"), ("\u001b[27;2;13~", "shift+enter"), ("\u001b[97;6u", "ctrl+shift+a"), ("\u001b\u007f", "alt+backspace"),
        ("\u001bb", "alt+left"), ("\u001bb", "alt+b"), ("\u0000", "ctrl+space"), ("\u0008", "ctrl+h"), ("?", "?"),
    ],
)  # fmt: skip
def test_keys_match_their_names(world: World, data: str, key: str) -> None:
    import json

    assert tui(world, f"t.matchesKey({json.dumps(data)}, {json.dumps(key)})") is True
    assert tui(world, f"t.matchesKey({json.dumps(data)}, 'f9')") is False


def test_components_render_and_take_keys(world: World) -> None:
    assert tui(
        world, '[new t.Text("hi there you",1,1).render(10), new t.Text("").render(5), new t.Spacer(2).render(5)]'
    ) == [
        ["          ", " hi there ", " you      ", "          "],
        [],
        ["", ""],
    ]
    box = 'const b = new t.Box(2, 0, (s) => `[${s}]`); b.addChild(new t.Text("in", 0, 0)); return b.render(10)'
    assert run(world, f'const t = require("@earendil-works/pi-tui"); {box}') == ["[  in      ]"]
    listing = """
      const t = require("@mariozechner/pi-tui"); const same = (s) => s; const out = [];
      const theme = { selectedPrefix: same, selectedText: (s) => `{${s}}`, description: (s) => `(${s})`, scrollInfo: (s) => `#${s}#`, noMatch: same };
      const list = new t.SelectList([{ value: "a", label: "Alpha", description: "first one" }, { value: "b", label: "Beta" }, { value: "c", label: "C" }], 2, theme);
      list.onSelect = (item) => out.push(item.value); list.onCancel = () => out.push("cancel");
      out.push(list.render(60)); list.handleInput("\\u001b[B"); out.push(list.render(60)); list.handleInput("\\r"); list.handleInput("\\u001b"); list.setFilter("zzz"); out.push(list.render(30));
      const input = new t.Input(); input.focused = true; input.onSubmit = (v) => out.push(v);
      for (const key of ["hello", "\\u001b[D", "X", "\\u0017", "new ", "\\r"]) input.handleInput(key);
      const editor = new t.Editor({}, { borderColor: same }); editor.onSubmit = (v) => out.push(v);
      for (const key of ["one", "\\u001b\\r", "two", "\\u001b[A", "!", "\\r"]) editor.handleInput(key);
      return out;
    """
    assert run(world, listing) == [
        ["{→ Alpha                           first one}", "  Beta", "#  (1/3)#"],
        ["  Alpha(                           first one)", "{→ Beta}", "#  (2/3)#"],
        "b", "cancel", ["  No matching commands"], "new o", "one!\ntwo",
    ]  # fmt: skip


def test_markdown_becomes_lines(world: World) -> None:
    body = """
      const t = require("@mariozechner/pi-tui");
      const tag = (name) => (s) => `<${name}>${s}</${name}>`;
      const theme = Object.fromEntries([["heading","h"],["link","l"],["linkUrl","u"],["code","c"],["codeBlock","cb"],["codeBlockBorder","bb"],["quote","q"],["quoteBorder","qb"],["hr","hr"],["listBullet","li"],["bold","b"],["italic","i"],["strikethrough","s"],["underline","un"]].map(([k, v]) => [k, tag(v)]));
      const show = (text) => new t.Markdown(text, 0, 0, theme).render(60).map((line) => line.trimEnd());
      return ["# T\\n\\n**b** *i* `c` ~~s~~", "- a\\n  - c\\n\\n1. x", "> q\\n> r", "```js\\nlet x\\n```", "| a | b |\\n|---|---|\\n| 1 | 22 |", "[x](http://y)"].map(show);
    """
    assert run(world, body) == [
        ["<h><b><un>T</un></b></h>", "", "<b>b</b> <i>i</i> <c>c</c> <s>s</s>"],
        ["<li>- </li>a", "    <li>- </li>c", "", "<li>1. </li>x"],
        ["<qb>│ </qb><q><i>q", "<qb>│ </qb>r</i></q>"],
        ["<bb>```js</bb>", "  <cb>let x</cb>", "<bb>```</bb>"],
        ["┌───┬────┐", "│ <b>a</b> │ <b>b </b> │", "├───┼────┤", "│ 1 │ 22 │", "└───┴────┘"],
        ["<l><un>x</un></l><u> (http://y)</u>"],
    ]


def test_schemas_and_streams_of_pi_ai(world: World) -> None:
    body = """
      const ai = require("@mariozechner/pi-ai");
      const stream = ai.createAssistantMessageEventStream(); const seen = [];
      setTimeout(() => { stream.push({ type: "text_delta", delta: "a" }); stream.push({ type: "done", message: { ok: 1 } }); }, 1);
      for await (const event of stream) seen.push(event.type);
      return [ai.StringEnum(["a", "b"], { description: "d" }), ai.Type.Object({ x: ai.Type.Optional(ai.Type.Number()) }), seen, await stream.result(),
        ai.parseStreamingJson('{"a": [1, {"b": "c'), ai.parseStreamingJson('{"a": tr'), ai.parseStreamingJson(""), ai.modelsAreEqual({ id: 1, provider: 2 }, { id: 1, provider: 2 }),
        ai.calculateCost({ cost: { input: 2, output: 4, cacheRead: 0, cacheWrite: 0 } }, { input: 1e6, output: 5e5, cacheRead: 0, cacheWrite: 0, cost: {} }).total];
    """
    found = run(world, body)
    assert found[0] == {"type": "string", "enum": ["a", "b"], "description": "d"}
    assert found[1] == {"type": "object", "properties": {"x": {"type": "number"}}} or found[1]["type"] == "object"
    assert found[2:] == [["text_delta", "done"], {"ok": 1}, {"a": [1, {"b": "c"}]}, {}, {}, True, 4]


def test_completions_go_to_the_hosts_model(tmp_path: Path) -> None:
    class Model:
        asked: Mapping[str, Any] = {}

        async def stream(self, request: Mapping[str, Any]) -> Any:
            self.asked = request
            yield {"delta": "Hello "}
            yield {"delta": "there"}
            yield {"message": {"content": [{"type": "text", "text": "Hello there"}], "stopReason": "stop"}}

        async def models(self) -> list[Mapping[str, Any]]:
            return [{"provider": "p", "id": "m", "api": "x"}]

    model = Model()
    world = World(tmp_path, mode="permissive", model=model)
    body = """
      const ai = require("@mariozechner/pi-ai");
      const model = ai.getModel("p", "m");
      const message = await ai.complete(model, { messages: [{ role: "user", content: "hi" }] }, { apiKey: "mine", maxTokens: 5 });
      const events = []; for await (const event of ai.stream(model, { messages: [] })) events.push(event.type);
      return [model.api, message.content, message.stopReason, message.role, events];
    """
    found = asyncio.run(run_async(world, body))
    assert found == ["x", [{"type": "text", "text": "Hello there"}], "stop", "assistant",
                     ["start", "text_start", "text_delta", "text_delta", "text_end", "done"]]  # fmt: skip
    assert "mine" not in str(model.asked)
    world.close()


def test_helpers_of_the_coding_agent(world: World) -> None:
    (world.project / "f.txt").write_text("one\ntwo\n")
    body = """
      const a = require("@mariozechner/pi-coding-agent");
      const read = await a.createReadTool(process.cwd()).execute("1", { path: "f.txt" });
      const updates = []; const bash = await a.createBashTool(process.cwd()).execute("2", { command: "echo hi" }, undefined, (u) => updates.push(u));
      const hooked = await a.createBashTool(process.cwd(), { spawnHook: (c) => ({ ...c, command: "echo hooked" }) }).execute("3", { command: "x" });
      const edit = await a.createEditTool(process.cwd()).execute("4", { path: "f.txt", edits: [{ oldText: "one", newText: "1" }] });
      const order = []; await Promise.all([a.withFileMutationQueue("x", async () => { await new Promise((r) => setTimeout(r, 5)); order.push(1); }), a.withFileMutationQueue("x", async () => { order.push(2); })]);
      return [read.content, bash.content, hooked.content, edit.content, order, await caught(() => a.createBashTool(process.cwd()).execute("5", { command: "exit 3" })),
        a.serializeConversation([{ role: "user", content: "hi" }, { role: "assistant", content: [{ type: "text", text: "yo" }, { type: "toolCall", name: "ls", arguments: { path: "." } }] }]),
        a.convertToLlm([{ role: "custom", content: "x", timestamp: 1 }, { role: "bashExecution", command: "ls", output: "a", excludeFromContext: true }, { role: "user", content: "u" }]),
        a.parseFrontmatter("---\\nname: x\\ntools: [a, b]\\nnested:\\n  - k: 1\\n    v: two\\ntext: |\\n  l1\\n  l2\\n---\\nbody"), a.truncateHead("a\\nb\\nc", { maxLines: 2 }).content, a.formatSize(2048),
        new a.DynamicBorder((s) => s).render(3), a.getMarkdownTheme().bold("x"), a.isToolCallEventType("bash", { toolName: "bash" }), a.getAgentDir().endsWith("/.pi/agent"), a.noSuchExport === undefined, updates.length > 0];
    """
    found = run(world, body)
    assert found[:5] == [
        [{"type": "text", "text": "one\ntwo\n"}],
        [{"type": "text", "text": "hi\n"}],  # as the real runtime does: the output as it came
        [{"type": "text", "text": "hooked\n"}],
        [{"type": "text", "text": "Successfully replaced 1 block(s) in f.txt."}],
        [1, 2],
    ]
    assert found[5]["message"] == "(no output)\n\nCommand exited with code 3"
    assert found[6] == '[User]: hi\n\n[Assistant]: yo\n\n[Assistant tool calls]: ls(path=".")'
    assert found[7] == [
        {"role": "user", "content": [{"type": "text", "text": "x"}], "timestamp": 1},
        {"role": "user", "content": "u"},
    ]
    front = {"name": "x", "tools": ["a", "b"], "nested": [{"k": 1, "v": "two"}], "text": "l1\nl2\n"}
    assert found[8] == {"frontmatter": front, "body": "body"}
    assert found[9:] == ["a\nb", "2.0KB", ["───"], "x", True, True, True, True]


def test_settings_of_pi_are_read_from_both_places(world: World) -> None:
    (world.project / ".pi").mkdir()
    (world.project / ".pi" / "settings.json").write_text('{"theme": "dark", "env": {"A": "1"}}')
    found = run(
        world,
        """
        const { SettingsManager } = require("@mariozechner/pi-coding-agent");
        const fs = require("fs");
        fs.mkdirSync(process.cwd() + "/agent", { recursive: true });
        fs.writeFileSync(process.cwd() + "/agent/settings.json", '{"theme": "light", "defaultModel": "m", "env": {"B": "2"}}');
        const held = SettingsManager.create(process.cwd(), process.cwd() + "/agent");
        fs.writeFileSync(process.cwd() + "/agent/settings.json", "{broken");
        const broken = SettingsManager.create(process.cwd(), process.cwd() + "/agent");
        return [held.getGlobalSettings().theme, held.getProjectSettings(), held.getTheme(), held.getDefaultModel(),
          held.settings.env, broken.getGlobalSettings(), broken.drainErrors().map((item) => item.scope), broken.drainErrors(),
          SettingsManager.inMemory({ theme: "x" }).getTheme()];
        """,
    )
    assert found == [
        "light", {"theme": "dark", "env": {"A": "1"}}, "dark", "m", {"A": "1", "B": "2"}, {}, ["global"], [], "x",
    ]  # fmt: skip


def test_a_class_of_the_program_can_be_named_but_not_made(world: World) -> None:
    found = run(
        world,
        """
        const { InteractiveMode } = require("@mariozechner/pi-coding-agent");
        const { Agent } = require("@earendil-works/pi-agent-core");
        class Mine extends InteractiveMode {}
        InteractiveMode.prototype.patched = () => 1;
        const why = (make) => { try { make(); } catch (error) { return error.message; } };
        return [InteractiveMode.name, why(() => new Mine()), why(() => new Agent())];
        """,
    )
    assert found == [
        "InteractiveMode",
        "InteractiveMode is a part of the pi program itself, which does not run here.",
        "Agent is a part of the pi program itself, which does not run here.",
    ]
