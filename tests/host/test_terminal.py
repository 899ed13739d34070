"""`holdfast ask` with a person at the terminal: extensions and writes are asked about where the command was started."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from holdfast.cli.main import main; sys.exit(main())"


def played(folder: Path, *arguments: str, answer: bytes) -> str:
    """What the terminal showed; every question gets `answer`."""
    terminal, side = pty.openpty()
    keep = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env = {**keep, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "XDG_CONFIG_HOME": str(folder / ".none")}
    command = [sys.executable, "-c", COMMAND, *arguments]
    child = subprocess.Popen(command, cwd=folder, env=env, stdin=side, stdout=side, stderr=side, start_new_session=True)
    os.close(side)
    shown, answered = b"", 0
    while select.select([terminal], [], [], 120)[0]:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the child has closed its side
            break
        shown += part
        while shown.count(b"[y/N] ") > answered:
            answered += 1
            os.write(terminal, answer + b"\n")
    os.close(terminal)
    assert child.wait(60) == 0, shown.decode()
    return shown.decode()


def test_a_person_says_yes(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "harbour", tmp_path / "h")
    shown = played(tmp_path / "h", "ask", 'Use tally, then write "x7" to board.md', answer=b"y")
    assert "This folder brings extensions: extensions/tally." in shown
    assert "May the agent call write?" in shown and "`tally` returned: 3 berths" in shown
    assert (tmp_path / "h" / "board.md").read_text() == "x7"


def test_a_person_says_no(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "harbour", tmp_path / "h")
    shown = played(tmp_path / "h", "ask", 'Use tally, then write "x7" to board.md', answer=b"n")
    assert "nobody trusts it yet" in shown and "tally` returned" not in shown
    assert not (tmp_path / "h" / "board.md").exists()
