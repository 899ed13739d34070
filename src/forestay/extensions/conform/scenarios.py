"""Compares behaviour, not only registrations: plays the same steps in the real runtime and in the sandbox.

A scenario is data (`corpus/scenarios/*.json`): the files of project and home, the person's answers, the network's
answers, the programs on the path, and steps: events, tools, commands, shortcuts, renderers.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.source import sources
from forestay.extensions.conform.corpus import Corpus
from forestay.extensions.conform.differential import Difference, differing, normal
from forestay.extensions.conform.doubles import Models, Network, Person, SessionDouble
from forestay.extensions.conform.host import Host, Place
from forestay.extensions.conform.masks import Mask, masked
from forestay.extensions.conform.node import node_for, run_node
from forestay.extensions.conform.oracle import Oracle
from forestay.extensions.conform.run import oracle_wording
from forestay.extensions.hooks import Hooks
from forestay.extensions.tool_wording import ToolWords
from forestay.kernel import Problem, canonical

_SCRIPT = Path(__file__).with_name("scenario.mjs")
_ANSI = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b_[^\x07\x1b]*(?:\x07|\x1b\\)")
_SETTLE = 0.1
_PATIENCE = 30
PROBES = "probe"


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One scenario."""

    scenario: str
    group: str
    extension: str
    steps: list[dict[str, Any]]
    files: dict[str, str] = {}
    home: dict[str, str] = {}
    programs: dict[str, str] = {}
    answers: list[Any] = []
    flags: dict[str, bool | str] = {}
    session: dict[str, Any] = {}
    models: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    commands: list[dict[str, Any]] = []
    http: list[dict[str, Any]] = []
    has_ui: bool = msgspec.field(default=True, name="hasUI")
    idle: bool = True
    pending: bool = False
    system_prompt: str = ""
    ignore: list[Mask] = []
    why: str = ""  # the reason for a remaining difference


class ScenarioResult(msgspec.Struct, frozen=True):
    """The result of a scenario."""

    scenario: str
    extension: str
    outcome: Literal["equal", "different", "not_loaded", "no_oracle"]
    reason: str = ""
    differences: tuple[Difference, ...] = ()
    left_out: tuple[Mask, ...] = ()


def read_scenarios(folder: Path) -> list[Scenario]:
    """Return every scenario of a folder; each file holds a list."""
    found: list[Scenario] = []
    for path in sorted(folder.glob("*.json")):
        found += canonical.decode(path.read_bytes(), list[Scenario])
    names = [item.scenario for item in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise Problem("schema_mismatch", f"Two scenarios are called {repeated[0]}.", at="scenario")
    return found


async def compare_scenario(corpus: Corpus, scenario: Scenario) -> ScenarioResult:
    """Run one scenario on both sides."""
    entry, name = _place(corpus, scenario)
    oracle = corpus.oracle(name)
    words = await asyncio.to_thread(oracle_wording, corpus, name)
    theirs = await asyncio.to_thread(real_answer, corpus, oracle, entry, scenario)
    if "failed" in theirs:
        return ScenarioResult(scenario.scenario, scenario.extension, "no_oracle", str(theirs["failed"]))
    try:
        async with asyncio.timeout(_PATIENCE):
            ours = await _sandbox(entry, scenario, words)
    except TimeoutError:
        reason = f"The sandbox did not finish in {_PATIENCE} seconds."
        return ScenarioResult(scenario.scenario, scenario.extension, "not_loaded", reason)
    except Problem as problem:
        reason = f"{problem.key}: {problem.message}"
        return ScenarioResult(scenario.scenario, scenario.extension, "not_loaded", reason)
    masks = tuple(scenario.ignore)
    differences = tuple(differing(normal(masked(theirs, masks)), normal(masked(ours, masks))))
    outcome: Literal["equal", "different"] = "different" if differences else "equal"
    reason = scenario.why if differences else ""
    return ScenarioResult(scenario.scenario, scenario.extension, outcome, reason, differences, masks)


def _place(corpus: Corpus, scenario: Scenario) -> tuple[Path, str]:
    """Return the entry of a scenario and the name of its oracle; a probe is an extension of this project."""
    if scenario.group == PROBES:
        return corpus.folder / "probes" / scenario.extension, next(iter(corpus.lock().oracles))
    package = next((item for item in corpus.lock().packages if item.group == scenario.group), None)
    if package is None:
        raise Problem("not_found", f"The corpus has no group {scenario.group}.", at=scenario.scenario)
    return corpus.home(package) / scenario.extension, package.oracle


def _prepare(scenario: Scenario, place: Place) -> None:
    """Write files, home and programs; a program is a shell script in a folder at the front of the path."""
    for folder, files in ((place.project, scenario.files), (place.home, scenario.home)):
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name, text in scenario.programs.items():
        path = place.programs / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)


