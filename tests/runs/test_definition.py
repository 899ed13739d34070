"""Definitions: every mistake has its place, and what is valid is kept in revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.kernel import Problem
from forestay.runs.check import check_workflow
from forestay.runs.nodes.core import standard_registry
from tests.runs.conftest import Host
from tests.runs.documents import edge, node, when, workflow


def base() -> dict[str, Any]:
    return workflow(
        "w",
        [node("a"), node("b"), node("c")],
        [edge("a", "b"), edge("b", "c", condition=when("output.x > 1"))],
        variables=[{"name": "n", "type": "number", "defaultValue": 1}],
        channels={"log": {"reducer": "append", "ttlMs": 5}},
    )


Change = Callable[[dict[str, Any]], Any]


def at(path: str, value: Any) -> Change:
    """A change of one field, by its path."""

    def change(document: dict[str, Any]) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        target: Any = document
        for part in parents:
            target = target[part]
        target[last] = value

    return change


X = "$.nodes[1].inputs.x"
MISTAKES: list[tuple[Change, str, str]] = [
    (lambda d: d.pop("settings"), "$", "settings"),
    (lambda d: d.update(colour="red"), "$.colour", "colour"),
    (at("id", "Not Good"), "$.id", "matching"),
    (at("nodes", []), "$.nodes", "length"),
    (at("nodes.1.id", "a"), "$.nodes[1].id", "twice"),
    (at("nodes.1.typeId", "core.nothing"), "$.nodes[1].typeId", "no node type"),
    (at("nodes.1.inputs", {"x": {"type": "magic"}}), "$.nodes[1].inputs.x.type", "magic"),
    (at("nodes.1.inputs", {"x": {"type": "variable", "variableName": "m"}}), X + ".variableName", "'m'"),
    (at("nodes.1.inputs", {"x": {"type": "connection", "nodeId": "z", "outputKey": "o"}}), X + ".nodeId", "'z'"),
    (at("nodes.1.inputs", {"x": {"type": "expression", "expression": "1 +"}}), X + ".expression", "missing"),
    (at("nodes.1.settings", {"retry": {"maxAttempts": 0}}), "$.nodes[1].settings.retry.maxAttempts", ">= 1"),
    (at("nodes.1.agent", {"agentId": "core.x.y", "channel": "stable"}), "$.nodes[1].agent.channel", "channels"),
    (lambda d: d["nodes"][1].update(typeId="core.ai.callPrompt", config={"mcp": {}}), "$.nodes[1].config.mcp", "MCP"),
    (at("triggers.0.type", "channel-write"), "$.triggers[0].type", "channel write"),
    (at("nodes.1.settings", {"retry": {"tries": 3}}), "$.nodes[1].settings.retry", "tries"),
    (at("nodes.1.typeId", "core.subWorkflow"), "$.nodes[1].config.workflowId", "missing"),
    (at("edges.0.targetNodeId", "zz"), "$.edges[0].targetNodeId", "'zz'"),
    (at("edges.1.condition", when("output.x >")), "$.edges[1].condition", "missing"),
    (at("edges.1.condition", {"type": "regex", "left": "x", "right": "("}), "$.edges[1].condition", "pattern"),
    (at("edges.1.condition", {"type": "equals", "right": 1}), "$.edges[1].condition", "left"),
    (lambda d: d["edges"].append(edge("c", "a")), "$.edges[2]", "cycle"),
    (lambda d: d["edges"].append(edge("c", "a", label="loopback")), "$.edges[2].condition", "needs a condition"),
    (lambda d: d["edges"].append(edge("a", "c", label="loopback", condition=when("1"))), "$.edges[2].label", "closes"),
    (lambda d: d["edges"].extend([edge("a", "c", triggerRule="any_failed", id="x"),
                                  edge("b", "c", triggerRule="all_complete", id="y")]),
     "$.edges[3].triggerRule", "any_failed"),
    (at("variables.0.defaultValue", "one"), "$.variables[0].defaultValue", "number"),
    (at("channels.log.reducer", "sum"), "$.channels.log.reducer", "sum"),
    (at("channels.log.ttlMs", 0), "$.channels[...].ttlMs", ">= 1"),
    (lambda d: d.update(configurableSchema={"type": "nonsense"}), "$.configurableSchema", "JSON Schema"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "where", "word"), MISTAKES)
def test_a_mistake_is_named_with_its_place(change: Change, where: str, word: str) -> None:
    document = base()
    change(document)
    _, found = check_workflow(document, standard_registry(custom=False))
    assert not found.valid
    assert any(item["at"] == where and word in item["message"] for item in found.errors), found.errors


def test_all_mistakes_are_named_at_once() -> None:
    document = base()
    document["nodes"][0]["typeId"] = "core.nothing"
    document["edges"][0]["targetNodeId"] = "zz"
    document["variables"][0]["defaultValue"] = "one"
    _, found = check_workflow(document, standard_registry(custom=False))
    assert len(found.errors) == 3


def test_warnings_for_what_is_probably_not_meant() -> None:
    document = workflow("w", [node("a", disabled=True), node("b"), node("alone")], [edge("a", "b")])
    _, found = check_workflow(document, standard_registry(custom=False))
    assert found.valid
    assert [item["at"] for item in found.warnings] == ["$.nodes[1]", "$.nodes[2]"]


def test_a_trigger_that_nothing_drives_is_a_warning_and_one_that_is_off_is_none() -> None:
    types = standard_registry()
    document = base()
    document["triggers"] = [
        {"id": "t", "type": "schedule", "config": {"cron": "* * * * *"}},
        {"id": "u", "type": "channel-write", "nodeId": "b", "enabled": False},
        {"id": "v", "type": "event", "enabled": False},
    ]
    _, found = check_workflow(document, types)
    assert found.valid
    assert [(item["at"], item["fix"]) for item in found.warnings] == [
        ("$.triggers[0].type", "Make a schedule: POST /v1/schedules.")
    ]


@pytest.mark.parametrize("hostile", [None, 1, "x", [], {}, {"nodes": "x"}, {"id": {}}])
def test_what_is_no_document_is_refused_with_a_place(hostile: Any) -> None:
    workflow_, found = check_workflow(hostile, standard_registry(custom=False))
    assert workflow_ is None
    assert found.errors[0]["at"].startswith("$")


async def test_revisions_count_changes_and_old_ones_stay(host: Host) -> None:
    async with host() as runs:
        first = await runs.put_workflow(base(), tenant="acme", principal="ann", workflow_id="w")
        again = await runs.put_workflow(base(), tenant="acme")
        assert (first.revision, first.created, again.revision, again.created) == (1, True, 1, False)
        changed = {**base(), "version": "2.0.0"}
        assert (await runs.put_workflow(changed, tenant="acme")).revision == 2
        assert (await runs.get_workflow("w", "acme"))["version"] == "2.0.0"
        assert (await runs.get_workflow("w", "acme", 1))["version"] == "1.0.0"
        assert [item.workflow_id for item in await runs.list_workflows("acme")] == ["w"]
        assert await runs.list_workflows("other") == []
        with pytest.raises(Problem) as refused:
            await runs.get_workflow("w", "other")
        assert refused.value.row.http == 404
        with pytest.raises(Problem) as refused:
            await runs.put_workflow({**base(), "nodes": []}, tenant="acme")
        assert refused.value.details["errors"]
        with pytest.raises(Problem):
            await runs.put_workflow(base(), tenant="acme", workflow_id="other")


async def test_a_run_keeps_the_revision_it_was_started_with(host: Host) -> None:
    from tests.runs.documents import finish, start

    async with host() as runs:
        document = workflow("w", [node("g", "core.approvalGate"), node("old")], [edge("g", "old")])
        run_id = await start(runs, document)
        other = workflow("w", [node("g", "core.approvalGate"), node("new")], [edge("g", "new")])
        await runs.put_workflow(other, tenant=None)
    async with host() as runs:
        await runs.resolve_by_node(run_id, "g", "acme", {"resumeValue": {"action": "accept"}}, "ann")
        assert set((await finish(runs, run_id)).node_states) == {"g", "old"}


KEYS = [
    "type", "expression", "left", "right", "node", "items", "inputs", "questions", "schema", "data", "kind", "retry",
    "timeoutMs", "actions", "requiredApprovals", "cases", "assign", "outputs", "workflowId", "inputMapping", "tool",
    "perWorkerInputMappings", "concurrency", "channelName", "method", "resumeSchema", "outcomeSchema", "turnCount",
    "outputSchema", "event", "id", "question", "name", "when", "config", "typeId", "value", "variableName", "nodeId",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.sampled_from(["$ref", "typeId", "1 +"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(item.type_id for item in standard_registry(custom=False))), JSON, JSON, JSON)
def test_any_configuration_is_checked_without_a_fault(type_id: str, config: Any, inputs: Any, condition: Any) -> None:
    document = workflow("w", [node("a", type_id), node("b")], [edge("a", "b")])
    document["nodes"][0].update(config=config, inputs=inputs, settings=config)
    document["edges"][0]["condition"] = condition
    _, found = check_workflow(document, standard_registry(custom=False))
    assert found.valid or all(item["at"].startswith("$") and item["message"] for item in found.errors)


def test_a_schema_fetches_nothing_and_its_patterns_are_linear() -> None:
    from forestay.kernel import misfit, schema_mistake

    assert "must not refer" in (schema_mistake({"$ref": "http://127.0.0.1:9/x"}) or "")
    assert schema_mistake({"type": "string", "pattern": "(?=x)"}) is not None
    hostile = {"type": "string", "pattern": "^(a+)+$"}
    assert misfit(hostile, "a" * 5000 + "b") is not None
    assert misfit({"type": "object", "properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}) == (
        ".a[1]",
        '1 is not of type "string"',
    )
