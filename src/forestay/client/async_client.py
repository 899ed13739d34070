"""`AsyncClient` calls a running host from coroutines. `Client` does the same for plain code.

- K1  A refusal is raised as the same Problem that the host reported.
- K2  `events` yields every event of a run once and in order, also when the connection breaks or the host restarts.
- K3  Only reading is repeated. A call that changes something is sent once; give an idempotency key to send it again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from forestay.client import calls
from forestay.client.answers import answer_of, read_json, unreachable
from forestay.client.calls import AgentLine, Call
from forestay.client.event_stream import EventStream
from forestay.kernel import TABLE, Problem
from forestay.runs import TERMINAL, TERMINAL_EVENTS, Interrupt, RunEvent, RunSnapshot, RunSummary

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")

LAFS = "application/vnd.lafs.envelope+json"
_PATIENCE = 12  # attempts to reach a host that went away: about 45 seconds in all
_PAUSE = 0.2  # seconds before a stream that ended early is opened again
_ASK = "forestay-ask"


def _awaited(make: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    async def method(self: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self.send(make(*arguments, **options))

    method.__doc__ = make.__doc__
    return method


class AsyncClient:
    """`async with AsyncClient() as client: await client.run("order", {"pieces": 3})`.

    `url` and `key` default to FORESTAY_URL and FORESTAY_API_KEY. `patience` is how often `events` tries again to reach
    a host that went away. `transport` replaces the socket; `headers` go with every request.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 90,
        patience: int = _PATIENCE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        import httpx

        self.url = (url or os.environ.get("FORESTAY_URL") or "http://127.0.0.1:8787").rstrip("/")
        text = key or os.environ.get("FORESTAY_API_KEY")
        every = {**(headers or {}), **({"Authorization": f"Bearer {text}"} if text else {})}
        self._patience = patience
        self._sleep = sleep
        self._http = httpx.AsyncClient(base_url=self.url, headers=every, timeout=timeout, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send one call and return its result; raise the Problem that the host answered (K1)."""
        import httpx

        headers = {"Accept": LAFS, **call.headers}
        content = None
        if call.body is not None:
            content, headers["Content-Type"] = msgspec.json.encode(call.body), "application/json"
        query = {name: value for name, value in call.query.items() if value is not None} or None
        try:
            response = await self._http.request(call.method, call.path, params=query, headers=headers, content=content)
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        found = answer_of(response.status_code, response.content, response.headers.get("retry-after"))
        try:
            return msgspec.convert(found, call.answer)
        except msgspec.ValidationError as error:
            told = "The host answered with something else than was asked for."
            raise Problem("upstream_confused", told, reason=str(error)[:200]) from error

    start = _awaited(calls.start)
    get = _awaited(calls.get)
    cancel = _awaited(calls.cancel)
    pause = _awaited(calls.pause)
    resume = _awaited(calls.resume)
    fork = _awaited(calls.fork)
    answer = _awaited(calls.answer)
    put_workflow = _awaited(calls.put)

    async def questions(self, run_id: str) -> list[Interrupt]:
        """Return the open questions of a run."""
        return (await self.send(calls.questions(run_id))).interrupts

    async def agents(self) -> list[AgentLine]:
        return (await self.send(calls.agents())).agents

    async def runs(
        self, *, status: list[str] | None = None, workflow: str | None = None, tag: str | None = None
    ) -> AsyncGenerator[RunSummary, None]:
        """Yield every run, newest first; fetch them page by page."""
        cursor: str | None = None
        while True:
            page = await self.send(calls.page(status=status, workflow=workflow, tag=tag, cursor=cursor))
            for run in page.runs:
                yield run
            if (cursor := page.next_cursor) is None:
                return

    async def events(
        self, run_id: str, *, mode: str = "debug", after: int = -1, lost: Callable[[bool], None] = lambda away: None
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run until it ends (K2); `lost` learns when the host goes away and when it is back."""
        import httpx

        failures = 0
        while True:
            try:
                async for event in self._stream(run_id, mode, after, lost):
                    failures, after = 0, event.sequence
                    yield event
                    if event.type in TERMINAL_EVENTS:
                        return
            except httpx.HTTPError as error:
                failures += 1
                if failures > self._patience:
                    raise unreachable(self.url, error) from error
                lost(True)
                await self._sleep(min(_PAUSE * 2**failures, 5))
                continue
            run = await self.get(run_id)
            if run.status in TERMINAL and run.last_sequence <= after:
                return
            await self._sleep(_PAUSE)

    async def _stream(
        self, run_id: str, mode: str, after: int, lost: Callable[[bool], None]
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of one connection."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        path, query = calls.get(run_id).path + "/events", {"streamMode": mode}
        async with self._http.stream("GET", path, params=query, headers=headers) as response:
            if response.status_code != 200:
                answer_of(response.status_code, await response.aread())
            lost(False)
            stream = EventStream()
            async for chunk in response.aiter_bytes():
                for data in stream.feed(chunk):
                    yield read_json(data, "The host sent an event that cannot be read.", RunEvent)

    async def wait(self, run_id: str) -> RunSnapshot:
        """Wait until the run ends or waits for a person, and return it."""
        async for event in self.events(run_id, mode="updates"):
            if event.type == "interrupt.requested" and await self.questions(run_id):
                break
        return await self.get(run_id)

    async def run(self, workflow: str, inputs: dict[str, Any] | None = None) -> RunSnapshot:
        """Start a run and wait for it."""
        return await self.wait((await self.start(workflow, inputs)).run_id)

    async def ask(self, question: str, agent: str | None = None) -> str:
        """Return an agent's answer; raise a Problem when its run fails or waits for a person."""
        return _said(await self.run(_ASK, {"question": question, **({"agentId": agent} if agent else {})}))

    async def relay(self, app_id: str, config: dict[str, Any] | None = None) -> AsyncRelaySession:
        """Open a relay session on the host; its `async with` block closes it."""
        return AsyncRelaySession(self, (await self.send(calls.open_session(app_id, config))).session_id)


class AsyncRelaySession:
    """A relay session: ingests facts, and dispatches tasks whose answers may pass the model's window."""

    def __init__(self, client: AsyncClient, session_id: str) -> None:
        self._client = client
        self.session_id = session_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.send(calls.close_session(self.session_id))

    async def ingest(self, text: str, source: str = "text") -> calls.Ingested:
        return await self._client.send(calls.ingest(self.session_id, text, source))

    async def dispatch(self, system_prompt: str, task: str) -> calls.Dispatched:
        return await self._client.send(calls.dispatch(self.session_id, system_prompt, task))

    async def facts(self, query: str | None = None, top: int = 10) -> list[calls.Fact]:
        return (await self._client.send(calls.facts(self.session_id, query, top))).facts


def _said(run: RunSnapshot) -> str:
    if run.status == "completed":
        return str((run.outputs or {}).get("output", ""))
    if run.error is not None:
        key = run.error.code if run.error.code in TABLE else "node_failed"
        raise Problem(key, run.error.message, runId=run.run_id)
    raise Problem(
        "conflict",
        f"The run has no answer: it is {run.status}.",
        runId=run.run_id,
        fix="Look at `client.questions(run_id)`, and answer with `client.answer(run_id, node_id, value)`.",
    )
