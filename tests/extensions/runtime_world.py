# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""What the tests of the runtime share: extensions written by hand, a dispatcher that answers from a table, a still world."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from forestay.extensions.engine.limits import Limits
from forestay.extensions.isolate import Program
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.protocol import Chunk, HostCall, HostResult

Answer = Callable[[HostCall], Any]


class TableDispatcher:
    """Answers each method with a function of the call: a dict, a HostResult, a list of chunks, or an awaitable of one."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.calls: list[HostCall] = []
        self.cancelled: list[str] = []

    async def call(self, call: HostCall, extension: str) -> AsyncIterator[HostResult]:
        self.calls.append(call)
        answer = self._answer(call)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, list):
            for index, output in enumerate(answer):
                yield HostResult(call.call_id, output, False, None, Chunk(index, index == len(answer) - 1))
        else:
            yield self._result(call, answer)

    def call_sync(self, call: HostCall, extension: str) -> HostResult:
        self.calls.append(call)
        return self._result(call, self._answer(call))

    def cancel(self, call_id: str) -> None:
        self.cancelled.append(call_id)

    def methods(self) -> list[str]:
        return [call.method for call in self.calls]

    def _answer(self, call: HostCall) -> Any:
        answer = self.answers.get(call.method)
        if answer is None:
            return HostResult.failed(call.call_id, "denied", f"{call.method} is not granted", capability=call.method)
        return answer(call)

    def _result(self, call: HostCall, answer: Any) -> HostResult:
        return answer if isinstance(answer, HostResult) else HostResult.ok(call.call_id, answer)


class StillWorld:
    """A world whose time moves when a test says so, and whose chance repeats."""

    def __init__(self, seed: int = 1) -> None:
        self.touched = False
        self.now = 1_000
        self.asked: list[bytes] = []
        self._seed = seed
        self._drawn = 0

    def now_ms(self) -> int:
        return self.now

    def tick_time(self) -> int:
        return self.now

    def clock_ns(self, monotonic: bool) -> int:
        self.touched = True
        return self.now * 1_000_000

    def random(self, count: int) -> bytes:
        self.touched = True
        self._drawn += 1
        block = hashlib.sha256(f"{self._seed}:{self._drawn}".encode()).digest()
        return (block * (count // len(block) + 1))[:count]

    def timezone_offset(self, seconds: int) -> int:
        return 3600

    def sync(self, request: bytes) -> bytes:
        self.touched = True
        self.asked.append(request)
        return b'[1,{"value":%d}]' % len(self.asked)


class LoopClock:
    """The time of the event loop that the test runs on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return 1_767_225_600_000 + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


ENVIRONMENT = b'{"extension":"test","cwd":"/project","root":"/ext","hasUI":false,"colour":false,"flags":{}}'


def artifact(source: str, name: str = "index.js") -> Program:
    return Program(name, hashlib.sha256(source.encode()).hexdigest(), source)


def extension(
    source: str,
    dispatcher: TableDispatcher | None = None,
    *,
    name: str = "test",
    limits: Limits | None = None,
    **options: Any,
) -> JavaScriptGuest:
    return JavaScriptGuest(
        artifact(source),
        options.pop("surroundings", None) or Surroundings(name, "/project"),
        dispatcher or TableDispatcher(),
        limits=limits or Limits(memory_mb=64, slice_ms=2_000),
        clock=options.pop("clock", None) or LoopClock(),
        **options,
    )


def tool(body: str, name: str = "go", parameters: str = '{type:"object"}') -> str:
    """An extension with one tool whose body is `body`."""
    return (
        f"export default (pi) => {{ pi.registerTool({{ name: {name!r}, description: 'd', parameters: {parameters}, "
        f"async execute(id, params, signal, onUpdate, ctx) {{ {body} }} }}) }}"
    )


def text_of(outcome: Any) -> str:
    return str(outcome.content[0]["text"])
