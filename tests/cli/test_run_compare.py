"""Two runs side by side, and what an event says in one line."""

from __future__ import annotations

import json
from typing import Any

from forestay.cli.run_compare import differences, outcome, remark
from tests.cli.test_runs import Shell, shell  # noqa: F401 - the fixture
from tests.contracts.openwop.documents import node, variable, workflow


def event(type: str, node_id: str | None = None, **payload: Any) -> dict[str, Any]:
    return {"type": type, "nodeId": node_id, "payload": payload}


ONE = [
    event("run.started", inputs={"x": 3}),
    event("node.completed", "a", outputs={"y": 6}),
    event("node.skipped", "b", reason="all_success cannot hold"),
    event("run.completed", outputs={"y": 6}),
]


def test_how_many_events_there_are_does_not_count() -> None:
    again = [ONE[0], event("forestay.run.forked", fromSeq=0), event("log.appended", message="x"), *ONE[1:]]
    assert differences(ONE, again) == []


def test_inputs_nodes_and_ends_are_compared() -> None:
    other = [
        ONE[0],
        event("forestay.run.forked", overlay={"inputs": {"x": 4}}),
        event("node.failed", "a", error={"code": "broke", "message": "It broke."}),
        event("run.failed", error={"code": "broke", "message": "It broke."}),
    ]
    found = {item.what: (item.first, item.second) for item in differences(ONE, other)}
    assert found["inputs"] == ({"x": 3}, {"x": 4})
    assert found["node a"] == ({"completed": {"y": 6}}, {"failed": {"code": "broke", "message": "It broke."}})
    assert found["node b"] == ({"skipped": "all_success cannot hold"}, None)
    assert found["run"][0] == {"completed": {"y": 6}}
    assert list(outcome(ONE)) == ["inputs", "node a", "node b", "run"]


def test_a_node_that_ran_again_counts_with_its_last_end() -> None:
    looped = [*ONE[:2], event("node.completed", "a", outputs={"y": 7}), *ONE[2:]]
    assert [item.what for item in differences(ONE, looped)] == ["node a"]


def test_an_event_says_what_matters() -> None:
    assert remark(event("node.failed", "a", error={"code": "broke", "message": "It broke."})) == "broke: It broke."
    assert remark(event("forestay.effect.recorded", "a", key="charge", invocationId="x")) == "charge"
    assert remark({"type": "x", "payload": None}) == ""


def test_a_branch_with_other_inputs_is_told_apart(shell: Shell) -> None:  # noqa: F811 - the fixture
    doubled = node("double", "core.transform", {"outputs": {"y": "variables.x * 2"}})
    document = workflow("suite-double", doubled, variables=[variable("x", "number")])
    (shell.folder / "double.json").write_text(json.dumps(document))
    shell("workflow", "put", "double.json")
    refused = shell("run", "start", "suite-double", "--input", "x=word")
    assert refused.code == 2 and "--input x=VALUE" in refused.error["suggestedAction"]
    first = shell("run", "start", "suite-double", "--input", "x=3", "--wait").result["runId"]
    second = shell("run", "fork", first, "--overlay", '{"inputs": {"x": 10}}', "--wait").result["runId"]
    shown = shell("run", "diff", first, second, "--human").out
    assert '- {"x":3}' in shown and '+ {"x":10}' in shown and '+ {"completed":{"y":20}}' in shown
    same = shell("run", "fork", first, "--from", "2", "--wait").result["runId"]
    assert "Inputs, nodes and ends are the same." in shell("run", "diff", first, same, "--human").out
