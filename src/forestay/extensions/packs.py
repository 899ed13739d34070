"""Resource packs: skills, prompt templates, themes and extensions of packages, found in project and user folders.

A package says in `package.json#pi` what it holds; without that, the folders `extensions`, `skills`, `prompts` and
`themes` do (Pi §1B). Reading a pack executes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.kernel import Problem, canonical

Kind = Literal["extension", "skill", "prompt", "theme"]
Scope = Literal["project", "user", "package"]
KINDS: dict[str, Kind] = {"extensions": "extension", "skills": "skill", "prompts": "prompt", "themes": "theme"}
MAX_FILE = 1024 * 1024
MAX_FOUND = 5_000
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_FIELD = re.compile(r"^([A-Za-z][\w-]*):[ \t]*(.*)$")
_CODE = (".ts", ".js", ".mts", ".mjs", ".wasm")


class Resource(msgspec.Struct, frozen=True):
    """One thing that a pack holds."""

    kind: Kind
    name: str
    path: str
    scope: Scope
    description: str = ""
    problem: str = ""
    """Why it cannot be used; empty when it can."""


def discover(project: Path, home: Path | None = None, more: Iterable[Resource] = ()) -> list[Resource]:
    """Everything in the project's and the user's folders, and `more`; the first of a kind and name holds."""
    found: list[Resource] = []
    for root, scope in ((project, "project"), (home or Path.home(), "user")):
        for base in (".forestay", ".pi") if scope == "project" else (".forestay", ".holdfast", ".pi/agent"):
            for name, kind in KINDS.items():
                found += _folder(root / base / name, kind, scope)  # type: ignore[arg-type]
    found += more
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
        for entry in _globbed(package, entries):
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


def resources_at(path: Path, kind: Kind, scope: Scope = "package") -> list[Resource]:
    """The resource at `path`, or those in it when it is a folder of them."""
    if path.is_file():
        return [_resource(path, kind, scope)]
    return _folder(path, kind, scope)


_DISCOVERED: dict[str, Kind] = {"skillPaths": "skill", "promptPaths": "prompt", "themePaths": "theme"}


def adopt(found: Iterable[Resource], named: Any, root: Path, homes: Mapping[str, Path]) -> list[Resource]:
    """`found`, and what extensions named in answer to `resources_discover`: only in the project or their own folder."""
    kept = {(item.kind, item.name): item for item in reversed(list(found))}
    kept = dict(reversed(kept.items()))
    for key, kind in _DISCOVERED.items():
        for entry in named.get(key, ()) if isinstance(named, Mapping) else ():
            home = homes.get(entry["extensionPath"], root)
            path = Path(entry["path"])
            place = (path if path.is_absolute() else home / path).resolve()
            if place.exists() and (place.is_relative_to(root) or place.is_relative_to(home.resolve())):
                for item in resources_at(place, kind):
                    kept.setdefault((item.kind, item.name), item)
    return list(kept.values())


def expanded(resources: Iterable[Resource], invocation: str, arguments: str) -> str | None:
    """The text of the prompt template `/name`, its arguments filled in, or of the skill `/skill:name`."""
    for item in resources:
        if item.problem or invocation != (item.name if item.kind == "prompt" else f"{item.kind}:{item.name}"):
            continue
        if item.kind in ("prompt", "skill"):
            text = body(Path(item.path).read_bytes()[:MAX_FILE].decode("utf-8", "replace"))
            return filled(text, arguments) if item.kind == "prompt" else f"{text}\n\n{arguments}".rstrip()
    return None


def filled(text: str, arguments: str) -> str:
    """`$1`, `$2` … and `$@` (or `$ARGUMENTS`), in one pass: an argument that looks like a place is left alone."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()

    def place(found: re.Match[str]) -> str:
        if found[1] in ("@", "ARGUMENTS"):
            return " ".join(words)
        number = int(found[1])
        return words[number - 1] if 0 < number <= len(words) else ""

    return re.sub(r"\$(\d+|@|ARGUMENTS)", place, text)


def skills_prompt(resources: Iterable[Resource]) -> str:
    """What a model is told about the skills that are there; it reads the file of one when it needs it."""
    skills = [item for item in resources if item.kind == "skill" and not item.problem]
    if not skills:
        return ""
    lines = [f"- {item.name}: {item.description} (read {item.path})" for item in skills]
    return "Skills are instructions for special tasks. When one fits, read its file first.\n" + "\n".join(lines)


def _globbed(package: Path, entries: Iterable[str]) -> list[str]:
    """Entries with their patterns spelt out; `!pattern` takes matches away."""
    found: dict[str, None] = {}
    for entry in entries:
        if entry.startswith("!"):
            gone = {path.as_posix() for path in _matched(package, entry[1:])}
            found = {name: None for name in found if name.removeprefix("./") not in gone}
        elif "*" in entry:
            found.update(dict.fromkeys(path.as_posix() for path in _matched(package, entry)))
        else:
            found[entry] = None
    return list(found)


def _matched(package: Path, pattern: str) -> list[Path]:
    pattern = pattern.removeprefix("./")
    if not pattern or pattern.startswith("/") or ".." in Path(pattern).parts:
        return []
    return sorted(path.relative_to(package) for path in package.glob(pattern))


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


def _folder(folder: Path, kind: Kind, scope: Scope) -> list[Resource]:
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
            elif index is not None or any((entry / name).is_file() for name in ("package.json", "extension.json")):
                yield index or entry
        elif entry.is_file() and entry.suffix == (".md" if kind == "prompt" else ".json"):
            yield entry


def _resource(path: Path, kind: Kind, scope: Scope) -> Resource:
    named = path.parent if path.name in ("SKILL.md", *(f"index{suffix}" for suffix in _CODE)) else path
    name, description, problem = named.stem if named is path else named.name, "", ""
    if kind in ("skill", "prompt"):
        fields = front_matter(path.read_bytes()[:MAX_FILE].decode("utf-8", "replace"))
        description = fields.get("description", "")
        if kind == "skill":
            name = fields.get("name", name)
            problem = _skill_problem(name, description)
    elif kind == "theme":
        name, problem = _theme(path)
    return Resource(kind, name, str(path), scope, description[:1024], problem)


def _skill_problem(name: str, description: str) -> str:
    if not _NAME.fullmatch(name):
        return "the name must be lower-case letters, digits and hyphens, at most 64"
    return "" if description else "it has no description"


def _theme(path: Path) -> tuple[str, str]:
    """The name that a theme gives itself, and why it is none."""
    from forestay.extensions.themes import read_theme

    try:
        return read_theme(path).name, ""
    except Problem as problem:
        missing = problem.details.get("missing")
        return path.stem, problem.message + (f" Missing: {', '.join(missing)}." if missing else "")


def body(text: str) -> str:
    """A document without its front matter."""
    return _parted(text)[1]


def front_matter(text: str) -> dict[str, str]:
    """The plain fields between the two `---` lines at the top."""
    return _parted(text)[0]


def _parted(text: str) -> tuple[dict[str, str], str]:
    """The fields, and what comes after them; without a field, the whole is text."""
    lines = text.replace("\r\n", "\n").split("\n")
    fields: dict[str, str] = {}
    for at, line in enumerate(lines if lines[0].strip() == "---" else ()):
        if at and line.strip() == "---":
            return (fields, "\n".join(lines[at + 1 :]).strip()) if fields else ({}, text.strip())
        if found := _FIELD.match(line):
            fields[found[1]] = found[2].strip().strip("\"'")
    return {}, text.strip()
