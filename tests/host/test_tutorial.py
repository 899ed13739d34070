"""The tutorial, played: files are written where it says, commands run in its folder, and what it shows is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "holdfast"
    shim.parent.mkdir()
    command = "import sys; from holdfast.cli.main import main; sys.exit(main())"
    shim.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{command}' \"$@\"\n")
    shim.chmod(0o755)
    keep = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env = {
        **keep,
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "HOLDFAST_OUTPUT_FORMAT": "human",
        "XDG_CONFIG_HOME": str(tmp_path / "none"),
        "NO_COLOR": "1",
    }
    folder, said, played = tmp_path, "", 0
    for kind, title, text in BLOCK.findall((ROOT / "docs" / "tutorial" / "first-agent.md").read_text()):
        if title:
            file = folder / title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif kind == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, (text, done.stdout, done.stderr)
            said = done.stdout + done.stderr
            folder = tmp_path / "harbour"
            played += 1
        elif kind == "text":
            for line in text.splitlines():
                assert line in said, (line, said)
    assert played >= 6
