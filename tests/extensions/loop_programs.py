# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Random programs of timers, promises and host calls: as JavaScript, and as what the specification says they do."""

from __future__ import annotations

import heapq
import random
from typing import Any

from tests.extensions.runtime_world import ENVIRONMENT, StillWorld, artifact

from forestay.extensions.effects import Call, Effect, Reply
from forestay.extensions.engine.limits import Limits
from forestay.extensions.isolate import Isolate, Observer, VmInputs

# A program is a list of actions; an action is [kind, label, argument, nested program].
Program = list[list[Any]]
KINDS = ("timeout", "interval", "immediate", "micro", "promise", "call", "cancelled", "sync", "random", "now")


def make(seed: int, depth: int = 3) -> Program:
    chance = random.Random(seed)
    labels = iter(range(10_000))

    def actions(level: int) -> Program:
        count = chance.randint(1, 4) if level else chance.randint(0, 2)
        return [action(level) for _ in range(count)]

    def action(level: int) -> list[Any]:
        kind = chance.choice(KINDS)
        nested = actions(level - 1) if level > 0 and kind not in ("cancelled", "sync", "random", "now") else []
        return [kind, next(labels), chance.randint(0, 4), nested]

    return actions(depth)


def to_js(program: Program) -> str:
    return f"""
const said = [];
let pi;
const note = (label) => said.push(label);
{_JS_RUN}
export default (api) => {{
  pi = api;
  pi.registerTool({{ name: "go", description: "d", parameters: {{ type: "object" }}, execute: async () => {{ run({program}); return "" }} }});
  pi.registerTool({{ name: "said", description: "d", parameters: {{ type: "object" }}, execute: async () => JSON.stringify(said) }});
}};
"""


_JS_RUN = """
function run(program) {
  for (const [kind, label, argument, nested] of program) {
    const act = () => { note(kind + label); run(nested); };
    if (kind === "timeout") setTimeout(act, argument);
    else if (kind === "interval") { let left = 2; const id = setInterval(() => { act(); if (--left === 0) clearInterval(id); }, argument + 1); }
    else if (kind === "immediate") setImmediate(act);
    else if (kind === "micro") queueMicrotask(act);
    else if (kind === "promise") Promise.resolve().then(act);
    else if (kind === "call") pi.tool("x", { delay: argument }).then(act);
    else if (kind === "cancelled") { const id = setTimeout(act, argument); clearTimeout(id); }
    else if (kind === "sync") { note("sync" + label + ":" + pi.getSessionName()); }
    else if (kind === "random") { note("random" + label + ":" + Math.random()); }
    else if (kind === "now") { note("now" + label + ":" + (Date.now() >= 0)); }
  }
}
"""


def drive(program: Program, world: Any, observer: Observer | None = None, host: StillWorld | None = None) -> list[str]:
    """Run a program in a real VM under a clock that jumps; what it said."""
    still = host or world
    source = artifact(to_js(program))
    isolate = Isolate.start(world, Limits(memory_mb=32), observer)
    try:
        isolate.load(source, 1, ENVIRONMENT)
        _run(isolate, still, [])
        isolate.arrive("inbound", 2, "tool", b'{"name":"go","callId":"a","params":{}}')
        _run(isolate, still, [])
        isolate.arrive("inbound", 3, "tool", b'{"name":"said","callId":"b","params":{}}')
        replies = [e for e in _run(isolate, still, []) if isinstance(e, Reply)]
    finally:
        isolate.close()
    import json

    said: list[str] = json.loads(replies[-1].value)
    return said


def _run(isolate: Isolate, still: StillWorld, waiting: list[tuple[int, int, int]]) -> list[Effect]:
    """Tick and let time pass until nothing is left to do."""
    out: list[Effect] = []
    while True:
        while waiting and waiting[0][0] <= still.now:
            _, _, number = heapq.heappop(waiting)
            isolate.arrive("result", number, "", b'[0,1,0,{"value":1}]')
        if isolate.runnable():
            effects = isolate.tick() or []
            out += effects
            for effect in effects:
                if isinstance(effect, Call):
                    heapq.heappush(waiting, (still.now + effect.params["input"]["delay"], effect.number, effect.number))
            continue
        moments = [at for at in (isolate.deadline(), waiting[0][0] if waiting else None) if at is not None]
        if not moments:
            return out
        still.now = max(still.now, min(moments))


def expected(program: Program) -> list[str]:
    """What the program says, by the specification's algorithm; chance and sync answers are left open."""
    said: list[str] = []
    now, order = 1_000, 0
    queue: list[Any] = []
    micro: list[Any] = []
    timers: list[Any] = []  # deadline, order, act
    armed: list[tuple[int, Any]] = []  # armed in this tick; they count from its end
    calls: list[Any] = []  # due, issue, act
    issued: list[tuple[int, Any]] = []

    def run(actions: Program) -> None:
        for kind, label, argument, nested in actions:

            def act(kind: str = kind, label: int = label, nested: Program = nested) -> None:
                said.append(f"{kind}{label}")
                run(nested)

            if kind == "timeout":
                armed.append((max(1, argument), act))
            elif kind == "immediate":
                armed.append((0, act))
            elif kind == "interval":
                armed.append((argument + 1, _interval(act, argument + 1, armed)))
            elif kind in ("micro", "promise"):
                micro.append(act)
            elif kind == "call":
                issued.append((argument, act))
            elif kind in ("sync", "random", "now"):
                said.append(f"{kind}{label}")

    queue.append(lambda: run(program))
    while True:
        calls.sort(key=lambda entry: entry[:2])
        while calls and calls[0][0] <= now:
            act = calls.pop(0)[2]
            queue.append(lambda act=act: micro.append(act))
        timers.sort(key=lambda entry: entry[:2])
        while timers and timers[0][0] <= now:
            queue.append(timers.pop(0)[2])
        if not queue:
            moments = [entry[0][0] for entry in (timers, calls) if entry]
            if not moments:
                return said
            now = max(now, min(moments))
            continue
        queue.pop(0)()
        while micro:
            micro.pop(0)()
        for delay, act in armed:
            order += 1
            timers.append((now + delay, order, act))
        for delay, act in issued:
            order += 1
            calls.append((now + delay, order, act))
        armed.clear()
        issued.clear()


def _interval(act: Any, delay: int, armed: list[tuple[int, Any]], left: int = 2) -> Any:
    def fire() -> None:
        act()
        if left > 1:
            armed.append((delay, _interval(act, delay, armed, left - 1)))

    return fire


class Steps:
    """An observer that checks the order of every step."""

    def __init__(self, world: VmInputs) -> None:
        self.open = False
        self.seqs: list[int] = []

    def arrived(self, task: Any) -> None:
        assert not self.open, "I4: nothing arrives inside a tick"

    def started(self, task: Any) -> None:
        assert not self.open, "I1: one macrotask at a time"
        self.open = True
        self.seqs.append(task.seq)

    def finished(self, jobs: int, outbox: bytes, unhandled: list[bytes]) -> None:
        assert self.open
        assert not unhandled
        self.open = False

    def trapped(self, trap: Any) -> None:
        raise AssertionError(trap)
