"""Finds the packages that `.pi/settings.json` and `.forestay/packages.json` name.

K1  Nothing is fetched: a package that is not on disk is listed with the reason, and the others are used.
K2  Only packages inside the project are used; their content is part of what a person trusts.
K3  A filter only narrows what a package's manifest lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions.packs import KINDS, Kind, Resource, package_resources, resources_at
from forestay.kernel import Problem, canonical

SETTINGS = {".pi/settings.json": ".pi", ".forestay/packages.json": ".forestay"}
MAX_SETTINGS = 1024 * 1024
_NPM = re.compile(r"npm:(?P<name>(?:@[\w.~-]+/)?[\w.~-]+)(?:@.*)?")
_GIT = re.compile(
    r"(?:git:)?(?:(?:https?|ssh|git)://)?(?:[\w.-]+@)?(?P<host>[\w.-]+\.[\w-]+)[/:](?P<path>[\w./~-]+?)(?:\.git)?(?:@.*)?"
)


class Package(msgspec.Struct, frozen=True):
    """A package that a project names: its folder, or why it is not used."""

    source: str
    folder: Path | None
    filters: dict[Kind, tuple[str, ...]] = {}
    problem: str = ""

    def resources(self) -> list[Resource]:
        """Return its resources after its filters (K3)."""
        if self.folder is None:
            return []
        found = package_resources(self.folder) if self.folder.is_dir() else resources_at(self.folder, "extension")
        return [item for item in found if self._kept(item)]

    def _kept(self, item: Resource) -> bool:
        patterns = self.filters.get(item.kind)
        if patterns is None or self.folder is None:
            return True
        path = Path(item.path)
        name = path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else item.path
        return _passes(name, patterns)


class Named(msgspec.Struct, frozen=True):
    """The content of a project's settings: packages, and paths of single resources by kind."""

    packages: tuple[Package, ...] = ()
    paths: tuple[tuple[Kind, Path], ...] = ()
    problems: tuple[tuple[str, Problem], ...] = ()
    """Settings files that cannot be read, each with its problem."""

    def resources(self) -> list[Resource]:
        """Return the resources of the packages and of the named paths."""
        found = [item for package in self.packages for item in package.resources()]
        for kind, path in self.paths:
            found += resources_at(path, kind, "project")
        return found

    @property
    def trees(self) -> list[Path]:
        """The files and folders with the executed content; for npm packages, the whole `node_modules`."""
        found: dict[Path, None] = {}
        for package in self.packages:
            if package.folder is not None:
                modules = next((parent for parent in package.folder.parents if parent.name == "node_modules"), None)
                found[modules or package.folder] = None
        return [*found, *(path for _, path in self.paths)]


def named(project: Path) -> Named:
    """Read everything that the settings of `project` name (K1, K2)."""
    project = project.resolve()
    packages: dict[str, Package] = {}
    paths: dict[tuple[Kind, Path], None] = {}
    problems: list[tuple[str, Problem]] = []
    for file, base in SETTINGS.items():
        try:
            listed, single = _read(project, file, base)
        except Problem as problem:
            problems.append((file, problem))
            continue
        for package in listed:
            packages.setdefault(str(package.folder or package.source), package)
        paths.update(dict.fromkeys(single))
    return Named(tuple(packages.values()), tuple(paths), tuple(problems))


def _read(project: Path, file: str, base: str) -> tuple[list[Package], list[tuple[Kind, Path]]]:
    settings = _settings(project / file, file)
    packages = [_package(entry, project, project / base, file) for entry in settings.get("packages", ())]
    paths: list[tuple[Kind, Path]] = []
    for key, kind in KINDS.items():
        for text in _texts(settings.get(key, []), file, key):
            place = _inside(project, project / base / text)
            if place is not None and not text.startswith(("!", "-", "+")):
                paths.append((kind, place))
    return packages, paths


def _settings(path: Path, file: str) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = canonical.decode(path.read_bytes(), limit=MAX_SETTINGS)
    except Problem as problem:
        raise Problem(problem.key, f"{file}: {problem.message}", **{**problem.details, "at": file}) from problem
    if not isinstance(found, dict) or not isinstance(found.get("packages", []), list):
        raise Problem("manifest_invalid", f"{file} must be an object, and its `packages` a list.", at=file)
    return found


def _package(entry: Any, project: Path, base: Path, file: str) -> Package:
    source = entry.get("source") if isinstance(entry, dict) else entry
    if not isinstance(source, str) or not source:
        fix = 'Write "npm:NAME", "git:HOST/PATH", "./PATH" or {"source": …}.'
        raise Problem("manifest_invalid", f"{file} names a package without a source.", at=f"{file}#packages", fix=fix)
    filters: dict[Kind, tuple[str, ...]] = {}
    if isinstance(entry, dict):
        filters = {kind: _texts(entry[key], file, key) for key, kind in KINDS.items() if key in entry}
    place, problem = _place(source, project, base)
    return Package(source, place, filters, problem)


def _place(source: str, project: Path, base: Path) -> tuple[Path | None, str]:
    npm, git = _NPM.fullmatch(source), _GIT.fullmatch(source)
    if npm is not None:
        candidates = [base / "npm" / "node_modules" / npm["name"], project / "node_modules" / npm["name"]]
        missing = f"is not installed in the project (npm install --prefix {base.name}/npm {npm['name']})"
    elif git is not None and not source.startswith((".", "/", "~")):
        candidates = [base / "git" / git["host"] / git["path"]]
        missing = f"is not cloned into {base.name}/git/{git['host']}/{git['path']}"
    else:
        candidates, missing = [base / source], "does not exist"
    for candidate in candidates:
        if candidate.exists():
            place = _inside(project, candidate)
            return place, "" if place is not None else "is outside the project"
    return None, missing


def _inside(project: Path, path: Path) -> Path | None:
    real = path.resolve()
    return real if real.exists() and real.is_relative_to(project) and real != project else None


def _texts(value: Any, file: str, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Problem("manifest_invalid", f"`{key}` in {file} must be a list of paths.", at=f"{file}#{key}")
    return tuple(value)


def _passes(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether the filters keep a name: `!pattern` and `-path` exclude, `+path` includes, plain patterns select."""
    plain = [item for item in patterns if item[:1] not in "!+-"]
    if f"-{name}" in patterns or f"-./{name}" in patterns:
        return False
    if f"+{name}" in patterns or f"+./{name}" in patterns:
        return True
    if any(_matches(name, item[1:]) for item in patterns if item.startswith("!")):
        return False
    return any(_matches(name, item) for item in plain) if plain or not patterns else True


def _matches(name: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    return fnmatchcase(name, pattern) or name.startswith(pattern + "/")
