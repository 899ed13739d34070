"""The load: four kinds of operation over HTTP; each checks its result.

In the closed loop each client sends its next operation after the last one has ended; this measures the host's capacity.
In the open loop operations begin at fixed times, whether or not earlier ones have ended. An operation's time counts
from the moment when it is due, so a slow host cannot hide a delay. A client whose host is away asks again under the
same `Idempotency-Key`, until it gets an answer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.http import Connection
from benchmarks.soak.project import AGENT, ANSWER, WORDS
from benchmarks.soak.verdict import Done
from forestay.kernel import HttpLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MOST_OPEN = 400
_PATIENCE, _PAUSE = 60.0, 0.1  # seconds that a client keeps asking, and between two attempts
# Of twenty operations: ten runs, four calls of an extension's tool, three agent turns, three relay sessions.
MIX = ("run", "tool", "run", "agent", "run", "relay", "run") * 2 + ("run", "tool", "agent", "tool", "relay", "run")
_NOTES = "The Aurora lies at berth 7. She sails on Thursday. The Petrel lies at berth 3. Her rudder is being mended."


class Load:
    """Operations against one host, and their results."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.done: list[Done] = []
        self.behind = 0
        self._address = address
        self._idle: list[tuple[float, Connection]] = []  # each with the time since which it is idle, the newest last
        self._numbers = itertools.count()

    async def closed(self, clients: int, seconds: float) -> float:
        """Return the operations per second with `clients` clients."""
        kinds, first = itertools.cycle(MIX), len(self.done)
        began = time.perf_counter()

        async def client() -> None:
            while time.perf_counter() < began + seconds:
                await self._operate(next(kinds), time.perf_counter())

        await asyncio.gather(*(client() for _ in range(clients)))
        return (len(self.done) - first) / (time.perf_counter() - began)

    async def open(self, rate: float, seconds: float) -> None:
        """Begin `rate` operations per second, evenly, for `seconds`."""
        began, running = time.perf_counter(), set[asyncio.Task[None]]()
        for number in range(int(rate * seconds)):
            due = began + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            if len(running) >= _MOST_OPEN:
                self.behind += 1  # the host does not keep up; this counts as an error
                continue
            task = asyncio.create_task(self._operate(MIX[number % len(MIX)], due))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    def close(self) -> None:
        for _, host in self._idle:
            host.writer.close()

    async def _operate(self, kind: str, due: float) -> None:
        error, client = None, Client(self, next(self._numbers))
        try:
            await _OPERATIONS[kind](client)
        except (OSError, EOFError, AssertionError, LookupError, ValueError) as caught:
            error = f"{kind}: {type(caught).__name__}: {str(caught)[:300]}"
        self.done.append(Done(kind, due, time.perf_counter() - due, error, client.repeats))

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield an unused connection; after a failure it is closed.

        The host closes a connection that is idle for its keep-alive time, so a client drops it before that.
        """
        now = time.perf_counter()
        while self._idle and self._idle[0][0] < now - HttpLimits().keep_alive_seconds / 2:
            self._idle.pop(0)[1].writer.close()
        host = self._kept() or Connection(*await asyncio.open_connection(*self._address))
        try:
            yield host
        except BaseException:
            host.writer.close()
            raise
        self._idle.append((time.perf_counter(), host))

    def _kept(self) -> Connection | None:
        """Return the newest idle connection that the host has not closed."""
        while self._idle:
            host = self._idle.pop()[1]
            if not host.reader.at_eof():
                return host
            host.writer.close()
        return None


class Client:
    """One operation's requests, each with its own key."""

    def __init__(self, load: Load, number: int) -> None:
        self.number = number
        self.repeats = 0
        self._load = load
        self._steps = itertools.count()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        key = f"soak-{self.number}-{next(self._steps)}" if method == "POST" else None
        until = time.perf_counter() + _PATIENCE
        while True:
            try:
                async with self._load.connection() as host:
                    return await host.ask(method, path, body, key)
            except (OSError, EOFError):
                if time.perf_counter() > until:
                    raise
            self.repeats += 1
            await asyncio.sleep(_PAUSE)


async def _run(host: Client, workflow: str, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Create a run, follow it to its last event, and return it."""
    body = {"workflowId": workflow, **({"inputs": inputs} if inputs else {})}
    run_id = (await host.ask("POST", "/v1/runs", body))["runId"]
    while not (await host.ask("GET", f"/v1/runs/{run_id}/events/poll?timeout=30"))["isComplete"]:
        pass
    run: dict[str, Any] = await host.ask("GET", f"/v1/runs/{run_id}")
    assert run["status"] == "completed", run
    return run


async def _plain(host: Client) -> None:
    await _run(host, "five")


async def _tool(host: Client) -> None:
    outputs = (await _run(host, "tool"))["outputs"]
    assert str(WORDS) in str(outputs), outputs


async def _agent(host: Client) -> None:
    inputs = {"question": f"How many words has the note? ({host.number})", "agentId": AGENT}
    outputs = (await _run(host, "forestay-ask", inputs))["outputs"]
    assert outputs["output"] == ANSWER, outputs


async def _relay(host: Client) -> None:
    """Open a session, ingest notes, ask a question, and close the session."""
    opened = await host.ask("POST", "/crp/sessions", {"app_id": f"soak-{host.number}"})
    session = f"/crp/sessions/{opened['session_id']}"
    taken = await host.ask("POST", f"{session}/ingest", {"text": _NOTES, "source_label": "notes"})
    assert taken["facts_extracted"] >= 4, taken
    body = {"system_prompt": "You are brief.", "task_input": "Where does the Aurora lie?"}
    said = await host.ask("POST", f"{session}/dispatch", body)
    assert said["output"] == ANSWER, said
    repeats = host.repeats
    try:
        await host.ask("POST", f"{session}/close")
    except AssertionError as refused:  # a close that is repeated after a crash may find the session closed
        if host.repeats == repeats or "The session is closed." not in str(refused):
            raise


_OPERATIONS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "run": _plain,
    "tool": _tool,
    "agent": _agent,
    "relay": _relay,
}
KINDS = tuple(_OPERATIONS)
