"""The catalog of a folder of extensions (`pi.ext.catalog.v1`, Pi §1C): each one's type, origin and capabilities.

1. Identity is the canonical source key and the content checksum; two entries with one checksum are one extension.
2. Everything is read from the source; nothing is executed.
3. The same folder gives the same catalog, whatever the order of its files on disk.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from forestay.extensions.compiler.artifact import ArtifactMeta
from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.source import Source, discover, folder_entries, sources
from forestay.extensions.compiler.sourcemap import SourceMap
from forestay.extensions.manifest import read_package_json
from forestay.kernel import Problem, canonical

SCHEMA: Literal["pi.ext.catalog.v1"] = "pi.ext.catalog.v1"

SourceTier = Literal[
    "official_examples", "official-pi-mono", "npm-registry", "community", "third-party-github", "agents-mikeastock"
]
RuntimeTier = Literal["legacy-js", "multi-file", "pkg-with-deps"]
InteractionTag = Literal["tool_only", "event_hook", "flag", "provider", "shortcut", "ui_integration"]
Capability = Literal[
    "env", "event_hook", "exec", "flag", "http", "provider", "read", "session", "shortcut", "tool", "ui", "write"
]
IoPattern = Literal["fs-heavy", "network-heavy", "os-heavy", "ui-centric"]
Complexity = Literal["small", "medium", "large"]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]

_SMALL, _MEDIUM = 8 * 1024, 40 * 1024
_MANY_FILE_CALLS, _MANY_UI_CALLS = 4, 4
_REGISTERS = re.compile(
    r"\.\s*(registerTool|registerCommand|registerShortcut|registerFlag|registerProvider|registerMessageRenderer|on)\s*\("
)


class GitSource(msgspec.Struct, frozen=True, tag_field="type", tag="git", forbid_unknown_fields=True):
    repo: Text
    path: Text


class NpmSource(
    msgspec.Struct, frozen=True, tag_field="type", tag="npm", forbid_unknown_fields=True, omit_defaults=True
):
    package: Text
    version: Text
    url: str | None = None


class UrlSource(msgspec.Struct, frozen=True, tag_field="type", tag="url", forbid_unknown_fields=True):
    url: Text


class Checksum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One extension of the catalog."""

    id: Text
    name: Text
    source_tier: SourceTier
    source: GitSource | NpmSource | UrlSource
    runtime_tier: RuntimeTier
    interaction_tags: tuple[InteractionTag, ...]
    capabilities: tuple[Capability, ...]
    io_pattern: tuple[IoPattern, ...]
    complexity: Complexity
    file_count: Annotated[int, msgspec.Meta(ge=1)]
    total_bytes: Count
    checksum: Checksum
    version: str | None = None
    license: str | None = None
    category_tags: tuple[str, ...] | None = None
    compatibility_notes: dict[str, Any] | None = None
    perf_budgets: dict[str, Any] | None = None
    quality_signals: dict[str, Any] | None = None


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`pi.ext.catalog.v1`."""

    schema: Literal["pi.ext.catalog.v1"]
    generated_at: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")]
    total_extensions: Count
    items: tuple[Item, ...]
    tier_summary: dict[str, int] = {}
    runtime_summary: dict[str, int] = {}


class Skipped(msgspec.Struct, frozen=True):
    """An extension that is not in the catalog, and why."""

    path: str
    reason: str


def build_catalog(folder: Path, tier: SourceTier, generated_at: str) -> tuple[Catalog, tuple[Skipped, ...]]:
    """Build the catalog of `folder`; also return what was left out: duplicates and extensions that do not compile."""
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise Problem("not_found", f"{folder.name} is not a folder.", fix="Name a folder of extensions.")
    items: dict[str, Item] = {}
    skipped: list[Skipped] = []
    for entry in _entries(root):
        place = entry.relative_to(root).as_posix()
        try:
            item = catalog_item(_source_of(root, entry), tier)
        except Problem as problem:
            skipped.append(Skipped(place, problem.message))
            continue
        first = items.setdefault(item.checksum.sha256, item)
        if first is not item:
            skipped.append(Skipped(place, f"It has the same content as {first.id}."))
    ordered = tuple(sorted(items.values(), key=lambda item: (item.id, item.checksum.sha256)))
    return summarize(ordered, generated_at), tuple(skipped)


def catalog_item(source: Source, tier: SourceTier) -> Item:
    """Make the catalog's item for one extension."""
    artifact, _ = compile_source(source)
    own = own_files(artifact.source_map) or {source.entry_name: artifact.code}
    checksum, size = content_checksum(own.values())
    package = read_package_json(source.root) or {}
    registered = {match for text in own.values() for match in _REGISTERS.findall(text.decode("utf-8", "replace"))}
    has_dependencies = bool(package.get("dependencies")) or _bundles_packages(artifact.source_map)
    return Item(
        id=artifact.meta.extension_id,
        name=source.entry.name,
        source_tier=tier,
        source=_origin(source, package),
        runtime_tier="pkg-with-deps" if has_dependencies else "multi-file" if len(own) > 1 else "legacy-js",
        interaction_tags=_interaction(registered, artifact.meta),
        capabilities=_capabilities(registered, artifact.meta),
        io_pattern=_io_pattern(artifact.meta),
        complexity="small" if size < _SMALL else "medium" if size < _MEDIUM else "large",
        file_count=max(1, len(own)),
        total_bytes=size,
        checksum=Checksum(checksum),
        version=artifact.meta.manifest.version,
        license=package["license"] if isinstance(package.get("license"), str) else None,
        compatibility_notes={"verdict": artifact.meta.verdict},
    )


