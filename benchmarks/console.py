"""The console with many runs: the server's time for a page with 10,000 runs, a run of 40 turns and a workflow of 500
nodes.

    python -m benchmarks.console [runs]

The runs' events are written directly into the ledger; the pages come from a real host over HTTP. Processor time covers
the host and the client; on an idle machine it equals the wall time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from forestay.console import Console
from forestay.host import Options
from forestay.kernel import Append, Draft, config
from forestay.surface import Serving, serve

RUNS = 10_000
TURNS = 40
ROUNDS = 7
MOST_MS = 300
WORDS = "berth lighthouse harbour Aurora Petrel tide cargo crane pilot manifest quay ferry".split()


async def fill(serving: Serving, runs: int) -> None:
    """Write `runs` ended runs over thirty days, with questions, tags, tokens; every twentieth failed."""
    ledger, now = serving.host.ledger, serving.host.clock.now_ms()
    first = now - 30 * 24 * 3600 * 1000
    step = (now - first) // runs
    await serving.host.runs.put_workflow(wide(2), tenant=None)
    place = (await serving.host.runs.stored_workflow("wide-2", "default")).ref
    for start in range(0, runs, 200):
        for number in range(start, min(runs, start + 200)):
            await ledger.commit(_run(number, first + number * step, [place.stream, place.seq]))


def _run(number: int, at: int, workflow: list[Any]) -> Append:
    status = "failed" if number % 20 == 0 else "completed"
    asked = f"Question {number}: where does the {WORDS[number % 12]} lie beside the {WORDS[number % 7]}?"
    begun = {"workflowId": "wide-2", "workflowVersion": "1.0.0", "inputs": {"question": asked},
             "owner": {"tenant": "default"}, "tags": [WORDS[number % 5]], "engineVersion": "1.0.0"}  # fmt: skip
    used = {"provider": "p", "model": "m", "inputTokens": 900, "outputTokens": 80, "costEstimateUsd": 0.004}
    standing = {"st": status, "i": "bench", **({"e": "node_failed"} if status == "failed" else {})}
    ended: dict[str, Any] = {"outputs": {}} if status == "completed" else {"error": {"code": "x", "message": "no"}}
    drafts = [
        Draft("run.started", begun, {"p": {"workflow": workflow}}, None, at),
        Draft("node.started", {"nodeId": "n0", "typeId": "core.noop", "attempt": 1}, {"n": "n0"}, None, at + 1),
        Draft("provider.usage", used, {"n": "n0"}, None, at + 20),
        Draft(f"run.{status}", ended, {"s": standing}, None, at + 30 + number % 900),
    ]
    return Append(f"run/run_{number:026}", drafts, -1)


def long_agent(folder: Path, turns: int = TURNS) -> str:
    """Write a project whose agent answers after `turns` turns, each but the last a tool call; return the agent's id."""
    reads = [
        {"text": f"Step {at}: I **look** again.", "tool_calls": [{"name": "read", "arguments": {"path": "notes.md"}}]}
        for at in range(1, turns)
    ]
    answer = {"text": "# Found\n\nThe Aurora lies at **berth 7**.\n\n- seen in `notes.md`\n- seen again\n"}
    manifest = {"agentId": "local.bench.patient", "persona": "Patient", "modelClass": "general",
                "systemPrompt": "Look until you know.", "toolAllowlist": ["read"],
                "forestay": {"turns": turns + 5}}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agents").mkdir(exist_ok=True)
    (folder / "notes.md").write_text("The Aurora lies at berth 7.\n")
    (folder / "model.json").write_text(json.dumps({"position": "conversation", "turns": [*reads, answer]}))
    (folder / "agents" / "patient.json").write_text(json.dumps(manifest))
    (folder / "forestay.toml").write_text(
        '[models]\ndefault = "scripted:model.json"\n\n[agents]\npaths = ["agents"]\nallow = ["read"]\n'
    )
    return str(manifest["agentId"])


def wide(nodes: int) -> dict[str, Any]:
    """Return a workflow of `nodes` nodes, ten in a row."""
    made = [
        {"id": f"n{at}", "typeId": "core.identity", "name": f"Node {at}", "position": {"x": 0, "y": 0}, "config": {},
         "inputs": {}}
        for at in range(nodes)
    ]  # fmt: skip
    edges = [{"id": f"e{at}", "sourceNodeId": f"n{at - 10}", "targetNodeId": f"n{at}"} for at in range(10, nodes)]
    return {"id": f"wide-{nodes}", "name": "Wide", "version": "1.0.0", "nodes": made, "edges": edges, "triggers": [],
            "variables": [], "metadata": {}, "settings": {"executionMode": "parallel"}}  # fmt: skip


async def measure(http: httpx.AsyncClient, path: str) -> tuple[float, float]:
    """Return the median processor and wall milliseconds of a few requests, without the first one."""
    used, taken = [], []
    for _ in range(ROUNDS + 1):
        begun, worked = time.perf_counter(), time.process_time()
        answer = await http.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
        used.append((time.process_time() - worked) * 1000)
        taken.append((time.perf_counter() - begun) * 1000)
    return sorted(used[1:])[ROUNDS // 2], sorted(taken[1:])[ROUNDS // 2]


async def main(runs: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        agent = long_agent(Path(folder))
        settings = config.load(Path(folder), environ={}).config
        options = Options(config=settings, root=Path(folder), data=Path(folder) / ".forestay")
        async with serve(options, console=Console) as serving:
            await fill(serving, runs)
            large = wide(500)
            await serving.host.runs.put_workflow(large, tenant=None)
            _, key = await serving.services.keys.create("bench")
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=60) as http:
                made = (await http.post("/v1/runs", json={"workflowId": large["id"]})).json()["runId"]
                await serving.host.runs.wait(made, "default")
                asks = {"workflowId": "forestay-ask", "inputs": {"question": "Where does she lie?", "agentId": agent}}
                talked = (await http.post("/v1/runs", json=asks)).json()["runId"]
                ended = await serving.host.runs.wait(talked, "default")
                assert ended.status == "completed", ended.error
                assert (await http.post("/login", data={"key": key})).status_code == 303
                paths = {
                    "overview": "/",
                    "list": "/runs",
                    "last page": f"/runs?start={runs - 50}",
                    "text": "/runs?q=lighthouse+lie",
                    "text that is nowhere": "/runs?q=nowhere+at+all",
                    "status, dates, tag": "/runs?status=failed&since=2020-01-01&until=2999-01-01&tag=berth",
                    "longest": "/runs?sort=longest",
                    "dearest, text": "/runs?sort=dearest&q=aurora",
                    "charts, month": "/charts?over=month",
                    "charts, year": "/charts?over=year",
                    "inbox": "/inbox",
                    "one run": f"/runs/run_{runs // 2:026}",
                    "40 turns": f"/runs/{talked}",
                    "500 nodes": f"/runs/{made}",
                    "one node of 500": f"/runs/{made}/nodes/n499",
                }
                print(f"{'page':<24}{'processor':>11}{'clock':>10}   with {runs} runs")
                slow = []
                for name, path in paths.items():
                    used, taken = await measure(http, path)
                    print(f"{name:<24}{used:>8.0f} ms{taken:>7.0f} ms", flush=True)
                    slow += [name] if used > MOST_MS else []
    print(f"over {MOST_MS} ms: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)))
