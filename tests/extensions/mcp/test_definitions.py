"""Definitions and their hidden characters, names of tools, servers as files name them, pins on the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from forestay.extensions.mcp.definitions import Definition, compare, pinnable
from forestay.extensions.mcp.hidden_text import hidden_in, spelled
from forestay.extensions.mcp.pins import Pins
from forestay.extensions.mcp.server_config import ServerConfig, read_servers, write_entry
from forestay.extensions.mcp.tool_names import MAX_NAME, resource, tool_name
from forestay.kernel import Ledger, McpServer, Problem

PLAIN = Definition("echo", "Says it.", {"type": "object"})


@pytest.mark.parametrize(
    "letter",
    ["\u202e", "\u2066", "\u200b", "\x1b", "\x07", "\ufeff", "\U000e0041", "\ufe01", "\U000e0101", "\u3164", "\ue000"],
)
def test_hidden_characters_are_found_wherever_they_stand(letter: str) -> None:
    for changed in (
        {"name": f"e{letter}"},
        {"title": letter},
        {"description": f"a{letter}b"},
        {"input_schema": {"type": "object", "properties": {f"k{letter}": {}}}},
        {"input_schema": {"type": "object", "enum": [[letter]]}},
        {"annotations": {"title": letter}},
    ):
        definition = msgspec.structs.replace(PLAIN, **changed)
        assert any("Hidden" in line for line in definition.faults()), changed
        assert letter not in "".join(definition.faults())


@pytest.mark.parametrize("text", ["plain", "Zeile\n\ttab", "Größe 日本語 العربية", "👩‍🚀 ❤️ 1️⃣", "naïve — “quoted” …"])
def test_what_people_write_is_not_hidden(text: str) -> None:
    assert hidden_in({"a": [text]}) == [] and spelled(text) == text


@given(some.text())
def test_spelled_text_has_nothing_hidden(text: str) -> None:
    assert hidden_in(spelled(text)) == []


FIELDS: dict[str, Any] = {
    "name": "other",
    "title": "Echo",
    "description": "Says it!",
    "input_schema": {"type": "object", "properties": {}},
    "output_schema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "kind": "prompt",
}


@pytest.mark.parametrize("field", FIELDS)
def test_every_part_of_a_definition_is_in_its_hash(field: str) -> None:
    assert set(FIELDS) == set(Definition.__struct_fields__)
    assert msgspec.structs.replace(PLAIN, **{field: FIELDS[field]}).digest != PLAIN.digest


def test_equal_definitions_have_no_changes_and_a_fault_is_never_pinnable() -> None:
    assert compare({"echo": PLAIN}, [PLAIN]) == []
    bad = Definition("bad\u202e", "x", {"type": "object"})
    changes = compare({}, [PLAIN, bad])
    assert [item.kind for item in changes] == ["refused", "new"]
    assert pinnable(changes, [PLAIN, bad]) == [PLAIN]


@given(some.from_regex(r"[A-Za-z0-9](_?[A-Za-z0-9-]){0,30}", fullmatch=True), some.text(min_size=1, max_size=128))
def test_a_tool_name_fits_every_model_and_names_its_server(server: str, tool: str) -> None:
    name = tool_name(server, tool)
    assert len(name) <= MAX_NAME and name.isascii()
    assert (resource(name) or "").startswith(f"{server}/")


def test_other_names_are_no_resource_of_a_server() -> None:
    assert [resource(name) for name in ("tally", "mcp__", "mcp__a", "mcp____b", "xmcp__a__b")] == [None] * 5


# Configuration


def test_servers_of_three_files_the_nearest_to_the_person_first(tmp_path: Path) -> None:
    (tmp_path / ".pi").mkdir()
    for file, names in ((".mcp.json", ("a", "b", "c")), (".pi/mcp.json", ("b", "c"))):
        servers = {name: {"command": file, "disabled": False, "autoApprove": ["*"]} for name in names}
        (tmp_path / file).write_text(json.dumps({"mcpServers": servers}))
    found = read_servers(tmp_path, {"c": McpServer(command="mine")})
    assert {name: item.origin for name, item in found.found.items()} == {
        "a": ".mcp.json",
        "b": ".pi/mcp.json",
        "c": "forestay.toml",
    }


@pytest.mark.parametrize(
    "entry", [{}, {"command": "a", "url": "http://b"}, {"url": "file:///etc"}, {"command": 5}, 7, {"command": "a\0"}]
)
def test_a_bad_entry_is_a_problem_and_the_others_stay(tmp_path: Path, entry: Any) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"bad": entry, "good": {"command": "x"}}}))
    servers = read_servers(tmp_path, {})
    assert list(servers.found) == ["good"]
    assert [problem.key for problem in servers.problems] == ["config_invalid"]


@pytest.mark.parametrize("name", ["a__b", "", "a b", "ä", "x" * 40, "../x", "a_"])
def test_a_name_that_would_not_fit_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Problem):
        write_entry(tmp_path, name, McpServer(command="x"))
    assert not (tmp_path / ".mcp.json").exists()


def test_an_entry_is_added_and_taken_out_and_the_rest_stays(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{"other": 1, "mcpServers": {"old": {"command": "y", "disabled": true}}}')
    write_entry(tmp_path, "new", McpServer(command="x", args=["1"]))
    assert set(read_servers(tmp_path, {}).found) == {"old", "new"}
    write_entry(tmp_path, "new", None)
    kept = json.loads((tmp_path / ".mcp.json").read_text())
    assert kept == {"other": 1, "mcpServers": {"old": {"command": "y", "disabled": True}}}


CHANGES: list[dict[str, Any]] = [
    {"command": "other"}, {"args": ["2"]}, {"env": {"A": "2"}}, {"env": {"B": "1"}}, {"cwd": "sub"},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_covers_what_decides_what_runs(change: dict[str, Any]) -> None:
    entry = McpServer(command="x", args=["1"], env={"A": "1"})
    before = ServerConfig("s", "f", entry).fingerprint
    assert ServerConfig("s", "f", msgspec.structs.replace(entry, **change)).fingerprint != before
    assert ServerConfig("s", "g", msgspec.structs.replace(entry, call_seconds=1.0)).fingerprint == before


async def test_pins_hold_for_the_fingerprint_that_was_approved(tmp_path: Path) -> None:
    first, second = (ServerConfig("s", ".mcp.json", McpServer(command=name)) for name in ("x", "y"))
    async with Ledger.open(tmp_path / "l.db") as ledger:
        pins, elsewhere = Pins(ledger, tmp_path), Pins(ledger, tmp_path / "other")
        await pins.pin(first, [PLAIN])  # before an approval it means nothing
        assert (await pins.standing(first))["s"].pinned == {}
        await pins.approve(first)
        await pins.pin(first, [PLAIN])
        standing = (await pins.standing(first))["s"]
        assert standing.admits(first) and not standing.admits(second) and standing.pinned == {"echo": PLAIN}
        assert not (await elsewhere.standing(first))["s"].admits(first)
        await pins.approve(second)
        assert (await pins.standing(second))["s"].pinned == {}
        with pytest.raises(Problem):
            await pins.pin(second, [Definition("a\u202e")])
        await pins.withdraw(second)
        assert (await pins.standing(second))["s"].approved is None
