"""Adds a package from npm to a project: fetches it, pins it, and lists it in the project's settings.

I1  None of its code runs: npm runs no package scripts and ignores the project's npm settings. Its extensions need a
    person's trust, like everything in a project.
I2  Its version is exact, and the lock file has the hash of every installed package: a later fetch of the same version
    with different content is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions.compiler.install import refuse_settings, run_npm
from forestay.extensions.packages import SETTINGS
from forestay.kernel import Problem, canonical

_SPEC = re.compile(r"(?:npm:)?(?P<name>(?:@[a-z0-9][\w.~-]*/)?[a-z0-9][\w.~-]*)(?:@(?P<version>[\w^~][\w.^~+-]*))?")
_FILE = next(iter(SETTINGS))
_BASE = SETTINGS[_FILE]


class AddedPackage(msgspec.Struct, frozen=True):
    """An added package; `integrity` is the hash of the fetched archive, `came` lists everything that was installed."""

    name: str
    version: str
    integrity: str
    source: str
    folder: Path
    came: tuple[str, ...]


def is_package(text: str) -> bool:
    """Whether a text names an npm package."""
    return _SPEC.fullmatch(text) is not None


def add_package(project: Path, spec: str, *, offline: bool = False) -> AddedPackage:
    """Fetch a package into the project, pin it, and list it in the settings (I1, I2)."""
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise Problem(
            "invalid_usage", f"{spec[:120]!r} is not the name of an npm package.", fix="Write NAME or NAME@VERSION."
        )
    name, home = found["name"], _home(project)
    wanted = f"{name}@{found['version']}" if found["version"] else name
    came = run_npm(home, "install", "--save-exact", *(["--offline"] if offline else []), "--", wanted)
    lock: dict[str, Any] = canonical.decode((home / "package-lock.json").read_bytes()).get("packages", {})
    locked = lock.get(f"node_modules/{name}", {})
    version, integrity = locked.get("version"), locked.get("integrity")
    if not isinstance(version, str) or not isinstance(integrity, str):
        raise Problem(
            "extension_invalid", f"npm recorded no hash for {name}.", fix="Use a registry that provides hashes."
        )
    source = f"npm:{name}@{version}"
    _name_it(project, name, source)
    return AddedPackage(name, version, integrity, source, home / "node_modules" / name, came)


def _home(project: Path) -> Path:
    """Return the folder for the project's packages: a separate npm project."""
    home = project.resolve() / _BASE / "npm"
    for place in (home.parent, home):
        if place.is_symlink():
            raise Problem("extension_invalid", f"{place.name} is a link that leads elsewhere.", fix="Remove the link.")
    home.mkdir(parents=True, exist_ok=True)
    refuse_settings(home)
    if not (home / "package.json").exists():
        (home / "package.json").write_text('{\n  "private": true\n}\n', "utf-8")
    return home


def _name_it(project: Path, name: str, source: str) -> None:
    """List the package once in the settings, in this version; keep everything else."""
    path = project / _FILE
    settings: Any = canonical.decode(path.read_bytes()) if path.is_file() else {}
    listed = settings.get("packages", []) if isinstance(settings, dict) else None
    if not isinstance(listed, list):
        raise Problem("manifest_invalid", f"{_FILE} must be an object, and its `packages` a list.", at=_FILE)
    kept = [entry for entry in listed if not _names(entry, name)]
    again: Any = next((entry for entry in listed if _names(entry, name) and isinstance(entry, dict)), None)
    settings["packages"] = [*kept, {**again, "source": source} if again is not None else source]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")


def _names(entry: Any, name: str) -> bool:
    source = entry.get("source") if isinstance(entry, dict) else entry
    found = _SPEC.fullmatch(source) if isinstance(source, str) and source.startswith("npm:") else None
    return found is not None and found["name"] == name
