"""What a server program writes, as a client session reads it: whole messages, within limits, one bounded step each."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from mcp_types import JSONRPCNotification

from forestay.extensions.mcp.ration import BURST
from forestay.extensions.mcp.stdio import MAX_LINE, MAX_NOISE, ProgramOutput
from forestay.kernel import Problem


class Program:
    """A program of which only the output is real; its limits are a ration of `BURST` messages."""

    def __init__(self, *said: bytes) -> None:
        self.output = asyncio.StreamReader()
        self.ration = self
        self.failure: Problem | None = None
        self.heard_out = False
        self._left = BURST
        for data in said:
            self.output.feed_data(data)
        self.output.feed_eof()

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def fail(self, what: str) -> None:
        self.failure = self.failure or Problem("server_failed", what)

    async def hear_out(self) -> None:
        self.heard_out = True


def message(name: str) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%s"}\n' % name.encode()


async def read(program: Program) -> list[str]:
    found = []
    async for item in ProgramOutput(program):  # type: ignore[arg-type]
        assert not isinstance(item, Exception) and isinstance(item.message, JSONRPCNotification)
        found.append(item.message.method)
    return found


async def test_messages_are_found_wherever_the_pipe_cuts_them() -> None:
    whole = message("a") + b"\n \nhello\n" + message("b") + message("c")
    for cut in range(len(whole)):
        program = Program(whole[:cut], whole[cut:])
        assert await read(program) == ["a", "b", "c"]
        assert program.heard_out and program.failure is None


async def test_s3_many_messages_in_one_read_are_many_steps() -> None:
    program, steps = Program(message("a") * 50), 0

    async def others() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert await read(program) == ["a"] * 50
    task.cancel()
    assert steps >= 49


@pytest.mark.parametrize(
    ("said", "heard", "told"),
    [
        (b"x" * (MAX_LINE + 1), 0, "line of more"),
        (message("a") + b"x" * (MAX_LINE + 1) + b"\n" + message("b"), 1, "line of more"),
        (b"hello\n" * (MAX_NOISE + 1) + message("a"), 0, "are not messages"),
        (message("a") * (BURST + 1) + message("b"), BURST, "too many unsolicited messages"),
    ],
)
async def test_s2_who_passes_a_limit_is_not_read_on(said: bytes, heard: int, told: str) -> None:
    program = Program(said)
    assert await read(program) == ["a"] * heard
    assert program.failure is not None and told in program.failure.message


async def test_after_the_end_there_is_nothing() -> None:
    output = ProgramOutput(Program())  # type: ignore[arg-type]
    async with output:
        for _ in range(2):
            with pytest.raises(anyio.EndOfStream):
                await output.receive()
