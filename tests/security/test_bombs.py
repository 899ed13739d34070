"""Small things that would become large: each is counted or bounded before the work is begun."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.kernel import Problem, canonical, misfit, schema_mistake
from forestay.kernel.json_schema import compiled
from forestay.kernel.problems import _FRAME
from forestay.kernel.schema_cost import MOST, Cost
from forestay.relay.extract import units
from forestay.runs import cron, family
from forestay.surface import Serving
from tests.security.world import node, run, workflow


def doubling(levels: int) -> dict[str, Any]:
    """Each definition applies the next one twice: a kilobyte that means 2 ** levels."""
    steps = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{levels}": {"type": "string"}}}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_a_schema_whose_references_double_is_refused_before_it_is_used(key: str) -> None:
    steps = {f"d{n}": {key: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**steps, "d40": {"type": "string"}}}
    assert "references" in (schema_mistake(schema) or "")
    assert "references" in (misfit(schema, 1) or ("", ""))[1]
    assert schema_mistake(doubling(40)) is not None and schema_mistake(doubling(6)) is None


def test_a_schema_that_doubles_at_every_level_of_the_value_is_refused_for_deep_values() -> None:
    for key in ("properties", "patternProperties"):
        once = {key: {"a": {"$ref": "#"}}}
        schema = {"allOf": [once, dict(once)]}
        assert schema_mistake(schema) is None
        assert misfit(schema, nested(6)) is None
        with pytest.raises(Problem) as refused:
            misfit(schema, nested(60))
        assert refused.value.key == "payload_too_large"
    everywhere = {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "minItems": 1}]}
    deep: Any = []
    for _ in range(50):
        deep = [deep]
    with pytest.raises(Problem):
        compiled(canonical.encode(everywhere)).is_valid(deep)


def test_schemas_that_people_write_are_not_in_the_way() -> None:
    tree = {
        "$defs": {"n": {"properties": {"left": {"$ref": "#/$defs/n"}, "right": {"$ref": "#/$defs/n"}}}},
        "$ref": "#/$defs/n",
    }
    value: Any = {}
    for _ in range(50):
        value = {"left": value, "right": {}}
    assert misfit(tree, value) is None
    alternatives = {
        "$defs": {
            "e": {"oneOf": [{"type": "number"}, {"$ref": "#/$defs/add"}, {"$ref": "#/$defs/neg"}]},
            "add": {
                "type": "object",
                "required": ["l", "r"],
                "properties": {"l": {"$ref": "#/$defs/e"}, "r": {"$ref": "#/$defs/e"}},
            },
            "neg": {"type": "object", "required": ["of"], "properties": {"of": {"$ref": "#/$defs/e"}}},
        },
        "$ref": "#/$defs/e",
    }
    value = 1
    for _ in range(40):
        value = {"l": value, "r": 2}
    assert misfit(alternatives, value) is None
    assert Cost(alternatives).of(60) < MOST


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$ref": "#/x"}, {"$id": {}, "$ref": 1}])
def test_references_in_a_circle_or_to_nowhere_are_counted_once(schema: dict[str, Any]) -> None:
    assert Cost(schema).of(60) < 10
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5000)}
    assert Cost({"$ref": "#/$defs/d0", "$defs": chain}).of(0) > MOST


def test_a_million_marks_are_looked_at_once() -> None:
    """Each of these took time that grew with the square of its length: a megabyte held the host for hours."""
    for text in ("." * 1_000_000, "!?" * 500_000, "؟" * 500_000):
        found = list(units(text))
        assert sum(unit.end - unit.start for unit in found) <= len(text)
    said = 'He said "no..." Then he left. "Why?!" she asked… Nobody knew'
    cut = [said[unit.start : unit.end].strip() for unit in units(said)]
    assert cut == ['He said "no..."', "Then he left.", '"Why?!"', "she asked…", "Nobody knew"]
    assert _FRAME.sub("", " " * 200_000 + "x") == " " * 200_000 + "x"


def test_a_workflow_that_calls_itself_twice_ends_at_the_size_of_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "MAX_FAMILY", 30)

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        nodes = [
            {**node(name, "core.subWorkflow", workflowId="fan", waitForCompletion=wait), "inputs": {}}
            for name, wait in (("a", True), ("b", False))
        ]
        await http.put("/v1/workflows/fan", json={**workflow("fan", *nodes), "edges": []})
        run_id = (await http.post("/v1/runs", json={"workflowId": "fan", "inputs": {}})).json()["runId"]
        while (await http.get(f"/v1/runs/{run_id}")).json()["status"] != "failed":
            await asyncio.sleep(0.05)
        while (await http.get("/v1/runs", params={"status": "running"})).json()["runs"]:
            await asyncio.sleep(0.05)
        count = await serving.host.ledger.query("SELECT count(*) FROM runs")
        assert 20 <= count[0][0] <= 40, count

    run(tmp_path, story, filled=False)


def test_a_cron_expression_has_a_length() -> None:
    with pytest.raises(Problem) as refused:
        cron.check("1-59," * 3000 + "1 * * * *", "UTC")
    assert "256" in refused.value.message
    cron.check("*/5 * * * 1-5", "Europe/Berlin")
