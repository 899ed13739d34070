"""Compares every field of every registration: the sandbox against the real loader, the oracle (Pi §6.2).

1. A field is compared if both sides report it, and only then.
2. An extension that the real loader cannot load is reported, and does not count.
3. The wording of the built-in tools is data of a host: the sandbox runs with the wording of the real host.
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
    """The result for one extension."""

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
    """Load one extension in the sandbox, with the oracle's wording of the built-in tools, and compare."""
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
    """Return the fields of a tool that both loaders report; `typebox` is ours alone."""
    return {key: value for key, value in msgspec.to_builtins(tool).items() if key != "typebox"}


async def registrations_of(artifact: Any, words: Mapping[str, ToolWords] | None = None) -> dict[str, Any]:
    """Load an artifact in the sandbox; return its registrations in the oracle's form."""
    with tempfile.TemporaryDirectory(prefix="forestay-conform-") as work:
        place = Place(Path(work))
        async with Host(place, artifact, words=words) as host:
            described = describe(await host.extension.load())
        text = canonical.encode(described).replace(str(place.project).encode(), b"/project")
        result: dict[str, Any] = canonical.decode(text.replace(str(place.home).encode(), b"/home"))
        return result


def describe(registered: Registrations) -> dict[str, Any]:
    """Return our registrations in the oracle's form."""
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
    """Remove members that are None: `undefined`, `null` and an absent member count as the same."""
    if isinstance(value, dict):
        return {key: normal(item) for key, item in sorted(value.items()) if item is not None}
    if isinstance(value, list):
        return [normal(item) for item in value]
    return value


def differing(oracle: Any, ours: Any, at: str = "") -> Iterator[Difference]:
    """Yield every leaf at which two values differ."""
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
