"""Running what a documentation page shows: each Python block, and the text block that says what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_BLOCK = re.compile(r"```python\n(.*?)```(?:\n+prints\n+```text\n(.*?)```)?", re.DOTALL)


def examples(page: Path) -> list[tuple[str, str]]:
    return _BLOCK.findall(page.read_text())


def output(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
