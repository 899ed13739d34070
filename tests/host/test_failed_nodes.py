"""A node of the project's own fails in a real host: who may read the run sees where, everybody else sees nothing."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.console.conftest import Console
from tests.console.served import served, workflow

NODES = """
from forestay.runs.nodes import NodeContext, node


@node("mine.fails")
async def fails(ctx: NodeContext) -> dict:
    return {}["deep"]
"""
TRACE = ["nodes.py:7 in fails"]


def test_the_place_is_in_the_events_the_console_and_the_log_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "forestay.toml").write_text('[workflows]\npaths = ["workflows"]\nnodes = ["nodes.py"]\n')
    (tmp_path / "nodes.py").write_text(NODES)
    (tmp_path / "workflows").mkdir()
    document = workflow("fails", ("step", "mine.fails", {}))
    (tmp_path / "workflows" / "fails.json").write_text(json.dumps(document))
    with (tmp_path / "log").open("w") as log, served(tmp_path, "--trust", errors=log) as running:
        run = running.start("fails")
        running.until(run, "run.failed")
        made = running.api.post("/host/v1/keys", json={"name": "other", "tenant": "elsewhere"}).json()
        shown = running.api.get(f"/v1/runs/{run}").json()
        assert shown["error"]["details"]["traceback"] == TRACE
        events = running.api.get(f"/v1/runs/{run}/events/poll", params={"lastSequence": -1}).json()["events"]
        failed = [event["payload"]["error"] for event in events if event["type"] in ("node.failed", "run.failed")]
        assert [error["details"]["traceback"] for error in failed] == [TRACE, TRACE]
        visitor = Console(running)
        assert visitor.page(f"/runs/{run}").one("pre.trace").text == TRACE[0]
        visitor.http.close()
        key = (made.get("result") or made)["apiKey"]
        other = {"Authorization": f"Bearer {key}"}
        for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/events", "/v1/runs"):
            answer = httpx.get(running.url + path, headers=other, trust_env=False)
            assert "nodes.py" not in answer.text and "deep" not in answer.text, answer.text
    said = (tmp_path / "log").read_text()
    assert "nodes.py:7 in fails" in said and 'return {}["deep"]' in said and str(tmp_path) not in said
