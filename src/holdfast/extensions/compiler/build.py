"""`build(path) -> Artifact`: read, bundle, check, describe. Nothing of the extension is executed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from holdfast.extensions.compiler import rewrite
from holdfast.extensions.compiler.artifact import (
    COMPILER_VERSION,
    ENGINE_VERSION,
    ENTRY_MODULE,
    SCHEMA,
    SHIM_VERSION,
    Artifact,
    ArtifactMeta,
    Location,
    Rewrite,
    artifact_hash,
)
from holdfast.extensions.compiler.bundle import Bundle, bundle, source_hash
from holdfast.extensions.compiler.source import Source, source
from holdfast.kernel import canonical


def build(path: Path | str) -> Artifact:
    """Compile the extension at `path` (a file, or a folder that holds one)."""
    return compile_source(source(path))


def compile_source(found: Source) -> Artifact:
    bundled = bundle(found)
    source_map = canonical.encode(bundled.source_map)
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
        verdict="compatible",
        rewrite_log=_rewrites(bundled),
        injected_polyfills=rewrite.POLYFILLS,
        warnings=bundled.warnings,
    )
    return Artifact(bundled.code, source_map, None, meta, str(found.root))


def _rewrites(bundled: Bundle) -> tuple[Rewrite, ...]:
    found: dict[tuple[str, str], list[Location]] = {}
    for item in bundled.imports:
        found.setdefault((item.specifier, item.target), []).append(Location(item.importer, 1, 1))
    return tuple(Rewrite(a, b, tuple(sorted(set(where)))) for (a, b), where in sorted(found.items()))
