"""Resource packs: skills, prompt templates, themes and extensions of packages, found in project and user folders.

A package says in `package.json#pi` what it holds; without that, the folders `extensions`, `skills`, `prompts` and
`themes` do (Pi §1B). Reading a pack executes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.kernel import canonical
from holdfast.kernel.problems import Problem

Kind = Literal["extension", "skill", "prompt", "theme"]
KINDS: dict[str, Kind] = {"extensions": "extension", "skills": "skill", "prompts": "prompt", "themes": "theme"}
MAX_FILE = 1024 * 1024
MAX_FOUND = 5_000
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_FIELD = re.compile(r"^([A-Za-z][\w-]*):[ \t]*(.*)$")
_CODE = (".ts", ".js", ".mts", ".mjs")


class Resource(msgspec.Struct, frozen=True):
    """One thing that a pack holds."""

    kind: Kind
    name: str
    path: str
    scope: Literal["project", "user", "package"]
    description: str = ""
    problem: str = ""
    """Why it cannot be used; empty when it can."""


def discover(project: Path, home: Path | None = None, packages: Iterable[Path] = ()) -> list[Resource]:
    """Everything in the project's, the user's and the packages' folders; the first of a kind and name holds."""
    found: list[Resource] = []
    for root, scope in ((project, "project"), (home or Path.home(), "user")):
        for base in (".holdfast", ".pi") if scope == "project" else (".holdfast", ".pi/agent"):
            for name, kind in KINDS.items():
                found += _folder(root / base / name, kind, scope)  # type: ignore[arg-type]
    for package in packages:
        found += package_resources(package)
    seen: set[tuple[str, str]] = set()
    kept = []
    for resource in found[:MAX_FOUND]:
        key = (resource.kind, resource.name)
        if key not in seen:
            seen.add(key)
            kept.append(resource)
    return kept


def package_resources(package: Path) -> list[Resource]:
    """What a package brings, by its manifest or by its folders; nothing outside the package."""
    listed = _manifest(package)
    found: list[Resource] = []
    for name, kind in KINDS.items():
        entries = listed.get(name) if listed else None
        if entries is None:
            if not listed:
                found += _folder(package / name, kind, "package")
            continue
        for entry in entries:
            path = (package / entry).resolve()
            if not path.is_relative_to(package.resolve()):
                found.append(Resource(kind, str(entry), str(entry), "package", problem="lies outside the package"))
            elif path.is_dir():
                found += _folder(path, kind, "package")
            elif path.is_file():
                found.append(_resource(path, kind, "package"))
            else:
                found.append(Resource(kind, str(entry), str(entry), "package", problem="is not there"))
    return found


def _manifest(package: Path) -> Mapping[str, list[str]]:
    path = package / "package.json"
    if not path.is_file():
        return {}
    document = canonical.decode(path.read_bytes(), limit=MAX_FILE)
    listed = document.get("pi") if isinstance(document, dict) else None
    if listed is None:
        return {}
    if not isinstance(listed, dict):
        raise Problem("manifest_invalid", "`pi` in package.json must be an object.", at="$.pi")
    for name in KINDS:
        entries = listed.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise Problem("manifest_invalid", f"`pi.{name}` must be a list of paths.", at=f"$.pi.{name}")
    return {name: listed[name] for name in KINDS if name in listed}


def _folder(folder: Path, kind: Kind, scope: Literal["project", "user", "package"]) -> list[Resource]:
    if not folder.is_dir():
        return []
    return [_resource(path, kind, scope) for path in sorted(_candidates(folder, kind))]


def _candidates(folder: Path, kind: Kind) -> Iterator[Path]:
    if (folder / "SKILL.md").is_file() and kind == "skill":
        yield folder / "SKILL.md"
        return
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name == "node_modules":
            continue
        if kind == "skill":
            if entry.is_dir():
                yield from _candidates(entry, kind)
            elif entry.suffix == ".md":
                yield entry
        elif kind == "extension":
            index = next((entry / f"index{suffix}" for suffix in _CODE if (entry / f"index{suffix}").is_file()), None)
            if entry.suffix in _CODE and entry.is_file():
                yield entry
            elif index is not None or (entry / "package.json").is_file():
                yield index or entry
        elif entry.is_file() and entry.suffix == (".md" if kind == "prompt" else ".json"):
            yield entry


def _resource(path: Path, kind: Kind, scope: Literal["project", "user", "package"]) -> Resource:
    named = path.parent if path.name in ("SKILL.md", *(f"index{suffix}" for suffix in _CODE)) else path
    name, description, problem = named.stem if named is path else named.name, "", ""
    if kind in ("skill", "prompt"):
        fields = front_matter(path.read_bytes()[:MAX_FILE].decode("utf-8", "replace"))
        description = fields.get("description", "")
        if kind == "skill":
            name = fields.get("name", name)
            problem = _skill_problem(name, description)
    elif kind == "theme":
        problem = _theme_problem(path)
    return Resource(kind, name, str(path), scope, description[:1024], problem)


def _skill_problem(name: str, description: str) -> str:
    if not _NAME.fullmatch(name):
        return "the name must be lower-case letters, digits and hyphens, at most 64"
    return "" if description else "it has no description"


def _theme_problem(path: Path) -> str:
    try:
        document: Any = canonical.decode(path.read_bytes(), limit=MAX_FILE)
    except Problem as problem:
        return problem.message
    return "" if isinstance(document, dict) and isinstance(document.get("colors"), dict) else "it has no `colors`"


def front_matter(text: str) -> dict[str, str]:
    """The plain fields between the two `---` lines at the top."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines or lines[0].strip() != "---":
        return {}
    fields: dict[str, str] = {}
    for line in lines[1:]:
        if line.strip() == "---":
            return fields
        found = _FIELD.match(line)
        if found:
            fields[found[1]] = found[2].strip().strip("\"'")
    return {}
