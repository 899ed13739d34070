"""Manifests: JSON and TOML, references inside the folder, and every mistake with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from forestay import agents
from forestay.agents.manifest import SCHEMA
from forestay.kernel import Problem

CONTRACT = Path(__file__).parents[3] / "shared" / "reference" / "openwop" / "schemas" / "agent-manifest.schema.json"
GOOD: dict[str, Any] = {
    "agentId": "local.demo.helper",
    "persona": "Helper",
    "modelClass": "general",
    "systemPrompt": "Help.",
}


def test_a_small_manifest() -> None:
    agent = agents.parse(GOOD)
    assert (agent.agent_id, agent.instructions, agent.tool_allowlist) == ("local.demo.helper", "Help.", ())


def test_toml_with_references(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Read the notes.\n")
    (tmp_path / "answer.json").write_text('{"type": "object", "required": ["n"]}')
    (tmp_path / "agent.toml").write_text(
        """
agentId = "local.demo.reader"
persona = "Reader"
modelClass = "research"
systemPromptRef = "prompt.md"
toolAllowlist = ["ext:notes/*"]
[memoryShape]
longTerm = true
[handoff]
returnSchemaRef = "answer.json"
[forestay]
turns = 7
"""
    )
    agent = agents.load(tmp_path / "agent.toml")
    assert agent.instructions == "Read the notes.\n"
    assert agent.return_schema == {"type": "object", "required": ["n"]}
    assert agent.turns == 7 and agent.memory.long_term
    assert agent.allowed(("ext:notes/search", "search", "ext:mail/send", "send")) == {"ext:notes/search"}


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"agentId": "Helper"}, "$.agentId"),
        ({"modelClass": "huge"}, "$.modelClass"),
        ({"persona": ""}, "$.persona"),
        ({"toolAllowlist": ["a", 5]}, "$.toolAllowlist[1]"),
        ({"surprise": 1}, "$"),
        ({"systemPrompt": None}, "$.systemPrompt"),
        ({"systemPromptRef": "p.md"}, "$"),
        ({"confidence": {"defaultThreshold": 2}}, "$.confidence.defaultThreshold"),
        ({"forestay": {"turns": 0}}, "$.forestay.turns"),
        ({"forestay": {"returnSchema": {"type": "nonsense"}}}, "$.forestay.returnSchema"),
        ({"forestay": {"returnSchema": {"$ref": "https://example.org/x.json"}}}, "$.forestay.returnSchema"),
        ({"handoff": {"returnSchemaRef": "../secret.json"}}, "$.handoff.returnSchemaRef"),
        ({"handoff": {"returnSchemaRef": "absent.json"}}, "$.handoff.returnSchemaRef"),
    ],
)
def test_a_mistake_has_a_place(tmp_path: Path, change: dict[str, Any], at: str) -> None:
    (tmp_path / "agent.json").write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(Problem) as caught:
        agents.load(tmp_path / "agent.json")
    assert caught.value.key == "agent_invalid"
    assert at in [error["at"] for error in caught.value.details["errors"]]


def test_every_mistake_is_reported_at_once() -> None:
    with pytest.raises(Problem) as caught:
        agents.parse({**GOOD, "persona": "", "modelClass": "huge"})
    assert {error["at"] for error in caught.value.details["errors"]} == {"$.persona", "$.modelClass"}


def test_neither_prompt_is_said_in_words() -> None:
    with pytest.raises(Problem, match="Exactly one of systemPrompt and systemPromptRef"):
        agents.parse({name: value for name, value in GOOD.items() if name != "systemPrompt"})


@pytest.mark.parametrize(("name", "text"), [("a.json", "{"), ("a.toml", "x ="), ("a.json", "[]"), ("a.json", "5")])
def test_files_that_are_no_manifest(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Problem) as caught:
        agents.load(tmp_path / name)
    assert caught.value.key == "agent_invalid" and caught.value.details["errors"]


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"absent\.json cannot be read"):
        agents.load(tmp_path / "absent.json")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "prompt.md").symlink_to(tmp_path / "secret.md")
    document = {name: value for name, value in GOOD.items() if name != "systemPrompt"}
    with pytest.raises(Problem, match="outside"):
        agents.parse({**document, "systemPromptRef": "prompt.md"}, folder=folder)


@pytest.mark.skipif(not CONTRACT.is_file(), reason="the contract's schemas are not beside the project")
def test_what_we_accept_without_our_own_part_the_contract_accepts() -> None:
    theirs = json.loads(CONTRACT.read_text())
    ours = set(SCHEMA["properties"]) - {"forestay"}
    assert ours == set(theirs["properties"])
    assert SCHEMA["required"] == theirs["required"]
    assert SCHEMA["properties"]["agentId"]["pattern"] == theirs["properties"]["agentId"]["pattern"]
    assert SCHEMA["properties"]["modelClass"]["enum"] == theirs["properties"]["modelClass"]["enum"]
    theirs["properties"].pop("promptOverrides")  # it refers to another file
    jsonschema_rs.validator_for(theirs).validate(GOOD)
