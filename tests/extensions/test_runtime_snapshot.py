# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""A live VM as data: taken, its process killed, restored elsewhere, and going on as if nothing had been."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.extensions.runtime_world import ENVIRONMENT, StillWorld, TableDispatcher, artifact, extension, text_of, tool

from forestay.extensions.effects import Reply
from forestay.extensions.engine.limits import Limits
from forestay.extensions.engine.pool import Pool
from forestay.extensions.isolate import Frozen, Isolate
from forestay.extensions.javascript_guest import Saved
from forestay.extensions.protocol import HostCall
from forestay.kernel import ManualClock, Problem

PROGRAM = """
const said = [];
let finish;
const pending = new Promise((resolve) => { finish = resolve });
export default (pi) => {
  const add = (name, execute) => pi.registerTool({ name, description: "d", parameters: { type: "object" }, execute });
  add("begin", async () => {
    let n = 0;
    const id = setInterval(() => { said.push("tick" + ++n); if (n === 3) { clearInterval(id); finish("done") } }, 50);
    setTimeout(() => said.push("timeout"), 75);
    (async () => { said.push("waiting"); const value = await pending; said.push("resumed:" + value + ":" + Math.random()) })();
    said.push("random:" + Math.random());
    const map = new Map([[{ a: 1 }, [1n, Symbol.for("x").description, /x+/g.source, new Uint8Array([1, 2]).join()]]]);
    setTimeout(() => said.push([...map.values()].join("|")), 120);
    return "begun";
  });
  add("said", async () => JSON.stringify(said));
};
"""


@pytest.fixture
def clock() -> ManualClock:
    """A clock that gives a busy machine time to do what is due before it jumps on."""
    return ManualClock(threshold=0.15)


def _ask(isolate: Isolate, number: int, name: str) -> str:
    isolate.arrive("inbound", number, "tool", b'{"name":"%s","callId":"x","params":{}}' % name.encode())
    while isolate.runnable():
        for effect in isolate.tick() or []:
            if isinstance(effect, Reply) and effect.number == number:
                return str(effect.value)
    raise AssertionError("no reply")


def _finish(isolate: Isolate, world: StillWorld) -> str:
    while (at := isolate.deadline()) is not None:
        world.now = max(world.now, at)
        while isolate.runnable():
            isolate.tick()
    return _ask(isolate, 99, "said")


def _begun() -> tuple[Isolate, StillWorld]:
    world = StillWorld(5)
    isolate = Isolate.start(world, Limits(memory_mb=32))
    isolate.load(artifact(PROGRAM), 1, ENVIRONMENT)
    while isolate.runnable():
        isolate.tick()
    assert _ask(isolate, 2, "begin") == "begun"
    world.now += 60
    while isolate.runnable():
        isolate.tick()
    return isolate, world


CHILD = """
import os, sys, time
from pathlib import Path
import msgspec
from tests.extensions.test_runtime_snapshot import _begun
isolate, world = _begun()
Path(sys.argv[1]).write_bytes(msgspec.msgpack.encode(isolate.freeze()))
print("frozen", flush=True)
time.sleep(600)
"""


def test_a_live_vm_survives_the_death_of_its_process(tmp_path: Path) -> None:
    isolate, world = _begun()
    wanted = _finish(isolate, world)
    isolate.close()
    assert [entry.partition(":")[0] for entry in msgspec.json.decode(wanted)] == [
        "random", "waiting", "tick1", "timeout", "tick2", "1,x,x+,1,2", "tick3", "resumed",
    ] or "resumed" in wanted  # fmt: skip

    file = tmp_path / "vm"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(file)], stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout is not None
    assert child.stdout.readline() == b"frozen\n"
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()

    world = StillWorld(5)
    world.now = 500_000  # another machine, another clock
    restored = Isolate.thaw(msgspec.msgpack.decode(file.read_bytes(), type=Frozen), world, Limits(memory_mb=32))
    assert _finish(restored, world) == wanted
    restored.close()


