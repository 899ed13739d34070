"""`forestay mcp serve`: the host as an MCP server on standard input and output.

Every tool is a call of the host's HTTP interface with the key of this command, so that scopes, tenants, limits and
evidence are those of any other caller. Answers are LAFS envelopes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected
from forestay.envelope import Operation, Operations
from forestay.kernel import Ids, SystemClock, SystemRandomness
from forestay.tools import fitted

app = Group("mcp")

_TEXT = {"type": "string", "minLength": 1}
_RUN = {**_TEXT, "description": "The id of a run."}
_SECONDS = {"type": "number", "minimum": 0, "maximum": 300, "description": "How long to wait for its end; default 45."}
MAX_EVENTS = 200


@app.command("serve", using=connected)
async def serve(host: Connection) -> None:
    """Be an MCP server on standard input and output: ask agents, start, follow, answer and cancel runs."""
    from mcp.server.stdio import stdio_server

    from forestay import __version__
    from forestay.envelope import mcp_server

    server = mcp_server(offered(host), "forestay", version=__version__)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class ServedHost:
    """What an MCP client can do with a host."""

    def __init__(self, host: Connection) -> None:
        self._host = host

    async def ask(self, given: dict[str, Any]) -> Any:
        inputs = {name: given[name] for name in ("question", "agentId") if name in given}
        made = await self._host.post("/v1/runs", {"workflowId": "forestay-ask", "inputs": inputs})
        return await self._waited(str(made["runId"]), given)

    async def start_run(self, given: dict[str, Any]) -> Any:
        body = {"workflowId": given["workflowId"], "inputs": given.get("inputs", {})}
        key = given.get("idempotencyKey")
        made = await self._host.post("/v1/runs", body, headers={"Idempotency-Key": key} if key else None)
        return await self._waited(str(made["runId"]), {"waitSeconds": 0, **given})

    async def show_run(self, given: dict[str, Any]) -> Any:
        return await self._standing(given["runId"])

    async def follow_run(self, given: dict[str, Any]) -> Any:
        """Its events behind `after`: those that are there, and those that come while it waits."""
        found: list[dict[str, Any]] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(given.get("waitSeconds", 45)):
                async for event in self._host.events(given["runId"], after=int(given.get("after", -1))):
                    found.append({"sequence": event.sequence, "type": event.type, "payload": event.payload})
                    if len(found) >= MAX_EVENTS or event.type == "interrupt.requested":
                        break
        return {"events": found, "run": await self._standing(given["runId"])}

    async def answer_run(self, given: dict[str, Any]) -> Any:
        path = f"{_path(given['runId'])}/interrupts/{quote(given['nodeId'], safe='')}"
        await self._host.post(path, {"resumeValue": given["value"]})
        return await self._waited(given["runId"], given)

    async def cancel_run(self, given: dict[str, Any]) -> Any:
        reason = {"reason": given["reason"]} if "reason" in given else {}
        return await self._host.post(f"{_path(given['runId'])}/cancel", reason)

    async def list_agents(self, _given: dict[str, Any]) -> Any:
        return await self._host.get("/host/v1/agents")

    async def list_workflows(self, _given: dict[str, Any]) -> Any:
        return await self._host.get("/v1/workflows")

    async def search_facts(self, given: dict[str, Any]) -> Any:
        path = f"/crp/sessions/{quote(given['sessionId'], safe='')}/facts"
        return await self._host.get(path, query=given["query"], top_k=int(given.get("top", 10)))

    async def _waited(self, run_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """The run when it has ended, asks something, or has had its time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(given.get("waitSeconds", 45)):
                async for event in self._host.events(run_id, mode="updates"):
                    if event.type == "interrupt.requested" and await self._host.open_questions(run_id):
                        break
        return await self._standing(run_id)

    async def _standing(self, run_id: str) -> dict[str, Any]:
        run = await self._host.get(_path(run_id))
        shown = {name: run[name] for name in ("runId", "workflowId", "status", "outputs", "error") if run.get(name)}
        if str(run["status"]).startswith("waiting"):
            questions = await self._host.open_questions(run_id)
            shown["questions"] = [{"nodeId": item["nodeId"], "data": item["data"]} for item in questions]
        return shown


def offered(host: Connection) -> Operations:
    """The tools of the server."""
    served, clock = ServedHost(host), SystemClock()
    made = Operations(clock, Ids(clock, SystemRandomness()))

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
        waitSeconds=_SECONDS,
    )
    add(
        served.start_run,
        "Start a durable run of a workflow. With waitSeconds, wait for its end.",
        ("workflowId",),
        workflowId=_TEXT,
        inputs={"type": "object"},
        idempotencyKey=_TEXT,
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
