"""Fetches the tools of the languages for components from the registries, when they are missing.

They stay in the user's cache for the next run. They are not part of the project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_PIP = {"c": "ziglang", "python": "componentize-py"}
_NPM = {"javascript": "@bytecodealliance/jco"}
_TARGET = ("--print", "target-libdir", "--target", "wasm32-unknown-unknown")
_SECONDS = 600.0


def environment(language: str, folder: Path) -> dict[str, str]:
    """Return the environment that builds the project in `folder`; fetch its tools first, if possible."""
    kept = _cache() / language
    if language in _PIP and not kept.exists():
        _fetch(kept, [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(kept), _PIP[language]])
    if language in _NPM:
        if not kept.exists():
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(kept), _NPM[language]]
            _fetch(kept, command)
        if (kept / "node_modules").is_dir():
            (folder / "node_modules").symlink_to(kept / "node_modules")
    path = [str(kept / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join([*([str(kept)] if kept.is_dir() else []), *sys.path[:1]]),
        "RUSTC": _rustc() or "rustc",
    }


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "forestay-benchmarks"


def _fetch(folder: Path, command: list[str]) -> None:
    """Run a package manager; remove the folder when it fails."""
    folder.mkdir(parents=True)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        done = False
    if not done:
        shutil.rmtree(folder, ignore_errors=True)


def _rustc() -> str | None:
    """Return a Rust compiler on the PATH that can make WebAssembly."""
    for folder in os.environ["PATH"].split(os.pathsep):
        compiler = shutil.which("rustc", path=folder)
        if compiler is not None:
            told = subprocess.run([compiler, *_TARGET], capture_output=True, text=True).stdout.strip()
            if told and Path(told).is_dir():
                return compiler
    return None