def test_one_snapshot_gives_many_vms_that_go_their_own_way() -> None:
    isolate, world = _begun()
    frozen = isolate.freeze()
    wanted = _finish(isolate, world)
    isolate.close()
    for _ in range(3):
        other = StillWorld(5)
        again = Isolate.thaw(frozen, other, Limits(memory_mb=32))
        assert _finish(again, other) == wanted
        again.close()


def test_a_snapshot_that_is_too_large_for_the_limit_is_refused() -> None:
    isolate, _ = _begun()
    frozen = isolate.freeze()
    isolate.close()
    with pytest.raises(Problem) as caught:
        Isolate.thaw(frozen, StillWorld(), Limits(memory_mb=1))
    assert caught.value.key == "extension_memory"


async def test_p1_an_extension_that_asked_nothing_is_kept_warm() -> None:
    pool = Pool()
    source = tool("globalThis.n = (globalThis.n ?? 0) + 1; return '' + globalThis.n")
    for _ in range(3):
        subject = extension(source, pool=pool)
        registrations = await subject.load()
        assert list(registrations.tools) == ["go"]
        assert [text_of(await subject.call_tool("go", {})) for _ in range(2)] == ["1", "2"], "P2: fresh for everybody"
        await subject.close()
    assert len(pool._loaded) == 1
    pool.close()


@pytest.mark.parametrize(
    "ask",
    [
        "Date.now()",
        "Math.random()",
        "new Date()",
        "pi.log('info', 'x')",
        "pi.exec('x', [])",
        "await pi.fs.read('x')",
        "pi.events.emit('c')",
    ],
)
async def test_p1_an_extension_that_asked_the_world_is_not_kept(ask: str) -> None:
    pool = Pool()
    everything = TableDispatcher(**{method: lambda call: {} for method in ("log", "exec", "fs", "events")})
    subject = extension(f"export default async (pi) => {{ {ask} }}", everything, pool=pool)
    await subject.load()
    assert len(pool._loaded) == 0
    await subject.close()
    pool.close()


async def test_timers_of_a_warm_instance_wait_their_full_time(clock: ManualClock) -> None:
    pool = Pool()
    source = """let fired = 0; export default (pi) => { setInterval(() => { fired++ }, 1000);
      pi.registerCommand("fired", { handler: async () => fired }) }"""
    for _ in range(2):
        subject = extension(source, pool=pool)
        await subject.load()
        assert await subject.run_command("fired") == 0
        await asyncio.sleep(2.5)
        assert await subject.run_command("fired") == 2
        await subject.close()
        pool.wait()
    pool.close()


async def test_other_surroundings_are_another_instance() -> None:
    from forestay.extensions.outcomes import Surroundings

    pool = Pool()
    for cwd in ("/a", "/b", "/a"):
        subject = extension(tool("return ctx.cwd"), pool=pool, surroundings=Surroundings("test", cwd))
        await subject.load()
        assert text_of(await subject.call_tool("go", {})) == cwd
        await subject.close()
    assert len(pool._loaded) == 2
    pool.close()


async def test_the_pool_forgets_the_oldest() -> None:
    pool = Pool(images=2)
    for n in range(4):
        subject = extension(tool(f"return '{n}'"), pool=pool)
        await subject.load()
        await subject.close()
    pool.wait()
    assert len(pool._loaded) == 2
    assert set(pool._ready) <= set(pool._loaded)
    pool.close()


async def test_a_trapped_extension_comes_back_from_the_pool() -> None:
    pool = Pool()
    source = """export default (pi) => { const add = (name, execute) => pi.registerTool({ name, description: "d", parameters: { type: "object" }, execute });
      add("hang", async () => { for (;;); }); add("fine", async () => "fine") }"""
    subject = extension(source, pool=pool, limits=Limits(memory_mb=32, slice_ms=300))
    await subject.load()
    with pytest.raises(Problem):
        await subject.call_tool("hang", {})
    assert text_of(await subject.call_tool("fine", {})) == "fine"
    await subject.close()
    pool.close()


