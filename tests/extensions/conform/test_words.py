"""The wording of the built-in tools is data of the host: ours by default, another host's when it is given."""

from __future__ import annotations

import asyncio
import json

import pytest

from forestay.extensions.compiler.build import build
from forestay.extensions.conform.differential import registrations_of
from forestay.extensions.tool_wording import read_wording
from forestay.kernel import Problem
from forestay.tools import BUILT_IN

KINDS = [name.capitalize() for name in BUILT_IN]


def _entry(tmp_path, package, form):
    makers = ", ".join(f"create{kind}{form}" for kind in KINDS)
    path = tmp_path / f"{form}.ts"
    path.write_text(
        f'import {{ {makers} }} from "{package}";\n'
        f"export default (pi: any) => {{ for (const make of [{makers}]) pi.registerTool(make(process.cwd())); }};\n"
    )
    return path


def _registered(path, words=None):
    found = asyncio.run(registrations_of(build(path), words))
    return {tool["name"]: tool for tool in found["tools"]}


def _descriptions(schema, at=""):
    for name, item in schema.get("properties", {}).items():
        yield at + name, item["description"]
        yield from _descriptions(item.get("items", {}), f"{at}{name}.")


def _file(tmp_path, tools, schema="forestay.tool-words.v1"):
    path = tmp_path / "words.json"
    path.write_text(json.dumps({"schema": schema, "tools": tools}))
    return path


def test_every_tool_and_parameter_has_words_of_our_own(tmp_path):
    for form in ("Tool", "ToolDefinition"):
        found = _registered(_entry(tmp_path, "@earendil-works/pi-coding-agent", form))
        named = {name: {path for path, _ in _descriptions(tool["parameters"])} for name, tool in found.items()}
        assert named == {name: set(row.parameter_names) for name, row in BUILT_IN.items()}
        assert all(text for tool in found.values() for _, text in _descriptions(tool["parameters"]))


def test_which_tools_carry_prompt_texts_follows_the_package(tmp_path):
    def carrying(package, form, field):
        return {name for name, tool in _registered(_entry(tmp_path, package, form)).items() if tool[field] is not None}

    older, newer = "@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent"
    assert carrying(older, "Tool", "promptSnippet") == set()
    assert carrying(newer, "Tool", "promptSnippet") == {"bash"}
    assert carrying(newer, "Tool", "promptGuidelines") == {"bash"}
    assert carrying(older, "ToolDefinition", "promptSnippet") == set(BUILT_IN)
    assert carrying(older, "ToolDefinition", "promptGuidelines") == {"read", "edit", "write"}
    assert carrying(newer, "ToolDefinition", "promptGuidelines") == {"read", "edit", "write", "bash"}


def test_given_words_take_the_place_of_ours_and_null_leaves_them_unsaid(tmp_path):
    entry = _entry(tmp_path, "@earendil-works/pi-coding-agent", "ToolDefinition")
    ours = _registered(entry)
    given = {
        "edit": {
            "label": "Edit!",
            "description": "D",
            "parameters": {"edits.oldText": "O"},
            "promptSnippet": None,
            "promptGuidelines": ["G"],
        }
    }
    found = _registered(entry, read_wording(_file(tmp_path, given)))
    edit = found.pop("edit")
    assert (edit["label"], edit["description"], edit["promptSnippet"], edit["promptGuidelines"]) == (
        "Edit!",
        "D",
        None,
        ["G"],
    )
    said, before = dict(_descriptions(edit["parameters"])), dict(_descriptions(ours["edit"]["parameters"]))
    assert said == {**before, "edits.oldText": "O"}
    assert found == {name: tool for name, tool in ours.items() if name != "edit"}


@pytest.mark.parametrize(
    ("tools", "at"),
    [
        ({"fly": {}}, "tools.fly"),
        ({"read": {"parameters": {"speed": "x"}}}, "tools.read.parameters.speed"),
        ({"read": {"descriptoin": "x"}}, None),
        ({"read": {"description": 1}}, None),
    ],
)
def test_words_that_would_go_nowhere_are_refused(tmp_path, tools, at):
    with pytest.raises(Problem) as caught:
        read_wording(_file(tmp_path, tools))
    assert caught.value.key == "schema_mismatch"
    if at:
        assert caught.value.details["at"] == at
    with pytest.raises(Problem):
        read_wording(_file(tmp_path, {}, schema="other"))
    with pytest.raises(Problem):
        read_wording(tmp_path / "none.json")


def test_the_command_line_takes_a_wording(tmp_path, monkeypatch, capfd):
    from forestay.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORESTAY_HOME", str(tmp_path / "home"))
    entry = _entry(tmp_path, "@earendil-works/pi-coding-agent", "Tool")
    words = _file(tmp_path, {"ls": {"description": "Words of another host."}})
    with pytest.raises(SystemExit) as left:
        main(["ext", "inspect", str(entry), "--tool-words", str(words), "--data", str(tmp_path / "data")])
    assert left.value.code == 0
    (extension,) = json.loads(capfd.readouterr().out)["result"]["extensions"]
    assert [tool["description"] for tool in extension["tools"] if tool["name"] == "ls"] == ["Words of another host."]
