"""What one client asks of a host all day: runs, effects, approvals, agents, relay sessions and notes, one by one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import msgspec

from forestay.client import AsyncClient, Call, calls
from forestay.kernel import Problem
from forestay.runs import TERMINAL, RunSnapshot
from tests.runs.documents import edge, node, workflow
from tests.simulation.workload import key_of

T = TypeVar("T")
PATIENT_MINUTES = (1, 7, 30)  # how long the runs wait that nobody waits for
NOTE_SECONDS = 1800
_NOTES = "The Aurora lies at berth 7. She sails on Thursday. The Petrel lies at berth 3. Her rudder is being mended."
# Of twenty operations: six runs, four with an effect, two with an approval, one family, three agents, three relay
# sessions, one note.
MIX = (
    *("run", "effect", "agent", "run", "relay", "order", "effect", "run", "agent", "family"),
    *("run", "effect", "relay", "run", "order", "agent", "run", "relay", "effect", "note"),
)


def patient(minutes: int) -> dict[str, Any]:
    """A workflow that does nothing for so long."""
    mark = [{"name": "mark", "type": "string", "defaultValue": ""}]
    wait = node("wait", "core.delay", config={"delayMs": minutes * 60_000})
    end = node("end", "core.transform", config={"outputs": {"mark": "variables.mark"}})
    return workflow(f"patient-{minutes}", [wait, end], [edge("wait", "end")], variables=mark)


class DayClient:
    """One tenant's client. It asks again, under the same key, until it is answered."""

    def __init__(self, tenant: str, transport: httpx.AsyncBaseTransport) -> None:
        self.tenant = tenant
        self.repeats = 0
        self._http = AsyncClient("http://localhost", key_of(tenant), transport=transport, timeout=300)

    async def prepare(self) -> None:
        """What a day needs beside its operations: timers, and two schedules."""
        for minutes in PATIENT_MINUTES:
            await self.ask(calls.put(patient(minutes)))
        for cron in ("*/5 * * * *", "7 * * * *"):
            body = {"workflowId": "quick", "cron": cron, "inputs": {"mark": f"by the clock {cron}"}, "catchUp": "all"}
            await self.post("/v1/schedules", body, f"schedule {cron}".replace(" ", "_"))

    async def operate(self, kind: str, number: int) -> None:
        """One operation from its beginning to its end."""
        await _OPERATIONS[kind](self, f"{self.tenant}-{number}")

    async def set_off(self, number: int) -> None:
        """What goes on for a while and is waited for by nobody: a timer, and an event from outside."""
        mark = f"{self.tenant}-{number}"
        minutes = PATIENT_MINUTES[number % len(PATIENT_MINUTES)]
        await self.ask(calls.start(f"patient-{minutes}", {"mark": f"{mark}-late"}, idempotency_key=f"late-{number}"))
        event = {"eventId": f"{mark}-event", "inputs": {"mark": f"{mark}-event"}}
        await self.post(f"/host/v1/trigger-subscriptions/sub_{self.tenant}:deliver", event, f"event-{number}")

    async def ask(self, call: Call[T]) -> T:
        while True:
            try:
                return await self._http.send(call)
            except Problem as problem:
                if not problem.row.retryable or problem.key == "internal":
                    raise
                wait = problem.retry_after_ms or 0
            self.repeats += 1
            await asyncio.sleep(max(wait / 1000, 0.2))

    async def post(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
        headers = {"Idempotency-Key": key}
        call = Call(name=path, method="POST", path=path, answer=dict[str, Any], body=body, headers=headers)
        return await self.ask(call)

    async def run(self, workflow: str, mark: str, *, asked: bool = False) -> RunSnapshot:
        """A run from its start to its end; what it asks is answered."""
        inputs = {"question": mark} if workflow == "forestay-ask" else {"mark": mark}
        made = await self.ask(calls.start(workflow, inputs, idempotency_key=f"start-{mark}"))
        while True:
            run = await self.ask(calls.get(made.run_id))
            if run.status in TERMINAL:
                _must(run.status == "completed", run.status, mark)
                return run
            if asked and run.status == "waiting-approval":
                await self._approve(run.run_id)
            await asyncio.sleep(0.5 if asked else 0.1)

    async def _approve(self, run_id: str) -> None:
        try:
            await self.ask(calls.answer(run_id, "gate", {"action": "accept"}))
        except Problem as problem:  # the answer was taken, and the confirmation lost
            if problem.key not in ("interrupt_already_resolved", "run_already_terminal", "not_found", "conflict"):
                raise

    async def close(self) -> None:
        await self._http.close()


async def _run(client: DayClient, mark: str) -> None:
    run = await client.run("quick", mark)
    _must(run.outputs == {"mark": mark}, run.outputs, mark)


async def _effect(client: DayClient, mark: str) -> None:
    run = await client.run("charge", mark)
    _must((run.outputs or {}).get("mark") == mark, run.outputs, mark)


async def _order(client: DayClient, mark: str) -> None:
    await client.run("order", mark, asked=True)


async def _family(client: DayClient, mark: str) -> None:
    run = await client.run("family", mark)
    _must((run.outputs or {}).get("count") == 2, run.outputs, mark)


async def _agent(client: DayClient, mark: str) -> None:
    run = await client.run("forestay-ask", mark)
    _must("heard" in str(run.outputs), run.outputs, mark)


async def _relay(client: DayClient, mark: str) -> None:
    keys = (f"relay-{mark}-{step}" for step in itertools.count())
    opened = await client.post("/crp/sessions", {"app_id": mark}, next(keys))
    session = f"/crp/sessions/{opened['session_id']}"
    taken = await client.post(f"{session}/ingest", {"text": _NOTES, "source_label": "notes"}, next(keys))
    _must(taken["facts_extracted"] >= 4, taken, mark)
    body = {"system_prompt": "You are brief.", "task_input": "Where does the Aurora lie?"}
    said = await client.post(f"{session}/dispatch", body, next(keys))
    _must("heard" in said["output"], said["output"], mark)
    await client.post(f"{session}/close", {}, next(keys))


async def _note(client: DayClient, mark: str) -> None:
    body = {"memoryRef": "day", "content": f"{mark} was here", "ttlSeconds": NOTE_SECONDS}
    await client.post("/host/v1/memory", body, f"note-{mark}")


def _must(holds: bool, found: object, mark: str) -> None:
    if not holds:
        raise Problem("upstream_confused", f"{mark} gave {msgspec.json.encode(found).decode()[:200]}")


_OPERATIONS: dict[str, Callable[[DayClient, str], Awaitable[None]]] = {
    "run": _run,
    "effect": _effect,
    "order": _order,
    "family": _family,
    "agent": _agent,
    "relay": _relay,
    "note": _note,
}
