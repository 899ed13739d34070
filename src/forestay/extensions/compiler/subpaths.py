"""Subpath imports (`#src/thing`), as the real loader resolves them.

A package names them in the `imports` of its `package.json`. The bundler follows that table to the letter; the real
loader also finds the file behind a target that leaves its extension out. Only that last step is done here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SUFFIXES = (".ts", ".tsx", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json")
_CONDITIONS = ("node", "import", "require", "default")


def completed(specifier: str, importer: Path) -> Path | None:
    """The file that a subpath import means when its target names it without extension; None in every other case."""
    package = _package(importer)
    if package is None:
        return None
    try:
        table = json.loads((package / "package.json").read_bytes()).get("imports")
    except (OSError, ValueError, AttributeError):
        return None
    target = _target(table, specifier) if isinstance(table, dict) else None
    if target is None or not target.startswith("./"):
        return None
    wanted = package / target
    if wanted.is_file():
        return None
    plain = [wanted.with_name(wanted.name + suffix) for suffix in _SUFFIXES]
    # A `.js` that stands for the `.ts` it is compiled from.
    written = [wanted.with_suffix(".ts"), wanted.with_suffix(".tsx")] if wanted.suffix == ".js" else []
    index = [wanted / f"index{suffix}" for suffix in _SUFFIXES]
    return next((path for path in (*plain, *written, *index) if path.is_file()), None)


def _package(importer: Path) -> Path | None:
    """The folder of the nearest `package.json`."""
    return next((folder for folder in importer.parents if (folder / "package.json").is_file()), None)


def _target(table: dict[str, Any], specifier: str) -> str | None:
    if specifier in table:
        return _chosen(table[specifier])
    patterns = [key for key in table if key.count("*") == 1 and _star(key, specifier) is not None]
    if not patterns:
        return None
    best = max(patterns, key=lambda key: (len(key.split("*")[0]), len(key)))
    target = _chosen(table[best])
    return target.replace("*", _star(best, specifier) or "") if target is not None else None


def _star(pattern: str, specifier: str) -> str | None:
    """What `*` stands for."""
    before, after = pattern.split("*")
    is_match = specifier.startswith(before) and specifier.endswith(after) and len(specifier) >= len(pattern)
    return specifier[len(before) : len(specifier) - len(after)] if is_match else None


def _chosen(target: Any) -> str | None:
    if isinstance(target, dict):
        return next((_chosen(target[name]) for name in target if name in _CONDITIONS), None)
    return target if isinstance(target, str) else None
