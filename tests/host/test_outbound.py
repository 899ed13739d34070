"""Requests with credentials, through a real host and to a real socket: what arrives, is told, and leaks nowhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.governance import Credential, Secret
from forestay.host import Host
from forestay.kernel import Agents, Config, Models, canonical
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun, RunSnapshot
from tests.runs.documents import node, workflow
from tests.runs.events import check_events

VALUE = "canary-93b1e7d2c4"


class Echo:
    """A server on loopback that answers with the head of each request."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.place = ""

    @property
    def seen(self) -> list[bool]:
        """For each request, whether it carried the value."""
        return [VALUE in head for head in self.heads]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        writer.write(b"HTTP/1.1 200 OK\r\nx-echo: " + head.replace(b"\r\n", b" ") + b"\r\n")
        writer.write(b"content-length: %d\r\n\r\n" % len(head) + head)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield echo
    finally:
        server.close()
        await server.wait_closed()


def play(
    tmp_path: Path, story: Callable[[Host, Echo], Awaitable[None]], turns: Callable[[str], list[Turn]] | None = None
) -> None:
    async def whole() -> None:
        async with echoing() as echo:
            script = Scripted(Script(tuple(turns(echo.place) if turns else ()), position="conversation"))
            config = Config(models=Models(default="script"), agents=Agents(fetch=["127.0.0.1"]))
            options = {"root": tmp_path, "models": {"script": script}, "allow_egress": (echo.place,)}
            async with Host.open(config, **options) as host:
                await story(host, echo)

    asyncio.run(whole())


async def keep(host: Host, *audiences: str, **more: Any) -> None:
    await host.credentials.put("default", Credential(credential_id="api", audiences=audiences, **more), Secret(VALUE))


async def started(host: Host, url: str, tenant: str = "default", **config: Any) -> str:
    flow = workflow("w", [node("get", "core.http", config={"url": url, "failOn": [], **config})])
    await host.runs.put_workflow(flow, tenant=tenant)
    return (await host.runs.create_run(CreateRun(workflow_id="w"), tenant, "alice")).run_id


async def ended(host: Host, run_id: str, tenant: str = "default") -> tuple[RunSnapshot, list[str]]:
    """The run at its end, and what was decided."""
    snapshot = await host.runs.wait(run_id, tenant)
    events = await host.runs.events(run_id, tenant)
    return snapshot, [event.payload["decision"] for event in events if event.type == "egress.decided"]


def test_a_credential_arrives_where_it_is_meant_for_and_nowhere_else(tmp_path: Path) -> None:
    async def story(host: Host, echo: Echo) -> None:
        url = f"http://{echo.place}/v1"
        await keep(host, echo.place)
        run, decided = await ended(host, await started(host, url, credential="api"))
        assert (run.status, decided, echo.seen) == ("completed", ["allowed"], [True])
        assert VALUE not in str(run.outputs) and "Bearer [REDACTED]" in run.outputs["body"]  # the server said it
        for tenant, config in (("other", {"credential": "api"}), ("default", {"credential": "no-such"})):
            run, decided = await ended(host, await started(host, url, tenant, **config), tenant)
            assert (run.status, decided) == ("failed", ["denied"])
        await keep(host, "api.example.com")
        run, decided = await ended(host, await started(host, url, credential="api"))
        assert (run.status, decided) == ("failed", ["denied"]) and run.error.code == "credential_forbidden"
        await keep(host, "api.example.com", outside="downgrade")
        run, decided = await ended(host, await started(host, url, credential="api"))
        assert (run.status, decided, echo.seen) == ("completed", ["downgraded"], [True, False])
        stolen = await started(host, f"{url}?k={VALUE}", headers={"x-k": VALUE})  # a node that came to know it
        assert (await ended(host, stolen))[0].error.code == "credential_forbidden" and len(echo.seen) == 2
        await host.credentials.revoke("default", "api")
        run, decided = await ended(host, await started(host, url, credential="api"))
        assert (run.status, decided, len(echo.seen)) == ("failed", ["denied"], 2)

    play(tmp_path, story)


