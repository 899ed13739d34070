"""Node types of the project's own (F1 to F3): trusted, loaded, run, and known to `workflow check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.host.node_files import trust_in_nodes, types_to_check
from forestay.kernel import Config, Ledger, Problem, Workflows
from forestay.runs import CreateRun
from forestay.runs.nodes.registry import custom_types
from tests.cli.test_runs import Shell
from tests.contracts.openwop.documents import node, workflow

GREET = """
import msgspec
from forestay.runs.nodes import NodeContext, node

class Greeting(msgspec.Struct):
    text: str

@node("acme.greet")
async def greet(ctx: NodeContext) -> dict:
    word = await ctx.effect("word", lambda: "Hello")
    return msgspec.to_builtins(Greeting(f"{word} {ctx.config['name']}"))
"""
CONFIG = Config(workflows=Workflows(nodes=["nodes.py"]))
DOCUMENT = workflow("greeting", node("greet", "acme.greet", {"name": "tide"}))


def written(folder: Path, text: str = GREET) -> Path:
    (folder / "nodes.py").write_text(text)
    return folder


async def test_f1_a_trusted_file_gives_its_types(tmp_path: Path) -> None:
    async with Host.open(CONFIG, root=written(tmp_path), trust_nodes=True) as host:
        await host.runs.put_workflow(DOCUMENT, tenant=None)
    async with Host.open(CONFIG, root=tmp_path) as host:  # the trust stays
        run = await host.runs.create_run(CreateRun(workflow_id="greeting"), "default")
        assert (await host.runs.wait(run.run_id, "default")).outputs == {"text": "Hello tide"}
    assert "acme.greet" not in [item.type_id for item in custom_types()]


async def test_f1_what_nobody_trusts_is_not_executed(tmp_path: Path) -> None:
    written(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(Problem) as refused:
        async with Host.open(CONFIG, root=tmp_path):
            pass
    assert refused.value.key == "folder_untrusted" and "forestay workflow trust" in refused.value.details["fix"]
    assert not (tmp_path / "ran").exists()


async def test_f1_a_change_ends_the_trust(tmp_path: Path) -> None:
    async with Host.open(CONFIG, root=written(tmp_path), trust_nodes=True):
        pass
    written(tmp_path, GREET + "# more\n")
    with pytest.raises(Problem, match="changed"):
        async with Host.open(CONFIG, root=tmp_path):
            pass


@pytest.mark.parametrize(
    ("text", "says"), [("import nowhere_at_all\n", "nowhere_at_all"), ("def (\n", "SyntaxError"), ("1 / 0\n", "Zero")]
)
async def test_f2_a_file_that_cannot_be_loaded_is_named_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Problem, match=says) as refused:
        async with Host.open(CONFIG, root=written(tmp_path, text), trust_nodes=True):
            pass
    assert "nodes.py" in refused.value.message


@pytest.mark.parametrize("name", ["gone.py", "../outside.py", "/etc/hostname", "link.py"])
async def test_f2_a_file_lies_in_the_project(tmp_path: Path, name: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "outside.py").write_text("")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    async with Ledger.open(tmp_path / "ledger.db") as ledger:
        with pytest.raises(Problem) as refused:
            trust_in_nodes(ledger, root, [name])
    assert refused.value.key == "config_invalid" and refused.value.details["at"] == "workflows.nodes"


def test_f3_a_check_knows_the_types_and_executes_nothing(tmp_path: Path) -> None:
    written(tmp_path, GREET + "raise SystemExit\n")
    known = {item.type_id for item in types_to_check(tmp_path, ["nodes.py"])}
    assert {"acme.greet", "core.agent", "core.noop"} <= known


def shell_with_nodes(folder: Path) -> Shell:
    (written(folder) / "forestay.toml").write_text('[workflows]\nnodes = ["nodes.py"]\n')
    (folder / "greeting.json").write_text(json.dumps(DOCUMENT))
    return Shell(folder)


def test_from_the_command_line(tmp_path: Path) -> None:
    shell = shell_with_nodes(tmp_path)
    assert shell("workflow", "check", "greeting.json").code == 0
    untrusted = shell("workflow", "put", "greeting.json")
    assert untrusted.code == 5 and "forestay workflow trust" in untrusted.error["suggestedAction"]
    assert shell("workflow", "trust", "--show").result["state"] == "untrusted"
    assert shell("workflow", "trust").result["state"] == "trusted"
    assert shell("workflow", "put", "greeting.json").code == 0
    done: dict[str, Any] = shell("run", "start", "greeting", "--wait").result
    assert done["outputs"] == {"text": "Hello tide"}
    assert shell("workflow", "trust", "--withdraw").result["state"] == "untrusted"


def test_an_example_of_ours_passes_the_check(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "harbour" / "workflows" / "harbour.json"
    assert Shell(tmp_path)("workflow", "check", str(example)).code == 0
