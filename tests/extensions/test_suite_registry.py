# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""What extensions see of each other and of the host: tools, commands, flags, models, messages for later.

Each expectation is what pi 0.73.1 does with the same calls.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from forestay.extensions.extensions import Extensions
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionPolicy, Ledger, ManualClock

HEAD = "export default (pi) => { const say = (name, run, about) => pi.registerCommand(name, { description: about, handler: async (args, ctx) => run(ctx, args) });"


@asynccontextmanager
async def suite_of(folder: Path, **sources: str) -> Any:
    settings = ExtensionConfig(ExtensionPolicy(mode="permissive"))
    async with (
        Ledger.open(folder / "data") as ledger,
        Extensions(ledger, root=folder, settings=Settings(config=settings, clock=ManualClock())) as suite,
    ):
        for name, source in sources.items():
            path = folder / f"{name}.js"
            path.write_text(HEAD + source + "}")
            await suite.load(path)
        yield suite


TOOLS = """
  const tool = (name) => pi.registerTool({ name, description: "does " + name, parameters: { type: "object" }, execute: async () => "ok" });
  tool("mine"); tool("grep");
  say("all", () => pi.getAllTools().map((t) => [t.name, t.sourceInfo.source, typeof t.parameters]));
  say("choose", () => { pi.setActiveTools(["read", "nothing", "mine"]); return pi.getActiveTools(); });
  say("late", () => { tool("late"); });
  say("active", () => pi.getActiveTools());
"""


async def test_built_in_tools_are_listed_and_an_extension_may_stand_in_for_one(tmp_path: Path) -> None:
    async with suite_of(tmp_path, tools=TOOLS) as suite:
        found = await suite.run_command("all")
        assert sorted(name for name, _, _ in found) == ["bash", "edit", "find", "grep", "ls", "mine", "read", "write"]
        assert {name for name, source, _ in found if source != "builtin"} == {"grep", "mine"}
        assert {kind for _, _, kind in found} == {"object"}


async def test_unknown_tools_are_not_activated_and_later_ones_are(tmp_path: Path) -> None:
    async with suite_of(tmp_path, tools=TOOLS) as suite:
        assert await suite.run_command("choose") == ["read", "mine"]
        await suite.run_command("late")
        assert await suite.run_command("active") == ["read", "mine", "late"] == suite.session.active


async def test_commands_are_listed_with_what_is_said_about_them(tmp_path: Path) -> None:
    source = 'say("one", () => pi.getCommands(), "the first"); say("two", () => 0);'
    async with suite_of(tmp_path, commands=source) as suite:
        one, two = await suite.run_command("one")
        assert (one["name"], one["description"], one["source"]) == ("one", "the first", "extension")
        assert one["sourceInfo"]["path"] == str(tmp_path / "commands.js") and "description" not in two


async def test_a_message_for_the_next_turn_waits_for_it(tmp_path: Path) -> None:
    source = """
      say("later", () => pi.sendMessage({ customType: "note", content: "low tide", display: true }, { deliverAs: "nextTurn", triggerTurn: true }));
      say("now", () => pi.sendMessage({ customType: "note", content: "high tide", display: true }));
      say("seen", (ctx) => ctx.sessionManager.getEntries().map((entry) => entry.content));
      say("pending", (ctx) => ctx.hasPendingMessages());
    """
    async with suite_of(tmp_path, notes=source) as suite:
        await suite.run_command("later")
        await suite.run_command("now")
        assert await suite.run_command("seen") == ["high tide"]
        assert await suite.run_command("pending") is False
        answer = await suite.emit({"type": "before_agent_start", "prompt": "go", "systemPrompt": ""})
        assert [message["content"] for message in answer["messages"]] == ["low tide"]
        assert await suite.run_command("seen") == ["high tide", "low tide"]
        assert await suite.emit({"type": "before_agent_start", "prompt": "go", "systemPrompt": ""}) is None


async def test_messages_wait_while_an_agent_works_and_stand_when_it_has_ended(tmp_path: Path) -> None:
    source = """
      const send = (content, options) => pi.sendMessage({ customType: "note", content, display: true }, options);
      pi.on("before_agent_start", () => send("first"));
      pi.on("tool_call", () => { send("steer"); send("later", { deliverAs: "followUp" }); send("quiet", { triggerTurn: false }); });
      pi.on("agent_end", () => { send("end"); send("again", { triggerTurn: true }); });
    """
    async with suite_of(tmp_path, notes=source) as suite:
        tree = suite.session.tree
        await suite.emit({"type": "before_agent_start", "prompt": "go", "systemPrompt": ""})
        await suite.emit({"type": "agent_start"})
        await suite.emit({"type": "tool_call", "toolName": "t", "toolCallId": "c", "input": {}})
        assert tree.entries == [], "nothing stands between a call and its result"

        def waits() -> list[object]:
            return [(wish.message or {}).get("content") for wish in tree.wishes]

        assert waits() == ["first", "steer", "later", "quiet"]
        heard = tree.interjections()
        assert [(wish.message or {})["content"] for wish in heard] == ["first", "quiet"], (
            "one that it answers at a time"
        )
        tree.meet([wish.id for wish in heard])
        assert [(wish.message or {})["content"] for wish in tree.interjections()] == ["steer"]
        await suite.emit({"type": "agent_end", "messages": []})
        assert waits() == ["steer", "later", "again"]
        assert [entry["content"] for entry in tree.entries] == ["end"]
        assert [wish.message for wish in tree.next_wishes()] == [tree.wishes[0].message]


