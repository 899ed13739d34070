"""What the compiler gives and the engine runs: `Artifact`, and its metadata `pi.ext.artifact.v1` (Pi §2A.5).

A component's artifact holds the component itself. How an artifact of JavaScript is run:
- `code` is one ES module without imports; its default export is the extension's factory function.
- Before it is evaluated, `globalThis.__forestay_modules__(specifier)` must answer every virtual module (`pi:node/fs`,
  `pi:polyfills/node_globals`, `@mariozechner/pi-tui` …) with an object whose properties are its exports, and
  `globalThis.__forestay_root__` must hold the absolute folder of the extension: `import.meta.url`, `__dirname` and
  `__filename` are made from it at run time, so that the bytes do not depend on where the folder is.
- Positions in a stack trace of the module `meta.entry_module` are positions in `code`; `sourcemap.SourceMap` maps them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.extensions.manifest import Manifest
from forestay.kernel import Problem, canonical

SCHEMA: Literal["pi.ext.artifact.v1"] = "pi.ext.artifact.v1"
ENGINE_VERSION = "quickjs-wasi/3.6.2"
SHIM_VERSION = "1.2.0"
COMPILER_VERSION = "5"
ENTRY_MODULE = "index.js"

COMPONENT_MODULE = "index.wasm"
NO_MAP = b'{"mappings":"","names":[],"sources":[],"version":3}'
"""The source map of a component: there is none."""

MAP_FILE, META_FILE, BYTECODE_FILE = "index.js.map", "artifact.json", "index.qbc"


@lru_cache(maxsize=1)
def component_engine() -> str:
    """The engine of components, and its version."""
    from importlib.metadata import version  # costs more than all of this module

    return f"wasmtime/{version('wasmtime')}"


class Location(msgspec.Struct, frozen=True, order=True):
    """A place in a source file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Rewrite(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """One import specifier and what it became."""

    source: str
    target: str
    locations: tuple[Location, ...]


class ApiUse(msgspec.Struct, frozen=True):
    """A forbidden or flagged API and where it is used (Pi §2A.4)."""

    api: str
    message: str
    locations: tuple[Location, ...]
    evidence_hash: str


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a capability was inferred (Pi §2B.2); the value is hashed, the preview is redacted (Pi §2B.5)."""

    capability: str
    kind: str
    method: str
    value_hash: str
    preview: str
    location: Location | None = None


class ArtifactMeta(msgspec.Struct, frozen=True):
    """`artifact.json`."""

    schema: Literal["pi.ext.artifact.v1"]
    extension_id: str
    entry_module: str
    hash: str
    source_hash: str
    code_hash: str
    engine_version: str
    shim_version: str
    compiler_version: str
    manifest: Manifest
    verdict: Literal["compatible", "warning", "blocked"]
    rewrite_log: tuple[Rewrite, ...] = ()
    injected_polyfills: tuple[str, ...] = ()
    flagged_apis: tuple[ApiUse, ...] = ()
    forbidden_apis: tuple[ApiUse, ...] = ()
    capabilities_required: tuple[str, ...] = ()
    capability_scope_inferred: dict[str, Any] | None = None
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[str, ...] = ()


class Artifact(msgspec.Struct, frozen=True):
    """A compiled extension."""

    code: bytes
    source_map: bytes
    bytecode: bytes | None
    meta: ArtifactMeta
    root: str = ""  # where the sources were; a fact of this machine, in no hash and in no file

    @classmethod
    def of_manifest(cls, manifest: Manifest, code: bytes = b"") -> Artifact:
        """The artifact of an extension that nothing is compiled for: what its manifest says, and its bytes."""
        plain, bundle = "sha256:" + hashlib.sha256(code).hexdigest(), artifact_hash(manifest, code, b"")
        meta = ArtifactMeta(
            SCHEMA, manifest.extension_id, manifest.entrypoint, bundle, plain, plain, "", "", "", manifest, "compatible"
        )
        return cls(code, b"", None, meta)

    def code_with_inline_map(self) -> bytes:
        """The code with its map as a `data:` comment (Pi §2A.7.4)."""
        import base64

        encoded = base64.b64encode(self.source_map)
        return self.code + b"//# sourceMappingURL=data:application/json;base64," + encoded + b"\n"

    def write(self, folder: Path, *, inline_map: bool = False) -> None:
        """Put the artifact's files into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        files = self.files()
        if inline_map:
            del files[MAP_FILE]
            files[self.meta.entry_module] = self.code_with_inline_map()
        if self.bytecode is not None:
            files[BYTECODE_FILE] = self.bytecode
        for name, data in files.items():
            (folder / name).write_bytes(data)

    def files(self) -> dict[str, bytes]:
        """What is written, bytecode aside."""
        return {
            self.meta.entry_module: self.code,
            MAP_FILE: self.source_map,
            META_FILE: canonical.encode(self.meta) + b"\n",
        }


def read_artifact(folder: Path, root: str = "", *, digests: Mapping[str, str] | None = None) -> Artifact:
    """The artifact that `write` put into `folder`. Its files must have these digests, or match the hash they name.

    Bytecode is not read: the engine trusts it blindly, so the runtime makes its own from the code.
    """
    code_file = COMPONENT_MODULE if (folder / COMPONENT_MODULE).is_file() else ENTRY_MODULE
    try:
        files = {name: (folder / name).read_bytes() for name in (code_file, MAP_FILE, META_FILE)}
    except OSError as error:
        raise Problem(
            "extension_invalid", "The artifact is incomplete.", file=Path(error.filename or "").name
        ) from error
    if digests is not None and digests_of(files) != digests:
        raise Problem("extension_invalid", "The artifact's bytes are not those that were built.", fix="Build it again.")
    meta = canonical.decode(files[META_FILE], ArtifactMeta)
    code, source_map = files[code_file], files[MAP_FILE]
    if digests is None and artifact_hash(meta.manifest, code, source_map) != meta.hash:
        raise Problem("extension_invalid", "The artifact's bytes do not match its hash.", fix="Build it again.")
    return Artifact(code, source_map, None, meta, root)


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def artifact_hash(manifest: Manifest, code: bytes, source_map: bytes) -> str:
    """sha256 over manifest, bundle (code and map), engine and shims (Pi §2, §2A.3)."""
    digest = hashlib.sha256()
    engine = component_engine() if manifest.runtime == "wasm" else ENGINE_VERSION
    versions = f"{engine}\n{SHIM_VERSION}\n{COMPILER_VERSION}".encode()
    for part in (manifest.canonical_bytes(), code, source_map, versions):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return "sha256:" + digest.hexdigest()


def enforce(artifact: Artifact, strict: bool = False, allow_forbidden: bool = False) -> None:
    """A forbidden API stops the build; `strict` makes a flagged one stop it too."""
    uses = artifact.meta.forbidden_apis
    if uses and not allow_forbidden:
        raise refusal(uses)
    if strict and artifact.meta.flagged_apis:
        raise refusal(artifact.meta.flagged_apis)


def refusal(uses: tuple[ApiUse, ...]) -> Problem:
    first = uses[0].locations[0]
    return Problem(
        "api_forbidden",
        uses[0].message,
        at=str(first),
        file=first.file,
        line=first.line,
        column=first.column,
        uses=[{"api": use.api, "message": use.message, "locations": [str(at) for at in use.locations]} for use in uses],
    )
