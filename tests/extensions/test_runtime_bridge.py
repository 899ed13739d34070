# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Hostile code in the same VM as the bridge: it can spoil its own world, and nothing of the host's."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.extensions.runtime_world import TableDispatcher, extension, text_of

from forestay.extensions.effects import read_effects, read_sync
from forestay.extensions.engine.limits import EngineTrap
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.protocol import HostCall
from forestay.kernel import Problem

# Each of these runs before anything else of the extension.
POLLUTION = {
    "toJSON on every object": "Object.prototype.toJSON = () => ({ forged: true })",
    "toJSON on arrays and strings": "Array.prototype.toJSON = String.prototype.toJSON = () => 'forged'",
    "JSON replaced": "JSON.stringify = () => '[\"call\",99,\"exec\",{},null,\"\"]'; JSON.parse = () => []",
    "then replaced": "Promise.prototype.then = function () { return this }",
    "Promise replaced": "globalThis.Promise = class { constructor() {} static resolve() { return 1 } }",
    "call and apply replaced": "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => 'forged'",
    "Reflect replaced": "Reflect.apply = () => 'forged'; Reflect.ownKeys = () => []",
    "map methods replaced": "Map.prototype.get = Map.prototype.set = Map.prototype.has = () => ({ handler: 1, execute: () => 'forged' })",
    "array methods replaced": "for (const k of Object.getOwnPropertyNames(Array.prototype)) if (typeof Array.prototype[k] === 'function' && k !== 'constructor') Array.prototype[k] = () => 'forged'",
    "string methods replaced": "for (const k of Object.getOwnPropertyNames(String.prototype)) if (typeof String.prototype[k] === 'function' && k !== 'constructor') String.prototype[k] = () => 'forged'",
    "iterators replaced": "Array.prototype[Symbol.iterator] = function* () { yield 'forged' }",
    "setters on indices": "Object.defineProperty(Object.prototype, '0', { set() { throw 1 }, get() { return 'forged' }, configurable: true })",
    "setters on our names": "for (const k of ['value', 'signal', 'timeoutMs', 'onChunk', 'capability', 'resolve', 'reject', 'get', 'set', 'writable']) try { Object.defineProperty(Object.prototype, k, { get() { return undefined }, set() {}, configurable: true }) } catch {}",
    "Object functions replaced": "Object.defineProperty = Object.freeze = Object.keys = Object.create = () => 'forged'",
    "Math and numbers replaced": "Math.round = () => NaN; globalThis.Number = globalThis.String = () => 'forged'",
    "Error replaced": "globalThis.Error = globalThis.TypeError = function () { return {} }; Error.prepareStackTrace = () => { throw 1 }",
    "timers replaced": "globalThis.setTimeout = globalThis.queueMicrotask = () => 'forged'",
    "globals removed": "for (const k of Object.getOwnPropertyNames(globalThis)) if (k !== 'undefined') try { delete globalThis[k] } catch {}",
    "everything frozen": "Object.freeze(Object.prototype); Object.freeze(Array.prototype); Object.freeze(Promise.prototype); Object.freeze(globalThis)",
}  # fmt: skip

SOURCE = """%s
export default (pi) => { pi.registerTool({ name: "go", description: "d", parameters: { type: "object" },
  execute: async (id, params) => { const body = await pi.tool("read", { n: 1 }); return { content: [{ type: "text", text: id + params.x + body.ok }] } } }) }"""


@pytest.mark.parametrize("name", POLLUTION)
async def test_a_polluted_world_still_speaks_to_the_host_in_order(name: str) -> None:
    dispatcher = TableDispatcher(tool=lambda call: {"ok": "yes"})
    subject = extension(SOURCE % POLLUTION[name], dispatcher, deadline=2.0)
    if name in ("toJSON on every object", "toJSON on arrays and strings"):
        # What it says about itself is its own affair; the host takes it as it stands, or refuses it.
        with contextlib.suppress(Problem):
            await subject.load()
        assert [call.method for call in dispatcher.calls] == []
        await subject.close()
        return
    await subject.load()
    try:
        assert list(subject.registrations.tools) == ["go"]
        outcome = await subject.call_tool("go", {"x": "-"}, call_id="id")
        assert text_of(outcome) == "id-yes"
        assert [(call.method, call.call_id) for call in dispatcher.calls] == [("tool", "test/1.1")]
    finally:
        await subject.close()


async def _loaded(source: str, dispatcher: TableDispatcher | None = None) -> JavaScriptGuest:
    subject = extension(source, dispatcher, deadline=2.0)
    await subject.load()
    return subject


async def test_the_hosts_functions_are_out_of_reach() -> None:
    names = ["__host_sync__", "__host_random__", "__host_memory__", "__forestay_entry__"]
    source = f"""export default (pi) => pi.registerCommand("go", {{ handler: async () => {{
      const reachable = {names}.filter((name) => name in globalThis);
      return [reachable, Object.getOwnPropertyNames(globalThis).filter((name) => name.includes("host")) ] }} }})"""
    subject = await _loaded(source)
    assert await subject.run_command("go") == [[], []]
    await subject.close()


async def test_the_stack_does_not_hand_out_the_bridges_functions() -> None:
    source = """const grabbed = [];
    Error.prepareStackTrace = (error, sites) => { for (const site of sites) for (const key of ["getFunction", "getThis"]) if (site[key]) grabbed.push(typeof site[key]()); return "" };
    export default (pi) => { pi.registerCommand("go", { handler: async () => { new Error().stack; try { pi.registerTool(null) } catch (e) { e.stack } return grabbed } }) }"""
    subject = await _loaded(source)
    assert await subject.run_command("go") == []
    await subject.close()


