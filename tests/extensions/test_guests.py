"""The seam `Guest`: an extension that no VM runs goes through the same loading, policy, evidence and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.effects import read_outcome
from forestay.extensions.evidence import stream_of
from forestay.extensions.extensions import Extensions
from forestay.extensions.guests import Guest, Report
from forestay.extensions.manifest import parse_manifest
from forestay.extensions.outcomes import HookOutcome, Surroundings, ToolOutcome
from forestay.extensions.protocol import HostCall, HostCalls
from forestay.extensions.registry import Registrations
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionQuotas, Ledger, Problem, Record

MANIFEST = {
    "schema": "pi.ext.manifest.v1",
    "extension_id": "tally",
    "name": "tally",
    "version": "1.0.0",
    "api_version": "1.0",
    "runtime": "wasm",
    "entrypoint": "tally.wasm",
    "capabilities": ["read", "model", "events"],
}


class PythonGuest(Guest):
    """A guest in a few lines of Python: one tool that reads a file through a host call, one command, one handler."""

    runtime = "python"

    def __init__(self, surroundings: Surroundings, calls: HostCalls, report: Report) -> None:
        self.name = surroundings.extension
        self.registrations = Registrations(self.name)
        self.stopped = None
        self.held: list[bool] = []
        self._calls = calls
        self._count = 0

    async def load(self) -> Registrations:
        about = {"label": "Peek", "description": "Reads a file.", "parameters": {"type": "object"}}
        self.registrations.add("tool", {"name": "peek", **about})
        self.registrations.add("command", {"name": "hello"})
        self.registrations.add("handler", {"event": "tool_call", "count": 1})
        return self.registrations

    async def close(self) -> None:
        pass

    async def call_tool(
        self,
        name: str,
        arguments: Any,
        *,
        call_id: str = "call",
        prepared: bool = False,
        on_update: Callable[[Any], None] | None = None,
        timeout: float | None = None,
    ) -> ToolOutcome:
        if self.stopped is not None:
            raise self.stopped
        self._count += 1
        call = HostCall(f"{self.name}/{self._count}", "", "fs", {"op": "read", "encoding": "utf8", **arguments})
        async for result in self._calls.call(call, self.name):
            if result.error is not None:
                raise Problem("extension_failed", result.error.message, hostcall=result.error.code)
            return read_outcome(result.output["text"], [])
        raise AssertionError("a host call ends with a result")

    async def run_command(self, name: str, arguments: str = "", *, timeout: float | None = None) -> Any:
        return f"{name} {arguments}"

    async def hook(
        self, event: dict[str, Any], index: int, *, timeout: float | None = None, signal: bool = False
    ) -> HookOutcome:
        return HookOutcome({"block": True, "reason": "not today"}, None, True)

    def hold(self, held: bool) -> None:
        self.held.append(held)

    def stop(self, problem: Problem) -> None:
        self.stopped = problem


def run(
    folder: Path, work: Callable[[Extensions, PythonGuest], Any], *, mode: str = "strict", **options: Any
) -> list[Record]:
    """Do `work` with a loaded guest; what the ledger has of it afterwards."""
    (folder / "project").mkdir()
    (folder / "project/a.txt").write_text("seven")

    async def go() -> list[Record]:
        async with Ledger.open(folder / "l.db") as ledger:
            async with Extensions(ledger, root=folder / "project", mode=mode, **options) as extensions:  # type: ignore[arg-type]
                artifact = Artifact.of_manifest(parse_manifest(MANIFEST, "extension.json"))
                member = await extensions.add(artifact, PythonGuest, path=Path("tally"))
                assert isinstance(member.extension, PythonGuest)
                await work(extensions, member.extension)
            return list(await ledger.read(stream_of("tally")))

    return asyncio.run(go())


def test_its_host_call_is_decided_performed_and_on_record(tmp_path: Path) -> None:
    async def work(extensions: Extensions, _guest: PythonGuest) -> None:
        outcome = await extensions.call_tool("peek", {"path": "a.txt"})
        assert outcome.content == [{"type": "text", "text": "seven"}]

    records = run(tmp_path, work, grants=["read"])
    names = [record.type for record in records]
    assert names == [
        "capability.resolve",
        "extension.ready",
        "host_call.start",
        "policy.decision",
        "host_call.end",
    ]
    assert {record.payload["runtime"] for record in records[2:]} == {"python"}
    assert records[0].payload["declared"] == ["events", "model", "read"]


def test_what_is_not_granted_is_refused(tmp_path: Path) -> None:
    async def work(extensions: Extensions, _guest: PythonGuest) -> None:
        with pytest.raises(Problem) as refused:
            await extensions.call_tool("peek", {"path": "a.txt"})
        assert refused.value.details["hostcall"] == "denied"

    records = run(tmp_path, work)
    assert records[-1].payload["error"]["code"] == "denied"


def test_commands_events_and_the_session_know_it(tmp_path: Path) -> None:
    async def work(extensions: Extensions, _guest: PythonGuest) -> None:
        assert await extensions.run_command("hello", "you") == "hello you"
        answer = await extensions.emit({"type": "tool_call", "toolName": "peek", "toolCallId": "1", "input": {}})
        assert (answer["block"], answer["reason"]) == (True, "not today")
        assert "peek" in [tool["name"] for tool in await extensions.session.request("getAllTools", {})]
        assert await extensions.typed("x") == "x" and await extensions.autocomplete([""], 0, 0) is None
        await extensions.reload()

    run(tmp_path, work)


def test_a_quota_stops_it(tmp_path: Path) -> None:
    async def work(extensions: Extensions, guest: PythonGuest) -> None:
        with pytest.raises(Problem):
            for _ in range(40):
                await extensions.call_tool("peek", {"path": "a.txt"})
        await asyncio.sleep(0)
        assert guest.stopped is not None and guest.stopped.key == "quota_exceeded"

    quotas = ExtensionConfig(quotas=ExtensionQuotas(calls_per_second=1))
    records = run(tmp_path, work, grants=["read"], settings=Settings(config=quotas))
    assert "extension.stopped" in [record.type for record in records]


def test_a_load_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    class Broken(PythonGuest):
        async def load(self) -> Registrations:
            raise Problem("extension_failed", "no")

    async def work(extensions: Extensions, _guest: PythonGuest) -> None:
        broken = Artifact.of_manifest(parse_manifest({**MANIFEST, "extension_id": "broken"}, "extension.json"))
        with pytest.raises(Problem):
            await extensions.add(broken, Broken, path=Path("broken"))
        assert [member.extension.name for member in extensions.members] == ["tally"]
        call = HostCall("1", "", "fs", {"op": "stat", "path": "a.txt"})
        assert extensions.dispatcher.call_sync(call, "broken").is_error

    run(tmp_path, work, grants=["read"])
