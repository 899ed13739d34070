"""The first hour of somebody who has Python and the wheel, as the tutorial tells it, with the clock running.

The wheel is built before the clock starts. What `make setup` does in a clone, `pip install` does here; every other
block of the page is played as it stands, and its answers are checked.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.player import Player

PAGE = ROOT / "docs" / "tutorial" / "first-agent.md"
FIRST_ANSWER_SECONDS, OWN_EXTENSION_SECONDS = 120, 900
QUIET = ("--quiet", "--disable-pip-version-check")


@pytest.mark.sweep
def test_from_python_alone_to_a_first_answer_and_an_extension_of_ones_own(tmp_path: Path) -> None:
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT))
    subprocess.run([sys.executable, "-m", "pip", *build, *QUIET], check=True, timeout=600)
    (wheel,) = tmp_path.glob("forestay-*.whl")
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True, timeout=300)
    subprocess.run([tmp_path / "env/bin/python", "-m", "pip", "install", wheel, *QUIET], check=True, timeout=900)
    installed = time.perf_counter() - began
    (tmp_path / "machine").mkdir()
    player = Player(tmp_path / "machine", installed=tmp_path / "env" / "bin")
    reached: list[float] = []
    try:
        for block in blocks(PAGE):
            if "make setup" in block.text:
                continue
            player.play(block)
            if block.language == "text" and block.mark != "figure":
                reached.append(time.perf_counter() - began)
            if "reporting home was refused" in block.text and block.language == "text":
                break
    finally:
        player.close()
    answered, owned = reached[0], reached[-1]
    print(f"installed after {installed:.0f} s, first answer {answered:.0f} s, refused and granted call {owned:.0f} s")
    assert len(reached) == 2, "the first answer, and that of the extension"
    assert answered < FIRST_ANSWER_SECONDS
    assert owned < OWN_EXTENSION_SECONDS
