"""Gives a package its face: the names that other packages may use.

A package's `__init__` lists its names once, as imports that type checkers read. This module reads the same list on the
first access, and imports each name on its first use: a command loads only the parts that it needs.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

_IMPORT = re.compile(r"^    from (?P<module>[\w.]+) import (?:\((?P<many>[^)]*)\)|(?P<one>[^(\n]+))$", re.MULTILINE)


def exports(file: str) -> dict[str, tuple[str, str]]:
    """Return the names that an `__init__` exports, each with its module and its name there."""
    found: dict[str, tuple[str, str]] = {}
    for item in _IMPORT.finditer(Path(file).read_text("utf-8")):
        for text in (item["many"] or item["one"]).split(","):
            if text.strip():
                name, _, shown = text.strip().partition(" as ")
                found[shown or name] = item["module"], name
    return found


def face(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package."""
    listed: dict[str, tuple[str, str]] = {}

    def get(name: str) -> object:
        if not listed:
            listed.update(exports(file))
        if name not in listed:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own = listed[name]
        value: object = getattr(importlib.import_module(module), own)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(listed or exports(file))
