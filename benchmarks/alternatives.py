"""The alternatives to forestay, each in its own environment, which is made once from its lock."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOCKS = HERE / "locks"
ENVIRONMENTS = HERE.parent / ".venv" / "alternatives"


def python_of(name: str) -> Path:
    """Return the interpreter with the alternative `name` (a lock file's name)."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        lock = LOCKS / f"{name}.lock"
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(lock)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        (folder / ".ready").touch()
    return python


def packages_of(name: str) -> Path:
    """Return the packages folder of the alternative `name`, to import it in our own process."""
    return next(python_of(name).parents[1].glob("lib/python*/site-packages"))


def measure(name: str, script: str, *arguments: str, timeout: float = 300) -> dict[str, Any]:
    """Run `script` in the alternative's environment; the last line of its output is one JSON object."""
    command = [str(python_of(name)), "-c", script, *arguments]
    with tempfile.TemporaryDirectory() as folder:  # some write to their working folder
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        return {"error": (done.stderr or "it failed").strip().splitlines()[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
