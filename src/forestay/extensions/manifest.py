"""Reads and derives the manifest of an extension (`pi.ext.manifest.v1`, Pi §2B.1), with the hard errors of §2B.4.

`extension.json` wins over `package.json#pi`. A package that only lists its entries under `pi.extensions`, and a
single file, get a derived manifest: the same fields, filled from the package or from the file's name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from forestay.extensions.api_table import CAPABILITIES
from forestay.kernel import Problem, canonical

SCHEMA = "pi.ext.manifest.v1"
CAP_SCHEMA: Literal["pi.ext.cap.v1"] = "pi.ext.cap.v1"

Capability = Annotated[str, msgspec.Meta(extra_json_schema={"enum": sorted(CAPABILITIES)})]

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# Members under `pi` that belong to the package and not to the extension's manifest.
_PACKAGE_KEYS = frozenset({"extensions", "skills", "prompts", "themes", "image", "video"})
MAX_MANIFEST = 1024 * 1024


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a capability holds; an absent list does not limit it."""

    paths: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One capability that the extension says it needs."""

    capability: Capability
    methods: tuple[str, ...] | None = None
    scope: Scope | None = None


class CapabilityManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`pi.ext.cap.v1`."""

    schema: Literal["pi.ext.cap.v1"]
    capabilities: tuple[Requirement, ...]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`pi.ext.manifest.v1`."""

    schema: str
    extension_id: str
    name: str
    version: str
    api_version: str
    runtime: Annotated[Literal["js", "wasm", "mcp"], msgspec.Meta(extra_json_schema={"enum": ["js", "wasm"]})]
    """An MCP server has no manifest of its own: `mcp` occurs only in the manifest that the host makes for it."""
    entrypoint: str
    description: str | None = None
    capabilities: tuple[Capability, ...] | None = None
    capability_manifest: CapabilityManifest | None = None

    def canonical_bytes(self) -> bytes:
        """Return the canonical JSON without absent members, which is hashed (Pi §2B.1)."""
        return canonical.encode(self)

    def declared(self) -> tuple[Requirement, ...]:
        """Return the scoped requirements if there are any, else the flat list (Pi §2B.3)."""
        if self.capability_manifest is not None:
            return self.capability_manifest.capabilities
        return tuple(Requirement(name) for name in self.capabilities or ())


def parse_manifest(document: object, where: str) -> Manifest:
    """Check a manifest; every mistake is a `manifest_invalid` with its place (Pi §2B.4)."""
    if not isinstance(document, dict):
        raise _invalid("A manifest must be a JSON object.", where, "$")
    schema = document.get("schema")
    if schema != SCHEMA:
        raise _invalid(f"The schema {schema!r} is unknown; expected {SCHEMA}.", where, "schema")
    try:
        manifest = msgspec.convert(document, Manifest)
    except msgspec.ValidationError as error:
        message, place = canonical.located(error)
        raise _invalid(message + ".", where, place) from error
    for field in ("name", "version", "api_version", "entrypoint"):
        if not getattr(manifest, field).strip():
            raise _invalid(f"{field} is empty.", where, field)
    if manifest.runtime == "mcp":
        raise _invalid("An MCP server is configured in `.mcp.json`, not by a manifest.", where, "runtime")
    if not _ID.fullmatch(manifest.extension_id):
        raise _invalid("extension_id must match [a-z0-9][a-z0-9._-]{0,63}.", where, "extension_id")
    _check_capabilities(manifest, where)
    return manifest


def read_extension_json(folder: Path) -> Manifest | None:
    """Read the manifest in `extension.json`; None when there is no such file."""
    path = folder / "extension.json"
    if not path.is_file():
        return None
    return parse_manifest(_read(path), "extension.json")


def read_package_json(folder: Path) -> dict[str, Any] | None:
    """Read the folder's `package.json`; None when it is missing, unreadable or not an object."""
    path = folder / "package.json"
    if not path.is_file():
        return None
    try:
        document = canonical.decode(path.read_bytes(), limit=MAX_MANIFEST)
    except Problem:
        return None
    return document if isinstance(document, dict) else None


