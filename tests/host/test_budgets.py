"""Budgets through the real host: an agent's turns and tools, a node's own question, prices, people, discovery."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.kernel import Agents, Budgets, Ceiling, Config, Models, Price
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun, RunSnapshot
from tests.runs.documents import edge, node, workflow

TENANT = "default"
READ = Turn("", (ScriptedCall("read", {"path": "tide.md"}),))


def run(
    tmp_path: Path, story: Callable[[Host], Coroutine[Any, Any, None]], *turns: Turn, budgets: Budgets | None = None
) -> None:
    async def whole() -> None:
        (tmp_path / "tide.md").write_text("The tide is low.")
        models = {"script": Scripted(Script(turns, position="conversation"))}
        config = Config(models=Models(default="script"), agents=Agents(mode="permissive"), budgets=budgets or Budgets())
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models=models) as host:
            await story(host)

    asyncio.run(whole())


async def begin(host: Host, budget: dict[str, Any] | None, workflow_id: str = "forestay-ask") -> str:
    configurable = {} if budget is None else {"budget": budget}
    inputs = {"question": "How is the tide?"} if workflow_id == "forestay-ask" else {}
    request = CreateRun(workflow_id=workflow_id, inputs=inputs, configurable=configurable)
    return (await host.runs.create_run(request, TENANT)).run_id


async def ended(host: Host, budget: dict[str, Any] | None, workflow_id: str = "forestay-ask") -> RunSnapshot:
    return await host.runs.wait(await begin(host, budget, workflow_id), TENANT)


async def told(host: Host, run_id: str, *types: str) -> list[tuple[str, Any]]:
    events = (await host.runs.poll(run_id, TENANT, -1, 0)).events
    return [(event.type, event.payload) for event in events if event.type.startswith(types)]


def test_an_agent_stops_when_its_tokens_are_used_up(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        free = await ended(host, {"maxTokens": 1_000_000})
        assert free.status == "completed"
        used = [payload["consumed"] for _, payload in await told(host, free.run_id, "budget.consumed")]
        asked = [payload for _, payload in await told(host, free.run_id, "provider.usage")]
        assert used[-1] == sum(item["inputTokens"] + item["outputTokens"] for item in asked) > 0
        tight = await ended(host, {"maxTokens": used[-1] - 20})  # the first question fits, the second does not
        assert tight.error is not None and tight.error.code == "budget_exhausted", tight.error
        types = [type for type, _ in await told(host, tight.run_id, "budget.", "cap.", "run.failed")]
        assert types[0] == "budget.reserved"
        assert types[-3:] == ["budget.exhausted", "cap.breached", "run.failed"]
        assert len(await told(host, tight.run_id, "provider.usage")) == 1

    run(tmp_path, story, READ, Turn("Low."))


def test_an_agent_stops_when_its_tool_calls_are_used_up(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        assert (await ended(host, {"maxToolCalls": 2})).status == "completed"
        tight = await ended(host, {"maxToolCalls": 1})
        assert tight.error is not None and tight.error.code == "budget_exhausted", tight.error
        assert len(await told(host, tight.run_id, "agent.toolReturned")) == 1  # the second was never made

    run(tmp_path, story, READ, READ, Turn("Low."))


@pytest.mark.parametrize(
    ("budgets", "budget"),
    [
        (Budgets(), {"modelDeny": ["scripted*", "script*"]}),
        (Budgets(), {"modelAllow": ["other"]}),
        (Budgets(ceilings=[Ceiling("agent", "*", model_allow=["other:*"])]), None),
    ],
)
def test_a_model_that_a_budget_denies_is_never_asked(tmp_path: Path, budgets: Budgets, budget: Any) -> None:
    async def story(host: Host) -> None:
        refused = await ended(host, budget)
        assert refused.error is not None and refused.error.code == "budget_model_denied", refused.error
        assert await told(host, refused.run_id, "provider.usage") == []

    run(tmp_path, story, Turn("Low."), budgets=budgets)


def test_prices_make_costs_and_stay_with_the_operator(tmp_path: Path) -> None:
    prices = {"*": Price(1234.5, 9876.5)}

    async def story(host: Host) -> None:
        answered = await ended(host, {"maxCostUsd": 1000})
        (_, usage), *_ = await told(host, answered.run_id, "provider.usage")
        cost = (1234.5 * usage["inputTokens"] + 9876.5 * usage["outputTokens"]) / 1e6
        assert usage["costEstimateUsd"] == pytest.approx(cost, abs=1e-6)
        tight = await ended(host, {"maxCostUsd": cost / 2})
        assert tight.error is not None and tight.error.code == "budget_exhausted"
        lines = [line async for line in host.ledger.export("")]
        assert not [line for line in lines if b"1234.5" in line or b"9876.5" in line]
        assert "cost" in host.capabilities()["budget"]["dimensions"]

    run(tmp_path, story, Turn("Low."), budgets=Budgets(prices=prices))


def test_runs_share_what_the_project_may_spend_in_a_day(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        first = await ended(host, None)
        assert first.status == "completed"
        (standing,) = await host.budgets.standings(TENANT)
        limit = standing.limits["maxTokens"]
        assert (standing.account.startswith("project/day/"), standing.held) == (True, {})
        while (await ended(host, None)).status == "completed":
            pass
        (standing,) = await host.budgets.standings(TENANT)
        assert 0 < standing.spent["tokens"] <= limit

    run(tmp_path, story, Turn("Low."), budgets=Budgets(ceilings=[Ceiling("project", per="day", max_tokens=3000)]))


def test_a_person_gives_an_agent_more(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        run_id = await begin(host, {"maxToolCalls": 1, "onExhaustion": "interrupt"})
        async for event in host.runs.follow(run_id, TENANT):
            if event.type == "interrupt.requested":
                break
        (question,) = await host.runs.interrupts(run_id, TENANT)
        answer = {"resumeValue": {"action": "accept", "budget": {"maxToolCalls": 5}}}
        await host.runs.resolve_by_node(run_id, question.node_id, TENANT, answer, "alice")
        assert (await host.runs.wait(run_id, TENANT)).status == "completed"
        reserved = [payload["effectiveBudget"] for _, payload in await told(host, run_id, "budget.reserved")]
        assert reserved == [{"maxToolCalls": 1}, {"maxToolCalls": 6}]

    run(tmp_path, story, READ, READ, Turn("Low."))


def test_a_person_gives_an_agent_more_tokens_before_its_next_question(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        free = await ended(host, {"maxTokens": 1_000_000})
        used = [payload["consumed"] for _, payload in await told(host, free.run_id, "budget.consumed")]
        run_id = await begin(host, {"maxTokens": used[-1] - 20, "onExhaustion": "interrupt"})
        async for event in host.runs.follow(run_id, TENANT):
            if event.type == "interrupt.requested":
                break
        (question,) = await host.runs.interrupts(run_id, TENANT)
        answer = {"resumeValue": {"action": "accept", "budget": {"maxTokens": 100_000}}}
        await host.runs.resolve_by_node(run_id, question.node_id, TENANT, answer, "alice")
        done = await host.runs.wait(run_id, TENANT)
        assert (done.status, (done.outputs or {}).get("output")) == ("completed", "Low.")

    run(tmp_path, story, READ, Turn("Low."))


def test_a_node_that_asks_a_model_itself_is_held_to_the_budget(tmp_path: Path) -> None:
    document = workflow(
        "two", [node(name, "core.ai.callPrompt", config={"prompt": "Hello? " * 20}) for name in "ab"], [edge("a", "b")]
    )

    async def story(host: Host) -> None:
        await host.runs.put_workflow(document, tenant=TENANT)
        free = await ended(host, {"maxTokens": 100_000}, "two")
        assert free.status == "completed"
        used = [payload["consumed"] for _, payload in await told(host, free.run_id, "budget.consumed")]
        tight = await ended(host, {"maxTokens": used[-1] - 1}, "two")
        assert tight.error is not None and tight.error.code == "budget_exhausted"
        assert len(await told(host, tight.run_id, "provider.usage")) == 1

    run(tmp_path, story, Turn("Hello."))


def test_discovery_says_what_is_so(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        assert host.capabilities()["budget"] == {
            "supported": True,
            "dimensions": ["tokens", "toolCalls", "retries"],  # no prices, so no cost; advisory, so no model
            "enforce": "advisory",
            "scopes": ["run", "workflow", "agent", "project"],
        }
        loose = await ended(host, {"maxTokens": 1, "modelDeny": ["*"]})
        assert loose.status == "completed"
        assert [type for type, _ in await told(host, loose.run_id, "budget.exhausted", "cap.")] == ["budget.exhausted"]

    run(tmp_path, story, Turn("Low."), budgets=Budgets(enforce="advisory"))


def test_no_event_of_a_budget_holds_content(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        done = await ended(host, {"maxTokens": 100_000, "thresholdPercent": 0.001})
        shown = json.dumps(await told(host, done.run_id, "budget."))
        assert "threshold" in shown
        assert not [word for word in ("tide", "CANARY", "price", "script") if word in shown]

    run(tmp_path, story, Turn("CANARY"))


def test_governance_takes_no_commit_of_its_own(tmp_path: Path) -> None:
    """What is remembered goes to disk in commits of the run, what budgets hold, charge and take in front of them.
    Beside other processes a reservation is a commit of its own, so that it can be refused alone."""

    async def story(host: Host) -> None:
        if host.ledger.shared:
            return
        agent = {"agentId": "vendor.acme.tide", "persona": "Tide", "modelClass": "general", "systemPrompt": "Tell."}
        shape = {"toolAllowlist": ["read"], "memoryShape": {"longTerm": True}}
        await host.directory.install(TENANT, {"name": "vendor.acme", "version": "1.0.0", "agents": [agent | shape]})
        commits: list[set[str]] = []
        later: list[set[str]] = []
        commit, submit = host.ledger.commit, host.ledger.submit

        def families(appends: Any) -> set[str]:
            return {item.stream.partition("/")[0] for item in appends}

        async def committed(*appends: Any) -> Any:
            commits.append(families(appends))
            return await commit(*appends)

        def submitted(*appends: Any, **how: bool) -> Any:
            (later if how.get("later") else commits).append(families(appends))
            return submit(*appends, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host.ledger, "commit", committed)
            patch.setattr(host.ledger, "submit", submitted)
            inputs = {"question": "How is the tide?", "agentId": agent["agentId"]}
            budget = {"budget": {"maxTokens": 1_000_000, "maxToolCalls": 9}}
            request = CreateRun(workflow_id="forestay-ask", inputs=inputs, configurable=budget)
            made = await host.runs.create_run(request, TENANT)
            assert (await host.runs.wait(made.run_id, TENANT)).status == "completed"
        governed = [found for found in commits if found & {"budget", "memory", "audit"}]
        assert [found - {"relay"} for found in governed] == [
            {"run", "audit"},  # the tool call decided
            {"run", "memory"},
        ]
        assert later == [{"budget"}] * 5, "for each question what it may use and what it used, and a tool call charged"
        assert len(await host.memories.listed(TENANT, agent["agentId"])) == 1
        (standing,) = await host.budgets.standings(TENANT)
        assert standing.spent["toolCalls"] == 1 and standing.spent["tokens"] and not standing.held

    run(tmp_path, story, READ, Turn("Low."))
