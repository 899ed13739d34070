"""`build(path) -> Artifact`: read, bundle, check, infer, describe. Nothing of the extension is executed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from forestay.extensions.api_table import CAPABILITIES
from forestay.extensions.compiler.artifact import (
    COMPILER_VERSION,
    COMPONENT_MODULE,
    ENGINE_VERSION,
    ENTRY_MODULE,
    NO_MAP,
    SCHEMA,
    SHIM_VERSION,
    Artifact,
    ArtifactMeta,
    Location,
    Rewrite,
    artifact_hash,
    component_engine,
    enforce,
)
from forestay.extensions.compiler.bundle import Bundle, bundle, source_hash
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.compiler.check import check_bundle, read_all
from forestay.extensions.compiler.default_export import check_entry
from forestay.extensions.compiler.infer import infer
from forestay.extensions.compiler.scan.syntax import Dialect
from forestay.extensions.compiler.source import Source, source
from forestay.extensions.components.binary import outline
from forestay.extensions.manifest import package_pi, read_package_json
from forestay.kernel import canonical


def build(
    path: Path | str, *, strict: bool = False, cache: Cache | None = None, allow_forbidden: bool = False
) -> Artifact:
    """Compile the extension at `path` (a file, or a folder that holds one).

    A forbidden API stops the build; `strict` makes a flagged one stop it too. `allow_forbidden` only records them, for
    looking at an extension that will not be run with what it asks for.
    """
    place = Path(path)
    if cache is not None:
        found = cache.find(place)
        if found is not None:
            enforce(found, strict, allow_forbidden)
            return found
    compiled, looked_at = compile_source(source(place))
    if cache is not None:
        cache.keep(place, compiled, looked_at)
    enforce(compiled, strict, allow_forbidden)
    return compiled


def compile_source(
    found: Source, told: Callable[[str], None] = lambda words: None, *, may_copy: bool = False
) -> tuple[Artifact, list[str]]:
    """The artifact of a source, blocked or not, and every path whose change could change it.

    `told` hears what is done next. `may_copy` says that this process may be copied for half of the work though it has
    other threads (`scan/ahead.py`).
    """
    if found.manifest.runtime == "wasm":
        return _component(found)
    check_entry(found.entry_name, found.entry.read_bytes(), _dialect(found.entry))
    told("joining its files")
    bundled = bundle(found)
    told(f"reading {len(bundled.code) // 1000 + 1:,} KB of code")
    read_all(bundled, may_copy=may_copy)
    verdict = check_bundle(bundled)
    inferred = infer(bundled.inputs, bundled.absent_packages)
    source_map = canonical.encode(bundled.source_map)
    declared = {need.capability for need in found.manifest.declared()} | _hinted(found)
    meta = ArtifactMeta(
        schema=SCHEMA,
        extension_id=found.manifest.extension_id,
        entry_module=ENTRY_MODULE,
        hash=artifact_hash(found.manifest, bundled.code, source_map),
        source_hash=source_hash(bundled.inputs),
        code_hash="sha256:" + hashlib.sha256(bundled.code).hexdigest(),
        engine_version=ENGINE_VERSION,
        shim_version=SHIM_VERSION,
        compiler_version=COMPILER_VERSION,
        manifest=found.manifest,
        verdict=verdict.verdict,
        rewrite_log=_rewrites(bundled),
        injected_polyfills=bundled.polyfills,
        flagged_apis=verdict.flagged,
        forbidden_apis=verdict.forbidden,
        capabilities_required=tuple(sorted(declared | set(inferred.capabilities))),
        capability_scope_inferred=canonical.decode(canonical.encode(inferred.manifest())),
        evidence=inferred.evidence,
        warnings=bundled.warnings,
    )
    return Artifact(bundled.code, source_map, None, meta, str(found.root)), _looked_at(found, bundled)


def _component(found: Source) -> tuple[Artifact, list[str]]:
    """The artifact of a component. It becomes machine code when it is loaded, in a process of its own."""
    code = found.entry.read_bytes()
    outline(code)
    digest = "sha256:" + hashlib.sha256(code).hexdigest()
    meta = ArtifactMeta(
        schema=SCHEMA,
        extension_id=found.manifest.extension_id,
        entry_module=COMPONENT_MODULE,
        hash=artifact_hash(found.manifest, code, NO_MAP),
        source_hash=digest,
        code_hash=digest,
        engine_version=component_engine(),
        shim_version=SHIM_VERSION,
        compiler_version=COMPILER_VERSION,
        manifest=found.manifest,
        verdict="compatible",
        capabilities_required=tuple(sorted({need.capability for need in found.manifest.declared()} | _hinted(found))),
    )
    looked_at = [found.entry, found.root / "extension.json", found.root / "package.json"]
    return Artifact(code, NO_MAP, None, meta, str(found.root)), [str(path) for path in looked_at]


def _dialect(entry: Path) -> Dialect:
    if entry.suffix in (".tsx", ".jsx"):
        return "tsx"
    return "js" if entry.suffix in (".js", ".mjs", ".cjs") else "ts"


def _hinted(found: Source) -> set[str]:
    """`package.json#pi.capabilities` is coarse evidence (Pi §2B.2)."""
    pi = package_pi(read_package_json(found.root)) or {}
    named = pi.get("capabilities")
    return {name for name in named if name in CAPABILITIES} if isinstance(named, list) else set()


def _rewrites(bundled: Bundle) -> tuple[Rewrite, ...]:
    contents = {item.name: item.contents for item in bundled.inputs}
    found: dict[tuple[str, str], set[Location]] = {}
    for item in bundled.imports:
        places = _mentions(item.importer, contents.get(item.importer, b""), item.specifier)
        found.setdefault((item.specifier, item.target), set()).update(places)
    return tuple(Rewrite(a, b, tuple(sorted(where))) for (a, b), where in sorted(found.items()))


_QUOTES = b"\"'`"


def _mentions(name: str, contents: bytes, specifier: str) -> list[Location]:
    """Where a specifier stands in quotes behind `from`, `import` or `require`."""
    text, places = specifier.encode(), []
    place = contents.find(text)
    while place >= 0:
        start, end = place - 1, place + len(text)
        quote = contents[start:place] if start >= 0 else b""
        if quote and quote in _QUOTES and contents.startswith(quote, end) and _is_taken(contents, start):
            line_start = contents.rfind(b"\n", 0, start) + 1
            column = len(contents[line_start:start].decode("utf-8", "replace")) + 1
            places.append(Location(name, contents.count(b"\n", 0, start) + 1, column))
        place = contents.find(text, place + 1)
    return places or [Location(name, 1, 1)]


def _is_taken(contents: bytes, start: int) -> bool:
    """Whether `from`, `import` or `require` stands in front of a place, with white space and a bracket between them."""
    while start and contents[start - 1 : start].isspace():
        start -= 1
    if contents[start - 1 : start] == b"(":
        start -= 1
        while start and contents[start - 1 : start].isspace():
            start -= 1
    return contents.endswith((b"from", b"import", b"require"), 0, start)


def _looked_at(found: Source, bundled: Bundle) -> list[str]:
    """Every file that went in, and the folders where another file could have been found instead."""
    paths: set[Path] = {found.root / "extension.json", found.root / "package.json", found.root / "tsconfig.json"}
    for item in bundled.inputs:
        paths |= {item.path, item.path.parent}
        for folder in item.path.parents:
            paths |= {folder / "package.json", folder / "node_modules", folder / "tsconfig.json"}
            if folder == found.root or folder.parent.name == "node_modules":
                break
    return [str(path) for path in paths]
