"""Y1 to Y3: kept once, one's own, bounded; and an agent that remembers across runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forestay.host import Host
from forestay.host.former_memory import take_over
from forestay.host.memory import AgentMemory
from forestay.kernel import Agents, Append, Config, Draft, Ids, Ledger, ManualClock, Models
from forestay.models import Script, Scripted, Turn
from forestay.relay import Memories, MemoryTable
from forestay.runs import Caller, CreateRun

AGENT = "local.harbour.master"


@asynccontextmanager
async def memories(folder: Path, clock: ManualClock) -> AsyncIterator[Memories]:
    async with Ledger.open(folder / "l.db", projections=[MemoryTable()], clock=clock) as ledger:
        yield Memories(ledger, clock=clock, ids=Ids(clock))


def of(kept: Memories, tenant: str) -> AgentMemory:
    def along(append: Append) -> None:
        kept._ledger.submit(append).result()  # a run writes it with what it says next

    return AgentMemory(kept, Caller(tenant, "run_1", "n", "k"), along)


async def recalled(memory: AgentMemory, agent: str, task: str) -> list[str]:
    return list(await memory.read(await memory.recall(agent, task)))


async def test_y1_y2_an_entry_is_kept_once_and_for_its_owner(tmp_path: Path, clock: ManualClock) -> None:
    async with memories(tmp_path, clock) as kept:
        memory = of(kept, "acme")
        for _ in range(3):
            await memory.remember(AGENT, "The Aurora lies at berth 7.", idempotency_key="one")
        await memory.remember(AGENT, "The Petrel lies at berth 3.", idempotency_key="two")
        assert len(await kept.listed("acme")) == 2
        assert await recalled(memory, AGENT, "Where is the Aurora?") == ["The Aurora lies at berth 7."]
        assert await recalled(of(kept, "other"), AGENT, "Where is the Aurora?") == []
        assert await recalled(memory, "local.other.agent", "Where is the Aurora?") == []


async def test_y3_the_best_few_are_recalled(tmp_path: Path, clock: ManualClock) -> None:
    async with memories(tmp_path, clock) as kept:
        memory = of(kept, "acme")
        for number in range(20):
            await memory.remember(AGENT, f"Berth {number} is free.", idempotency_key=str(number))
        found = await recalled(memory, AGENT, "Which berth is free? Berth 4?")
        assert len(found) == 5 and "Berth 4 is free." in found
        assert await recalled(memory, AGENT, "Something else entirely") == []


def test_an_agent_with_a_memory_recalls_what_it_answered_before(tmp_path: Path) -> None:
    manifest = {
        "agentId": AGENT,
        "persona": "Master",
        "modelClass": "general",
        "systemPrompt": "Answer.",
        "memoryShape": {"longTerm": True},
    }
    (tmp_path / "agent.json").write_text(json.dumps(manifest))

    async def story() -> None:
        seen: list[str] = []

        class Listening(Scripted):
            def stream(self, messages, **more):  # type: ignore[no-untyped-def]
                seen.append("\n".join(message.content for message in messages))
                return super().stream(messages, **more)

        model = Listening(Script((Turn("7", repeat=True),)))
        config = Config(models=Models(default="m"), agents=Agents(paths=["agent.json"], context=[]))
        async with Host.open(config, root=tmp_path, data=tmp_path / "d", models={"m": model}) as host:
            for _ in range(2):
                inputs = {"question": "Where does the Aurora lie?", "agentId": AGENT}
                request = CreateRun(workflow_id="forestay-ask", inputs=inputs)
                run_id = (await host.runs.create_run(request, "default")).run_id
                async for _event in host.runs.follow(run_id, "default"):
                    pass
                assert (await host.runs.get_run(run_id, "default")).status == "completed"
            (first, *_) = await host.memories.listed("default", AGENT)
            written = [event.payload async for event in host.runs.follow(run_id, "default")
                       if event.type == "memory.written"]  # fmt: skip
            assert written == [{"memoryRef": AGENT, "memoryId": first.id, "nodeId": "agent", "agentId": AGENT}]
            assert (first.origin.run_id, first.origin.agent_id) == (run_id, AGENT)
        assert "What you remember" not in seen[0]
        assert "- Where does the Aurora lie?\n7" in seen[1]

    asyncio.run(story())


REWRITES = """
export default function (pi) {
  pi.on("input", (event) => ({ action: "transform", text: event.text.replace("boat A", "Aurora") }));
  pi.on("context", (event) => %s);
}
"""
CONTEXTS = {
    "as it is": "undefined",
    "passed on": "({ messages: event.messages })",
    "with more before it": '({ messages: [{ role: "user", content: "Mind the tide." }, ...event.messages] })',
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_relay_looks_for_facts_about_the_task_that_an_extension_rewrote(context: str, tmp_path: Path) -> None:
    """Not about the memory that stands before it in the conversation."""
    (tmp_path / "agent.json").write_text(
        json.dumps(
            {
                "agentId": AGENT,
                "persona": "Master",
                "modelClass": "general",
                "systemPrompt": "Answer.",
                "memoryShape": {"longTerm": True},
            }
        )
    )
    folder = tmp_path / ".forestay" / "extensions" / "rewrites"
    folder.mkdir(parents=True)
    (folder / "index.ts").write_text(REWRITES % CONTEXTS[context])

    async def story() -> None:
        model = Scripted(Script((Turn("At berth 7.", repeat=True),)))
        config = Config(models=Models(default="m"), agents=Agents(paths=["agent.json"], context=[]))
        async with Host.open(config, root=tmp_path, data=tmp_path / "d", models={"m": model}) as host:
            await host.extensions.trust.give(host.root)
            await of(host.memories, "default").remember(AGENT, "The Aurora is painted green.", idempotency_key="one")
            inputs = {"question": "Where does boat A lie?", "agentId": AGENT}
            run_id = (await host.runs.create_run(CreateRun("forestay-ask", inputs=inputs), "default")).run_id
            async for _event in host.runs.follow(run_id, "default"):
                pass
            done = await host.runs.get_run(run_id, "default")
            assert done.status == "completed", done.error
            records = await host.ledger.read(f"relay/{done.outputs['relaySessionId']}")  # type: ignore[index]
        begun = next(record.payload for record in records if record.type == "crp.dispatch.start")
        assert begun["query"] == begun["task_input"] == "Where does Aurora lie?"

    asyncio.run(story())


async def test_what_an_agent_kept_in_0_1_is_still_known_and_taken_over_once(tmp_path: Path, clock: ManualClock) -> None:
    async with memories(tmp_path, clock) as kept:
        ledger = kept._ledger
        assert await take_over(ledger, kept) == 0
        old = [Draft("memory.kept", {"entry": f"The {name} lies at berth {n}.", "key": name}) for n, name in ENTRIES]
        await ledger.append(f"context/acme/{AGENT}", old)
        await ledger.append("context/ctx_1", [Draft("context.created", {"entry": "another kind"})])
        assert await take_over(ledger, kept) == 2
        memory = of(kept, "acme")
        assert await recalled(memory, AGENT, "Where is the Aurora?") == ["The Aurora lies at berth 7."]
        await memory.remember(AGENT, "The Aurora lies at berth 7.", idempotency_key="Aurora")
        assert len(await kept.listed("acme")) == 2
        await kept.forget_all("acme", AGENT)
        assert await take_over(ledger, kept) == 0
        assert await kept.listed("acme") == []


ENTRIES = ((7, "Aurora"), (3, "Petrel"))