async def test_strict_functions_show_no_caller() -> None:
    source = """function probe() { try { return [typeof probe.caller, typeof arguments.callee] } catch (e) { return ["threw", e.name] } }
    export default (pi) => pi.registerCommand("go", { handler: async () => probe() })"""
    subject = await _loaded(source)
    assert await subject.run_command("go") in (["threw", "TypeError"], ["undefined", "undefined"])
    await subject.close()


async def test_modules_cannot_be_replaced() -> None:
    source = """export default (pi) => pi.registerCommand("go", { handler: async () => {
      const before = globalThis.__forestay_modules__;
      try { globalThis.__forestay_modules__ = () => 1 } catch {}
      try { before.x = 1 } catch {}
      let missing = ""; try { before("no:such") } catch (e) { missing = e.code }
      return [globalThis.__forestay_modules__ === before, "x" in before, Object.keys(globalThis).includes("__forestay_modules__"), missing] } })"""
    subject = await _loaded(source)
    assert await subject.run_command("go") == [True, False, False, "MODULE_NOT_FOUND"]
    await subject.close()


async def test_a_claim_is_passed_on_as_a_claim_only() -> None:
    """The host's dispatcher derives the capability; the bridge makes no claim of its own."""
    dispatcher = TableDispatcher(exec=lambda call: {"code": 0})
    subject = await _loaded(
        'export default (pi) => pi.registerCommand("go", { handler: async () => { await pi.exec("ls", []) } })',
        dispatcher,
    )
    await subject.run_command("go")
    assert dispatcher.calls[0].capability == ""
    await subject.close()


async def test_results_for_calls_that_nobody_made_are_dropped() -> None:
    subject = await _loaded('export default (pi) => pi.registerCommand("go", { handler: async () => "fine" })')
    driver = subject._driver
    assert driver is not None
    driver._inbox.append(("result", 77, "", b'[0,1,0,{"forged":true}]'))
    assert await subject.run_command("go") == "fine"
    await subject.close()


@pytest.mark.parametrize(
    "outbox",
    [
        b"",
        b"{}",
        b"[[]]",
        b'[["call",1]]',
        b'[["call","1","exec",{},null,""]]',
        b'[["call",1,"exec",[],null,""]]',
        b'[["call",1,"exec",{},-1.5,""]]',
        b'[["timer",1,"soon"]]',
        b'[["launch",1]]',
        b'[["reply",1,1,' + b"[" * 100_000 + b"]" * 100_000 + b"]]",
        b'[["register","tool","spec"]]',
        b"\xff\xfe",
    ],
)
def test_what_no_bridge_would_say_ends_the_vm(outbox: bytes) -> None:
    with pytest.raises(EngineTrap) as caught:
        read_effects(outbox)
    assert caught.value.kind == "engine"


@pytest.mark.parametrize("request_", [b"", b"[1]", b'[1,"fs",[],null,""]', b'["1","fs",{},null,""]'])
def test_what_no_bridge_would_ask_ends_the_vm(request_: bytes) -> None:
    with pytest.raises(EngineTrap):
        read_sync(request_)


async def test_a_call_id_that_was_used_before_ends_the_vm() -> None:
    from forestay.extensions import effects as said

    subject = await _loaded(
        'export default (pi) => pi.registerCommand("go", { handler: async () => { await pi.tool("x"); return 1 } })',
        TableDispatcher(tool=lambda call: {}),
    )
    await subject.run_command("go")
    driver = subject._driver
    assert driver is not None
    with pytest.raises(EngineTrap, match="was used before"):
        driver._apply(said.Call(1, "exec", {}, None, ""))
    await subject.close()


async def test_a_cancelled_call_is_cancelled_at_the_host_and_its_late_result_is_dropped() -> None:
    import asyncio

    async def never(call: HostCall) -> dict[str, Any]:
        await asyncio.sleep(1e6)
        return {}

    source = """export default (pi) => pi.registerCommand("go", { handler: async () => {
      const hooks = []; const signal = { aborted: false, addEventListener: (_, hook) => hooks.push(hook), removeEventListener() {} };
      const call = pi.tool("x", {}, { signal }); setTimeout(() => { signal.aborted = true; for (const hook of hooks) hook() }, 10);
      try { await call; return "no" } catch (error) { return error.name } } })"""
    dispatcher = TableDispatcher(tool=never)
    subject = await _loaded(source, dispatcher)
    assert await subject.run_command("go") == "AbortError"
    assert dispatcher.cancelled == ["test/1.1"]
    await subject.close()


async def test_a_signal_that_throws_spoils_nothing() -> None:
    source = """export default (pi) => pi.registerCommand("go", { handler: async () => {
      const bad = () => { throw { get message() { throw 1 }, toString() { throw 2 } } };
      const signal = { aborted: false, addEventListener() {}, removeEventListener: bad };
      return (await pi.tool("x", {}, { signal, onChunk: bad })).n } })"""
    subject = await _loaded(source, TableDispatcher(tool=lambda call: [{"n": 1}, {"n": 2}]))
    assert await subject.run_command("go") == 2
    assert subject.traps == 0
    await subject.close()