async def test_the_first_default_of_a_flag_is_its_value_for_everybody(tmp_path: Path) -> None:
    first = """
      pi.registerFlag("depth", { type: "string", default: "one" });
      pi.registerFlag("depth", { type: "string", default: "two" });
      pi.registerFlag("open", { type: "string" });
      say("first", () => [pi.getFlag("depth"), pi.getFlag("open"), pi.getFlag("other")]);
    """
    second = """
      pi.registerFlag("depth", { type: "string", default: "three" });
      pi.registerFlag("other", { type: "boolean", default: true });
      say("second", () => [pi.getFlag("depth"), pi.getFlag("open"), pi.getFlag("other")]);
    """
    async with suite_of(tmp_path, first=first, second=second) as suite:
        assert await suite.run_command("first") == ["one", None, None]
        assert await suite.run_command("second") == ["one", None, True]


PROVIDER = """
  pi.registerProvider("quay", { name: "The Quay", baseUrl: "http://quay", apiKey: "key-1", api: "quay-api", models: [{ id: "m1", name: "M", input: ["text"], headers: { a: "b" } }],
    streamSimple: (model, context) => { const { AssistantMessageEventStream } = globalThis.__forestay_modules__("@mariozechner/pi-ai"); const s = new AssistantMessageEventStream(); s.push({ type: "done", message: { role: "assistant", content: [{ type: "text", text: "from " + model.id }] } }); s.end(); return s; } });
  pi.registerProvider("quay", { baseUrl: "http://pier" });
  pi.registerProvider("keyless", { baseUrl: "http://k", api: "k", models: [{ id: "k1" }] });
  const named = (list) => list.map((model) => model.provider + "/" + model.id);
  say("all", (ctx) => named(ctx.modelRegistry.getAll()));
  say("available", (ctx) => named(ctx.modelRegistry.getAvailable()));
  say("find", (ctx) => ctx.modelRegistry.find("quay", "m1"));
  say("key", async (ctx) => [await ctx.modelRegistry.getApiKeyForProvider("quay"), await ctx.modelRegistry.getApiKeyForProvider("keyless") ?? null, ctx.modelRegistry.getProviderDisplayName("quay"), ctx.modelRegistry.hasConfiguredAuth({ provider: "quay" })]);
  say("ask", async (ctx) => (await globalThis.__forestay_modules__("@mariozechner/pi-ai").complete(ctx.modelRegistry.find("quay", "m1"), { messages: [] })).content[0].text);
  say("gone", (ctx) => { pi.unregisterProvider("quay"); return named(ctx.modelRegistry.getAll()); });
"""


async def test_the_model_registry_knows_the_providers_that_were_registered(tmp_path: Path) -> None:
    other = 'say("others", (ctx) => ctx.modelRegistry.getAll().map((m) => [m.provider, m.id, m.api, m.baseUrl, m.headers ?? null]));'
    async with suite_of(tmp_path, provider=PROVIDER, other=other) as suite:
        assert await suite.run_command("all") == ["quay/m1", "keyless/k1"]
        assert await suite.run_command("available") == ["quay/m1"]
        assert await suite.run_command("find") == {
            "id": "m1",
            "provider": "quay",
            "api": "quay-api",
            "baseUrl": "http://pier",
            "name": "M",
            "input": ["text"],
        }
        assert await suite.run_command("key") == ["key-1", None, "The Quay", True]
        assert await suite.run_command("ask") == "from m1"
        assert await suite.run_command("others") == [
            ["quay", "m1", "quay-api", "http://pier", None],
            ["keyless", "k1", "k", "http://k", None],
        ]
        assert await suite.run_command("gone") == ["keyless/k1"]
        assert [name for name, *_ in await suite.run_command("others")] == ["keyless"]


async def test_pi_ai_validates_as_the_host_does(tmp_path: Path) -> None:
    source = """
      const { validateToolArguments } = globalThis.__forestay_modules__("@mariozechner/pi-ai");
      const tool = { name: "t", parameters: { type: "object", properties: { n: { type: "number" } }, required: ["n"] } };
      say("good", () => validateToolArguments(tool, { name: "t", arguments: { n: "4" } }));
      say("bad", () => { try { return validateToolArguments(tool, { name: "t", arguments: { n: "four" } }); } catch (error) { return error.message; } });
    """
    async with suite_of(tmp_path, checks=source) as suite:
        assert await suite.run_command("good") == {"n": 4}
        assert 'Validation failed for tool "t"' in await suite.run_command("bad")


async def test_pi_tool_prepares_converts_and_validates_what_built_in_tools_get(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("one\ntwo\nthree\n")
    source = """
      say("read", async () => (await pi.tool("read", { path: "note.md", offset: "2", limit: "1" })).content[0].text);
      say("edit", async () => (await pi.tool("edit", { path: "note.md", oldText: "two", newText: "2" })).content[0].text);
      say("bad", async () => { try { await pi.tool("read", { path: "note.md", limit: "many" }); } catch (error) { return [error.code, error.message]; } });
    """
    async with suite_of(tmp_path, reader=source) as suite:
        assert (await suite.run_command("read")).startswith("two")
        assert "Successfully replaced" in await suite.run_command("edit") and "2" in (tmp_path / "note.md").read_text()
        code, message = await suite.run_command("bad")
        assert code == "invalid_request" and "$.limit" in message
