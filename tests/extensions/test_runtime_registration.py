# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""What an extension registers: kept, checked where it is registered, and refused with the place in its source."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.extensions.runtime_world import TableDispatcher, artifact, extension, text_of

from forestay.extensions.api_table import EVENTS, OLDER_EVENTS
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.registry import Registrations, command_names, tool_owners
from forestay.kernel import Problem

FULL = """export default function (pi) {
  pi.registerTool({ name: "add", label: "Add", description: "Adds", promptSnippet: "adds two",
    parameters: { type: "object", properties: { a: { type: "number" } }, required: ["a"] }, async execute() { return "" } });
  pi.registerCommand("hello", { description: "Says hello", handler: async () => {} });
  pi.registerSlashCommand({ name: "bye", description: "Says bye", handler: async () => {} });
  pi.registerShortcut("ctrl+x", { description: "X", handler: () => {} });
  pi.registerFlag("verbose", { type: "boolean", default: true, description: "More" });
  pi.registerFlag("level", { type: "string" });
  pi.registerMessageRenderer("note", () => ({ render: () => ["a note"] }));
  pi.registerProvider("mine", { api: "openai-completions", baseUrl: "http://x", apiKey: "SECRET", models: [{ id: "m", name: "M" }] });
  pi.on("session_start", () => {});
  pi.on("tool_call", () => {});
  pi.on("tool_call", () => {});
}"""


async def _loaded(source: str, **options: Any) -> JavaScriptGuest:
    subject = extension(source, **options)
    await subject.load()
    return subject


async def test_inspect_shows_everything_that_was_registered() -> None:
    subject = await _loaded(FULL, name="full")
    await subject.close()
    assert subject.registrations.inspect() == {
        "path": "full",
        "tools": [
            {
                "name": "add",
                "label": "Add",
                "description": "Adds",
                "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
            }
        ],
        "commands": [{"name": "hello", "description": "Says hello"}, {"name": "bye", "description": "Says bye"}],
        "handlers": {"session_start": 1, "tool_call": 2},
        "shortcuts": [{"shortcut": "ctrl+x", "description": "X"}],
        "flags": [
            {"name": "verbose", "type": "boolean", "default": True, "description": "More"},
            {"name": "level", "type": "string", "default": None, "description": None},
        ],
        "renderers": ["note"],
        "providers": [{"name": "mine", "api": "openai-completions", "models": [{"id": "m", "name": "M"}]}],
    }


async def test_a_providers_key_stays_in_the_sandbox() -> None:
    lines: list[bytes] = []
    subject = await _loaded(FULL, record=lines.append)
    await subject.close()
    assert not [line for line in lines if b"SECRET" in line]


