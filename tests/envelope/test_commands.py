"""`forestay envelope …` from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forestay.envelope import Envelope, encode, failure, success
from forestay.envelope.validate import MAX_ENVELOPE_BYTES, decode
from forestay.kernel import Ids, ManualClock, Problem
from tests.contracts.lafs.support import forestay


@pytest.fixture
def folder(tmp_path: Path, clock: ManualClock, ids: Ids) -> Path:
    big = {"items": [{"id": n, "text": "words " * 20} for n in range(40)]}
    made: dict[str, Envelope] = {
        "good.json": success("op", big, clock=clock, ids=ids),
        "bad.json": failure(Problem("rate_limited", "Busy.", retry_after_ms=900), "op", clock=clock, ids=ids),
    }
    for name, envelope in made.items():
        (tmp_path / name).write_bytes(encode(envelope))
    (tmp_path / "broken.json").write_text('{"$schema": 3}')
    return tmp_path


def result_of(ran: Any) -> Any:
    return decode(ran.stdout).result


def test_validate_says_where_each_file_is_wrong(folder: Path) -> None:
    assert result_of(forestay(folder, "envelope", "validate", "good.json", "bad.json"))["valid"] is True
    ran = forestay(folder, "envelope", "validate", "good.json", "broken.json")
    assert ran.returncode == 2
    first, second = result_of(ran)["files"]
    assert first["valid"] is True and second["problem"]["details"]["at"] == "$.$schema"
    assert forestay(folder, "envelope", "validate", "nowhere.json").returncode == 4
    human = forestay(folder, "--human", "envelope", "validate", "broken.json")
    assert "not valid at $.$schema" in human.stdout and human.returncode == 2


def test_project_shows_a_level_picked_fields_and_a_budget(folder: Path) -> None:
    shown = result_of(forestay(folder, "envelope", "project", "good.json", "--level", "minimal", "--pick", "id"))
    assert shown["result"]["items"][3] == {"id": 3} and set(shown["_meta"]) == {"requestId", "contextVersion"}
    small = result_of(forestay(folder, "envelope", "project", "good.json", "--level", "full", "--max-tokens", "500"))
    assert 0 < len(small["result"]["items"]) < 40
    assert small["_extensions"]["x-forestay-budget"]["estimated"] <= 500
    ran = forestay(folder, "envelope", "project", "good.json", "--max-tokens", "3")
    told = json.loads(ran.stdout)
    assert told["error"]["code"] == "E_MVI_BUDGET_EXCEEDED" and ran.returncode == 2
    assert forestay(folder, "envelope", "project", "good.json", "--level", "most").returncode == 2


def test_explain_tells_people_and_agents(folder: Path) -> None:
    told = result_of(forestay(folder, "envelope", "explain", "bad.json"))
    assert told["action"] == "wait" and told["automatic"] is True
    human = forestay(folder, "--human", "envelope", "explain", "bad.json").stdout
    assert "Next: Wait at least 0.9 seconds." in human


def test_schema_prints_what_is_generated(folder: Path) -> None:
    assert result_of(forestay(folder, "envelope", "schema"))["required"] == ["$schema", "_meta", "success", "result"]
    assert result_of(forestay(folder, "envelope", "schema", "context-ledger"))["title"] == "LedgerDocument"
    assert forestay(folder, "envelope", "schema", "nothing").returncode == 4


def test_conform_reads_lines_of_any_length(folder: Path) -> None:
    good = (folder / "good.json").read_text()
    lines = [good, "", "x" * (MAX_ENVELOPE_BYTES + 5000), "y" * MAX_ENVELOPE_BYTES, good]
    ran = forestay(folder, "envelope", "conform", "--ndjson", "--tier", "core", stdin="\n".join(lines) + "\n")
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [result["ok"] for result in results] == [True, False, False, True] and ran.returncode == 2
    assert "bytes" in results[1]["checks"][0]["detail"]
    assert ran.stderr == ""


def test_conform_takes_a_known_tier_and_either_lines_or_files(folder: Path) -> None:
    assert forestay(folder, "envelope", "conform", "good.json", "--tier", "best").returncode == 2
    assert forestay(folder, "envelope", "conform", "good.json", "--ndjson").returncode == 2
    alone = result_of(forestay(folder, "envelope", "conform", "--flags"))
    assert alone["ok"] is True and alone["checks"][0]["name"] == "json_protocol_default"
    both = result_of(forestay(folder, "envelope", "conform", "good.json", "--flags", "--tier", "core"))
    assert len(both["checks"]) == 6
    human = forestay(folder, "--human", "envelope", "conform", "broken.json")
    assert "FAIL  envelope_schema_valid" in human.stdout and human.returncode == 2
