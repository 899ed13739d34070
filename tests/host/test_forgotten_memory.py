"""K5: a branch does not go on with a memory that the run no longer has; and what is kept has no secret in it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import Credential, Secret
from forestay.host import Host
from forestay.host.telemetry import cost_of
from forestay.kernel import OPERATOR, Agents, Config, Models, Problem
from forestay.models import Script, Scripted, Turn
from forestay.runs import CreateRun, ForkRequest
from forestay.runs import node as declared
from tests.runs.documents import node, start, waiting, workflow


async def recall(ctx: Any) -> dict[str, Any]:
    """Read a memory, ask a person, and say what was read."""
    found = await ctx.memory.list("notes")
    await ctx.interrupt("approval", {"artifactId": "a", "artifactType": "t", "title": "?", "actions": ["accept"]})
    return {"said": [item["content"] for item in found]}


def test_k5_a_branch_in_a_node_whose_memory_is_forgotten_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forestay.runs.nodes.registry._declared", [])
    declared("test.recall")(recall)

    async def story() -> None:
        async with Host.open(root=tmp_path, data=tmp_path / "data") as host:
            kept = await host.memories.put("acme", "notes", "The door is green.")
            run_id = await start(host.runs, workflow("w", [node("n", "test.recall")]))
            asked = await waiting(host.runs, run_id, "node.suspended")
            request = ForkRequest(mode="branch", from_seq=asked.sequence + 1)
            await host.runs.fork(run_id, "acme", request)
            await host.memories.forget("acme", kept.memory_id)
            with pytest.raises(Problem) as refused:
                await host.runs.fork(run_id, "acme", request)
            assert refused.value.key == "replay_memory_unavailable"
            early = ForkRequest(mode="branch", from_seq=1)  # before the node read anything
            await host.runs.fork(run_id, "acme", early)

    asyncio.run(story())


def test_what_an_agent_recalled_in_a_conversation_is_in_no_file_once_it_is_forgotten(tmp_path: Path) -> None:
    """Neither the conversation nor the runs and their relay sessions, archived too, have a byte of it."""
    agent, canary = "local.test.master", "Ixworth-Quill"
    manifest = {"agentId": agent, "persona": "Master", "modelClass": "general", "systemPrompt": "Answer."}
    (tmp_path / "agent.json").write_text(json.dumps({**manifest, "memoryShape": {"longTerm": True}}))
    seen: list[str] = []

    class Listening(Scripted):
        def stream(self, messages, **more):  # type: ignore[no-untyped-def]
            seen.append("\n".join(message.content for message in messages))
            return super().stream(messages, **more)

    model = Listening(Script((Turn("At seven.", repeat=True),)))
    config = Config(models=Models(default="m"), agents=Agents(paths=["agent.json"], context=[]))

    async def story() -> None:
        async with Host.open(config, root=tmp_path, data=tmp_path / "d", models={"m": model}) as host:
            kept = await host.memories.put(OPERATOR, agent, f"{canary} opens the desk.", tags=[f"subject:{canary}"])
            session = await host.sessions.create(OPERATOR)
            for _ in range(2):
                inputs = {"question": "Who opens the desk?", "agentId": agent, "sessionId": session.id}
                made = await host.runs.create_run(CreateRun(workflow_id="forestay-ask", inputs=inputs), OPERATOR)
                ended = await host.runs.wait(made.run_id, OPERATOR)
                assert ended.status == "completed", ended.error
            assert all(canary in text for text in seen), "the model was given it each time"
            while await host.ledger.seal(*await host.ledger.streams("run/"), *await host.ledger.streams("relay/")):
                pass
            await host.memories.forget(OPERATOR, kept.memory_id)
            assert holders(tmp_path, canary) == []
            said = [repr(record) for _, record in await host.ledger.read_all(limit=100_000)]
            assert len(said) > 20 and not [text for text in said if canary in text], "archives are read as the rest"
        assert holders(tmp_path, canary) == []

    asyncio.run(story())


def holders(folder: Path, text: str) -> list[str]:
    """The files below `folder` that hold `text`."""
    return [file.name for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


def test_a_memory_keeps_no_value_of_its_tenants_credentials(tmp_path: Path) -> None:
    async def story() -> None:
        async with Host.open(root=tmp_path, data=tmp_path / "data") as host:
            for name, value in (("short", "harbour-9"), ("long", "harbour-94-violet")):
                about = Credential(credential_id=name, issuer="x", audiences=("api.example.com",))
                await host.credentials.put(OPERATOR, about, Secret(value))
            kept = await host.memories.put(OPERATOR, "notes", "harbour-94-violet, then harbour-9.")
            (entry,) = await host.memories.several(OPERATOR, [kept.memory_id])
            assert entry.content == "[REDACTED:long], then [REDACTED:short]."
            other = await host.memories.put("acme", "notes", "harbour-9")
            (entry,) = await host.memories.several("acme", [other.memory_id])
            assert entry.content == "harbour-9", "another tenant's secret is nothing that this one knows"

    asyncio.run(story())


def test_a_span_says_of_cost_what_it_may_say_in_its_own_type() -> None:
    given = {
        "openwop.cost.tokens.input": True,
        "openwop.cost.tokens.output": 7,
        "openwop.cost.usd": "0.1",
        "openwop.cost.estimated": False,
        "openwop.cost.provider": "sk-ant-0123456789abcdef0123",
        "openwop.cost.evil": 1,
    }
    said = cost_of(given)
    assert said.pop("openwop.cost.provider") == "[REDACTED]"
    assert said == {"openwop.cost.tokens.output": 7, "openwop.cost.estimated": False}