INVALID = {
    "tool without a name": ("pi.registerTool({ description: 'd', parameters: {}, execute() {} })", "`name` is a value of type undefined"),
    "tool with an empty name": ("pi.registerTool({ name: '', description: 'd', parameters: {}, execute() {} })", "`name` is empty"),
    "tool with spaces in its name": ("pi.registerTool({ name: 'a b', description: 'd', parameters: {}, execute() {} })", "white space"),
    "tool with a long name": ("pi.registerTool({ name: 'a'.repeat(200), description: 'd', parameters: {}, execute() {} })", "200 characters"),
    "tool that is null": ("pi.registerTool(null)", "the tool is null"),
    "tool that is a string": ("pi.registerTool('x')", "the tool is a value of type string"),
    "tool without execute": ("pi.registerTool({ name: 't', description: 'd', parameters: {} })", "`execute` is a value of type undefined"),
    "tool without parameters": ("pi.registerTool({ name: 't', description: 'd', execute() {} })", "`parameters` is"),
    "tool with array parameters": ("pi.registerTool({ name: 't', description: 'd', parameters: [], execute() {} })", "an array"),
    "tool with string parameters": ("pi.registerTool({ name: 't', description: 'd', parameters: { type: 'string' }, execute() {} })", "Type.Object"),
    "tool with cyclic parameters": ("const c = {}; c.c = c; pi.registerTool({ name: 't', description: 'd', parameters: c, execute() {} })", "cannot be written as JSON"),
    "tool with a number as description": ("pi.registerTool({ name: 't', description: 5, parameters: {}, execute() {} })", "`description` is a value of type number"),
    "command without handler": ("pi.registerCommand('x', {})", "`handler` is"),
    "command without options": ("pi.registerCommand('x')", "the options are"),
    "command with a slash": ("pi.registerCommand('/x', { handler() {} })", 'Use "x"'),
    "command without a name": ("pi.registerCommand(undefined, { handler() {} })", "`name`"),
    "slash command that is null": ("pi.registerSlashCommand(null)", "not an object"),
    "shortcut without handler": ("pi.registerShortcut('ctrl+x', {})", "`handler`"),
    "flag of another type": ("pi.registerFlag('f', { type: 'number' })", '"number"'),
    "flag with another default": ("pi.registerFlag('f', { type: 'boolean', default: 'yes' })", "of type boolean"),
    "renderer that is no function": ("pi.registerMessageRenderer('r', {})", "the renderer is an object"),
    "provider without config": ("pi.registerProvider('p')", "the config is"),
    "provider with nameless models": ("pi.registerProvider('p', { models: [{}] })", "a model has no id"),
    "provider with models that are none": ("pi.registerProvider('p', { models: 'all' })", "`models` is"),
    "handler that is no function": ("pi.on('session_start', 'x')", "the handler is"),
    "handler without event": ("pi.on(undefined, () => {})", "the event is"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
async def test_an_invalid_registration_fails_fast_with_its_place(name: str) -> None:
    statement, message = INVALID[name]
    subject = extension(f"export default (pi) => {{\n  {statement}\n}}")
    with pytest.raises(Problem) as caught:
        await subject.load()
    problem = caught.value
    assert problem.key == "registration_invalid"
    assert message in problem.message
    assert problem.details["at"].startswith("index.js:2:")


async def test_the_place_is_mapped_to_the_source() -> None:
    source = "export default (pi) => {\n  pi.registerTool(null)\n}"
    # Line 2 of the artifact comes from line 41, column 9 of src/tool.ts.
    mapping = {"version": 3, "sources": ["src/tool.ts"], "names": [], "mappings": ";AAwCQ"}
    made = msgspec.structs.replace(artifact(source), source_map=msgspec.json.encode(mapping).decode())
    subject = JavaScriptGuest(made, Surroundings("test", "/"), TableDispatcher())
    with pytest.raises(Problem) as caught:
        await subject.load()
    assert caught.value.details["at"] == "src/tool.ts:41:9"


async def test_r1_the_last_tool_of_a_name_wins_within_an_extension() -> None:
    subject = await _loaded(
        """export default (pi) => { for (const text of ["first", "second"])
          pi.registerTool({ name: "t", description: text, parameters: { type: "object" }, execute: async () => text }) }"""
    )
    assert list(subject.registrations.tools) == ["t"]
    assert subject.registrations.tools["t"].description == "second"
    assert text_of(await subject.call_tool("t", {})) == "second"
    await subject.close()


def _registered(name: str, *specs: tuple[str, dict[str, Any]]) -> Registrations:
    registrations = Registrations(name)
    for kind, spec in specs:
        registrations.add(kind, spec)
    return registrations


def test_r1_the_first_extension_owns_a_tool_name() -> None:
    spec = {"name": "t", "label": "t", "description": "", "parameters": {}}
    both = [_registered("a", ("tool", spec)), _registered("b", ("tool", spec), ("tool", {**spec, "name": "u"}))]
    assert tool_owners(both) == {"t": "a", "u": "b"}


def test_r2_commands_of_the_same_name_are_numbered() -> None:
    one = _registered("a", ("command", {"name": "go"}), ("command", {"name": "own"}))
    two = _registered("b", ("command", {"name": "go"}))
    assert command_names([one, two]) == {"go:1": ("a", "go"), "own": ("a", "own"), "go:2": ("b", "go")}


def test_r2_a_name_that_looks_numbered_is_not_taken_twice() -> None:
    one = _registered("a", ("command", {"name": "go:2"}), ("command", {"name": "go"}))
    two = _registered("b", ("command", {"name": "go"}))
    assert command_names([one, two]) == {"go:2": ("a", "go:2"), "go:1": ("a", "go"), "go:3": ("b", "go")}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("tool", {"name": 5, "label": "", "description": "", "parameters": {}}),
        ("tool", {"name": "t", "label": "", "description": "", "parameters": []}),
        ("command", {}),
        ("handler", {"event": "x", "count": "many"}),
        ("nonsense", {"name": "x"}),
    ],
)
def test_r3_what_no_bridge_would_say_is_refused_on_this_side_too(kind: str, spec: dict[str, Any]) -> None:
    registrations = Registrations("bad")
    with pytest.raises(Problem) as caught:
        registrations.add(kind, spec)
    assert caught.value.key == "registration_invalid"
    assert registrations.inspect()["tools"] == []


