"""What others would use instead, each in an environment of its own, made once from its lock."""

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
    """The interpreter that has the alternative `name` (a lock file's name) installed."""
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
    """The folder of packages of the alternative `name`, for those that run in our own process."""
    return next(python_of(name).parents[1].glob("lib/python*/site-packages"))


def measure(name: str, script: str, *arguments: str, timeout: float = 300) -> dict[str, Any]:
    """Run `script` there; its last line of output is one JSON object."""
    command = [str(python_of(name)), "-c", script, *arguments]
    with tempfile.TemporaryDirectory() as folder:  # some write where they stand
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        return {"error": (done.stderr or "it failed").strip().splitlines()[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
