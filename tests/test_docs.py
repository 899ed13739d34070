"""The documentation says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def test_the_generated_pages_are_current() -> None:
    done = subprocess.run([sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    """Each ```python block of a page runs, one after the other, in one file in an empty folder."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    if blocks:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_console_examples_run(page: Path, tmp_path: Path) -> None:
    """Each line of a ```console block that starts with `$ holdfast` works (or exits with the code in `# exit N`)."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^\$ (holdfast .*)$", block, re.MULTILINE):
            command, _, comment = line.partition("#")
            expected = re.search(r"exit (\d+)", comment)
            command = command.replace("holdfast", f"{sys.executable} -m holdfast.cli.main", 1)
            done = subprocess.run(command, cwd=tmp_path, shell=True, capture_output=True, text=True)
            assert done.returncode == (int(expected[1]) if expected else 0), (line, done.stdout, done.stderr)
