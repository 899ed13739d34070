"""`core.map`: runs a node or a child workflow for every item of a collection, a limited number at a time (W13)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from forestay.runs.execution import Execution
from forestay.runs.nodes.checks import check_config, compiles, positive, shaped
from forestay.runs.nodes.registry import NodeError, NodeRegistry, NodeType
from forestay.runs.outcome import Parked

MAP = "core.map"
MAX_ITEMS = 10_000
_DEFAULT_CONCURRENCY = 8


def map_type(registry: NodeRegistry) -> NodeType:
    """Return the map node, which can run the node types of `registry`."""

    async def execute(ctx: Execution) -> dict[str, Any]:
        """Return results in the order of the items; after a failure, fail once the running items have ended."""
        items = await _items(ctx)
        width = max(1, min(int(ctx.config.get("concurrency", _DEFAULT_CONCURRENCY)), 256))
        if "workflowId" in ctx.config:
            results = await _with_children(ctx, items, width)
        else:
            results = await _inline(ctx, items, width, registry)
        return {"results": results, "count": len(results)}

    def check(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from _check(config)
        inner = config.get("node")
        if isinstance(inner, dict) and isinstance(inner.get("typeId"), str):
            yield from _check_inner(registry.get(inner["typeId"]), inner)

    return NodeType(type_id=MAP, execute=execute, check=check, summary="Maps a collection.")


async def _items(ctx: Execution) -> list[Any]:
    """Return the collection; an expression is evaluated once, so later changes do not affect the map."""
    source = ctx.inputs.get("items", ctx.config.get("items"))
    if isinstance(source, str):
        text = source
        source = await ctx.effect("items", lambda: ctx.evaluate(text), later=True)
    if not isinstance(source, list):
        raise NodeError("invalid_input", "`items` is not an array.", retryable=False)
    if len(source) > MAX_ITEMS:
        message = f"A map takes at most {MAX_ITEMS} items; there are {len(source)}."
        raise NodeError("invalid_input", message, retryable=False)
    return source


def _inputs(ctx: Execution, item: Any, index: int) -> dict[str, Any]:
    name = str(ctx.config.get("as", "item"))
    mapped = ctx.config.get("inputs") or {}
    names = {name: item, "index": index}
    return {**names, **{key: ctx.evaluate(text, **names) for key, text in mapped.items()}}


async def _with_children(ctx: Execution, items: list[Any], width: int) -> list[Any]:
    """Run a child for each item. The log has each result with the child's end, so a restart continues from there."""
    workflow = str(ctx.config["workflowId"])
    results: list[Any] = [None] * len(items)
    queue = iter(range(len(items)))
    under_way: dict[int, str] = {}

    async def fill() -> None:
        for index in queue:
            key = f"item:{index}"
            if ctx.ended(key) is None:
                inputs = _inputs(ctx, items[index], index)
                await ctx.start_child(workflow, inputs, key=key, cause="core.subWorkflow")
            under_way[index] = key
            if len(under_way) >= width:
                return

    await fill()
    while under_way:
        ended = [(index, found) for index, key in under_way.items() if (found := ctx.ended(key)) is not None]
        for index, found in ended:  # the log counts, not the number of wake-ups
            results[index] = _of_child(workflow, index, found)
            del under_way[index]
        if ended:
            await fill()
        else:
            await ctx.next_ended()
    return results


def _of_child(workflow: str, index: int, result: dict[str, Any]) -> Any:
    if result["status"] != "completed":
        details = {"index": index, "childRunId": result["runId"], "childError": result.get("error")}
        raise NodeError("map_item_failed", f"Item {index}: {workflow!r} ended as {result['status']}.", details=details)
    return result["outputs"]


async def _inline(ctx: Execution, items: list[Any], width: int, registry: NodeRegistry) -> list[Any]:
    """Run a node's code for each item; each result is recorded like an effect."""
    spec = ctx.config["node"]
    kind = registry.get(spec["typeId"])
    if kind is None:
        raise NodeError("invalid_input", f"There is no node type {spec['typeId']!r}.", retryable=False)
    results: list[Any] = [None] * len(items)
    position = iter(range(len(items)))
    failures: list[BaseException] = []

    async def one(index: int) -> None:
        part = ctx.within(str(index), spec.get("config", {}), _inputs(ctx, items[index], index), spec["typeId"])

        async def run() -> Any:
            outputs = await kind.execute(part)
            ctx.events.extend(part.take())
            ctx.appends.extend(part.take_appends())
            return outputs

        results[index] = await ctx.effect(f"item:{index}", run, provider=spec["typeId"])

    async def worker() -> None:
        for index in position:
            if failures:
                return
            try:
                await one(index)
            except asyncio.CancelledError:
                raise
            except (Exception, Parked) as error:  # noqa: BLE001 - raised again below, when the others have ended
                failures.append(error)

    await asyncio.gather(*(worker() for _ in range(min(width, len(items)))))
    if failures:
        first = failures[0]
        if isinstance(first, Parked):
            raise NodeError(
                "map_item_waits", "A node inside a map cannot wait; map over a workflow instead.", retryable=False
            )
        raise first
    return results


def _check(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if ("workflowId" in config) == ("node" in config):
        yield "", "A map needs one of `workflowId` and `node`."
    inner = config.get("node", {"typeId": ""})
    if not isinstance(inner, dict) or not isinstance(inner.get("typeId"), str):
        yield ".node.typeId", "The inner node needs a type."
    elif not isinstance(inner.get("config", {}), dict):
        yield ".node.config", "An object is expected."
    yield from shaped(config, str, "workflowId", "as")
    if isinstance(config.get("items"), str):
        yield from compiles(config["items"], ".items")
    yield from positive(config, "concurrency")
    mapped = config.get("inputs") or {}
    if not isinstance(mapped, dict):
        yield ".inputs", "An object of expressions is expected."
        return
    for key, text in mapped.items():
        yield from compiles(text, f".inputs.{key}")


def _check_inner(kind: NodeType | None, spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Check the inner node like a node of the workflow."""
    if kind is None:
        yield ".node.typeId", f"There is no node type {spec['typeId']!r}."
        return
    if kind.type_id == MAP:  # MAX_ITEMS would not bound nested maps
        yield ".node.typeId", "A map cannot contain a map; map over a workflow instead."
    config = spec.get("config", {})
    if isinstance(config, dict):
        for place, message in check_config(kind, config):
            yield f".node.config{place}", message
