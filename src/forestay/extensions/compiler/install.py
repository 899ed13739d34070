"""An extension's own npm dependencies, fetched when a person asks (Pi §2A.5); no script of any package is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from forestay import assets
from forestay.kernel import Problem, canonical

_LOCKS = ("package-lock.json", "npm-shrinkwrap.json")
_FLAGS = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--legacy-peer-deps", "--loglevel=error")
_TIMEOUT = 900


class Installed(msgspec.Struct, frozen=True):
    """What is in `node_modules` now; `locked` says that a lock file decided the versions."""

    packages: tuple[str, ...]
    locked: bool


def install(folder: Path, *, offline: bool = False) -> Installed:
    """Fetch what `package.json` names; a lock file is followed to the letter.

    A package that is a folder elsewhere is copied (`--install-links`): a link to it would lead out of the extension.
    """
    root = folder.expanduser().resolve()
    if not (root / "package.json").is_file():
        raise Problem("extension_invalid", f"{folder.name} has no package.json.", fix="Nothing is to be installed.")
    refuse_settings(root)
    locked = any((root / name).is_file() for name in _LOCKS)
    packages = run_npm(root, "ci" if locked else "install", "--install-links", *(["--offline"] if offline else []))
    return Installed(packages, locked)


def refuse_settings(root: Path) -> None:
    """npm obeys an `.npmrc`: it can name a program that npm runs for git, and put variables of ours into addresses."""
    if os.path.lexists(root / ".npmrc"):
        raise Problem(
            "extension_invalid",
            f"{root.name} brings an .npmrc, which could make npm run programs.",
            fix="Look at it; keep what you need of it in your own ~/.npmrc and remove it here.",
        )


def run_npm(root: Path, word: str, *words: str) -> tuple[str, ...]:
    """Run npm in `root` without scripts of packages; `name@version` of everything that is installed then."""
    npm = assets.npm_command()
    if npm is None:
        raise Problem("asset_missing", "There is no npm here.", fix=assets.NPM_FIX)
    command = [*npm, word, *_FLAGS, *words]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise Problem("timeout", f"npm did not finish in {_TIMEOUT} seconds.", fix="Try again.") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if "complete log" not in line]
        raise Problem("io_failed", "npm could not install the dependencies.", reason="\n".join(said)[-600:])
    return _packages(root)


def _packages(root: Path) -> tuple[str, ...]:
    """`name@version` of every installed package, as npm itself wrote it down."""
    path = root / "node_modules" / ".package-lock.json"
    if not path.is_file():
        return ()
    document: dict[str, Any] = canonical.decode(path.read_bytes())
    listed: dict[str, dict[str, Any]] = document.get("packages", {})
    found = set()
    for place, item in listed.items():
        _, inside, name = place.rpartition("node_modules/")
        if inside:  # a link's version stands at the folder that it leads to
            meant = listed.get(str(item.get("resolved")), item) if item.get("link") else item
            found.add(f"{name}@{meant.get('version', '?')}")
    return tuple(sorted(found))
