"""The tools that an MCP client gets from a host, by `forestay mcp serve` and `/mcp`.

Every tool calls the host's HTTP interface with the key of its caller, so the same scopes, tenants, limits and evidence
apply. Answers are LAFS envelopes. Long work reports progress.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from forestay.client import AsyncClient, Call
from forestay.envelope import Operation, Operations
from forestay.kernel import Clock, Ids
from forestay.tools import fitted

Report = Callable[[float, str], Awaitable[None]]
"""Reports the progress of a call to its client."""

_TEXT = {"type": "string", "minLength": 1}
_RUN = {**_TEXT, "description": "The id of a run."}
_SECONDS = {"type": "number", "minimum": 0, "maximum": 300, "description": "How long to wait for its end; default 45."}
MAX_EVENTS = 200
NEW_SESSION = "new"


async def unheard(_progress: float, _message: str) -> None:
    """Ignore the report."""


class ServedHost:
    """The functions of the tools, over `client`. `report` gets the progress of long work."""

    def __init__(self, client: AsyncClient, report: Report = unheard) -> None:
        self._client = client
        self._report = report

    async def ask(self, given: dict[str, Any]) -> Any:
        """Ask a single question, or take the next turn of a session; report the words as they come."""
        if "sessionId" not in given:
            inputs = {name: given[name] for name in ("question", "agentId") if name in given}
            made = await self._post("/v1/runs", {"workflowId": "forestay-ask", "inputs": inputs})
            return await self._waited(str(made["runId"]), given, mode="debug")
        place = given["sessionId"]
        if place == NEW_SESSION:
            place = (await self._post("/host/v1/sessions", {}))["sessionId"]
        said = {"message": given["question"], **({"agentId": given["agentId"]} if "agentId" in given else {})}
        made = await self._post(f"/host/v1/sessions/{quote(place, safe='')}/turns", said)
        return {**await self._waited(str(made["runId"]), given, mode="debug"), "sessionId": place}

    async def start_run(self, given: dict[str, Any]) -> Any:
        body = {"workflowId": given["workflowId"], "inputs": given.get("inputs", {})}
        key = given.get("idempotencyKey")
        made = await self._post("/v1/runs", body, headers={"Idempotency-Key": key} if key else None)
        return await self._waited(str(made["runId"]), {"waitSeconds": 0, **given})

    async def show_run(self, given: dict[str, Any]) -> Any:
        return await self._standing(given["runId"])

    async def follow_run(self, given: dict[str, Any]) -> Any:
        """Return the run's events after `after`: the existing ones, and those that come while it waits."""
        found: list[dict[str, Any]] = []
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(given.get("waitSeconds", 45)),
                contextlib.aclosing(self._client.events(given["runId"], after=int(given.get("after", -1)))) as events,
            ):
                async for event in events:
                    found.append({"sequence": event.sequence, "type": event.type, "payload": event.payload})
                    await self._report(event.sequence, event.type)
                    if len(found) >= MAX_EVENTS or event.type == "interrupt.requested":
                        break
        return {"events": found, "run": await self._standing(given["runId"])}

    async def answer_run(self, given: dict[str, Any]) -> Any:
        path = f"{_path(given['runId'])}/interrupts/{quote(given['nodeId'], safe='')}"
        await self._post(path, {"resumeValue": given["value"]})
        return await self._waited(given["runId"], given)

    async def cancel_run(self, given: dict[str, Any]) -> Any:
        reason = {"reason": given["reason"]} if "reason" in given else {}
        return await self._post(f"{_path(given['runId'])}/cancel", reason)

    async def list_agents(self, _given: dict[str, Any]) -> Any:
        return await self._get("/host/v1/agents")

    async def list_workflows(self, _given: dict[str, Any]) -> Any:
        return await self._get("/v1/workflows")

    async def list_tools(self, _given: dict[str, Any]) -> Any:
        return await self._get("/v1/tools")

    async def call_tool(self, given: dict[str, Any]) -> Any:
        """Call a tool in a run of its own; what policy or the tool asks is a question of that run."""
        inputs = {"tool": given["tool"], "arguments": given.get("arguments", {})}
        key = given.get("idempotencyKey")
        body = {"workflowId": "forestay-tool", "inputs": inputs}
        made = await self._post("/v1/runs", body, headers={"Idempotency-Key": key} if key else None)
        return await self._waited(str(made["runId"]), given)

    async def search_facts(self, given: dict[str, Any]) -> Any:
        path = f"/crp/sessions/{quote(given['sessionId'], safe='')}/facts"
        return await self._get(path, query=given["query"], top_k=int(given.get("top", 10)))

    async def _waited(self, run_id: str, given: dict[str, Any], mode: str = "updates") -> dict[str, Any]:
        """Wait until the run ends, asks something, or the time is up; return it. Report an agent's words."""
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(given.get("waitSeconds", 45)),
                contextlib.aclosing(self._client.events(run_id, mode=mode)) as events,
            ):
                async for event in events:
                    told = event.payload["chunk"] if event.type == "output.chunk" else event.type
                    await self._report(event.sequence, told)
                    if event.type == "interrupt.requested" and await self._questions(run_id):
                        break
        return await self._standing(run_id)

    async def _standing(self, run_id: str) -> dict[str, Any]:
        run = await self._get(_path(run_id))
        shown = {name: run[name] for name in ("runId", "workflowId", "status", "outputs", "error") if run.get(name)}
        if str(run["status"]).startswith("waiting"):
            questions = await self._questions(run_id)
            shown["questions"] = [{"nodeId": item["nodeId"], "data": item["data"]} for item in questions]
        return shown

    async def _questions(self, run_id: str) -> list[dict[str, Any]]:
        return list((await self._get(f"{_path(run_id)}/interrupts"))["interrupts"])

    async def _get(self, path: str, **query: Any) -> Any:
        return await self._client.send(Call(name=path, method="GET", path=path, answer=object, query=query))

    async def _post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        call = Call(name=path, method="POST", path=path, answer=object, body=body, headers=headers or {})
        return await self._client.send(call)