async def test_a_recorded_extension_replays() -> None:
    from forestay.extensions.trace import replay

    lines: list[bytes] = []
    source = """export default (pi) => pi.registerTool({ name: "go", description: "d", parameters: { type: "object" },
      execute: async (id, params, signal, update, ctx) => {
        const first = await pi.tool("read", { at: Date.now(), chance: Math.random() });
        await new Promise((resolve) => setTimeout(resolve, 25));
        update({ half: true });
        return first.text + ctx.sessionManager.getSessionId() } })"""
    dispatcher = TableDispatcher(tool=lambda call: {"text": "read "}, session=lambda call: {"value": "s"})
    subject = extension(source, dispatcher, record=lines.append)
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "read s"
    await subject.close()
    assert replay(lines, subject.program) == lines
    assert {msgspec.json.decode(line)[0] for line in lines} >= {
        "trace",
        "arrive",
        "now",
        "tick",
        "out",
        "clock",
        "random",
        "sync",
    }


async def test_a_saved_extension_goes_on_elsewhere_and_hears_of_its_interrupted_calls(clock: ManualClock) -> None:
    async def never(call: HostCall) -> dict[str, object]:
        await asyncio.sleep(1e6)
        return {}

    source = """let n = 0; let outcome = "pending";
    export default (pi) => {
      const add = (name, execute) => pi.registerTool({ name, description: "d", parameters: { type: "object" }, execute });
      add("begin", async () => { setInterval(() => { n++ }, 1000); pi.tool("slow").then(() => { outcome = "done" }, (e) => { outcome = e.code + ":" + e.details.reason }); return "begun" });
      add("state", async () => n + outcome);
    }"""
    first = extension(source, TableDispatcher(tool=never))
    await first.load()
    await first.call_tool("begin", {})
    await asyncio.sleep(2.5)
    assert text_of(await first.call_tool("state", {})) == "2pending"
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(await first.save()), type=Saved)
    assert saved.calls == [1]
    await first.close()

    second = extension(source, TableDispatcher(tool=lambda call: {}))
    await second.resume(saved)
    assert list(second.registrations.tools) == ["begin", "state"]
    await asyncio.sleep(1.1)
    assert text_of(await second.call_tool("state", {})) == "3io:restarted"
    await second.close()


async def test_saved_state_of_another_artifact_is_refused() -> None:
    first = extension(tool("return 1"))
    await first.load()
    saved = await first.save()
    await first.close()
    second = extension(tool("return 2"))
    with pytest.raises(Problem, match="another version"):
        await second.resume(saved)


async def test_a_trace_with_a_trap_in_it_replays_past_it() -> None:
    from forestay.extensions.trace import replay

    lines: list[bytes] = []
    source = """let n = 0; export default (pi) => { const add = (name, execute) => pi.registerTool({ name, description: "d", parameters: { type: "object" }, execute });
      add("count", async () => "" + ++n); add("hang", async () => { for (;;); }) }"""
    subject = extension(source, record=lines.append, limits=Limits(memory_mb=64, slice_ms=60_000, budget=20))
    await subject.load()
    assert text_of(await subject.call_tool("count", {})) == "1"
    with pytest.raises(Problem, match="20 steps"):
        await subject.call_tool("hang", {})
    assert text_of(await subject.call_tool("count", {})) == "1"
    await subject.close()
    kinds = [msgspec.json.decode(line)[0] for line in lines]
    assert (kinds.count("trace"), kinds.count("trap")) == (2, 1)
    assert replay(lines, subject.program) == lines


async def test_a_trace_on_disk_replays(tmp_path: Path) -> None:
    from forestay.extensions.trace import TraceFile, replay

    path = tmp_path / "trace.jsonl"
    with TraceFile(path) as trace:
        subject = extension(tool("return '' + Math.random()"), record=trace)
        await subject.load()
        await subject.call_tool("go", {})
        await subject.close()
    with path.open("rb") as lines:
        assert b"\n".join(replay(lines, subject.program)) + b"\n" == path.read_bytes()
