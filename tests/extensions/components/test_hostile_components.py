"""Hostile components: contained, named, and the host answers meanwhile."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import time
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from tests.extensions.components.conftest import Run
from tests.extensions.components.guests import REGISTRATION, component, core

from forestay.extensions.components.compile import compiled
from forestay.extensions.components.wrap import wrapped
from forestay.extensions.engine.limits import Limits
from forestay.kernel import Problem

SPIN = "(loop $l (br $l)) (unreachable)"
TRAP = "(unreachable)"
DEEP = "(call $recurse) (i32.const 0)"
RECURSE = "(func $recurse (call $recurse) (call $recurse))"
# Answers `kind` with `size` bytes of memory, once the memory has grown to hold them.
LARGE = """(if (i32.eq (memory.grow (i32.const 3300)) (i32.const -1)) (then (unreachable)))
  (call $answer (i32.const 0) (i32.const 65536) (i32.const 200000000))"""
GROW = """(block $full (loop $l
    (br_if $full (i32.eq (memory.grow (i32.const 160)) (i32.const -1)))
    (br $l)))
  (i32.store (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 4)) (i32.const 1))
  (unreachable)"""
NESTED = """(memory.fill (i32.const 65536) (i32.const 0x5b) (i32.const 60000))
  (call $answer (i32.const 0) (i32.const 65536) (i32.const 60000))"""
HUGE_CALL = """(if (i32.eq (memory.grow (i32.const 3300)) (i32.const -1)) (then (unreachable)))
  (call $host (i32.const 65536) (i32.const 200000000) (i32.const 65536) (i32.const 200000000) (i32.const 16))
  (i32.const 16)"""
BAD_TEXT = "(i32.store (i32.const 64) (i32.const 0xfefefefe)) (call $answer (i32.const 0) (i32.const 64) (i32.const 4))"
OUTSIDE = "(call $answer (i32.const 0) (i32.const 64) (i32.const 2147483647))"
CALLS = """(loop $l
    (call $host (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 16))
    (br $l)) (unreachable)"""

TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "an endless loop": ({"tool": SPIN}, "extension_timeout"),
    "endless recursion": ({"tool": DEEP, "extra": RECURSE}, "extension_trapped"),
    "a trap": ({"tool": TRAP}, "extension_trapped"),
    "a memory bomb": ({"tool": GROW}, "extension_trapped"),
    "an answer of 200 MB": ({"tool": LARGE}, "extension_memory"),
    "a host call of 200 MB": ({"tool": HUGE_CALL}, "extension_memory"),
    "text that is no text": ({"tool": BAD_TEXT}, "extension_trapped"),
    "an answer outside its memory": ({"tool": OUTSIDE}, "extension_trapped"),
    "a pointer to nowhere": ({"tool": "(i32.const -4)"}, "extension_trapped"),
    "a division by zero": ({"tool": "(i32.div_u (i32.const 1) (i32.const 0))"}, "extension_trapped"),
    "an answer that is not JSON": ({"tool": BAD_TEXT.replace("0xfefefefe", "0x41414141")}, "extension_failed"),
    "deep JSON": ({"tool": NESTED}, "extension_failed"),
}


@pytest.mark.parametrize("case", TOOLS)
async def test_a_hostile_tool_is_contained_and_the_next_call_finds_a_new_instance(running: Run, case: str) -> None:
    parts, key = TOOLS[case]
    tool = parts["tool"]
    # The first letter of the tool's name decides, so that one component is hostile and harmless.
    harmless = "(call $answer (i32.const 0) (local.get 2) (local.get 3))"
    guarded = f"""(if (result i32) (i32.eq (i32.load8_u (local.get 0)) (i32.const 0x65))
      (then {harmless}) (else {tool}))"""
    async with running(**{**parts, "tool": guarded}, limits=Limits(slice_ms=300 if tool == SPIN else 20_000)) as it:
        began = time.monotonic()
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("fs", {})
        assert caught.value.key == key, caught.value.message
        assert caught.value.details["extension"] == "ext.test"
        assert time.monotonic() - began < 30
        assert (await it.guest.call_tool("echo", {"a": 1})).details == {"a": 1}


@pytest.mark.parametrize("export", ["init", "tool", "slash", "event", "shutdown"])
@pytest.mark.parametrize("how", ["trap", "spin", "recurse"])
async def test_a_trap_in_every_export(running: Run, export: str, how: str) -> None:
    body = {"trap": TRAP, "spin": SPIN, "recurse": DEEP}[how]
    body = body.replace("(i32.const 0)", "") if export == "shutdown" else body
    async with running(load=False, extra=RECURSE, **{export: body}) as it:
        calls = {
            "init": it.guest.load,
            "tool": lambda: it.guest.call_tool("echo", {}),
            "slash": lambda: it.guest.run_command("greet"),
            "event": lambda: it.guest.hook({"type": "session_start"}, 0),
            "shutdown": it.guest.close,
        }
        if export != "init":
            await it.guest.load()
        if export == "shutdown":
            await it.guest.close()
            assert it.reports[-1][0] == "shutdown_failed"
            return
        with pytest.raises(Problem) as caught:
            await calls[export]()
        assert caught.value.key == ("extension_timeout" if how == "spin" else "extension_trapped")
        assert ("trap", it.reports[-1][1]) == it.reports[-1]


async def test_a_component_that_always_traps_stays_off_after_ten(running: Run) -> None:
    async with running(tool=TRAP) as it:
        for _ in range(11):
            with pytest.raises(Problem):
                await it.guest.call_tool("echo", {})
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("echo", {})
        assert "stays off" in caught.value.message and it.guest.traps == 11


async def test_host_calls_without_end_end_with_the_time_of_the_tool(running: Run) -> None:
    async with running(tool=CALLS, world={"grants": ["env"]}) as it:
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("env", {"op": "get", "name": "LANG"}, timeout=0.5)
        assert caught.value.key == "extension_timeout"


async def test_an_endless_init_is_a_problem_and_leaves_nothing(running: Run) -> None:
    async with running(load=False, init=SPIN) as it:
        with pytest.raises(Problem) as caught:
            await it.guest.load()
        assert caught.value.key == "extension_timeout" and not it.guest.registrations.tools


@pytest.mark.parametrize(
    "body",
    [
        "(call $host (i32.const 48) (i32.const 2) (i32.const 48) (i32.const 2) (i32.const 16))",
        "(loop $l (br $l))",
        "(unreachable)",
    ],
)
async def test_a_start_function_runs_within_the_same_limits(running: Run, body: str) -> None:
    """A host call from a start function comes before the component is there: it traps, and nothing is performed."""
    async with running(load=False, extra=f"(func $start {body}) (start $start)") as it:
        with pytest.raises(Problem) as caught:
            await it.guest.load()
        assert caught.value.key in ("extension_trapped", "extension_timeout")


REGISTRATIONS: dict[str, Any] = {
    "no object": [1],
    "no name": {"version": "1", "api_version": "1.0"},
    "a tool without a name": {**REGISTRATION, "tools": [{"description": "x"}]},
    "a name of a thousand letters": {**REGISTRATION, "tools": [{"name": "x" * 1000}]},
    "two thousand tools": {**REGISTRATION, "tools": [{"name": f"t{n}"} for n in range(2000)]},
    "an event that is no text": {**REGISTRATION, "event_hooks": [3]},
    "a command that is no object": {**REGISTRATION, "slash_commands": ["x"]},
}


@pytest.mark.parametrize("case", REGISTRATIONS)
async def test_a_registration_that_cannot_be_true_is_refused(running: Run, case: str) -> None:
    async with running(load=False, registration=REGISTRATIONS[case], memory='(memory (export "memory") 8)') as it:
        with pytest.raises(Problem) as caught:
            await it.guest.load()
        assert caught.value.key == "registration_invalid"


MEMORIES = {
    "one that begins too large": '(memory (export "memory") 5000)',
    "a second one": '(memory (export "memory") 2) (memory 2200)',
    "a hundred": '(memory (export "memory") 2) ' + "(memory 50)" * 99,
    "a table": '(memory (export "memory") 2) (table 10000000 funcref)',
    "forty tables": '(memory (export "memory") 2) ' + "(table 1 funcref)" * 40,
}


@pytest.mark.parametrize("case", MEMORIES)
async def test_memories_and_tables_have_one_limit_together(running: Run, case: str) -> None:
    async with running(load=False, memory=MEMORIES[case], limits=Limits(memory_mb=256, slice_ms=300)) as it:
        with pytest.raises(Problem) as caught:
            await it.guest.load()
        assert caught.value.key in ("extension_memory", "extension_trapped")


async def test_many_memories_share_the_limit_when_they_grow(running: Run) -> None:
    """Ten memories of a component with 64 MB: each gets a tenth, so all of them together stay below."""
    grow = " ".join(
        f"""(block $full{n} (loop $l{n}
            (br_if $full{n} (i32.eq (memory.grow $m{n} (i32.const 16)) (i32.const -1)))
            (memory.fill $m{n} (i32.const 0) (i32.const 1) (i32.shl (memory.size $m{n}) (i32.const 16)))
            (br $l{n})))"""
        for n in range(9)
    )
    memory = '(memory (export "memory") 2) ' + " ".join(f"(memory $m{n} 1)" for n in range(9))
    sizes = " ".join(f"(memory.size $m{n}) (i32.add)" for n in range(9))
    tool = f"""(local $pages i32) {grow} (local.set $pages (memory.size) {sizes})
      (i32.store8 (i32.const 64) (i32.const 0x31))
      (if (i32.gt_u (local.get $pages) (i32.const 1024)) (then (unreachable)))
      (call $answer (i32.const 0) (i32.const 64) (i32.const 1))"""
    async with running(memory=memory, tool=tool, limits=Limits(memory_mb=64, slice_ms=3000)) as it:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (await it.guest.call_tool("echo", {})).details == 1
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


async def test_re_entrance_waits_its_turn(running: Run) -> None:
    """While a component waits in a host call nobody can enter it; the second call comes after the first."""

    class Slow:
        async def request(self, *_: Any) -> Any:
            started.set()
            await release.wait()
            return {}

    started, release = asyncio.Event(), asyncio.Event()
    async with running(world={"grants": ["session"], "session": Slow()}) as it:
        first = asyncio.create_task(it.guest.call_tool("session", {"op": "getName"}))
        await started.wait()
        second = asyncio.create_task(it.guest.call_tool("echo", {"n": 2}))
        done, _ = await asyncio.wait({second}, timeout=0.05)
        assert not done
        release.set()
        assert not (await first).is_error
        assert (await second).details == {"n": 2}


async def test_a_host_call_that_hangs_does_not_hang_the_host(running: Run) -> None:
    class Stuck:
        async def request(self, *_: Any) -> Any:
            await asyncio.Event().wait()

    async with running(world={"grants": ["session"], "session": Stuck()}) as it:
        outcome = await it.guest.call_tool("session", {"op": "getName"}, timeout=1.0)
        assert outcome.is_error
        assert (await it.guest.call_tool("echo", {"n": 1})).details == {"n": 1}


def test_machine_code_offered_as_a_component_is_refused() -> None:
    engine = wasmtime.Engine()
    for code in (
        bytes(wasmtime.Module(engine, wasmtime.wat2wasm("(module)")).serialize()),
        compiled(component()).code,
    ):
        with pytest.raises(Problem) as caught:
            compiled(code)
        assert caught.value.key == "extension_invalid" and "machine code" in caught.value.message


NO_COMPONENTS = {
    "nothing": b"",
    "a beginning": b"\0asm",
    "a core module": core(),
    "text": b"(component)",
    "a section without an end": b"\0asm\x0d\0\x01\0\x01\xff\xff\xff\xff\x0f",
    "nested nothing": b"\0asm\x0d\0\x01\0" + b"\x04\x02\0\0" * 3,
    "all but the end": component()[:-20],
    "the beginning of one": component()[:400],
}


@pytest.mark.parametrize("data", NO_COMPONENTS.values(), ids=NO_COMPONENTS)
def test_what_is_no_component_is_refused(data: bytes) -> None:
    with pytest.raises(Problem) as caught:
        compiled(data)
    assert caught.value.key == "extension_invalid"


def test_a_component_that_explodes_when_compiled_is_stopped() -> None:
    """Each nested component instantiates the one before it twice: 2 to the power of 40 instances in two kilobytes."""
    text = "(component $c0 (core module $m) (core instance (instantiate $m)))"
    for level in range(1, 41):
        text += f"""(component $c{level} (alias outer 1 $c{level - 1} (component $inner))
          (instance (instantiate $inner)) (instance (instantiate $inner)))"""
    data = bytes(wasmtime.wat2wasm(f"(component {text} (instance (instantiate $c40)))"))
    began = time.monotonic()
    with pytest.raises(Problem) as caught:
        compiled(data, seconds=2.0)
    assert caught.value.key in ("compile_timeout", "extension_invalid")
    assert time.monotonic() - began < 5
    assert _compilers() == []


def _compilers() -> list[str]:
    """The compiler's processes that this one started and that still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = re.search(r"^PPid:\s+(\d+)$", status.read_text(), re.MULTILINE)
            if (
                parent
                and int(parent[1]) == os.getpid()
                and b"compile_child" in (status.parent / "cmdline").read_bytes()
            ):
                found.append(status.parent.name)
        except OSError:
            continue
    return found


def test_wrap_refuses_what_it_cannot_wrap() -> None:
    wasi = """(module (import "wasi_snapshot_preview1" "fd_write" (func))
      (memory (export "memory") 1) (func (export "cabi_realloc")))"""
    for text, word in (("(component)", "core module"), ("(module)", "memory"), (wasi, "fd_write")):
        data = bytes(wasmtime.wat2wasm(text))
        with pytest.raises(Problem) as caught:
            wrapped(data)
        assert word in caught.value.message


async def test_the_host_answers_while_a_component_spins(running: Run) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.to_thread(time.monotonic)  # another thread, and back to the event loop
            beats += 1

    async with running(tool=SPIN, limits=Limits(slice_ms=1000)) as it:
        others = asyncio.create_task(beat())
        with pytest.raises(Problem):
            await it.guest.call_tool("echo", {})
        others.cancel()
        assert beats > 10  # of some hundred; a loop that waits for the component makes none