def served_tools(client: AsyncClient, clock: Clock, ids: Ids, report: Report = unheard) -> Operations:
    """Return the tools of the host that `client` reaches."""
    served = ServedHost(client, report)
    made = Operations(clock, ids)

    def add(
        function: Callable[[dict[str, Any]], Awaitable[Any]],
        about: str,
        required: tuple[str, ...] = (),
        *,
        reads: bool = False,
        destroys: bool = False,
        **properties: Any,
    ) -> None:
        name = function.__name__
        schema = {"type": "object", "properties": properties, "required": list(required)}

        async def checked(given: dict[str, Any]) -> Any:
            return await function(fitted(name, schema, given))

        made.add(
            Operation(
                name=name,
                function=checked,
                description=about,
                parameters=schema,
                read_only=reads,
                destructive=destroys,
            )
        )

    add(
        served.ask,
        "Ask an agent of this host a question. What it asks a person about is in `questions`.",
        ("question",),
        question=_TEXT,
        agentId=_TEXT,
        sessionId={**_TEXT, "description": "Go on with this session; `new` begins one. The answer names it."},
        waitSeconds=_SECONDS,
    )
    add(
        served.start_run,
        "Start a durable run of a workflow. With waitSeconds, wait for its end.",
        ("workflowId",),
        workflowId=_TEXT,
        inputs={"type": "object"},
        idempotencyKey={"type": "string", "pattern": "^[!-~]{1,255}$"},
        waitSeconds=_SECONDS,
    )
    add(served.show_run, "How a run stands, with its outputs and open questions.", ("runId",), reads=True, runId=_RUN)
    add(
        served.follow_run,
        "The events of a run behind `after`, as they happen.",
        ("runId",),
        reads=True,
        runId=_RUN,
        after={"type": "integer", "minimum": -1},
        waitSeconds=_SECONDS,
    )
    add(
        served.answer_run,
        'Answer the question of a run\'s node, e.g. {"action": "accept"}, and go on.',
        ("runId", "nodeId", "value"),
        runId=_RUN,
        nodeId=_TEXT,
        value={},
        waitSeconds=_SECONDS,
    )
    add(served.cancel_run, "Cancel a run.", ("runId",), destroys=True, runId=_RUN, reason=_TEXT)
    add(served.list_agents, "The agents that may be asked.", reads=True)
    add(served.list_workflows, "The workflows that may be started.", reads=True)
    add(served.list_tools, "The tools that may be called.", reads=True)
    add(
        served.call_tool,
        "Call a tool of this host, through its policy. What it asks a person about is in `questions`.",
        ("tool",),
        tool=_TEXT,
        arguments={"type": "object"},
        idempotencyKey={"type": "string", "pattern": "^[!-~]{1,255}$"},
        waitSeconds=_SECONDS,
    )
    add(
        served.search_facts,
        "The facts of a relay session that fit a query best.",
        ("sessionId", "query"),
        reads=True,
        sessionId=_TEXT,
        query=_TEXT,
        top={"type": "integer", "minimum": 1, "maximum": 100},
    )
    return made


def _path(run_id: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}"
