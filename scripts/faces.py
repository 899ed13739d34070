"""Checks the import contract: other packages use a package only through its face, the names that `__init__` exports.

    python scripts/faces.py        list the breaches of the contract; exit 1 when there is one

1. In `src`, no module imports a module of another package; it takes names only from that package's face.
2. An exported name is not the name of a module of the same package: the module would replace it.
3. Other code, a test or a benchmark uses each exported name, or a page shows it as code.
4. A test imports modules only of the package that its folder names, a benchmark only of one package. `reaching` lists
   the exceptions.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from forestay.face import exports

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "forestay"
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
WHOLE = frozenset({"assets", "cli", "client", "console"})  # small packages that import their names at once


def faces() -> dict[str, set[str]]:
    """Return the names that each package exports."""
    return {name: _exported(name) for name in PACKAGES}


def _exported(package: str) -> set[str]:
    init = SOURCE / package / "__init__.py"
    if package not in WHOLE:
        return set(exports(str(init)))
    for item in ast.parse(init.read_text("utf-8")).body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and item.targets[0].id == "__all__":
            return set(ast.literal_eval(item.value))
    return set()


def modules(package: str) -> set[str]:
    folder = SOURCE / package
    return {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}


Import = tuple[int, str, list[tuple[str, str]]]
"""Line, module, and the names, each with its name in the importing file."""


@cache
def _read(file: Path) -> tuple[list[Import], list[tuple[str, str]]]:
    """Return each `from forestay… import …` of a file, and each `name.attribute` in it; without imports, neither."""
    text = file.read_text("utf-8")
    if "from forestay" not in text:
        return [], []
    taken: list[Import] = []
    dotted: list[tuple[str, str]] = []
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, ast.ImportFrom) and item.level == 0 and f"{item.module}.".startswith("forestay."):
            taken.append(
                (item.lineno, str(item.module), [(alias.name, alias.asname or alias.name) for alias in item.names])
            )
        elif isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name):
            dotted.append((item.value.id, item.attr))
    return taken, dotted


def imports(file: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each `from forestay.… import …` of a file: line, module, names."""
    for line, module, names in _read(file)[0]:
        if module != "forestay":
            yield line, module, [name for name, _ in names]


def broken() -> Iterator[str]:
    """Yield every breach of 1 and 2, with its place."""
    shown = faces()
    for file in sorted(SOURCE.rglob("*.py")):
        own = file.relative_to(SOURCE).parts[0]
        for line, module, names in imports(file):
            _, package, *inside = module.split(".")
            if package == own or package not in shown or own == "__main__.py":  # the command is no library
                continue
            place = f"{file.relative_to(ROOT)}:{line}"
            if inside:
                yield f"{place}: {module} is inside {package}; take it from forestay.{package}"
            for name in names if not inside else ():
                if name not in shown[package] | modules(package):
                    yield f"{place}: forestay.{package} does not export {name}"
    for package, names in shown.items():
        for name in sorted(names & modules(package) if package not in WHOLE else ()):
            yield f"forestay.{package} exports {name}, which is also the name of one of its modules"


def unused() -> Iterator[str]:
    """Yield every exported name that no code outside uses and no page shows as code (3)."""
    used = {package: set[str]() for package in PACKAGES}
    folders = ("src", "tests", "benchmarks", "scripts", "examples")
    for file in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for package, name in _uses(file):
            if not file.is_relative_to(SOURCE / package):
                used[package].add(name)
    pages = "\n".join(path.read_text("utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    shown = set(re.findall(r"\w+", " ".join(re.findall(r"^```.*?^```|`[^`\n]+`", pages, re.DOTALL | re.MULTILINE))))
    for package, names in faces().items():
        for name in sorted(names - used[package] - shown):
            yield f"forestay.{package} exports {name}, and nobody uses it"


def _uses(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the names that a file takes from faces: by `from forestay.runs import Run`, or as `runs.Run`."""
    taken, dotted = _read(file)
    whole: dict[str, str] = {}
    for _, module, names in taken:
        package, *inside = module.split(".")[1:] or [""]
        if not package:
            whole |= {here: name for name, here in names if name in PACKAGES}
        elif package in PACKAGES and not inside:
            yield from ((package, name) for name, _ in names)
    yield from ((whole[name], attribute) for name, attribute in dotted if name in whole)


def reaching() -> Iterator[str]:
    """Yield every import of a test or a benchmark from inside a package that is not its own (4)."""
    for file in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]):
        inside = [(line, module) for line, module, _ in imports(file) if module.count(".") > 1]
        own = file.relative_to(ROOT).parts[1]
        if file.is_relative_to(ROOT / "benchmarks") and inside:
            own = inside[0][1].split(".")[1]
        for line, module in inside:
            if module.split(".")[1] not in (own, "face"):
                yield f"{file.relative_to(ROOT)}:{line}: {module}"


def main() -> int:
    found = [*broken(), *unused()]
    print("\n".join(found) or "Every package is used through its face.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
