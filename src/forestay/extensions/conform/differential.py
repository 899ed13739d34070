"""Ours against the oracle's: every field of every registration (Pi §6.2).

1. Nothing is compared that one side does not tell; nothing that both tell is left out.
2. An extension that the real loader does not load has no measure: it is reported, and counts for nobody.
3. The wording of the built-in tools is data of a host: ours is run with the real host's, read from it at that moment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.source import sources
from forestay.extensions.conform.host import Host, Place
from forestay.extensions.conform.oracle import Verdict
from forestay.extensions.registry import Registrations, Tool
from forestay.extensions.tool_wording import ToolWords
from forestay.kernel import Problem, canonical

Outcome = Literal["equal", "different", "not_loaded", "blocked", "no_oracle"]


class Difference(msgspec.Struct, frozen=True):
    """One place where the two sides do not agree."""

    at: str
    oracle: Any
    ours: Any


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one extension."""

    package: str
    entry: str
    outcome: Outcome
    reason: str = ""
    differences: tuple[Difference, ...] = ()
    verdict: str = ""
    equal_if_allowed: bool | None = None


async def compare(
    package: str, entry: Path, name: str, oracle: Verdict, words: Mapping[str, ToolWords] | None = None
) -> Result:
    """Load one extension on our side, with the oracle's wording of the built-in tools, and compare the answers."""
    if oracle.registrations is None:
        return Result(package, name, "no_oracle", _first_line(oracle.error or ""))
    try:
        artifact, _ = compile_source(sources(entry)[0])
    except Problem as problem:
        return Result(package, name, "not_loaded", _told(problem))
    blocked = "; ".join(f"{use.message} {use.locations[0]}" for use in artifact.meta.forbidden_apis)
    try:
        ours = await registrations_of(artifact, words)
    except Problem as problem:
        if blocked:
            return Result(package, name, "blocked", blocked, (), "blocked", False)
        return Result(package, name, "not_loaded", _told(problem), (), artifact.meta.verdict)
    differences = tuple(differing(normal(oracle.registrations), normal(ours)))
    if blocked:
        return Result(package, name, "blocked", blocked, differences, "blocked", not differences)
    return Result(package, name, "different" if differences else "equal", "", differences, artifact.meta.verdict)


def _tool(tool: Tool) -> dict[str, Any]:
    """A tool as both loaders tell of it; how its schema was built is our own note."""
    return {key: value for key, value in msgspec.to_builtins(tool).items() if key != "typebox"}


async def registrations_of(artifact: Any, words: Mapping[str, ToolWords] | None = None) -> dict[str, Any]:
    """What an artifact registers in the sandbox, in the oracle's form."""
    with tempfile.TemporaryDirectory(prefix="forestay-conform-") as work:
        place = Place(Path(work))
        async with Host(place, artifact, words=words) as host:
            described = describe(await host.extension.load())
        text = canonical.encode(described).replace(str(place.project).encode(), b"/project")
        result: dict[str, Any] = canonical.decode(text.replace(str(place.home).encode(), b"/home"))
        return result


def describe(registered: Registrations) -> dict[str, Any]:
    """Our registrations as the oracle prints its own."""
    return {
        "tools": [_tool(tool) for tool in registered.tools.values()],
        "commands": [msgspec.to_builtins(command) for command in registered.commands.values()],
        "handlers": dict(registered.handlers),
        "shortcuts": [msgspec.to_builtins(item) for item in registered.shortcuts.values()],
        "flags": [msgspec.to_builtins(flag) for flag in registered.flags.values()],
        "renderers": list(registered.renderers),
        "entryRenderers": list(registered.entry_renderers),
        "providers": [
            {key: value for key, value in msgspec.to_builtins(item).items() if key != "name"}
            for item in registered.providers.values()
        ],
    }


def normal(value: Any) -> Any:
    """Without absent members: `undefined`, `null` and nothing are told alike by JSON."""
    if isinstance(value, dict):
        return {key: normal(item) for key, item in sorted(value.items()) if item is not None}
    if isinstance(value, list):
        return [normal(item) for item in value]
    return value


def differing(oracle: Any, ours: Any, at: str = "") -> Iterator[Difference]:
    """Every leaf at which two values differ."""
    if isinstance(oracle, dict) and isinstance(ours, dict):
        for key in sorted(oracle.keys() | ours.keys()):
            yield from differing(oracle.get(key), ours.get(key), f"{at}.{key}" if at else key)
    elif isinstance(oracle, list) and isinstance(ours, list):
        for index in range(max(len(oracle), len(ours))):
            left = oracle[index] if index < len(oracle) else None
            right = ours[index] if index < len(ours) else None
            yield from differing(left, right, f"{at}[{index}]")
    elif oracle != ours or isinstance(oracle, bool) != isinstance(ours, bool):
        yield Difference(at, oracle, ours)


def _told(problem: Problem) -> str:
    at = problem.details.get("at") or problem.details.get("location") or ""
    return f"{problem.key}: {problem.message} {at}".strip()


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].removeprefix("Failed to load extension: ")