def source_key(origin: GitSource | NpmSource | UrlSource, path: str = "") -> str:
    """Return the canonical source key (Pi §1C.3)."""
    if isinstance(origin, GitSource):
        return f"git:{origin.repo}#{origin.path}"
    if isinstance(origin, NpmSource):
        return f"npm:{origin.package}@{origin.version}#{path}"
    return origin.url


def content_checksum(contents: Iterable[bytes]) -> tuple[str, int]:
    """Return the SHA-256 of one file, or of the sorted checksums of several; and the total number of bytes."""
    files = list(contents)
    digests = sorted(hashlib.sha256(item).hexdigest() for item in files)
    size = sum(map(len, files))
    if len(digests) == 1:
        return digests[0], size
    return hashlib.sha256("".join(digests).encode()).hexdigest(), size


def own_files(source_map: bytes) -> dict[str, bytes]:
    """Return the extension's own sources by name, without packages and the compiler's additions."""
    decoded = SourceMap(source_map)
    return {
        name: (text or "").encode()
        for name, text in zip(decoded.sources, decoded.contents, strict=True)
        if ":" not in name and "node_modules/" not in name and not name.startswith("../")
    }


def summarize(items: tuple[Item, ...], generated_at: str) -> Catalog:
    tiers, runtimes = Counter(item.source_tier for item in items), Counter(item.runtime_tier for item in items)
    return Catalog(SCHEMA, generated_at, len(items), items, dict(sorted(tiers.items())), dict(sorted(runtimes.items())))


def read_catalog(data: bytes) -> Catalog:
    """Read a catalog; check its schema and its consistency."""
    catalog = canonical.decode(data, Catalog)
    if catalog.total_extensions != len(catalog.items):
        raise Problem(
            "schema_mismatch",
            f"total_extensions says {catalog.total_extensions}; there are {len(catalog.items)} items.",
            at="total_extensions",
        )
    repeated = [key for key, count in Counter(item.checksum.sha256 for item in catalog.items).items() if count > 1]
    if repeated:
        raise Problem("schema_mismatch", "Two items have the same checksum.", at="items", checksum=repeated[0])
    return catalog


def _entries(root: Path) -> list[Path]:
    own = folder_entries(root)
    if own:
        return own
    packages = [folder for pattern in ("node_modules/*", "node_modules/@*/*") for folder in sorted(root.glob(pattern))]
    found = discover(root)
    for package in packages:
        if package.is_dir() and not package.name.startswith("@"):
            found += folder_entries(package) if "pi" in (read_package_json(package) or {}) else []
    return [entry.resolve() for entry in found]


def _source_of(root: Path, entry: Path) -> Source:
    for found in sources(entry.parent) if entry.stem == "index" else ():
        if found.entry == entry:
            return found
    return sources(entry)[0]


def _bundles_packages(source_map: bytes) -> bool:
    names = SourceMap(source_map).sources
    return any("node_modules/" in name or (name.startswith("../") and ":" not in name) for name in names)


def _origin(source: Source, package: dict[str, Any]) -> GitSource | NpmSource | UrlSource:
    name, version, repository = package.get("name"), package.get("version"), package.get("repository")
    if isinstance(name, str) and isinstance(version, str) and not package.get("private"):
        return NpmSource(name, version)
    url = repository.get("url") if isinstance(repository, dict) else repository
    if isinstance(url, str) and url:
        return GitSource(url.removeprefix("git+").removesuffix(".git"), source.entry_name)
    return UrlSource(f"local:{source.entry}")


def _interaction(registered: set[str], meta: ArtifactMeta) -> tuple[InteractionTag, ...]:
    tags: set[InteractionTag] = set()
    if registered == {"registerTool"}:
        tags.add("tool_only")
    if "on" in registered:
        tags.add("event_hook")
    if "registerFlag" in registered:
        tags.add("flag")
    if "registerProvider" in registered:
        tags.add("provider")
    if "registerShortcut" in registered:
        tags.add("shortcut")
    if "ui" in meta.capabilities_required or "registerMessageRenderer" in registered:
        tags.add("ui_integration")
    return tuple(sorted(tags))


def _capabilities(registered: set[str], meta: ArtifactMeta) -> tuple[Capability, ...]:
    known: set[Any] = {name for name in meta.capabilities_required if name != "log"}
    names = {"on": "event_hook", "registerFlag": "flag", "registerProvider": "provider", "registerTool": "tool"}
    known |= {label for call, label in {**names, "registerShortcut": "shortcut"}.items() if call in registered}
    return tuple(sorted(known))


def _io_pattern(meta: ArtifactMeta) -> tuple[IoPattern, ...]:
    counted = Counter(item.capability for item in meta.evidence)
    found: list[IoPattern] = []
    if counted["read"] + counted["write"] >= _MANY_FILE_CALLS:
        found.append("fs-heavy")
    if counted["http"]:
        found.append("network-heavy")
    if counted["exec"]:
        found.append("os-heavy")
    if counted["ui"] >= _MANY_UI_CALLS:
        found.append("ui-centric")
    return tuple(found)
