"""`forestay init`, `ask` and `demo`, as processes in a folder of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.cli.init import TEMPLATE
from forestay.kernel import Config, ExtensionOverride, RetentionSettings
from tests import forked

ROOT = Path(__file__).parents[2]


def forestay(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    env = {**keep, "XDG_CONFIG_HOME": str(folder / ".none"), "NO_COLOR": "1"}
    return forked.forestay(folder, *arguments, environ=env)


def result(folder: Path, *arguments: str) -> dict[str, Any]:
    done = forestay(folder, *arguments, "--json")
    envelope = json.loads(done.stdout)
    assert envelope["success"], envelope["error"]
    found: dict[str, Any] = envelope["result"]
    return found


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(ROOT / "examples" / "harbour", tmp_path / "harbour")
    return tmp_path / "harbour"


def test_every_setting_stands_in_the_file_that_init_writes_with_its_default(tmp_path: Path) -> None:
    assert result(tmp_path, "init")["file"] == "forestay.toml"
    assert (tmp_path / "forestay.toml").read_text() == TEMPLATE
    assert TEMPLATE in (ROOT / "docs" / "reference" / "config.md").read_text()
    said = re.sub(r"^# (\w+ = |\[)", r"\1", TEMPLATE, flags=re.MULTILINE)
    spoken = tomllib.loads(re.sub(r"^(ceilings|gates) = \[\].*$", "", said, flags=re.MULTILINE))  # examples follow
    spoken["extensions"].pop("overrides")
    spoken["models"].pop("classes")
    spoken["models"].pop("entries")  # an example: there is none by default
    spoken["budgets"] = {"enforce": spoken["budgets"]["enforce"]}  # ceilings and prices are examples too
    for example in ("overall", "keys", "routes"):
        spoken["http"]["rates"].pop(example)
    spoken["output"].pop("format")
    assert set(spoken.pop("retention")) == set(RetentionSettings.__struct_fields__)  # examples: nothing goes by default
    for example in ("a2a", "deployments", "evaluations", "mailboxes", "oauth", "mcpServers"):
        spoken.pop(example)
    assert msgspec.convert(spoken, Config) == Config()
    for section, fields in _sections(Config()).items():
        assert set(spoken.get(section, {})) | {
            "classes",
            "gates",
            "judge",
            "entries",
            "ceilings",
            "prices",
            "providers",
            "overrides",
            "peers",
            "format",
            "policy",
            *RetentionSettings.__struct_fields__,
        } >= set(fields)
    assert set(ExtensionOverride.__struct_fields__) == {"allow", "deny", "mode"}


def _sections(config: Config) -> dict[str, tuple[str, ...]]:
    sections = {name: getattr(config, name) for name in config.__struct_fields__}
    return {name: part.__struct_fields__ for name, part in sections.items() if isinstance(part, msgspec.Struct)}


def test_init_does_not_write_over_a_file(tmp_path: Path) -> None:
    result(tmp_path, "init")
    (tmp_path / "forestay.toml").write_text("# mine\n")
    refused = forestay(tmp_path, "init", "--json")
    assert refused.returncode != 0 and "already" in json.loads(refused.stdout)["error"]["message"]
    assert (tmp_path / "forestay.toml").read_text() == "# mine\n"


def test_ask_quotes_the_folder_and_says_that_the_model_is_local(harbour: Path) -> None:
    done = forestay(harbour, "ask", "At which berth does the Aurora lie?", "--human")
    assert done.returncode == 0, done.stderr
    assert '"The Aurora lies at berth 7."' in done.stdout
    assert "model  local (offline" in done.stderr


def test_ask_loads_no_extension_that_nobody_trusts(harbour: Path) -> None:
    question = "Use tally: which berths do the notes name?"
    skipped = forestay(harbour, "ask", question, "--json")
    assert "nobody trusts it yet" in skipped.stderr
    assert json.loads(skipped.stdout)["result"]["tools"] == []
    assert result(harbour, "ask", question, "--trust")["tools"] == [{"tool": "tally", "status": "ok"}]
    (harbour / "extensions" / "tally" / "index.ts").write_text(
        (harbour / "extensions" / "tally" / "index.ts").read_text() + "\n// changed\n"
    )
    changed = forestay(harbour, "ask", question, "--json")
    assert "nobody trusts it yet" in changed.stderr, "trust is given to a content, not to a path"


def test_ask_waits_for_an_approval_and_goes_on_with_its_run(harbour: Path) -> None:
    waiting = result(harbour, "ask", 'Write "Mended." to rudder.md')
    assert waiting["status"] == "waiting-approval" and not (harbour / "rudder.md").exists()
    assert waiting["question"]["data"]["artifactData"]["arguments"] == {"path": "rudder.md", "content": "Mended."}
    result(harbour, "run", "approve", waiting["runId"])
    done = result(harbour, "ask", "--run-id", waiting["runId"])
    assert done["status"] == "completed" and (harbour / "rudder.md").read_text() == "Mended."


def test_the_demo_in_the_documentation_is_its_real_output(tmp_path: Path) -> None:
    done = forestay(tmp_path, "demo", "--human")
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "tutorial" / "demo.md").read_text()
    shown = page.split("```console\n$ forestay demo\n")[1].split("```")[0]
    assert normal(done.stdout) == normal(shown)


def test_the_demo_as_one_envelope(tmp_path: Path) -> None:
    told = result(tmp_path, "demo")
    assert told["verified"]["records"] > 50 and "berth 7" in told["answer"]
    assert [step["title"] for step in told["steps"]][-1] == "The ledger is verified"
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def normal(text: str) -> list[str]:
    """Without the numbers of records, which a kill a moment earlier or later changes."""
    return re.sub(r"\S+ records in \S+ streams", "… records in … streams", text).strip().splitlines()
