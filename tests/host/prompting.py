"""A project whose extension needs what nobody granted, a model that calls its tools, and a person who answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from forestay.host import Host, Options
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Mode, Models
from forestay.models import Delta, Message, Script, Scripted, ScriptedCall, Turn
from forestay.surface import Serving, serve

EXTENSION = """
import { execSync } from "node:child_process";
import { appendFileSync, readFileSync } from "node:fs";
const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const tool = (pi, name, execute) => pi.registerTool({ name, label: name, description: `Does ${name}`,
  parameters: { type: "object", properties: {} }, execute });
export default function (pi) {
  tool(pi, "shout", async () => text((await pi.exec("sh", ["-c", "echo loud"])).stdout));
  tool(pi, "shout_now", async () => {
    try { return text(execSync("echo loud").toString()); }
    catch (error) { return text(`${error.code}: ${error.message}`); }
  });
  tool(pi, "note", async () => {
    const before = readFileSync("note.md", "utf8");
    appendFileSync("ran.log", "ran\\n");
    if (before.includes("hang")) await new Promise(() => {});
    return text("noted");
  });
  tool(pi, "peek", async () => {
    try { return text(readFileSync("note.md", "utf8")); }
    catch (error) { return text(`${error.code}: ${error.message}`); }
  });
  let heard = 0;
  pi.on("tool_execution_start", () => { heard += 1; });
  pi.on("tool_call", (event) => {
    if (event.toolName === "shout_now") event.input.note = readFileSync("note.md", "utf8");
  });
  tool(pi, "heard", async () => text(heard));
}
"""
ID = "crier"


def project(folder: Path, source: str = EXTENSION) -> Path:
    place = folder / ".pi" / "extensions"
    place.mkdir(parents=True)
    (place / "crier.ts").write_text(source)
    (folder / "note.md").write_text("berth 7")
    return folder


def options(folder: Path, *tools: str, mode: Mode = "prompt") -> Options:
    turns = [Turn(f"I call {name}.", (ScriptedCall(name, {}),)) for name in tools]
    script = Heard(Script((*turns, Turn("Done.")), position="conversation"))
    config = Config(
        models=Models(default="script"),
        extensions=ExtensionConfig(policy=ExtensionPolicy(mode=mode)),
        agents=Agents(allow=["ext:*"]),
    )
    return Options(config=config, root=folder, data=folder / ".forestay", models={"script": script})


class Heard(Scripted):
    """The scripted model, which keeps what it was last told."""

    messages: Sequence[Message] = ()

    def stream(self, messages: Sequence[Message], **more: Any) -> AsyncIterator[Delta]:
        self.messages = messages
        return super().stream(messages, **more)


def heard(host: Host) -> Heard:
    """The scripted model of a host, out of what counts its calls."""
    model = host.models.default
    inner = getattr(model, "_model", model)
    assert isinstance(inner, Heard)
    return inner


class Person:
    """Somebody with an API key."""

    def __init__(self, http: httpx.AsyncClient, serving: Serving) -> None:
        self.http = http
        self.serving = serving

    async def start(self, workflow: str = "forestay-ask") -> str:
        body = {"workflowId": workflow, "inputs": {"question": "Where?"} if workflow == "forestay-ask" else {}}
        made = await self.http.post("/v1/runs", json=body)
        assert made.status_code == 201, made.text
        return str(made.json()["runId"])

    async def settled(self, run_id: str) -> str:
        """The status of the run when it waits or has ended."""
        while True:
            status = str((await self.http.get(f"/v1/runs/{run_id}")).json()["status"])
            if status.startswith("waiting") or status in ("completed", "failed", "cancelled"):
                return status
            await asyncio.sleep(0.02)

    async def question(self, run_id: str) -> dict[str, Any]:
        found = (await self.http.get(f"/v1/runs/{run_id}/interrupts")).json()["interrupts"]
        assert len(found) == 1, found
        return found[0]  # type: ignore[no-any-return]

    async def answer(self, run_id: str, **value: Any) -> str:
        asked = await self.question(run_id)
        path = f"/v1/runs/{run_id}/interrupts/{asked['nodeId']}"
        answered = await self.http.post(path, json={"resumeValue": value})
        assert answered.status_code == 200, answered.text
        return await self.settled(run_id)

    def returned(self) -> list[str]:
        """What the tools gave back, as the model was last told it."""
        return [message.content for message in heard(self.serving.host).messages if message.role == "tool"]

    async def story(self, *prefixes: str) -> list[Any]:
        """What the ledger tells of these streams, in written order: types, and who decided what."""
        records = [record for _, record in await self.serving.host.ledger.read_all("")]
        return [
            (record.type, record.payload["rule"]) if record.type == "policy.decision" else record.type
            for record in records
            if record.stream.startswith(prefixes)
        ]


@asynccontextmanager
async def person(opened: Options, *, trust: bool = True) -> AsyncIterator[Person]:
    async with serve(opened) as serving:
        if trust:
            await serving.host.extensions.trust.give(serving.host.root)
        key = (await serving.services.keys.create("me", tenant="default"))[1]
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=serving.url, headers=headers, timeout=30) as http:
            yield Person(http, serving)
