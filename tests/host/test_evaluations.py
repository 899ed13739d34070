"""Evaluations through the real host: what an agent is given while it is evaluated, and a canary that goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import Transition
from forestay.host import Host
from forestay.kernel import Agents, Config, DeploymentGate, DeploymentSettings, Models, Problem
from forestay.models import Deltas, Message, Script, Scripted, ScriptedCall, Turn
from forestay.runs import RunFilter, RunSnapshot

TENANT, AGENT = "default", "vendor.acme.tide"
READ = Turn("", (ScriptedCall("read", {"path": "tide.md"}),))
DEPLOY = ["deploy:promote", "deploy:rollback"]


class Heard(Scripted):
    """A scripted model that keeps what it was asked, and which tools it was offered."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__(Script(turns, position="conversation"))
        self.heard: list[tuple[str, list[str]]] = []

    def stream(self, messages: Sequence[Message], **more: Any) -> Deltas:
        said = "\n".join(message.content for message in messages)
        self.heard.append((said, [tool.name for tool in more.get("tools", ())]))
        return super().stream(messages, **more)


def pack(version: str, **fields: Any) -> dict[str, Any]:
    manifest = {"agentId": AGENT, "persona": "Tide", "modelClass": "general", "systemPrompt": "Tell the tide."}
    return {"name": "vendor.acme", "version": version, "agents": [{**manifest, **fields}]}


def suite(fixtures: dict[str, Any] | None = None, value: str = "Low.") -> dict[str, Any]:
    match = {"strategy": "exact", "value": value}
    task: dict[str, Any] = {
        "taskId": "tide",
        "input": "How is the tide?",
        "expected": {"kind": "golden", "match": match},
    }
    tasks = [task if fixtures is None else {**task, "fixtures": fixtures}]
    return {"suiteId": "acme.evals.tide", "version": "1.0.0", "modes": ["golden", "live-shadow"], "tasks": tasks}


def run(
    tmp_path: Path, model: Heard, story: Callable[[Host], Coroutine[Any, Any, None]], *gates: DeploymentGate
) -> None:
    async def whole() -> None:
        (tmp_path / "tide.md").write_text("REAL FILE")
        config = Config(
            models=Models(default="script"),
            agents=Agents(mode="permissive"),
            deployments=DeploymentSettings(gates=list(gates)),
        )
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models={"script": model}) as host:
            await story(host)

    asyncio.run(whole())


async def evaluated(host: Host, document: dict[str, Any], mode: Any = "golden", **options: Any) -> RunSnapshot:
    kept = await host.evaluations.put(TENANT, document)
    made = await host.evaluations.request(TENANT, kept.ref, AGENT, modes=(mode,), **options)
    return await host.runs.wait(made.run_id, TENANT)


def test_a_task_gets_the_answers_of_its_fixtures_and_touches_nothing(tmp_path: Path) -> None:
    model = Heard(READ, Turn("Low."))
    fixtures = {
        "toolResponses": [{"tool": "read", "response": "FIXTURE ANSWER"}, {"tool": "bash", "response": 0}],
        "memorySeed": [{"content": "The tide was high yesterday. SEED"}],
    }

    async def story(host: Host) -> None:
        await host.directory.install(TENANT, pack("1.0.0", toolAllowlist=["read"], memoryShape={"longTerm": True}))
        before = (await host.ledger.head(f"context/{TENANT}/{AGENT}")).seq
        ended = await evaluated(host, suite(fixtures))
        assert ended.outputs is not None and ended.outputs["summary"]["passed"] is True
        (first, tools), (second, _) = model.heard
        assert tools == ["read"], "the allowlist still holds"
        assert "SEED" in first and "FIXTURE ANSWER" in second and "REAL FILE" not in second
        assert (await host.ledger.head(f"context/{TENANT}/{AGENT}")).seq == before, "nothing was kept in mind"

    run(tmp_path, model, story)


def test_a_task_without_fixtures_has_no_tools(tmp_path: Path) -> None:
    model = Heard(Turn("Low."))

    async def story(host: Host) -> None:
        await host.directory.install(TENANT, pack("1.0.0", toolAllowlist=["*"]))
        ended = await evaluated(host, suite())
        assert ended.outputs is not None and ended.outputs["summary"]["aggregateScore"] == 1.0
        assert [tools for _, tools in model.heard] == [[]]

    run(tmp_path, model, story)


def test_live_shadow_runs_with_the_live_tools(tmp_path: Path) -> None:
    model = Heard(READ, Turn("Low."))

    async def story(host: Host) -> None:
        await host.directory.install(TENANT, pack("1.0.0", toolAllowlist=["read"]))
        await evaluated(host, suite({"toolResponses": [{"tool": "read", "response": "FIXTURE"}]}), "live-shadow")
        assert "REAL FILE" in model.heard[1][0] and "FIXTURE" not in model.heard[1][0]

    run(tmp_path, model, story)


@pytest.mark.parametrize(("expected", "state"), [("High.", "rolled-back"), ("Low.", "active")])
def test_a_canary_under_its_bar_goes_back_by_itself(tmp_path: Path, expected: str, state: str) -> None:
    async def story(host: Host) -> None:
        for version in ("1.0.0", "2.0.0"):
            await host.directory.install(TENANT, pack(version))
            for step in range(4):
                share = 50 if version == "2.0.0" else None
                more = {"channel": "stable", "canary_percent": share} if step == 3 else {}
                wanted = Transition(version, "promote", **more)
                made = await host.deployments.request(TENANT, AGENT, wanted, principal="ann", scopes=DEPLOY)
                await host.deployments.settled(TENANT, made.run_id)
        await evaluated(host, suite(value=expected), "live-shadow", version="2.0.0")
        page = await host.runs.list_runs(RunFilter(workflow_id="forestay-deployment"), TENANT)
        for item in page.runs:
            await host.runs.wait(item.run_id, TENANT)
        states = {item.version: item.state for item in await host.deployments.listed(TENANT, AGENT)}
        assert states == {"1.0.0": "active", "2.0.0": state}

    run(tmp_path, Heard(Turn("Low.")), story, DeploymentGate(auto_rollback=0.8))


def test_an_agent_that_is_not_there_is_not_evaluated(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        with pytest.raises(Problem) as caught:
            await evaluated(host, suite())
        assert caught.value.key == "not_found"

    run(tmp_path, Heard(Turn("Low.")), story)
