"""The reference names everything that there is: compared with the code, both ways where a name could be left over."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from benchmarks.readme import refreshed

from forestay.cli.commands import COMMANDS, GROUPS
from forestay.extensions import CAPABILITIES, EVENTS, OLDER_EVENTS
from forestay.extensions.api_table import FILE_READS, FILE_WRITES, METHODS
from forestay.kernel import TABLE, Config, ExtensionOverride
from forestay.kernel.config import _leaves
from forestay.runs import definition
from forestay.runs.channels import REDUCERS
from forestay.tools import BUILT_IN
from tests.docs.pages import ROOT, blocks

REFERENCE = ROOT / "docs" / "reference"
# What writes a record or an event: its first words name the type.
_WRITERS = {"Draft", "Event", "AgentEvent", "_event", "_node_event", "_record", "emit", "_beat_once"}
_TYPE = re.compile(r"[a-z]+[A-Za-z]*(\.[a-zA-Z_]+){1,3}")


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text("utf-8")


def test_the_generated_pages_are_current() -> None:
    done = subprocess.run([sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr + "run `make docs`"


def test_every_command_has_a_heading() -> None:
    text = page("commands")
    for name in {**COMMANDS, **GROUPS}:
        assert f"\n## forestay {name}\n" in text


def test_no_command_is_without_words() -> None:
    """A parameter without help, or a command without a docstring, is a hole in the page."""
    assert "| `--" in page("commands")
    assert not re.findall(r"^\| [^|]+ \|  \|.*$", page("commands"), re.MULTILINE)


@pytest.mark.parametrize("key", sorted(TABLE))
def test_every_problem_has_a_heading(key: str) -> None:
    assert f"\n## {key}\n" in page("problems")


def test_every_setting_stands_on_the_page() -> None:
    text = page("config")
    for name, _ in _leaves(Config()):
        assert re.search(rf"^# {name.rsplit('.', 1)[-1]} = ", text, re.MULTILINE), name
    for name in ExtensionOverride.__struct_fields__:
        assert re.search(rf"^# {name} = ", text, re.MULTILINE), name


def test_every_capability_and_method_has_a_row() -> None:
    text = page("capabilities")
    for name in CAPABILITIES:
        assert f"\n| `{name}` |" in text, name
    for name in METHODS:
        assert f"`{name}`" in text, name
    for name in (*FILE_READS, *FILE_WRITES):
        assert re.search(rf"[` ]{name}[` ,]", text), name


def test_every_field_of_a_workflow_document_is_on_its_page() -> None:
    """And whether it must be there."""
    text = page("workflow")
    parts = [definition.Workflow, definition.Node, definition.Edge, definition.Condition, definition.Trigger]
    parts += [definition.Variable, definition.Channel, definition.Access, definition.Retry, definition.Settings]
    parts += [definition.StaticPort, definition.ExpressionPort, definition.ConnectionPort, definition.VariablePort]
    for part in parts:
        for field in msgspec.structs.fields(part):
            name = field.encode_name
            assert f"`{name}`" in text or f'"{name}"' in text, (part.__name__, name)
    for part in parts[:7]:
        for field in msgspec.structs.fields(part):
            assert not field.required or f"`{field.encode_name}` *" in text, (part.__name__, field.encode_name)
    assert all(f"`{name}`" in text for name in REDUCERS)


def test_every_built_in_tool_is_named() -> None:
    text = (ROOT / "docs" / "how-to" / "gate-a-tool.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in BUILT_IN)


def test_every_event_of_extensions_is_named() -> None:
    text = page("events").partition("## What extensions hear")[2]
    assert {*EVENTS, *OLDER_EVENTS} == set(re.findall(r"`([a-z_]+)`", text))


def written(tree: ast.AST) -> Iterator[str]:
    """The types of records and events that a module writes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if called not in _WRITERS:
            continue
        for argument in node.args[:2]:
            for part in ast.walk(argument):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and _TYPE.fullmatch(part.value):
                    yield part.value


def test_every_type_of_record_is_named_and_no_other() -> None:
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "src" / "forestay").rglob("*.py")):
        if path.parent.name != "cli":
            found |= dict.fromkeys(written(ast.parse(path.read_text("utf-8"))), path)
    assert len(found) > 100
    records = page("events").partition("## What extensions hear")[0]
    named = set(re.findall(r"`([a-z]+[A-Za-z]*(?:\.[a-zA-Z_]+)+)`", records))
    missing = {type: str(path.relative_to(ROOT)) for type, path in found.items() if type not in named}
    assert not missing, missing
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert not {type for type in named if f'"{type}"' not in sources}, "named, but nobody writes it"


def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "explanation" / "fuzzing" / "index.html").is_file()


def test_every_page_is_in_the_navigation_and_in_the_index() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        assert f": {name}\n" in navigation, name
        assert name == "index.md" or f"({name})" in index, name


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert refreshed(readme, results) == readme
    assert readme.count("five steps: ") == 1 == readme.count("overhead of a dispatch ")


def test_the_example_is_that_of_its_tutorial() -> None:
    page = ROOT / "docs" / "tutorial" / "survive-a-kill.md"
    files = {block.title: block.text for block in blocks(page) if block.title}
    assert len(files) == 3
    for name, text in files.items():
        assert (ROOT / "examples" / "parcels" / name).read_text("utf-8") == text, name


def test_the_agents_node_type_has_a_row() -> None:
    """The host adds it to the standard types, which a test of the runs compares."""
    assert "\n| `core.agent` |" in page("node-types")
