"""`forestay workflow check` on what beginners write: each mistake is told with its place and what to write instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_runs import Shell
from tests.contracts.openwop.documents import node, workflow

TWO = (node("first", "core.noop"), node("second", "core.noop"))


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def edge(**fields: Any) -> dict[str, Any]:
    return {"id": "e", "sourceNodeId": "first", "targetNodeId": "second", **fields}


def edges(*items: dict[str, Any]) -> dict[str, Any]:
    return workflow("w", *TWO, edges=list(items))


def one(**fields: Any) -> dict[str, Any]:
    return workflow("w", {**node("first", "core.noop"), **fields})


# The document (or the text of the file), the place, and a word of what to write.
MISTAKES: dict[str, tuple[Any, str, str]] = {
    "empty": ("", "$", "Write a workflow"),
    "yaml": ("id: w\nnodes:\n  - id: a\n", "line 1, column 1", "JSON"),
    "comma": ('{\n  "id": "w",\n}', "line 3, column 1", "comma"),
    "comment": ('{\n  // the id\n  "id": "w"}', "line 2, column 3", "comments"),
    "list": ([], "$", "one object"),
    "text": ("hello", "line 1, column 1", "JSON"),
    "no-nodes": (without(workflow("w", *TWO), "nodes"), "$", '"nodes"'),
    "nothing-in-it": (workflow("w"), "$.nodes", "Correct"),
    "no-settings": (without(workflow("w", *TWO), "settings", "metadata"), "$", '"metadata": {}'),
    "no-type": (workflow("w", without(TWO[0], "typeId")), "$.nodes[0]", '"typeId"'),
    "no-position": (workflow("w", without(TWO[0], "position")), "$.nodes[0]", '"position": {"x": 0, "y": 0}'),
    "wrong-field": (one(typeid="core.noop"), "$.nodes[0].typeid", "Remove"),
    "type-for-type-id": (
        workflow("w", {**without(TWO[0], "typeId"), "type": "core.noop"}),
        "$.nodes[0].type",
        "`typeId`",
    ),
    "unknown-key": ({**workflow("w", *TWO), "step": 1}, "$.step", "known here"),
    "misspelt-key": ({**workflow("w", *TWO), "chanels": {}}, "$.chanels", "`channels`"),
    "from-and-to": (edges({"id": "e", "from": "first", "to": "second"}), "$.edges[0].from", "`sourceNodeId`"),
    "dangling": (edges(edge(targetNodeId="secnd")), "$.edges[0].targetNodeId", "'second'"),
    "unknown-type": (one(typeId="core.aprovalGate"), "$.nodes[0].typeId", "'core.approvalGate'"),
    "no-such-type": (one(typeId="slack.send"), "$.nodes[0].typeId", "core.noop"),
    "bad-id": ({**workflow("w", *TWO), "id": "My Workflow"}, "$.id", "lower-case"),
    "number-for-text": ({**workflow("w", *TWO), "version": 1}, "$.version", "Correct"),
    "bad-expression": (
        edges(edge(condition={"type": "expression", "expression": "output.total >"})),
        "$.edges[0].condition",
        "expression",
    ),
    "cycle": (edges(edge(), edge(id="back", sourceNodeId="second", targetNodeId="first")), "$.edges[1]", "loopback"),
    "endless-loop": (
        edges(edge(), edge(id="back", sourceNodeId="second", targetNodeId="first", label="loopback")),
        "$.edges[1].condition",
        "expression",
    ),
    "twice": (workflow("w", TWO[0], TWO[0], edges=[]), "$.nodes[1].id", "own name"),
    "plain-input": (one(inputs={"sum": 3}), "$.nodes[0].inputs.sum", '"static"'),
    "unknown-variable": (
        {
            **one(inputs={"sum": {"type": "variable", "variableName": "totl"}}),
            "variables": [{"name": "total", "type": "number"}],
        },
        "$.nodes[0].inputs.sum.variableName",
        "'total'",
    ),
    "wrong-default": (
        workflow("w", *TWO, variables=[{"name": "n", "type": "number", "defaultValue": "x"}]),
        "$.variables[0].defaultValue",
        "`type`",
    ),
    "unknown-reducer": (workflow("w", *TWO, channels={"c": {"reducer": "apend"}}), "$.channels.c.reducer", "'append'"),
    "bad-retry": (one(settings={"retry": {"maxAttempts": 0}}), "$.nodes[0].settings.retry.maxAttempts", "Correct"),
    "config-of-a-type": (one(typeId="core.clarificationGate"), "$.nodes[0].config.questions", "node types"),
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    """What is said about each file; one process checks them all."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, (content, _, _) in MISTAKES.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    ran = Shell(folder)("workflow", "check", *(f"{name}.json" for name in MISTAKES))
    assert ran.code == 2
    results = json.loads(ran.out)["result"]["results"]
    return {item["file"].removesuffix(".json"): item["errors"] for item in results}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_its_fix(answered: dict[str, list[dict[str, str]]], name: str) -> None:
    _, at, fix = MISTAKES[name]
    found = [item for item in answered[name] if item["at"].startswith(at) and fix in item["fix"]]
    assert found, answered[name]
    assert all(item["message"] and item["fix"] for item in answered[name])


def test_every_mistake_of_shape_is_told_at_once(answered: dict[str, list[dict[str, str]]]) -> None:
    assert [item["message"] for item in answered["no-settings"]] == ["`metadata` is missing.", "`settings` is missing."]
    assert [item["at"] for item in answered["from-and-to"]] == ["$.edges[0].from", "$.edges[0].to"], "each once"


def test_the_file_that_does_not_hold_is_named_when_several_are_stored(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        (tmp_path / f"{name}.json").write_text(json.dumps(workflow(name, node("a", f"core.{name}"))))
    (tmp_path / "good.json").write_text(json.dumps(workflow("good", *TWO)))
    ran = Shell(tmp_path)("workflow", "put", "good.json", "bad.json")
    assert ran.code == 2 and "bad.json" in ran.error["message"]
