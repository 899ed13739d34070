"""Load, call and trace extensions in the sandbox."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import msgspec
import typer

from forestay.cli import ext_compile, ext_components, ext_install, ext_project
from forestay.cli.command import Group
from forestay.cli.connection import json_argument, json_object
from forestay.cli.data_folder import Data, data_folder, opened_ledger
from forestay.cli.files import read_bytes, write_file
from forestay.cli.model_trust import with_trusted_keys
from forestay.cli.output import Answer, choice, note
from forestay.cli.terminal import TerminalConsent, attended
from forestay.envelope import Warning
from forestay.kernel import SCOPED, Config, Mode, Models, Problem, canonical, config

if TYPE_CHECKING:
    from rich.console import Console

    from forestay.extensions import Artifact, Extensions, ToolOutcome, Ui
    from forestay.host import ExtensionModel

# The problem of an uncaught host call error, by the error's code.
_KEYS = {
    "denied": "capability_denied",
    "timeout": "timeout",
    "io": "io_failed",
    "invalid_request": "invalid_request",
}

# Rules whose refusal a grant would change; no grant changes the other refusals.
GRANTABLE = ("mode-prompt", "mode-strict", "by-name-only")

app = Group("ext")
for part in (ext_compile, ext_components, ext_install, ext_project):  # one group in five files
    app.include(part.app)

Place = Annotated[Path, typer.Argument(help="An extension: a file, or a folder with a manifest or an index file.")]
PolicyMode = Annotated[
    str | None, typer.Option("--policy", help="strict, prompt or permissive; default: the configuration's.")
]
GrantTexts = Annotated[
    list[str] | None, typer.Option("--grant", help="CAP or CAP:SCOPE, e.g. read:src/**; repeatable.")
]
RootFolder = Annotated[Path, typer.Option("--root", help="The project folder that the extension works in.")]
Deadline = Annotated[float, typer.Option("--deadline", min=0.01, max=3600, help="Seconds that one call may take.")]
UiScript = Annotated[
    Path | None, typer.Option("--ui-script", help="A JSON array with the answers to dialogs, in order.")
]
InSession = Annotated[bool, typer.Option("--session", help="Fire session_start before and session_shutdown after.")]
ModelName = Annotated[
    str | None, typer.Option("--model", help="The model that it may ask, e.g. local; default: models.default.")
]
ToolWords = Annotated[
    Path | None, typer.Option("--tool-words", help="A JSON file with the wording of the built-in tools.")
]


class Chosen(NamedTuple):
    """The options of a command about the extensions that it opens."""

    policy: str | None = None
    grants: list[str] | None = None
    root: Path = Path()
    deadline: float = 30.0
    ui_script: Path | None = None
    model: str | None = None
    tool_words: Path | None = None
    data: Path | None = None


@asynccontextmanager
async def opened_extensions(
    policy: PolicyMode = None,
    grant: GrantTexts = None,
    root: RootFolder = Path(),
    deadline: Deadline = 30.0,
    ui_script: UiScript = None,
    model: ModelName = None,
    tool_words: ToolWords = None,
    data: Data = None,
) -> AsyncIterator[Extensions]:
    """Open the sandbox for the extensions of one command."""
    async with opened_suite(Chosen(policy, grant, root, deadline, ui_script, model, tool_words, data)) as extensions:
        yield extensions


@asynccontextmanager
async def opened_suite(chosen: Chosen, record: Callable[[bytes], None] | None = None) -> AsyncIterator[Extensions]:
    """Open a suite of extensions as the options say; close it at the end."""
    from forestay.extensions import SIGNED_IN, Extensions, Settings, Trust
    from forestay.host import texts

    policy, root = chosen.policy, chosen.root
    if policy not in (None, "strict", "prompt", "permissive"):
        raise Problem("invalid_usage", f"There is no policy {policy!r}.", fix="Use strict, prompt or permissive.")
    if not root.is_dir():
        raise Problem("invalid_usage", f"{root.name} is no folder.", at="--root")
    loaded = config.load().config
    settings = loaded.extensions
    if chosen.tool_words is not None:
        settings = msgspec.structs.replace(settings, tool_words=str(chosen.tool_words.absolute()))
    person = attended() and choice().format == "human"
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(opened_ledger(chosen.data))
        connected = await stack.enter_async_context(_model(loaded, chosen.model))
        standing = await Trust(ledger, settings.paths).standing(root)
        is_trusted = standing.state == "trusted"
        suite = Extensions(
            ledger,
            root=root,
            mode=cast(Mode | None, policy),
            grants=chosen.grants or (),
            consent=TerminalConsent() if person else None,
            ui=_ui(chosen.ui_script, person),
            settings=Settings(
                config=settings,
                model=connected,
                deadline=chosen.deadline,
                record=record,
                building=ext_compile.build_line if person else None,
                log_file=True,
                data=data_folder(chosen.data),
                sign_in_url=loaded.http.url + SIGNED_IN,
                trusted_places=tuple((root / item.path).resolve() for item in standing.brings) if is_trusted else (),
            ),
        )
        extensions = await stack.enter_async_context(suite)
        extensions.take_resources(texts(root, is_trusted))
        yield extensions


def _ui(script: Path | None, person: bool) -> Ui:
    from forestay.extensions import NoUi, ScriptedUi, TerminalUi

    if script is not None:
        return ScriptedUi.load(script)
    return TerminalUi(sys.stdin, sys.stderr) if person else NoUi()


@asynccontextmanager
async def _model(loaded: Config, named: str | None) -> AsyncIterator[ExtensionModel]:
    """Yield the configured models, or only the named one, as an extension reaches them."""
    from forestay.host import ExtensionModel, HostModels
    from forestay.kernel import SystemClock

    chosen = settings = (await with_trusted_keys(loaded, only=named)).models
    if named is not None:
        entries = {name: entry for name, entry in settings.entries.items() if name == named}
        chosen = Models(default=named, entries=entries)
    models = HostModels(chosen, clock=SystemClock(), folder=Path())
    try:
        yield ExtensionModel(models)
    finally:
        await models.close()


@app.command("inspect", using=opened_extensions)
async def inspect(
    extensions: Extensions, paths: Annotated[list[Path], typer.Argument(help="Extensions: files or folders.")]
) -> Answer:
    """Load extensions and show what they register."""
    for path in paths:
        await extensions.try_load(path)
    found = _registered(extensions)
    result: dict[str, Any] = {"extensions": found}
    if extensions.failures:
        result["failures"] = [{"path": item.path, "problem": item.problem.as_lafs()} for item in extensions.failures]
    problem = extensions.failures[0].problem if extensions.failures else None
    return Answer(result, human=lambda console: _show_extensions(console, found), problem=problem)


@app.command("call", using=opened_extensions)
async def call(
    extensions: Extensions,
    path: Place,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(help="The arguments: a JSON object.")] = "{}",
    deadline: Deadline = 30.0,
    session: InSession = False,
) -> Answer:
    """Validate, coerce and execute one tool."""
    value = json_argument(arguments, "arguments")
    async with _loaded(extensions, [path], session):
        outcome = await extensions.call_tool(tool, value, call_id="call-1", timeout=deadline)
    result = msgspec.to_builtins(outcome)
    for name in ("hostcall", "problem"):
        result.pop(name, None)
    problem = _refusal(outcome)  # its message is the content
    return Answer(result, human=map(part_line, outcome.content) if problem is None else (), problem=problem)


@app.command("command", using=opened_extensions)
async def command(
    extensions: Extensions,
    path: Place,
    name: Annotated[str, typer.Argument(help="The command's name.")],
    words: Annotated[list[str] | None, typer.Argument(help="Its arguments.")] = None,
    session: InSession = False,
) -> Answer:
    """Run a slash command; what its handler returned and showed."""
    async with _loaded(extensions, [path], session):
        returned = await extensions.run_command(name, " ".join(words or []))
    return Answer({"returned": returned, "ui": _shown(extensions)})


@app.command("emit", using=opened_extensions)
async def emit(
    extensions: Extensions,
    path: Place,
    event: Annotated[str, typer.Argument(help="The event's name, e.g. tool_call.")],
    payload: Annotated[str, typer.Argument(help="Its fields: a JSON object.")] = "{}",
    session: InSession = False,
) -> Answer:
    """Fire an event; the merged answer of its handlers, what they threw and what they showed."""
    fields = json_object(payload, "payload") or {}
    async with _loaded(extensions, [path], session):
        result = await _emitted(extensions, {**fields, "type": event})
    warnings = [_threw(item) for item in result["errors"]] if extensions.hooks.listening(event) else [_unheard(event)]
    return Answer({**result, "ui": _shown(extensions)}, warnings=tuple(warnings))


@app.command("trace")
async def trace(
    path: Place,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the trace goes.")],
    tool: Annotated[str | None, typer.Option("--tool", help="A tool to call while recording.")] = None,
    arguments: Annotated[str, typer.Option("--args", help="Its arguments: a JSON object.")] = "{}",
    policy: PolicyMode = None,
    grant: GrantTexts = None,
    root: RootFolder = Path(),
    deadline: Deadline = 30.0,
    data: Data = None,
) -> Answer:
    """Record everything an extension is told while it loads (and calls a tool), so that it can be replayed."""
    lines: list[bytes] = []
    async with opened_suite(Chosen(policy, grant, root, deadline, data=data), record=lines.append) as extensions:
        await extensions.load(path)
        if tool is not None:
            await extensions.call_tool(tool, json_argument(arguments, "--args"), call_id="call-1", timeout=deadline)
    write_file(output, b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
    return Answer({"lines": len(lines), "file": output.name})


@app.command("capture")
async def capture(
    path: Place,
    calls: Annotated[
        list[str] | None, typer.Option("--call", help="A tool and its arguments: 'NAME {JSON}'; repeatable.")
    ] = None,
    policy: PolicyMode = None,
    grant: GrantTexts = None,
    root: RootFolder = Path(),
    deadline: Deadline = 30.0,
    data: Data = None,
) -> Answer:
    """Run an extension, watch what it asks for, and propose the capabilities of its manifest."""
    from forestay.extensions import proposed, stream_of

    outcomes = []
    async with opened_suite(Chosen(policy, grant, root, deadline, data=data)) as extensions:
        members = await extensions.load(path)
        for text in calls or ():
            tool, _, arguments = text.partition(" ")
            outcome = await extensions.call_tool(tool, json_argument(arguments or "{}", "--call"), timeout=deadline)
            outcomes.append({"tool": tool, "is_error": outcome.is_error})
        session = extensions.session.id
    manifests = {}
    async with opened_ledger(data) as ledger:
        for member in members:
            name = member.artifact.meta.extension_id
            records = await ledger.read(stream_of(name))
            seen = [record for record in records if record.attrs.get("session_id") == session]
            manifests[name] = msgspec.to_builtins(proposed(seen))
    return Answer({"calls": outcomes, "capability_manifest": manifests})


@app.command("replay")
def replay(
    file: Annotated[Path, typer.Argument(help="What `ext trace` wrote.", exists=True, dir_okay=False)],
    path: Annotated[
        Path | None, typer.Argument(help="The extension; default: the compiled one that the trace names.")
    ] = None,
) -> Answer:
    """Execute a recorded trace again and compare every step, byte for byte."""
    from forestay.extensions import Program, build, replay_component
    from forestay.extensions import trace as traces

    recorded = read_bytes(file).splitlines()
    artifact = build(path) if path is not None else _traced(recorded)
    is_component = artifact.meta.manifest.runtime == "wasm"
    again = replay_component(recorded, artifact) if is_component else traces.replay(recorded, Program.of(artifact))
    identical = again == recorded
    problem = None if identical else Problem("replay_diverged", "The replay differs from the trace.")
    return Answer({"identical": identical, "lines": len(again)}, problem=problem)


def _traced(recorded: list[bytes]) -> Artifact:
    """Return the artifact that a trace was recorded with, if this machine still has it."""
    from forestay.extensions import default_cache, header

    named = header(recorded)
    cache = default_cache(data_folder(None))
    found = cache.made(named.artifact) if cache is not None else None
    if found is None:
        message = f"The compiled {named.extension} of this trace is not here."
        raise Problem("not_found", message, artifact=named.artifact, fix="Name the extension: ext replay TRACE PATH.")
    return found


@app.command("run", using=opened_extensions)
async def run(
    extensions: Extensions, paths: Annotated[list[Path], typer.Argument(help="Extensions: files or folders.")]
) -> None:
    """Try extensions by hand: tool NAME JSON, /command ARGS, event NAME JSON, complete TEXT, type KEYS, list, quit."""
    async with _loaded(extensions, paths, session=True):
        note("tool NAME JSON · /command ARGS · event NAME JSON · complete TEXT · type KEYS · list · quit")
        for line in sys.stdin:
            if line.strip() in ("quit", "exit"):
                break
            sys.stdout.write(canonical.encode(await _reply(extensions, line.strip())).decode() + "\n")
            sys.stdout.flush()
            if {"kind": "shutdown"} in extensions.session.requests:  # an extension asked for the end
                break


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    lang: Annotated[str | None, typer.Option("--lang", help="A component: python, javascript, c or rust.")] = None,
) -> dict[str, Any]:
    """Write a small extension to start from: a manifest, a tool, a command, an event handler."""
    from forestay.extensions import component_project

    name = folder.resolve().name
    files = _template(name) if lang is None else component_project(lang, name)
    if folder.exists() and any(folder.iterdir()):
        raise Problem("already_exists", f"{folder.name} is not empty.", fix="Name a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for place, text in files.items():
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    if lang is None:
        return {"files": sorted(files), "try": f"forestay ext inspect {folder}"}
    needs = next(line for line in files["build.sh"].splitlines() if line.startswith("# Needs: "))
    first = f"sh {folder}/build.sh && forestay ext inspect {folder}"
    return {"files": sorted(files), "needs": needs.removeprefix("# Needs: "), "try": first}


@asynccontextmanager
async def _loaded(extensions: Extensions, paths: list[Path], session: bool) -> AsyncIterator[None]:
    """Load the extensions; with `session`, fire the start and the end of a session around the block."""
    for path in paths:
        await extensions.load(path)
    if session:
        await extensions.emit({"type": "session_start", "reason": "startup"})
        await extensions.find_resources(extensions.resources)
    yield
    if session:
        await extensions.emit({"type": "session_shutdown", "reason": "quit"})


async def _reply(extensions: Extensions, line: str) -> Any:
    """Answer one line of `ext run`; a Problem is an answer too."""
    word, _, rest = line.partition(" ")
    try:
        if line == "list":
            return {"extensions": _registered(extensions)}
        if word == "tool":
            name, _, arguments = rest.partition(" ")
            return msgspec.to_builtins(await extensions.call_tool(name, json_argument(arguments or "{}", "arguments")))
        if word == "event":
            name, _, payload = rest.partition(" ")
            return await _emitted(extensions, {**(json_object(payload or "{}", "payload") or {}), "type": name})
        if word == "complete":
            return {"suggestions": await extensions.autocomplete([rest], 0, len(rest))}
        if word == "type":
            return {"typed": await extensions.typed(rest)}
        if word.startswith("/"):
            return {"returned": await extensions.run_command(word[1:], rest), "ui": _shown(extensions)}
        words = "tool, event, /command, complete, type, list or quit"
        raise Problem("invalid_usage", f"{word[:40]!r} is not understood.", fix=words)
    except Problem as problem:
        return {"error": problem.as_lafs()}


def _registered(extensions: Extensions) -> list[dict[str, Any]]:
    return [{**member.extension.registrations.inspect(), "path": member.path} for member in extensions.members]


async def _emitted(extensions: Extensions, event: dict[str, Any]) -> dict[str, Any]:
    """Fire an event; return the merged answer of its handlers and the errors that they threw."""
    extensions.handler_failures.clear()
    returned = await extensions.emit(event)
    return {"returned": returned, "errors": list(extensions.handler_failures)}


def _threw(failure: dict[str, Any]) -> Warning:
    said = f"A handler of {failure['event']} in {failure['extension']} failed: {failure['problem']['message']}"
    return Warning(code="W_HANDLER_FAILED", message=said)


def _refusal(outcome: ToolOutcome) -> Problem | None:
    """Return the problem of a host call that was refused or failed and that the tool did not handle, or None."""
    if outcome.hostcall is None:
        return None
    text = next((part["text"] for part in outcome.content if part.get("type") == "text"), "The tool failed.")
    told = dict((outcome.problem or {}).get("details") or {})
    told.pop("problem", None)
    capability, resource = told.get("capability"), told.get("resource")
    if outcome.hostcall == "denied" and isinstance(capability, str) and told.get("rule") in GRANTABLE:
        narrow = f"--grant {capability}:{resource}, or " if resource and capability in SCOPED else ""
        told["fix"] = f"Call it with {narrow}--grant {capability}."
    return Problem(_KEYS.get(outcome.hostcall, "extension_failed"), text, **told)


def _unheard(event: str) -> Warning:
    from forestay.extensions import EVENTS, OLDER_EVENTS

    known = event in EVENTS or event in OLDER_EVENTS
    also = "" if known else f" It is no event of pi; those are: {', '.join(EVENTS)}."
    return Warning(code="W_NO_HANDLER", message=f"Nobody listens to {event[:80]}.{also}")


def _shown(extensions: Extensions) -> list[dict[str, Any]]:
    return list(getattr(extensions.ui, "calls", []))


def _show_extensions(console: Console, found: list[dict[str, Any]]) -> None:
    for item in found:
        console.print(item["path"], style="bold", markup=False)
        for tool in item["tools"]:
            console.print(f"  tool      {tool['name']}: {tool['description']}", markup=False)
        for command in item["commands"]:
            console.print(f"  command   /{command['name']} {command['description'] or ''}", markup=False)
        for event, count in item["handlers"].items():
            console.print(f"  handler   {event}" + (f" x {count}" if count > 1 else ""), markup=False)
        for kind in ("shortcuts", "flags", "renderers", "providers"):
            for entry in item[kind]:
                name = entry if isinstance(entry, str) else entry.get("shortcut") or entry.get("name")
                console.print(f"  {kind[:-1]:<9} {name}", markup=False)


def part_line(part: dict[str, Any]) -> str:
    """Return one content block as a person sees it."""
    return str(part.get("text") if part.get("type") == "text" else f"[{part.get('type')}]")


def _template(name: str) -> dict[str, str]:
    manifest = {
        "schema": "pi.ext.manifest.v1",
        "extension_id": f"ext.{name}",
        "name": name,
        "version": "0.1.0",
        "api_version": "1.0",
        "runtime": "js",
        "entrypoint": "index.ts",
        "capabilities": ["read"],
    }
    source = """import { Type } from "typebox";
import { readFileSync } from "node:fs";

export default function (pi: any) {
  pi.registerTool({
    name: "count_words",
    label: "Count words",
    description: "Count the words of a file in the project",
    parameters: Type.Object({ path: Type.String({ description: "The file, relative to the project" }) }),
    async execute(_id: string, params: { path: string }) {
      const words = readFileSync(params.path, "utf8").split(/\\s+/).filter(Boolean).length;
      return { content: [{ type: "text", text: `${words} words` }], details: { words } };
    },
  });

  pi.registerCommand("hello", {
    description: "Say hello",
    handler: async (args: string, ctx: any) => ctx.ui.notify(`Hello ${args || "there"}`, "info"),
  });

  pi.on("tool_call", (event: any) => {
    if (event.toolName === "bash" && /rm -rf/.test(event.input.command)) return { block: true, reason: "not here" };
  });
}
"""
    pretty = msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode()
    return {"extension.json": pretty + "\n", "index.ts": source}
