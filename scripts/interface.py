"""The interface for extensions, name by name, from the tests' marks: what works, what differs, what is absent.

A test names what it proves with `@pytest.mark.api("pi.on", "ctx.hasUI", …)`. A name works when a test proves it. The
tables below say how a name differs from pi, or why it is absent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"

GROUPS: dict[str, tuple[str, str]] = {
    "pi": (
        "ExtensionAPI",
        "on registerTool registerCommand registerShortcut registerFlag getFlag registerMessageRenderer "
        "registerEntryRenderer registerToolRenderer registerMarkdownTransformer registerProvider unregisterProvider "
        "registerMcpServer unregisterMcpServer getMcpServers registerVirtualModel unregisterVirtualModel sendMessage "
        "sendUserMessage appendEntry setSessionName getSessionName setLabel exec getActiveTools getAllTools "
        "setActiveTools getCommands getSettings setModel getThinkingLevel setThinkingLevel events",
    ),
    "ctx": (
        "the context of handlers, tools and shortcuts",
        "ui mode hasUI cwd sessionManager modelRegistry model scopedModels thinkingLevel isIdle isProjectTrusted "
        "signal abort hasPendingMessages shutdown getContextUsage compact getSystemPrompt",
    ),
    "tool ctx": ("more names in the context of a tool", "tools executeTool"),
    "command ctx": (
        "more names in the context of a command",
        "getSystemPromptOptions waitForIdle newSession fork navigateTree switchSession reload",
    ),
    "ctx.ui": (
        "the user interface",
        "select confirm input editor notify custom setStatus setWidget setFooter setHeader setTitle setWorkingMessage "
        "setWorkingVisible setWorkingIndicator setHiddenThinkingLabel pasteToEditor setEditorText getEditorText "
        "addAutocompleteProvider setEditorComponent getEditorComponent onTerminalInput theme getAllThemes getTheme "
        "setTheme getToolsExpanded setToolsExpanded",
    ),
    "event": (
        "events, by `pi.on`",
        "resources_discover session_start session_before_switch session_before_fork session_before_compact "
        "session_compact session_compact_failed session_shutdown session_before_tree session_tree session_info_changed "
        "context context_with_system before_provider_request before_provider_headers after_provider_response "
        "provider_stream_event before_agent_start agent_start agent_end agent_before_settle agent_settled turn_start "
        "turn_end message_start message_update message_end tool_execution_start tool_execution_update "
        "tool_execution_end tool_call tool_result model_select thinking_level_select user_bash input ui_prompt_start "
        "ui_prompt_end project_trust mcp_servers_change cache_warming_decision session_switch session_fork "
        "session_branch session_directory",
    ),
    "program": ("the `pi` program that an extension starts", "-p --mode-json --mode-rpc"),
}

DIFFERS = {
    "pi.registerShortcut": "A key works where the terminal can tell it from others; `/key NAME` always works.",
    "pi.registerMcpServer": "A person approves the server before it is started.",
    "pi.registerToolRenderer": "`next()` calls the same extension's renderers; other extensions are asked after it.",
    "pi.registerMarkdownTransformer": "The transformed text is shown beside the text, marked as the extension's.",
    "pi.registerVirtualModel": "The thinking level of a route has no effect, and retries give no event; "
    "`models.default` names a model of the host.",
    "pi.getMcpServers": "It leaves out the values of variables and headers of other extensions' servers.",
    "event.agent_before_settle": "Entries of the type `context_edit` are left out.",
    "event.provider_stream_event": "`data` is the host's own `text_delta`; a provider's bytes stay with the host.",
    "pi.sendUserMessage": "A follow-up is a turn of its own. So is a message without `deliverAs` while an agent works, "
    "which pi refuses. Text only, no images.",
    "pi.sendMessage": "A follow-up is a turn of its own; a message at `agent_end` is one only with `triggerTurn`.",
    "pi.exec": "The program is confined and sees only what the extension may see.",
    "pi.setModel": "The current turn keeps its model; the next one uses the chosen model.",
    "pi.setThinkingLevel": "The session keeps the level and events report it; the host's models have no such level.",
    "pi.getSettings": "It returns the model, the thinking level and the theme, but not the host's own settings.",
    "ctx.mode": "`tui` while a person is present, `print` otherwise.",
    "ctx.isProjectTrusted": "Always true: an extension runs only when a person trusts the project.",
    "ctx.shutdown": "It ends a chat; a host that others use continues.",
    "ctx.modelRegistry": "Keys stay with the host; `getApiKey` returns a placeholder.",
    "command ctx.getSystemPromptOptions": "It has only the folder, the active tools and the prompt.",
    "tool ctx.executeTool": "A tool of another extension needs the capability `tool`.",
    "ctx.ui.setHiddenThinkingLabel": "It is accepted; no thinking is shown.",
    "ctx.ui.setEditorComponent": "It is kept and returned; the front end keeps its own editor.",
    "ctx.ui.addAutocompleteProvider": "A chat asks it at the tab key, for the last word of the line.",
    "ctx.ui.onTerminalInput": "It gets the keys of components; no extension sees a line before it is sent.",
    "ctx.ui.setToolsExpanded": "It is kept and returned; the person chooses what is folded.",
    "event.after_provider_response": "Status 200 and no headers: a provider's own stay with the host.",
    "event.before_provider_request": "Only changes of messages, tokens and temperature count.",
    "event.session_directory": "Listeners get it; the host chooses the folder of the sessions.",
    "program.-p": "On the PATH of the extension's programs, under its grants and tokens; it keeps no session.",
    "program.--mode-rpc": "prompt, steer, follow_up, clear_queue, abort, new_session, get_state, get_messages, "
    "set_model, get_last_assistant_text, get_available_models.",
}

ABSENT = {
    "event.before_provider_headers": "Only the host makes requests to providers and has their keys.",
    "event.project_trust": "A person decides about trust before any extension runs.",
    "event.cache_warming_decision": "The host does not warm caches of providers.",
}


def names() -> list[str]:
    return [f"{group}.{name}" for group, (_, members) in GROUPS.items() for name in members.split()]


def proofs(tests: Path = TESTS) -> dict[str, list[str]]:
    """Return the tests that prove each name, from their marks."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "mark.api(" not in text:
            continue
        for test, name in _marks(ast.parse(text)):
            found.setdefault(name, []).append(f"{path.relative_to(tests).as_posix()}::{test}")
    return found


def _marks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "api":
                    for argument in mark.args:
                        for name in str(ast.literal_eval(argument)).split("|"):
                            yield node.name, name.strip()


def faults(proved: dict[str, list[str]]) -> list[str]:
    """List the mistakes: a name without a proof, a proof of an unknown name, a proof of an absent one."""
    known = names()
    said = {**DIFFERS, **ABSENT}
    return [
        *(f"no test proves {name}" for name in known if name not in proved and name not in ABSENT),
        *(f"a test proves {name}, which is absent" for name in ABSENT if name in proved),
        *(f"{name} is not a name of the interface" for name in (*proved, *said) if name not in known),
        *(f"{name} both differs and is absent" for name in DIFFERS if name in ABSENT),
    ]


def interface_page() -> str:
    proved = proofs()
    absent = [name for name in names() if name in ABSENT]
    differs = [name for name in names() if name in DIFFERS]
    works = len(names()) - len(absent) - len(differs)
    lines = [
        "# What extensions find",
        "",
        "Each name of pi 1.5.0's interface for extensions, and what it does here. A name *works* when a test of this",
        "project proves it; the table names the tests. *Differs* says how, *absent* says why. `make docs` generates",
        "this page from the tests' marks (`@pytest.mark.api`) and `scripts/interface.py`.",
        "",
        f"{len(names())} names: {works} work, {len(differs)} differ, {len(absent)} are absent.",
        "",
    ]
    for group, (title, members) in GROUPS.items():
        lines += [f"## {group}: {title}", "", "| name | here | tests |", "|---|---|---|"]
        for member in members.split():
            lines.append(_row(member, f"{group}.{member}", proved))
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(member: str, name: str, proved: dict[str, list[str]]) -> str:
    here = "works"
    if name in DIFFERS:
        here = f"differs: {DIFFERS[name]}"
    if name in ABSENT:
        here = f"absent: {ABSENT[name]}"
    shown = member.replace("--mode-", "--mode ")
    tests = "<br>".join(f"`{test}`" for test in proved.get(name, ()))
    return f"| `{shown}` | {here} | {tests} |"
