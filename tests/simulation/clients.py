"""Clients: they start runs, watch them, answer, cancel and pause, through a network that loses what they say.

A client writes down what it was promised. The checker holds the host to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import httpx
import msgspec

from forestay.client import AsyncClient, Call, calls
from forestay.kernel import Problem
from forestay.runs import TERMINAL, RunSnapshot
from tests.simulation import errands
from tests.simulation.errands import Errand
from tests.simulation.workload import KINDS, TENANTS, key_of

T = TypeVar("T")
# What a client hears when its answer was taken before, or comes too late.
_LATE = frozenset(
    {
        "state_conflict",
        "interrupt_already_resolved",
        "interrupt_expired",
        "run_already_terminal",
        "not_found",
        "conflict",
    }
)


class Promise(msgspec.Struct):
    """One run as its client knows it. `seen`: the ids of its events by sequence, as far as they were shown."""

    tenant: str
    workflow: str
    mark: str
    run_ids: set[str] = set()
    seen: dict[int, str] = {}
    signalled: bool = False
    forked: bool = False
    accepted: bool = False  # the host took the answer to the run's question
    standing: str = ""  # the last terminal status that the host told
    outputs: dict[str, Any] | None = None

    @property
    def run_id(self) -> str:
        return next(iter(self.run_ids))


class Client:
    def __init__(
        self,
        name: str,
        tenant: str,
        transport: httpx.AsyncBaseTransport,
        chance: Random,
        complain: Callable[[str], None],
    ) -> None:
        self.name = name
        self.tenant = tenant
        self.promises: list[Promise] = []
        self.errands: list[Errand] = []
        self._chance = chance
        self._complain = complain
        self._http = AsyncClient("http://localhost", key_of(tenant), transport=transport, patience=100)

    async def work(self, count: int) -> None:
        async with self._http:
            for number in range(count):
                mark = f"{self.tenant}-{self.name}-{number}"
                if self._chance.random() < 0.4:
                    await self._run_an_errand(f"{mark}-made")
                await self._see_through(mark)
                await asyncio.sleep(self._chance.random() * 2)

    async def _see_through(self, mark: str) -> None:
        """One run from its start to its end."""
        kind = self._chance.choice(KINDS)
        promise = Promise(self.tenant, kind, mark)
        self.promises.append(promise)
        for _ in range(self._chance.choice((1, 1, 1, 2))):  # some clients ask twice, to be sure
            inputs = {"question": mark} if kind == "forestay-ask" else {"mark": mark}
            call = calls.start(kind, inputs, idempotency_key=self._key(mark))
            promise.run_ids.add((await self._until_told(lambda call=call: self._http.send(call))).run_id)
        if self._chance.random() < 0.2:
            await self._disturb(promise)
        if self._chance.random() < 0.2:
            await self._peep(promise.run_id)
        if self._chance.random() < 0.3:
            await self._signal(promise)
        if self._chance.random() < 0.5:
            await self._watch(promise)
        await self._wait(promise)
        if self._chance.random() < 0.2:
            await self._fork(promise)

    def _key(self, mark: str) -> str:
        """A key that clients of other tenants use as well: keys are a tenant's own."""
        number = mark.rpartition("-")[2]
        return f"start-{int(self.name[1:]) // len(TENANTS)}-{number}"

    async def _run_an_errand(self, mark: str) -> None:
        errand = Errand(self._chance.choice((*errands.KINDS, "event", "event", "event")), mark)
        made = await self._until_told(lambda: self._http.send(errand.call(self.tenant)))
        self.errands.append(errand)
        if errand.kind == "session" and self._chance.random() < 0.7:
            said = _posted(f"/host/v1/sessions/{made['sessionId']}/turns", {"message": f"{mark}-said"}, f"say-{mark}")
            await self._until_told(lambda: self._http.send(said))
            self.errands.append(Errand("turn", f"{mark}-said"))

    async def _signal(self, promise: Promise) -> None:
        """A signal under a key; a run that has ended takes none."""
        path = f"/v1/runs/{promise.run_id}/signals/note"
        told = await self._until_told_or_late(_posted(path, {"payload": promise.mark}, f"signal-{promise.mark}"))
        promise.signalled = told is not None

    async def _fork(self, promise: Promise) -> None:
        body = {"mode": "replay", "fromSeq": 0}
        await self._until_told(lambda: self._http.send(_posted(f"/v1/runs/{promise.run_id}:fork", body, promise.mark)))
        promise.forked = True

    async def _wait(self, promise: Promise) -> None:
        """Poll until the run has ended, and answer what it asks."""
        while True:
            run: RunSnapshot = await self._until_told(lambda: self._http.get(promise.run_id))
            if promise.standing and run.status != promise.standing:
                self._complain(f"{promise.mark} was {promise.standing} and is {run.status}")
            if run.status in TERMINAL:
                promise.standing, promise.outputs = run.status, run.outputs
                return
            if run.status == "waiting-approval":
                await self._approve(promise)
            elif run.status == "paused":
                await self._try(lambda: self._http.resume(promise.run_id))
            await asyncio.sleep(self._chance.choice((0.1, 0.5, 2.0)))

    async def _watch(self, promise: Promise) -> None:
        """Read the run's events until it asks something, pauses or ends; they come once, in order and without a gap."""
        last = -1
        try:
            async for event in self._http.events(promise.run_id):
                if event.sequence != last + 1:
                    self._complain(f"{promise.mark}: event {event.sequence} came after {last}")
                last = event.sequence
                promise.seen[event.sequence] = event.event_id
                if event.type in ("interrupt.requested", "run.paused") or self._chance.random() < 0.02:
                    return
        except Problem as problem:
            self._judge(problem)

    async def _approve(self, promise: Promise) -> None:
        answer = {"action": "accept"}
        if await self._try(lambda: self._http.answer(promise.run_id, "gate", answer)) is not None:
            promise.accepted = True

    async def _disturb(self, promise: Promise) -> None:
        await asyncio.sleep(self._chance.random())
        if self._chance.random() < 0.5:
            told = await self._try(lambda: self._http.cancel(promise.run_id))
            if told is not None and told.status in TERMINAL:
                promise.standing = told.status
        else:
            await self._try(lambda: self._http.pause(promise.run_id))

    async def _peep(self, run_id: str) -> None:
        """Another tenant's key opens nothing."""
        other = next(name for name in TENANTS if name != self.tenant)
        call = calls.get(run_id)
        headers = {**call.headers, "Authorization": f"Bearer {key_of(other)}"}
        try:
            await self._http.send(msgspec.structs.replace(call, headers=headers))
        except Problem as problem:
            if problem.key != "not_found":
                self._judge(problem)
        else:
            self._complain(f"{other} was shown the run {run_id} of {self.tenant}")

    async def _until_told(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer."""
        while True:
            try:
                return await ask()
            except Problem as problem:
                self._judge(problem)
                wait = problem.retry_after_ms or 0
            await asyncio.sleep(max(wait / 1000, 0.1 + self._chance.random()))

    async def _until_told_or_late(self, call: Call[T]) -> T | None:
        while True:
            try:
                return await self._http.send(call)
            except Problem as problem:
                if problem.key in _LATE:
                    return None
                self._judge(problem)
            await asyncio.sleep(0.2 + self._chance.random())

    async def _try(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Ask once; None when there was no answer, or it came too late."""
        try:
            return await ask()
        except Problem as problem:
            if problem.key not in _LATE:
                self._judge(problem)
            return None

    def _judge(self, problem: Problem) -> None:
        """A host may be away, busy or without disk; it may not be confused."""
        if not problem.row.retryable or problem.key == "internal":
            self._complain(f"{self.name} was told {problem.key}: {problem.message} {problem.details}")


def _posted(path: str, body: dict[str, Any], key: str) -> Call[dict[str, Any]]:
    headers = {"Idempotency-Key": key}
    return Call(name=path, method="POST", path=path, answer=dict[str, Any], body=body, headers=headers)