def test_a_person_agrees_before_it_is_sent(tmp_path: Path) -> None:
    async def story(host: Host, echo: Echo) -> None:
        await keep(host, echo.place, approval=True)
        run_id = await started(host, f"http://{echo.place}/", credential="api")
        async for event in host.runs.follow(run_id, "default"):
            if event.type == "interrupt.requested":
                break
        assert echo.seen == []
        (asked,) = await host.runs.interrupts(run_id, "default")
        assert asked.data["title"] == "May api be sent to 127.0.0.1?" and VALUE not in str(asked.data)
        await host.runs.resolve_by_node(run_id, "get", "default", {"resumeValue": {"action": "accept"}}, "bob")
        run, decided = await ended(host, run_id)
        assert (run.status, decided, echo.seen) == ("completed", ["approval-required", "allowed"], [True])

    play(tmp_path, story)


def _fetching(place: str) -> list[Turn]:
    call = ScriptedCall("fetch", {"url": f"http://{place}/", "credential": "api"})
    return [Turn("I look.", (call,)), Turn("Done.")]


@pytest.mark.parametrize("approval", [False, True])
def test_an_agent_names_a_credential_and_never_has_it(tmp_path: Path, approval: bool) -> None:
    async def story(host: Host, echo: Echo) -> None:
        await keep(host, echo.place, approval=approval)
        request = CreateRun(workflow_id="forestay-ask", inputs={"question": "What is there?"})
        run_id = (await host.runs.create_run(request, "default")).run_id
        if approval:
            async for event in host.runs.follow(run_id, "default"):
                if event.type == "interrupt.requested":
                    break
            assert echo.seen == []
            await host.runs.resolve_by_node(run_id, "agent", "default", {"resumeValue": {"action": "accept"}}, "bob")
        run, decided = await ended(host, run_id)
        assert run.status == "completed" and echo.seen == [True]
        assert decided == [*(["approval-required"] if approval else []), "allowed"]
        events = await host.runs.events(run_id, "default")
        (called,) = [event for event in events if event.type == "agent.toolCalled"]
        assert called.payload["transport"] == "http" and VALUE not in str(events)

    play(tmp_path, story, _fetching)


def test_an_agent_reaches_no_host_that_the_settings_do_not_name(tmp_path: Path) -> None:
    async def story(host: Host, echo: Echo) -> None:
        request = CreateRun(workflow_id="forestay-ask", inputs={"question": "What is there?"})
        run_id = (await host.runs.create_run(request, "default")).run_id
        assert (await ended(host, run_id))[0].status == "completed" and echo.heads == []
        (told,) = [e for e in await host.runs.events(run_id, "default") if e.type == "agent.toolReturned"]
        assert told.payload["status"] == "error"
        names = [tool.name for tool, _ in await host.tools.offered("default")]
        assert {"fetch", "send_request"} <= set(names)

    def elsewhere(place: str) -> list[Turn]:
        return [Turn("", (ScriptedCall("fetch", {"url": f"http://localhost:{place.split(':')[1]}/"}),)), Turn("No.")]

    play(tmp_path, story, elsewhere)


def test_no_record_log_line_bundle_or_file_holds_the_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def story(host: Host, echo: Echo) -> None:
        await keep(host, echo.place)
        ran = [
            await started(host, f"http://{echo.place}/", credential="api"),
            await started(host, "http://127.0.0.1:1/", credential="api"),
            await started(host, "http://10.0.0.1/", credential="api"),
        ]
        for run_id in ran:
            await ended(host, run_id)
            check_events(await host.runs.events(run_id, "default"))
            assert VALUE not in str(await host.runs.debug_bundle(run_id, "default"))
        assert echo.seen == [True]
        told = b"".join([line async for line in host.ledger.export()])
        assert b"egress.decided" in told and VALUE.encode() not in told
        assert VALUE not in canonical.encode(msgspec.to_builtins(await host.credentials.listed("default"))).decode()

    play(tmp_path, story)
    assert VALUE not in caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file() and VALUE.encode() in file.read_bytes()]
    assert files == []
