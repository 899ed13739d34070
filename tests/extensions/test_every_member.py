"""Every member of the ExtensionAPI, ctx and ctx.ui, and every event: tried by an extension, seen by its effect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.api_table import EVENTS, OLDER_EVENTS
from forestay.extensions.connectors.ui import ScriptedUi
from forestay.extensions.extensions import Extensions
from forestay.extensions.settings import Settings
from forestay.kernel import Ledger, Problem

PROBE = Path(__file__).with_name("member_probe.ts")
OTHER = """export default (pi) => {
  const heard = [];
  pi.events.on("wind", (data) => { heard.push(data); pi.events.emit("echo", data + 1); });
  pi.registerCommand("other", { handler: () => heard });
}"""
API = (
    "on registerTool registerCommand registerShortcut registerFlag registerMessageRenderer registerProvider "
    "unregisterProvider getFlag sendMessage sendUserMessage appendEntry setSessionName getSessionName setLabel exec "
    "getActiveTools getAllTools setActiveTools getCommands setModel getThinkingLevel setThinkingLevel events"
).split()


class Tides:
    """A model that is there to be chosen, and is asked nothing."""

    async def models(self) -> list[Mapping[str, Any]]:
        return [{"provider": "sea", "id": "ebb"}]

    def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        raise NotImplementedError


@asynccontextmanager
async def probing(folder: Path, *answers: Any) -> AsyncIterator[Extensions]:
    (folder / "skills/knots").mkdir(parents=True)
    (folder / "skills/knots/SKILL.md").write_text("---\nname: knots\ndescription: Ties them.\n---\nTie.")
    names = json.dumps([*EVENTS, *OLDER_EVENTS])
    (folder / "probe.ts").write_text(f"const EVENT_NAMES = {names};\n{PROBE.read_text('utf-8')}")
    (folder / "other.ts").write_text(OTHER)
    async with (
        Ledger.open(folder / "l.db") as ledger,
        Extensions(
            ledger, root=folder, mode="permissive", ui=ScriptedUi(answers), settings=Settings(model=Tides())
        ) as suite,
    ):
        await suite.load(folder / "probe.ts")
        await suite.load(folder / "other.ts")
        yield suite


def told(suite: Extensions, *names: str) -> list[dict[str, Any]]:
    """The events that the probe heard, as it heard them, oldest first; of these names, or all."""
    calls = [call for call in suite.ui.calls if call["op"] == "setStatus"]  # type: ignore[attr-defined]
    heard = [json.loads(call["text"]) for call in calls if call["key"] in (*EVENTS, *OLDER_EVENTS)]
    return [event for event in heard if not names or event["type"] in names]


def named(suite: Extensions, *names: str) -> list[str]:
    return [event["type"] for event in told(suite, *names)]


# -- ExtensionAPI -----------------------------------------------------------------------------------------------------


@pytest.mark.api(
    "pi.registerTool|pi.registerShortcut|pi.registerFlag|pi.getFlag|pi.registerMessageRenderer",
    "pi.registerProvider|pi.unregisterProvider",
)
async def test_what_is_registered_does_what_it_says(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        probe = suite.members[0].extension
        outcome = await suite.call_tool("double", {"n": "4"}, call_id="c1")
        assert outcome.content[0]["text"] == "8" and outcome.updates[0]["content"][0]["text"] == "half way"
        assert outcome.details == {"id": "c1", "cwd": str(tmp_path), "aborted": False}
        await probe.press("ctrl+y")
        await suite.settled()
        assert suite.ui.calls[-1]["message"] == "pressed"  # type: ignore[attr-defined]
        assert await suite.run_command("getFlag") is False
        probe.set_flag("deep", True)
        assert await suite.run_command("getFlag") is True
        message = {"customType": "note", "content": "x"}
        assert await probe.render("note", message, expanded=True, width=20) == ["x|20|true"]
        heard: list[Any] = []
        await probe.stream("tide", {"id": "spring"}, {"messages": []}, {}, heard.append)
        assert heard == [{"type": "text_delta", "delta": "high"}]
        assert [p["name"] for p in probe.registrations.inspect()["providers"]] == ["tide"]
        await suite.run_command("unregisterProvider")
        assert probe.registrations.inspect()["providers"] == []
        assert probe.registrations.handlers["turn_start"] == 1  # pi.on; its effects are below


DO_IT = [{"type": "text", "text": "do it"}]


def say(suite: Extensions) -> None:
    """A turn of the user begins."""
    suite.session.tree.append("message", message={"role": "user", "content": DO_IT, "timestamp": 0})


@pytest.mark.api(
    "pi.appendEntry|pi.setLabel|pi.setSessionName|pi.getSessionName|pi.sendMessage",
    "pi.sendUserMessage|ctx.sessionManager|ctx.hasPendingMessages|event.session_info_changed",
)
async def test_what_is_said_to_the_session_is_in_it(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        entry = await suite.run_command("appendEntry")
        assert (entry["customType"], entry["data"]) == ("mark", {"a": 1}) and suite.session.entries == [entry]
        assert await suite.run_command("setLabel") == "start"
        await suite.run_command("setSessionName")
        assert suite.session.name == "harbour" == await suite.run_command("getSessionName")
        assert told(suite, "session_info_changed") == [{"type": "session_info_changed", "name": "harbour"}]
        assert await suite.run_command("pending") is False
        await suite.run_command("sendMessage")
        assert suite.session.messages()[-1]["content"] == "hello" and await suite.run_command("pending") is True
        await suite.run_command("sendUserMessage")
        assert [wish.text for wish in suite.session.tree.wishes] == [None, "do it"] and suite.session.asked.is_set()
        seen = await suite.run_command("sessionManager")
        assert seen["id"] == suite.session.id and seen["leaf"] == suite.session.leaf and seen["kept"] is False
        assert seen["entries"] == seen["branch"] == suite.session.entries
        assert seen["tree"][0]["entry"] == entry and seen["tree"][0]["label"] == "start"
        assert [message["role"] for message in seen["context"]["messages"]] == ["custom"]


@pytest.mark.api(
    "pi.registerCommand|pi.getAllTools|pi.getActiveTools|pi.setActiveTools|pi.getCommands|pi.exec",
    "pi.events",
)
def test_tools_commands_programs_and_the_bus(tmp_path: Path) -> None:
    async def story() -> None:
        async with probing(tmp_path) as suite:
            every = ["read", "ls", "grep", "find", "write", "edit", "bash", "double", "relay"]
            assert [tool["name"] for tool in await suite.run_command("getAllTools")] == every
            assert await suite.run_command("getActiveTools") == every
            await suite.run_command("setActiveTools")
            assert await suite.run_command("getActiveTools") == ["double"] == suite.session.active
            assert {"getCommands", "other"} <= set(await suite.run_command("getCommands"))
            done = await suite.run_command("exec")
            assert (done["stdout"], done["stderr"], done["code"], done["killed"]) == ("out\n", "err\n", 3, False)
            await suite.run_command("emit")
            for _ in range(3):
                await suite.settled()
            assert await suite.run_command("other") == [7] and await suite.run_command("heard") == [7, 8]

    asyncio.run(story())  # a program takes its own time


@pytest.mark.api(
    "pi.setModel|pi.getThinkingLevel|pi.setThinkingLevel|event.model_select",
    "event.thinking_level_select",
)
async def test_models_and_thinking_are_chosen_and_told(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        assert await suite.run_command("setModel") == [True, False]  # a provider's own; one that nobody offers
        assert suite.session.model == {"provider": "tide", "id": "spring"}
        (chosen,) = told(suite, "model_select")
        assert (
            chosen["model"]["id"] == "spring" and chosen["previousModel"]["id"] == "ebb" and chosen["source"] == "set"
        )
        assert await suite.run_command("getThinkingLevel") == "off"
        await suite.run_command("setThinkingLevel")
        assert await suite.run_command("getThinkingLevel") == "high"
        (level,) = told(suite, "thinking_level_select")
        assert level == {"type": "thinking_level_select", "level": "high", "previousLevel": "off"}


@pytest.mark.api("pi.getSettings|command ctx.getSystemPromptOptions")
async def test_settings_and_the_prompts_options_are_told(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        told_of = await suite.run_command("getSettings")
        assert (told_of["defaultProvider"], told_of["defaultModel"], told_of["theme"]) == ("sea", "ebb", "dark")
        options = await suite.run_command("getSystemPromptOptions")
        assert options["cwd"] == str(tmp_path) and "double" in options["selectedTools"]


@pytest.mark.api("pi.on")
async def test_a_handler_is_taken_out_again(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        await suite.emit({"type": "turn_end", "turnIndex": 1})
        await suite.run_command("unsubscribe")
        await suite.emit({"type": "turn_end", "turnIndex": 2})
        shown = [call for call in suite.ui.calls if call.get("key") == "twice"]  # type: ignore[attr-defined]
        assert len(shown) == 1 and [event["turnIndex"] for event in told(suite, "turn_end")] == [1, 2]


@pytest.mark.api("tool ctx.tools|tool ctx.executeTool")
def test_a_tool_calls_other_tools(tmp_path: Path) -> None:
    async def story() -> None:
        async with probing(tmp_path) as suite:
            outcome = await suite.call_tool("relay", {})
            done = json.loads(outcome.content[0]["text"])
            assert done[0] == [False, "4"] and done[1][0] is False and "Ties them." in done[1][1] and done[2][0] is True
            assert outcome.details == {"tools": 9, "cwd": str(tmp_path)}

    asyncio.run(story())  # a file is read on its own thread


def test_no_member_of_the_api_is_left_out() -> None:
    text = PROBE.read_text("utf-8")
    assert len(API) == 24 and [name for name in API if f"pi.{name}" not in text] == []


# -- ctx --------------------------------------------------------------------------------------------------------------


@pytest.mark.api(
    "ctx.mode|ctx.hasUI|ctx.cwd|ctx.modelRegistry|ctx.model|ctx.scopedModels|ctx.thinkingLevel",
    "ctx.isIdle|ctx.isProjectTrusted|ctx.signal|ctx.abort|ctx.shutdown|ctx.getSystemPrompt",
    "command ctx.waitForIdle|event.agent_settled",
)
async def test_ctx_follows_the_agent(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        facts = await suite.run_command("facts")
        assert facts == {
            "cwd": str(tmp_path), "hasUI": True, "mode": "tui", "idle": True, "usage": None, "prompt": "",
            "signal": None, "trusted": True, "level": "off", "scoped": [],
            "model": {"provider": "sea", "id": "ebb"}, "models": ["ebb", "spring"],
        }  # fmt: skip
        await suite.emit({"type": "before_agent_start", "prompt": "p", "systemPrompt": "Help."})
        await suite.emit({"type": "agent_start"})
        facts = await suite.run_command("facts")
        assert (facts["idle"], facts["signal"], facts["prompt"]) == (False, False, "Help. And be brief.")
        await suite.run_command("abort")
        assert (await suite.run_command("facts"))["signal"] is True
        assert {"kind": "abort"} in suite.session.requests
        await suite.emit({"type": "agent_end", "messages": []})
        assert told(suite, "agent_settled") == [{"type": "agent_settled", "aborted": False}]
        facts = await suite.run_command("facts")
        assert (facts["idle"], facts["signal"]) == (True, None) and await suite.run_command("waitForIdle") is True
        await suite.run_command("shutdown")
        assert {"kind": "shutdown"} in suite.session.requests


@pytest.mark.api(
    "command ctx.newSession|command ctx.switchSession|event.session_before_switch",
    "event.session_shutdown|event.session_start|event.session_switch",
)
async def test_a_new_session_is_told_and_may_be_refused(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        await suite.run_command("appendEntry")
        first = suite.session.id
        answer, seen = await suite.run_command("newSession")
        assert answer == {"cancelled": False} and seen == [0, 1] and suite.session.id != first
        order = named(suite)
        assert order == ["session_before_switch", "session_shutdown", "session_start", "session_switch"]
        assert [event["reason"] for event in told(suite)] == ["new"] * 4
        assert (await suite.run_command("switchSession", first)) == {"cancelled": False}
        assert suite.session.id == first and suite.session.entries[0]["customType"] == "mark"
        assert [event["reason"] for event in told(suite, "session_start")] == ["new", "resume"]
        await suite.run_command("cancel")
        before = len(told(suite))
        assert (await suite.run_command("newSession"))[0] == {"cancelled": True} and suite.session.id == first
        assert named(suite)[before:] == ["session_before_switch"]
        await suite.run_command("cancel")
        with pytest.raises(Problem, match="There is no session nowhere"):
            await suite.run_command("switchSession", "nowhere")


@pytest.mark.api(
    "command ctx.fork|command ctx.navigateTree|event.session_before_fork|event.session_fork",
    "event.session_branch|event.session_before_tree|event.session_tree",
)
async def test_forks_and_branches_are_told(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        await suite.run_command("appendEntry")
        say(suite)
        mark, said = (entry["id"] for entry in suite.session.entries)
        first = suite.session.id
        assert await suite.run_command("fork", said) == {"cancelled": False, "selectedText": "do it"}
        assert suite.session.tree.header["parentSession"] == first and suite.session.leaf == mark
        forked = ["session_before_fork", "session_shutdown", "session_start", "session_fork", "session_branch"]
        assert named(suite) == forked
        with pytest.raises(Problem, match="no message of the user"):
            await suite.run_command("fork", mark)
        say(suite)
        second = suite.session.leaf
        assert await suite.run_command("forkAt", str(second)) == {"cancelled": False} and suite.session.leaf == second
        # Back to the first entry: the branch that is left gets the summary that the extension gives.
        moved = await suite.run_command("navigateTree", mark)
        assert moved["cancelled"] is False and moved["summaryEntry"]["summary"] == "left behind"
        assert suite.session.tree.label_of(moved["summaryEntry"]["id"]) == "here"
        (tree,) = told(suite, "session_tree")
        assert tree["oldLeafId"] == second and tree["fromExtension"] is True
        (asked,) = told(suite, "session_before_tree")
        assert [entry["id"] for entry in asked["preparation"]["entriesToSummarize"]] == [second]
        assert suite.session.messages()[0]["role"] == "branchSummary"
        await suite.run_command("cancel")
        leaf = suite.session.leaf
        assert await suite.run_command("navigateTree", str(second)) == {"cancelled": True}
        assert suite.session.leaf == leaf


@pytest.mark.api("ctx.compact|event.session_before_compact|event.session_compact|event.session_compact_failed")
async def test_compaction_is_the_extensions(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        assert "too small" in await suite.run_command("compact")
        (failed,) = told(suite, "session_compact_failed")
        assert failed["aborted"] is False and "too small" in failed["errorMessage"]
        for _ in range(4):
            say(suite)
        done = await suite.run_command("compact")
        assert done["summary"] == "4 entries" and done["tokensBefore"] == 7
        (before,), (after,) = told(suite, "session_before_compact"), told(suite, "session_compact")
        assert len(before["preparation"]["messagesToSummarize"]) == 2 and after["fromExtension"] is True
        roles = [message["role"] for message in suite.session.messages()]
        assert roles == ["compactionSummary", "user", "user"]
        assert await suite.run_command("compact") == "Already compacted"


@pytest.mark.api("command ctx.reload")
async def test_reload_gives_every_extension_a_new_vm(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        suite.members[0].extension.set_flag("deep", True)
        await suite.run_command("reload")
        assert await suite.run_command("heard") == [] and await suite.run_command("getFlag") is True
        assert named(suite, "session_shutdown", "session_start") == ["session_shutdown", "session_start"]
        assert [event["reason"] for event in told(suite, "session_start", "resources_discover")] == ["reload"] * 2


# -- events -----------------------------------------------------------------------------------------------------------

ANSWERED: dict[str, tuple[dict[str, Any], Any]] = {
    "context": ({"messages": []}, [{"role": "user", "content": "added"}]),
    "context_with_system": ({"messages": []}, []),
    "before_provider_request": ({"payload": {"model": "m"}}, {"model": "m", "temperature": 0}),
    "tool_call": (
        {"toolName": "rm", "toolCallId": "1", "input": {"path": "a"}},
        {"block": True, "reason": "not here", "input": {"path": "b.txt"}},
    ),
    "tool_result": (
        {"toolName": "read", "content": [], "details": 1, "isError": False},
        {"content": [{"type": "text", "text": "hidden"}], "details": 1, "isError": False},
    ),
    "input": ({"text": "hi", "source": "interactive"}, {"action": "transform", "text": "HI", "images": None}),
    "user_bash": ({"command": "ls"}, {"result": {"output": "pretended", "exitCode": 0, "cancelled": False, "truncated": False}}),  # noqa: E501
    "message_end": ({"message": {"role": "user", "content": "a"}}, {"role": "user", "content": "changed"}),
}  # fmt: skip
HEARD: dict[str, dict[str, Any]] = {
    "agent_start": {}, "agent_end": {"messages": [1]}, "turn_start": {"turnIndex": 2}, "turn_end": {"turnIndex": 2},
    "message_start": {"message": {"role": "user"}}, "message_update": {"message": {"role": "assistant"}},
    "tool_execution_start": {"toolCallId": "1", "toolName": "t", "args": {}},
    "tool_execution_update": {"toolCallId": "1", "toolName": "t", "partialResult": 1},
    "tool_execution_end": {"toolCallId": "1", "toolName": "t", "result": 1, "isError": False},
    "provider_stream_event": {"model": "m", "data": {"type": "text_delta", "delta": "x"}},
    "after_provider_response": {"status": 200, "headers": {"a": "b"}}, "session_directory": {"cwd": "/p"},
}  # fmt: skip
BY_ACTION = {  # fired by what is done, in the tests above and below
    "resources_discover", "session_start", "session_before_switch", "session_before_fork", "session_before_compact",
    "session_compact", "session_shutdown", "session_before_tree", "session_tree", "before_agent_start", "model_select",
    "thinking_level_select", "session_switch", "session_fork", "session_branch", "session_info_changed",
    "session_compact_failed", "agent_settled", "ui_prompt_start", "ui_prompt_end",
    "mcp_servers_change", "agent_before_settle",
}  # fmt: skip


def test_no_event_is_left_out() -> None:
    assert len(EVENTS) == 38 and len(OLDER_EVENTS) == 4
    assert {*ANSWERED, *HEARD, *BY_ACTION} == {*EVENTS, *OLDER_EVENTS}


@pytest.mark.api(
    "event.resources_discover|event.before_agent_start|event.tool_call|event.tool_result",
    "event.input|event.user_bash|event.message_end|event.session_directory|event.context",
    "event.before_provider_request",
)
async def test_every_event_is_heard_and_answers_count(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        for name, (fields, answer) in ANSWERED.items():
            assert await suite.emit({"type": name, **fields}) == answer, name
        for name, fields in HEARD.items():
            await suite.emit({"type": name, **fields})
            assert told(suite, name)[-1] == {"type": name, **fields}
        assert (await suite.emit({"type": "input", "text": "ping"}))["action"] == "handled"
        begun = await suite.emit({"type": "before_agent_start", "prompt": "p", "systemPrompt": "S"})
        assert begun["systemPrompt"] == "S And be brief." and begun["messages"][0]["content"] == "first"
        await suite.find_resources([])
        assert [item.name for item in suite.resources] == ["knots"]
        assert "skill:knots" in await suite.run_command("getCommands")


# -- ctx.ui -----------------------------------------------------------------------------------------------------------


@pytest.mark.api(
    "ctx.ui|ctx.ui.select|ctx.ui.confirm|ctx.ui.input|ctx.ui.editor|ctx.ui.custom",
    "event.ui_prompt_start|event.ui_prompt_end",
)
async def test_every_dialog_waits_for_its_answer(tmp_path: Path) -> None:
    async with probing(tmp_path, 1, True, "typed", "edited", {"keys": ["o", "k", "\r"]}) as suite:
        assert await suite.run_command("dialogs") == ["b", True, "typed", "edited"]
        assert await suite.run_command("custom") == "ok"
        await suite.settled()
        prompts = [(event["type"][10:], event["kind"]) for event in told(suite, "ui_prompt_start", "ui_prompt_end")]
        kinds = ["select", "confirm", "input", "editor", "custom"]
        assert prompts == [(when, kind) for kind in kinds for when in ("start", "end")]
        shown = [call for call in suite.ui.calls if call["op"] != "setStatus"]  # type: ignore[attr-defined]
        assert [call["op"] for call in shown] == ["select", "confirm", "input", "editor", "custom"]
        assert shown[2]["placeholder"] == "p" and shown[3]["text"] == "t" and shown[4]["lines"] == ["typed "]


@pytest.mark.api(
    "ctx.ui.notify|ctx.ui.setStatus|ctx.ui.setWidget|ctx.ui.setFooter|ctx.ui.setHeader",
    "ctx.ui.setTitle|ctx.ui.setWorkingMessage|ctx.ui.setWorkingVisible|ctx.ui.setWorkingIndicator",
    "ctx.ui.setHiddenThinkingLabel|ctx.ui.pasteToEditor|ctx.ui.setEditorText|ctx.ui.getEditorText",
    "ctx.ui.addAutocompleteProvider|ctx.ui.setEditorComponent|ctx.ui.getEditorComponent",
    "ctx.ui.onTerminalInput|ctx.ui.theme|ctx.ui.getAllThemes|ctx.ui.getTheme|ctx.ui.setTheme",
    "ctx.ui.getToolsExpanded|ctx.ui.setToolsExpanded",
)
async def test_every_notice_arrives(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        seen = await suite.run_command("notices")
        assert seen == {
            "text": "one two", "expanded": True, "editor": "function", "stop": "function", "theme": "dark",
            "themes": ["dark", "light"], "light": "light", "set": {"success": True}, "now": "light",
        }  # fmt: skip
        shown = {call["op"]: call for call in suite.ui.calls}  # type: ignore[attr-defined]
        assert (shown["notify"]["message"], shown["notify"]["type"]) == ("n", "warning")
        assert (shown["setStatus"]["key"], shown["setStatus"]["text"]) == ("k", "v")
        assert shown["setWorkingMessage"]["message"] == "w" and shown["setWorkingVisible"]["visible"] is False
        assert shown["setWorkingIndicator"]["options"] == {"frames": ["."]}
        assert shown["setHiddenThinkingLabel"]["label"] == "l" and shown["setTitle"]["title"] == "t"
        assert shown["setWidget"]["lines"] == ["x"] and shown["setHeader"]["lines"] == ["head"]
        assert shown["setFooter"]["lines"] == ["foot null"] and shown["setTheme"]["name"] == "light"
        assert shown["setEditorText"]["text"] == "one" and shown["pasteToEditor"]["text"] == " two"
        assert shown["setToolsExpanded"]["expanded"] is True and shown["setEditorComponent"]["set"] is True
        assert (await suite.autocomplete(["a"], 0, 1))["items"] == [{"value": "v", "label": "l"}]
        assert await suite.typed("x") is None and await suite.typed("y") == "y"
        assert await suite.run_command("keys") == ["x", "y"]


@pytest.mark.api("ctx.ui.setWidget")
async def test_a_widget_is_drawn_again_when_it_asks_and_never_after_it_is_gone(tmp_path: Path) -> None:
    async with probing(tmp_path) as suite:
        assert await suite.run_command("widget") == [2, 1]
        shown = [call["lines"] for call in suite.ui.calls if call["op"] == "setWidget"]  # type: ignore[attr-defined]
        assert shown == [["drawn 1"], ["drawn 2"], None]


class Slow(ScriptedUi):
    """A person who takes an hour for each dialog."""

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation in ("confirm", "select"):
            await asyncio.sleep(3600)
        return await super().request(extension, operation, params)


async def test_how_long_a_person_takes_is_not_the_extensions_time(tmp_path: Path) -> None:
    source = """export default (pi) => {
      pi.on("tool_call", async (_event, ctx) => (await ctx.ui.confirm("May it?", "m")) ? undefined : { block: true });
      pi.registerCommand("ask", { handler: (_args, ctx) => ctx.ui.select("Which?", ["a", "b"]) });
    }"""
    (tmp_path / "one.ts").write_text(source)
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=tmp_path, mode="permissive", ui=Slow([True, "b"])) as suite,
    ):
        await suite.load(tmp_path / "one.ts")
        event = {"type": "tool_call", "toolName": "rm", "toolCallId": "1", "input": {}}
        assert (await suite.emit(event))["block"] is False
        assert await suite.run_command("ask") == "b"


# -- what a person granted for a session ------------------------------------------------------------------------------


class Yes:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, question: Any) -> Any:
        from forestay.extensions.consent import Answer

        self.asked.append(question.capability)
        return Answer(True, "session")


async def test_d7_a_grant_for_a_session_ends_with_it(tmp_path: Path) -> None:
    source = """import { readFileSync } from "node:fs";
    export default (pi) => {
      pi.registerCommand("look", { handler: () => readFileSync("a.txt", "utf8") });
      pi.registerCommand("new", { handler: (_args, ctx) => ctx.newSession() });
    }"""
    (tmp_path / "one.ts").write_text(source)
    (tmp_path / "a.txt").write_text("x")
    person = Yes()
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=tmp_path, mode="prompt", consent=person) as suite,
    ):
        await suite.load(tmp_path / "one.ts")
        assert [await suite.run_command("look"), await suite.run_command("look")] == ["x", "x"]
        assert person.asked == ["read"]
        await suite.run_command("new")
        assert await suite.run_command("look") == "x" and person.asked == ["read", "read"]
