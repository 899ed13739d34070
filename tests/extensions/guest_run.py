"""Runs a few lines of JavaScript as an extension's tool: the real engine, the real dispatcher, a real project."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.extensions.dispatcher_world import World

from forestay.extensions.engine.limits import Limits
from forestay.extensions.isolate import Program
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings

HEAD = """
const find = globalThis.__forestay_modules__;
const require = (name) => find(name.startsWith("@") ? name : "pi:node/" + name.replace(/^node:/, "").replace(/\\//g, "_"));
const caught = async (call) => {
  try { return { value: await call() ?? null }; }
  catch (error) { return { name: error.name, code: error.code, message: error.message, hostcall: error.hostcall?.code ?? error.cause?.code }; }
};
"""


def program(body: str) -> str:
    return (
        HEAD
        + "export default (pi) => { pi.registerTool({ name: 'go', description: 'd', parameters: { type: 'object' }, "
        + "async execute(id, params, signal, onUpdate, ctx) { const value = await (async () => {"
        + body
        + "})(); return { content: [{ type: 'text', text: JSON.stringify(value) ?? 'null' }] }; } }) }"
    )


async def run_async(world: World, body: str) -> Any:
    world.dispatcher.attend()
    extension = JavaScriptGuest(
        Program("index.js", str(hash(body)), program(body)),
        Surroundings("ext.test", str(world.project), str(world.own)),
        world.dispatcher,
        limits=Limits(memory_mb=128, slice_ms=5_000),
        deadline=20,
    )
    try:
        await extension.load()
        outcome = await extension.call_tool("go", {})
        assert not outcome.is_error, outcome.content
        return json.loads(outcome.content[0]["text"])
    finally:
        await extension.close()


def run(world: World, body: str) -> Any:
    return asyncio.run(run_async(world, body))