def package_pi(package: dict[str, Any] | None) -> dict[str, Any] | None:
    pi = package.get("pi") if package else None
    return pi if isinstance(pi, dict) else None


def derive_manifest(root: Path, entry: Path) -> Manifest:
    """Derive the manifest of an extension without `extension.json`."""
    package = read_package_json(root)
    pi = package_pi(package)
    if package is not None and pi is not None and "schema" in pi:
        own = {key: value for key, value in pi.items() if key not in _PACKAGE_KEYS}
        defaults = {key: package[key] for key in ("name", "version") if isinstance(package.get(key), str)}
        return parse_manifest({**defaults, **own}, "package.json#pi")
    if package is None or pi is None:
        stem = entry.parent.name if entry.stem == "index" else entry.stem
        return _derived(stem, stem, "0.0.0", entry.relative_to(root).as_posix())
    name = str(package.get("name") or root.name)
    listed = pi.get("extensions")
    several = isinstance(listed, list) and (len(listed) > 1 or any(_many(root, str(item)) for item in listed))
    identity = name
    if several:
        identity = f"{name}.{entry.parent.name if entry.stem == 'index' else entry.stem}"
    return _derived(identity, name, str(package.get("version") or "0.0.0"), entry.relative_to(root).as_posix())


def _many(root: Path, item: str) -> bool:
    """Whether an entry of `pi.extensions` may name several extensions: a pattern, or a folder of scripts."""
    folder = root / item
    if "*" in item or not folder.is_dir():
        return "*" in item
    names = [entry.name for entry in folder.iterdir() if entry.is_dir() or entry.suffix in (".ts", ".js", ".wasm")]
    return len(names) > 1 and not any(name.startswith("index.") for name in names)


def _derived(identity: str, name: str, version: str, entrypoint: str) -> Manifest:
    slug = re.sub(r"[^a-z0-9._-]+", "-", identity.lower()).strip("-._") or "extension"
    runtime: Literal["js", "wasm"] = "wasm" if entrypoint.endswith(".wasm") else "js"
    return Manifest(SCHEMA, slug[:64], name, version, "1.0", runtime, entrypoint)


def _check_capabilities(manifest: Manifest, where: str) -> None:
    for index, name in enumerate(manifest.capabilities or ()):
        if name not in CAPABILITIES:
            raise _unknown_capability(name, where, f"capabilities[{index}]")
    for index, need in enumerate(manifest.capability_manifest.capabilities if manifest.capability_manifest else ()):
        at = f"capability_manifest.capabilities[{index}]"
        if need.capability not in CAPABILITIES:
            raise _unknown_capability(need.capability, where, f"{at}.capability")
        if need.scope is not None:
            _check_scope(need.scope, where, f"{at}.scope")


def _check_scope(scope: Scope, where: str, at: str) -> None:
    """Require patterns in normal form: two spellings of one scope would have different hashes (Pi §2B.4)."""
    for pattern in scope.paths or ():
        parts = pattern.split("/")
        if not pattern or "\\" in pattern or "//" in pattern or "." in parts or ".." in parts:
            raise _invalid(f"The path pattern {pattern!r} is not normalized.", where, f"{at}.paths")
    for host in scope.hosts or ():
        if not re.fullmatch(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d+)?|\*|\[[0-9a-f:]+\](:\d+)?", host):
            raise _invalid(f"The host {host!r} is not normalized.", where, f"{at}.hosts")
    for name in scope.env or ():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*", name):
            raise _invalid(f"The variable name {name!r} is not normalized.", where, f"{at}.env")


def _unknown_capability(name: str, where: str, at: str) -> Problem:
    return _invalid(
        f"The capability {name!r} is unknown; the known ones are {', '.join(sorted(CAPABILITIES))}.", where, at
    )


def _read(path: Path) -> object:
    try:
        return canonical.decode(path.read_bytes(), limit=MAX_MANIFEST)
    except Problem as problem:
        raise _invalid(problem.message, path.name, "$") from problem


def _invalid(message: str, where: str, at: str) -> Problem:
    return Problem("manifest_invalid", message, file=where, at=at, fix=f"Correct {at} in {where}.")