def real_answer(corpus: Corpus, oracle: Oracle, entry: Path, scenario: Scenario) -> dict[str, Any]:
    """Return the real runtime's behaviour, from the cache when scenario, script and entry are unchanged."""
    asked = msgspec.structs.replace(scenario, ignore=[], why="")
    parts = [asked, _SCRIPT.read_text(), str(oracle.folder.relative_to(corpus.cache)), entry.read_text()]
    kept = corpus.cache / "real" / f"{canonical.digest(parts).removeprefix('sha256:')}.json"
    if kept.is_file():
        known: dict[str, Any] = canonical.decode(kept.read_bytes())
        return known
    answer = _real(oracle.folder, oracle.node, entry, scenario)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(canonical.encode(answer))
    return answer


def _real(folder: Path, node: tuple[int, ...], entry: Path, scenario: Scenario) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="forestay-real-") as work:
        place = Place(Path(work))
        _prepare(scenario, place)
        question = {
            "package": str(folder),
            "cwd": str(place.project),
            "home": str(place.home),
            "entry": str(entry),
            "scenario": msgspec.to_builtins(scenario),
        }
        done = run_node(
            node_for(node),
            _SCRIPT,
            msgspec.json.encode(question),  # the order of keys is the scenario's
            cwd=place.project,
            home=place.home,
            temp=place.temp,
            timeout=120,
            programs=place.programs,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
        if not lines:
            reason = done.stderr.decode("utf-8", "replace")[-300:]
            return {"failed": f"The real runtime ended without an answer. {reason}"}
        answer: dict[str, Any] = canonical.decode(lines[-1])
        return answer if "failed" in answer else _tidy({**answer, "files": _files(place)}, place, entry)


async def _sandbox(entry: Path, scenario: Scenario, words: Mapping[str, ToolWords]) -> dict[str, Any]:
    artifact, _ = compile_source(sources(entry)[0])
    with tempfile.TemporaryDirectory(prefix="forestay-ours-") as work:
        place = Place(Path(work))
        _prepare(scenario, place)
        acted: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        person = Person(scenario.answers)
        builtins = msgspec.to_builtins(scenario)
        session = SessionDouble(builtins, str(place.project), acted)
        host = Host(
            place,
            artifact,
            ui=person if scenario.has_ui else None,
            session=session,
            model=Models(scenario.models),
            http=Network(scenario.http, acted),
            words=words,
            report=lambda event, data: errors.append(
                {"where": data.get("where", event), "message": data.get("message")}
            ),
        )
        async with host:
            registered = await host.extension.load()
            session.registered = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in registered.tools.values()
            ]
            for name, value in scenario.flags.items():
                host.extension.set_flag(name, value)
            hooks = Hooks(
                [host.extension],
                report=lambda _ext, event, problem: errors.append({"where": event, "message": _plain_message(problem)}),
            )
            steps = []
            for step in scenario.steps:
                steps.append(await _step(host, hooks, step, str(place.project)))
                await asyncio.sleep(step.get("wait", 30) / 1000 if "wait" in step else _SETTLE)
        answer = {"steps": steps, "ui": person.shown, "session": acted, "errors": errors, "files": _files(place)}
        tidy: dict[str, Any] = _tidy(answer, place, entry)
        return tidy


