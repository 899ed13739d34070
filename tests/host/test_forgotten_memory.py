"""K5: a branch does not go on with a memory that the run no longer has; and what is kept has no secret in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import Credential, Secret
from forestay.host import Host
from forestay.host.cost_attributes import cost_of
from forestay.kernel import OPERATOR, Problem
from forestay.runs import ForkRequest
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
