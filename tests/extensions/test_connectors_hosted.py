"""A program that the host itself is, stopped at every moment of its beginning: it ends, and its caller hears of it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.extensions.dispatcher_world import OpenPolicy

from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.hosted import Hosted
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.pi_program import Streams

STOPPED = {"code": None, "signal": "SIGTERM", "killed": True, "timed_out": False}


async def waits(call: Call, argv: Sequence[str], cwd: str, streams: Streams) -> int:
    await asyncio.Event().wait()
    return 0


class Parts:
    """Stops the program as soon as it is told that it runs, as an extension does in `spawn`."""

    program: Hosted

    def emit(self, output: Any) -> None:
        self.program.signal(signal.SIGTERM)

    async def room(self) -> None: ...


def ended(program: Hosted, call: Call) -> dict[str, Any]:
    outcome = program.run(call, timeout=20, limit=1000)
    return {name: outcome[name] for name in STOPPED}


def test_a_program_that_is_stopped_while_it_tells_that_it_runs_ends(tmp_path: Path) -> None:
    async def story() -> None:
        parts = Parts()
        parts.program = Hosted(waits, asyncio.get_running_loop(), [], "/", stdin=None, live=True)
        call = Call("ext.test", "1", Roots.of(tmp_path), OpenPolicy(), parts=parts)
        assert await asyncio.to_thread(ended, parts.program, call) == STOPPED

    asyncio.run(story())


def test_a_program_that_is_stopped_before_its_first_step_ends(tmp_path: Path) -> None:
    async def story() -> None:
        began = threading.Event()
        program = Hosted(waits, asyncio.get_running_loop(), [], "/", stdin=None, live=False)
        program._next = _then(began, program._next)  # type: ignore[method-assign]
        call = Call("ext.test", "1", Roots.of(tmp_path), OpenPolicy())
        running = asyncio.get_running_loop().run_in_executor(None, ended, program, call)
        began.wait()  # on the loop: nothing of the program has run, and nothing can
        program.kill("SIGTERM")
        assert await running == STOPPED

    asyncio.run(story())


def _then(began: threading.Event, work: Any) -> Any:
    """`work`, and who waits for it hears that it began."""

    def told(*arguments: Any) -> Any:
        began.set()
        return work(*arguments)

    return told
