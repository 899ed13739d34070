"""`Client` and `AsyncClient`: the same calls, one blocking and one for coroutines.

- K1  A refusal is raised as the Problem that it was on the host.
- K2  `events` yields every event of a run once and in order, also when the connection breaks or the host restarts.
- K3  Only reading is repeated. A call that changes something is sent once; give an idempotency key to send it again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from forestay.client import calls
from forestay.client.answers import answer_of, unreachable
from forestay.client.calls import AgentLine, Call
from forestay.kernel import TABLE, Problem
from forestay.runs import TERMINAL, TERMINAL_EVENTS, Interrupt, RunEvent, RunSnapshot, RunSummary

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")

LAFS = "application/vnd.lafs.envelope+json"
_PATIENCE = 12  # tries to reach a host that went away: three quarters of a minute
_ASK = "forestay-ask"


def _blocking(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return self.send(make(*arguments, **options))

    method.__doc__ = make.__doc__
    return method


def _awaited(make: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    async def method(self: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self.send(make(*arguments, **options))

    method.__doc__ = make.__doc__
    return method


class _Following:
    """How far a reader of events has come (K2)."""

    def __init__(self, run_id: str, mode: str, after: int) -> None:
        self.after = after
        self._failures = 0
        self.path = f"/v1/runs/{run_id}/events"
        self.query = {"streamMode": mode}

    @property
    def headers(self) -> dict[str, str]:
        return {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}

    def read(self, line: str) -> RunEvent | None:
        if not line.startswith("data: "):
            return None
        event = msgspec.json.decode(line[6:], type=RunEvent)
        self._failures, self.after = 0, event.sequence
        return event

    def pause(self) -> float | None:
        """Seconds until the next try; None when patience ends."""
        self._failures += 1
        return None if self._failures > _PATIENCE else min(0.2 * 2**self._failures, 5)

    def is_over(self, run: RunSnapshot) -> bool:
        return run.status in TERMINAL and run.last_sequence <= self.after


class _Named:
    """Where the host is, and who asks: arguments, else FORESTAY_URL and FORESTAY_API_KEY."""

    def __init__(self, url: str | None, key: str | None) -> None:
        self.url = (url or os.environ.get("FORESTAY_URL") or "http://127.0.0.1:8787").rstrip("/")
        text = key or os.environ.get("FORESTAY_API_KEY")
        self.headers = {"Authorization": f"Bearer {text}"} if text else {}


def _request(call: Call[Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"headers": {"Accept": LAFS, **call.headers}}
    if call.query:
        options["params"] = {name: value for name, value in call.query.items() if value is not None}
    if call.body is not None:
        options["content"] = msgspec.json.encode(call.body)
        options["headers"]["Content-Type"] = "application/json"
    return options


def _result(call: Call[T], response: httpx.Response) -> T:
    found = answer_of(response.status_code, response.content, response.headers.get("retry-after"))
    return msgspec.convert(found, call.answer)


class Client:
    """`with Client() as client: client.run("order", {"pieces": 3})`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 90,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx

        named = _Named(url, key)
        self.url = named.url
        self._sleep = sleep
        self._http = httpx.Client(base_url=named.url, headers=named.headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send one call; its result, or the Problem that the host answered (K1)."""
        import httpx

        try:
            response = self._http.request(call.method, call.path, **_request(call))
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        return _result(call, response)

    start = _blocking(calls.start)
    get = _blocking(calls.get)
    cancel = _blocking(calls.cancel)
    pause = _blocking(calls.pause)
    resume = _blocking(calls.resume)
    fork = _blocking(calls.fork)
    answer = _blocking(calls.answer)
    put_workflow = _blocking(calls.put)

    def questions(self, run_id: str) -> list[Interrupt]:
        """The open questions of a run."""
        return self.send(calls.questions(run_id)).interrupts

    def agents(self) -> list[AgentLine]:
        return self.send(calls.agents()).agents

    def runs(
        self, *, status: list[str] | None = None, workflow: str | None = None, tag: str | None = None
    ) -> Iterator[RunSummary]:
        """Every run, the newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self.send(calls.page(status=status, workflow=workflow, tag=tag, cursor=cursor))
            yield from page.runs
            if (cursor := page.next_cursor) is None:
                return

    def events(self, run_id: str, *, mode: str = "debug", after: int = -1) -> Iterator[RunEvent]:
        """The events of a run until it ends (K2)."""
        import httpx

        following = _Following(run_id, mode, after)
        while True:
            try:
                with self._http.stream(
                    "GET", following.path, params=following.query, headers=following.headers
                ) as response:
                    if response.status_code != 200:
                        answer_of(response.status_code, response.read())
                    for line in response.iter_lines():
                        if (event := following.read(line)) is not None:
                            yield event
                            if event.type in TERMINAL_EVENTS:
                                return
            except httpx.HTTPError as error:
                if (seconds := following.pause()) is None:
                    raise unreachable(self.url, error) from error
                self._sleep(seconds)
                continue
            if following.is_over(self.get(run_id)):
                return

    def wait(self, run_id: str) -> RunSnapshot:
        """The run when it has ended, or when it waits for a person."""
        for event in self.events(run_id, mode="updates"):
            if event.type == "interrupt.requested" and self.questions(run_id):
                break
        return self.get(run_id)

    def run(self, workflow: str, inputs: dict[str, Any] | None = None) -> RunSnapshot:
        """Start a run and wait for it."""
        return self.wait(self.start(workflow, inputs).run_id)

    def ask(self, question: str, agent: str | None = None) -> str:
        """An agent's answer; a Problem when its run fails or waits for a person."""
        return _said(self.run(_ASK, _question(question, agent)))

    def relay(self, app_id: str, config: dict[str, Any] | None = None) -> RelaySession:
        """A relay session of the host; it is closed at the end of its `with` block."""
        return RelaySession(self, self.send(calls.open_session(app_id, config)).session_id)


class RelaySession:
    """Facts in, answers past the model's window out."""

    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self.session_id = session_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.send(calls.close_session(self.session_id))

    def ingest(self, text: str, source: str = "text") -> calls.Ingested:
        return self._client.send(calls.ingest(self.session_id, text, source))

    def dispatch(self, system_prompt: str, task: str) -> calls.Dispatched:
        return self._client.send(calls.dispatch(self.session_id, system_prompt, task))

    def facts(self, query: str | None = None, top: int = 10) -> list[calls.Fact]:
        return self._client.send(calls.facts(self.session_id, query, top)).facts


class AsyncClient:
    """`async with AsyncClient() as client: await client.run("order", {"pieces": 3})`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 90,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        import httpx

        named = _Named(url, key)
        self.url = named.url
        self._sleep = sleep
        self._http = httpx.AsyncClient(base_url=named.url, headers=named.headers, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send one call; its result, or the Problem that the host answered (K1)."""
        import httpx

        try:
            response = await self._http.request(call.method, call.path, **_request(call))
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        return _result(call, response)

    start = _awaited(calls.start)
    get = _awaited(calls.get)
    cancel = _awaited(calls.cancel)
    pause = _awaited(calls.pause)
    resume = _awaited(calls.resume)
    fork = _awaited(calls.fork)
    answer = _awaited(calls.answer)
    put_workflow = _awaited(calls.put)

    async def questions(self, run_id: str) -> list[Interrupt]:
        """The open questions of a run."""
        return (await self.send(calls.questions(run_id))).interrupts

    async def agents(self) -> list[AgentLine]:
        return (await self.send(calls.agents())).agents

    async def runs(
        self, *, status: list[str] | None = None, workflow: str | None = None, tag: str | None = None
    ) -> AsyncIterator[RunSummary]:
        """Every run, the newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.send(calls.page(status=status, workflow=workflow, tag=tag, cursor=cursor))
            for run in page.runs:
                yield run
            if (cursor := page.next_cursor) is None:
                return

    async def events(self, run_id: str, *, mode: str = "debug", after: int = -1) -> AsyncIterator[RunEvent]:
        """The events of a run until it ends (K2)."""
        import httpx

        following = _Following(run_id, mode, after)
        while True:
            try:
                async with self._http.stream(
                    "GET", following.path, params=following.query, headers=following.headers
                ) as response:
                    if response.status_code != 200:
                        answer_of(response.status_code, await response.aread())
                    async for line in response.aiter_lines():
                        if (event := following.read(line)) is not None:
                            yield event
                            if event.type in TERMINAL_EVENTS:
                                return
            except httpx.HTTPError as error:
                if (seconds := following.pause()) is None:
                    raise unreachable(self.url, error) from error
                await self._sleep(seconds)
                continue
            if following.is_over(await self.get(run_id)):
                return

    async def wait(self, run_id: str) -> RunSnapshot:
        """The run when it has ended, or when it waits for a person."""
        async for event in self.events(run_id, mode="updates"):
            if event.type == "interrupt.requested" and await self.questions(run_id):
                break
        return await self.get(run_id)

    async def run(self, workflow: str, inputs: dict[str, Any] | None = None) -> RunSnapshot:
        """Start a run and wait for it."""
        return await self.wait((await self.start(workflow, inputs)).run_id)

    async def ask(self, question: str, agent: str | None = None) -> str:
        """An agent's answer; a Problem when its run fails or waits for a person."""
        return _said(await self.run(_ASK, _question(question, agent)))

    async def relay(self, app_id: str, config: dict[str, Any] | None = None) -> AsyncRelay:
        """A relay session of the host; it is closed at the end of its `async with` block."""
        return AsyncRelay(self, (await self.send(calls.open_session(app_id, config))).session_id)


class AsyncRelay:
    """Facts in, answers past the model's window out."""

    def __init__(self, client: AsyncClient, session_id: str) -> None:
        self._client = client
        self.session_id = session_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._client.send(calls.close_session(self.session_id))

    async def ingest(self, text: str, source: str = "text") -> calls.Ingested:
        return await self._client.send(calls.ingest(self.session_id, text, source))

    async def dispatch(self, system_prompt: str, task: str) -> calls.Dispatched:
        return await self._client.send(calls.dispatch(self.session_id, system_prompt, task))

    async def facts(self, query: str | None = None, top: int = 10) -> list[calls.Fact]:
        return (await self._client.send(calls.facts(self.session_id, query, top))).facts


def _question(question: str, agent: str | None) -> dict[str, Any]:
    return {"question": question, **({"agentId": agent} if agent else {})}


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
