"""Nodes that are instant: they read the run and say something about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forestay.runs.channels import REDUCERS
from forestay.runs.execution import Execution
from forestay.runs.nodes.checks import compiles, needs_text, numbers, positive, shaped
from forestay.runs.nodes.registry import NodeError, NodeType
from forestay.runs.values import plain, truthy

_DELAYS = ("delayMs", "durationMs", "ms")


async def noop(ctx: Execution) -> dict[str, Any]:
    """Do nothing."""
    return {}


async def identity(ctx: Execution) -> dict[str, Any]:
    """Give the inputs back as outputs."""
    return dict(ctx.inputs)


async def delay(ctx: Execution) -> dict[str, Any]:
    """Wait for a time; the deadline survives a restart."""
    ms = ctx.inputs.get("delayMs")
    for key in _DELAYS:
        ms = ctx.config.get(key) if ms is None else ms
    if isinstance(ms, bool) or not isinstance(ms, int | float) or ms < 0:
        raise NodeError("invalid_input", "A delay needs `delayMs`, a number of milliseconds.", retryable=False)
    await ctx.sleep(int(ms))
    return {"delayedMs": int(ms)}


async def fail(ctx: Execution) -> dict[str, Any]:
    """Fail with the code and the message of the configuration."""
    code = str(ctx.config.get("code") or "node_failed")
    raise NodeError(code, str(ctx.config.get("message") or "The node fails by design."))


async def channel_write(ctx: Execution) -> dict[str, Any]:
    """Write a value to a channel."""
    value = ctx.inputs.get("value", ctx.config.get("value"))
    if isinstance(text := ctx.config.get("expression"), str):
        value = ctx.evaluate(text)
    ctx.write_channel(
        str(ctx.config["channelName"]),
        value,
        reducer=ctx.config.get("reducer", "replace"),
        ttl_ms=ctx.config.get("ttlMs"),
        schema_version=ctx.config.get("schemaVersion"),
    )
    return {"channel": ctx.config["channelName"]}


async def transform(ctx: Execution) -> dict[str, Any]:
    """Compute outputs, variables and artifacts with expressions."""
    for name, text in (ctx.config.get("assign") or {}).items():
        ctx.set_variable(name, ctx.evaluate(text))
    outputs = {name: ctx.evaluate(text) for name, text in (ctx.config.get("outputs") or {}).items()}
    if isinstance(text := ctx.config.get("expression"), str):
        outputs["output"] = ctx.evaluate(text)
    if kept := ctx.config.get("artifacts"):
        outputs["artifacts"] = {name: ctx.artifact(name, ctx.evaluate(text)) for name, text in kept.items()}
    return plain(outputs)  # type: ignore[no-any-return]


async def branch(ctx: Execution) -> dict[str, Any]:
    """Name the first case whose expression holds; edges route on `output.branch`."""
    for case in ctx.config.get("cases", []):
        if truthy(ctx.evaluate(case["when"])):
            return {"branch": case["name"]}
    return {"branch": ctx.config.get("default", "default")}


def _texts(config: dict[str, Any], *keys: str) -> Iterator[tuple[str, str]]:
    for key in keys:
        value = config.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            yield f".{key}", "An object of expressions is expected."


def _check_transform(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    groups = ("assign", "outputs", "artifacts")
    yield from _texts(config, *groups)
    for key in groups:
        for name, text in config.get(key, {}).items() if isinstance(config.get(key, {}), dict) else ():
            yield from compiles(text, f".{key}.{name}")


def _check_branch(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from shaped(config, str, "default")
    cases = config.get("cases")
    if not isinstance(cases, list) or not cases:
        yield ".cases", "A branch needs `cases`, an array of {name, when}."
        return
    for index, case in enumerate(cases):
        if not isinstance(case, dict) or not isinstance(case.get("name"), str):
            yield f".cases[{index}].name", "A case needs a name."
        else:
            yield from compiles(case.get("when"), f".cases[{index}].when")


def _check_channel(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from needs_text(config, "channelName")
    yield from positive(config, "ttlMs", "schemaVersion")
    if "reducer" in config and config["reducer"] not in list(REDUCERS):
        yield ".reducer", f"A reducer is one of {', '.join(REDUCERS)}."


def _check_delay(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from numbers(config, *_DELAYS)


TYPES = [
    NodeType(type_id="core.noop", execute=noop, inline=True, summary="Does nothing."),
    NodeType(type_id="core.identity", execute=identity, inline=True, summary="Outputs its inputs."),
    NodeType(
        type_id="core.delay",
        execute=delay,
        inline=True,
        check=_check_delay,
        summary="Waits `delayMs`; a durable timer.",
    ),
    NodeType(
        type_id="core.fail",
        execute=fail,
        inline=True,
        check=lambda config: shaped(config, str, "code", "message"),
        summary="Fails with `code` and `message`.",
    ),
    NodeType(
        type_id="core.channelWrite",
        execute=channel_write,
        inline=True,
        check=_check_channel,
        expressions=("expression",),
        summary="Writes a value to a channel.",
    ),
    NodeType(
        type_id="core.transform",
        execute=transform,
        inline=True,
        check=_check_transform,
        expressions=("expression",),
        summary="Computes outputs, variables and artifacts with expressions.",
    ),
    NodeType(type_id="core.branch", execute=branch, inline=True, check=_check_branch, summary="Names a case."),
]