async def _step(host: Host, hooks: Hooks, step: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    try:
        return {"value": await _perform(host, hooks, step, cwd)}
    except Problem as problem:
        return {"error": _plain_message(problem)}


async def _perform(host: Host, hooks: Hooks, step: Mapping[str, Any], cwd: str) -> Any:
    extension = host.extension
    if "emit" in step:
        event = dict(step["emit"])
        if event["type"] == "before_agent_start":
            event = {"systemPrompt": "", "systemPromptOptions": {"cwd": cwd}, **event}
        if event["type"] == "resources_discover":
            event = {"cwd": cwd, "reason": "startup", **event}
        if event["type"] == "input":
            event = {"source": "interactive", **event}
        answer = await hooks.emit(event)
        if event["type"] == "tool_call":
            answer.pop("failed", None)  # only our host reports which extension failed
        return answer
    if "tool" in step:
        return await _call(host, step)
    if "command" in step:
        await extension.run_command(step["command"], step.get("args", ""))
        return None
    if "complete" in step:
        return await extension.complete(step["complete"], step.get("prefix", ""))
    if "shortcut" in step:
        await extension.press(step["shortcut"])
        return None
    if "render" in step:
        return await extension.render(step["render"], step["message"], expanded=step.get("expanded", False))
    if "renderTool" in step:
        return await extension.render_tool(
            step["renderTool"], step.get("args"), step.get("result"), expanded=step.get("expanded", False)
        )
    if "bus" in step:
        extension.bus(step["bus"], step.get("data"))
        return None
    if "wait" in step:
        return None
    raise Problem("schema_mismatch", "A scenario's step names no known action.", step=sorted(step))


async def _call(host: Host, step: Mapping[str, Any]) -> dict[str, Any]:
    try:
        done = await host.extension.call_tool(step["tool"], step.get("args", {}))
    except Problem as problem:
        return {"content": [{"type": "text", "text": _plain_message(problem)}], "isError": True, "updates": []}
    answer = {"content": done.content, "isError": done.is_error, "updates": done.updates}
    return answer if done.is_error else {**answer, "details": done.details}


def _plain_message(problem: Problem) -> str:
    """Return the message of an extension's error without the name of its class."""
    return re.sub(r"^(?:Uncaught )?[A-Za-z]*Error: ", "", problem.message)


def _files(place: Place) -> dict[str, str]:
    found = {}
    for label, folder in (("project", place.project), ("home", place.home)):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and ".git" not in inside.parts:
                found[f"{label}/{inside.as_posix()}"] = path.read_text("utf-8", "replace")[:20_000]
    return found


def _tidy(value: Any, place: Place, entry: Path) -> Any:
    """Remove colours, and replace random folder names by fixed ones."""
    if isinstance(value, dict):
        return {key: _tidy(item, place, entry) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item, place, entry) for item in value]
    if isinstance(value, str):
        text = _ANSI.sub("", value)
        for label, folder in (("<project>", place.project), ("<home>", place.home), ("<temp>", place.temp)):
            text = text.replace(str(folder), label)
        for own in (entry.parent, entry.resolve().parent):
            text = text.replace(str(own), "<extension>")
        return text.replace(str(place.folder), "<work>").rstrip(" ")
    return value


def covered(scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """Count the scenarios, and the extensions and events that they cover."""
    listed = list(scenarios)
    events = {step["emit"]["type"] for item in listed for step in item.steps if "emit" in step}
    return {
        "scenarios": len(listed),
        "extensions": len({(item.group, item.extension) for item in listed}),
        "events": sorted(events),
    }