async def test_too_many_registrations_are_refused() -> None:
    subject = extension(
        "export default (pi) => { for (let i = 0; i < 2000; i++) pi.registerCommand('c' + i, { handler() {} }) }"
    )
    with pytest.raises(Problem, match="more than 1000"):
        await subject.load()


async def test_all_members_of_the_api_are_there() -> None:
    members = (
        "on registerTool registerCommand registerShortcut registerFlag registerMessageRenderer registerProvider unregisterProvider "
        "getFlag sendMessage sendUserMessage appendEntry setSessionName getSessionName setLabel exec getActiveTools getAllTools "
        "setActiveTools getCommands setModel getThinkingLevel setThinkingLevel events tool http fs session ui log registerSlashCommand"
    ).split()
    subject = await _loaded(
        f"""export default (pi) => {{ const missing = {members}.filter((name) => pi[name] === undefined);
        pi.registerCommand("missing", {{ handler: async () => missing }}) }}"""
    )
    assert await subject.run_command("missing") == []
    await subject.close()


async def test_every_event_can_be_listened_to() -> None:
    names = [*EVENTS, *OLDER_EVENTS]
    assert len(EVENTS) == 38
    subject = await _loaded(f"export default (pi) => {{ for (const name of {names}) pi.on(name, () => {{}}) }}")
    assert subject.registrations.handlers == dict.fromkeys(names, 1)
    assert all(spec["known"] for _, spec in subject._specs.values()), "the guest knows the same names"
    await subject.close()


async def test_an_event_that_nobody_emits_is_reported_and_kept() -> None:
    reports: list[tuple[str, dict[str, Any]]] = []
    subject = await _loaded(
        "export default (pi) => { pi.on('no_such_event', () => {}) }",
        report=lambda event, data: reports.append((event, data)),
    )
    assert subject.registrations.handlers == {"no_such_event": 1}
    assert reports == [("unknown_event", {"event": "no_such_event"})]
    await subject.close()


async def test_actions_are_refused_while_loading_and_work_afterwards() -> None:
    source = """export default (pi) => {
      let during = "";
      try { pi.sendUserMessage("hi") } catch (error) { during = error.message }
      pi.registerCommand("during", { handler: async () => during });
      pi.registerCommand("send", { handler: async () => { pi.sendUserMessage("hi", { deliverAs: "steer" }) } });
    }"""
    dispatcher = TableDispatcher(session=lambda call: {"value": None})
    subject = await _loaded(source, dispatcher=dispatcher)
    assert "not initialized" in await subject.run_command("during")
    assert dispatcher.calls == []
    await subject.run_command("send")
    await subject.run_command("during")
    assert [call.params for call in dispatcher.calls] == [
        {"op": "sendUserMessage", "args": ["hi", {"deliverAs": "steer"}]}
    ]
    await subject.close()


async def test_top_level_await_and_late_registration_work() -> None:
    subject = await _loaded(
        """const value = await new Promise((resolve) => setTimeout(() => resolve("ready"), 500));
        export default async (pi) => {
          await new Promise((resolve) => setTimeout(resolve, 700));
          pi.registerCommand("now", { handler: async () => pi.registerCommand("later", { handler: async () => value }) });
        }"""
    )
    assert list(subject.registrations.commands) == ["now"]
    await subject.run_command("now")
    assert await subject.run_command("later") == "ready"
    await subject.close()
