"""Sources to one ES module without imports (Pi §2A), by esbuild.

1. What is bundled is what was read here, once: the bytes that are hashed and scanned are the bytes that run.
2. A virtual module becomes a property read at run time, so a name it lacks is `undefined` (P3).
3. A file outside the extension's folder and its packages stops the build (P11); so does an import from the network.
4. The output depends on contents and on places relative to the folder, never on where the folder is.
5. A place in the map is a place in a file that was read here. A file that brings a source map of its own could name any
   other, also one of the platform, where nothing is looked for: such a map is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions.compiler import esbuild, module_location, provided, rewrite, subpaths, virtual_modules
from forestay.extensions.compiler.scan import Section, read
from forestay.extensions.compiler.scan.pure import PURE_MEMBERS
from forestay.extensions.compiler.scan.syntax import Dialect, Span
from forestay.extensions.compiler.source import Source
from forestay.extensions.compiler.stretches import stretches_of
from forestay.kernel import Problem

TARGET = "es2023"
_LOADERS = {
    ".ts": "ts", ".mts": "ts", ".cts": "ts", ".tsx": "tsx",
    ".js": "js", ".mjs": "js", ".cjs": "js", ".jsx": "jsx",
    ".json": "json", ".txt": "text", ".md": "text", ".html": "text", ".css": "text",
}  # fmt: skip
_FLAGS = [
    "--bundle", "--format=esm", "--platform=node", f"--target={TARGET}", "--sourcemap=external",
    "--sources-content=true", "--metafile", "--legal-comments=none", "--minify-whitespace", "--minify-syntax",
    "--log-level=silent", "--log-limit=0", "--tree-shaking=true", f"--define:import.meta={module_location.META}",
    f"--define:require.resolve={module_location.RESOLVE}", f"--define:require.cache={module_location.CACHE}",
]  # fmt: skip
# The last map that a file names is the one that counts, and one without sources is none.
_NO_MAP = b'\n//# sourceMappingURL=data:application/json,{"version":3}'
_MAX_FILE = 32 * 1024 * 1024
# Which imports the bundler asks about: all of them, or those that do not name a file beside.
_EVERY, _ELSEWHERE = ".*", r"^[^.]|\.node$"


class Import(msgspec.Struct, frozen=True):
    """One import that was rewritten: what was written, what it became, in which file."""

    specifier: str
    target: str
    importer: str
    kind: str


class Input(msgspec.Struct, frozen=True):
    """One file that went into the bundle."""

    path: Path
    name: str
    contents: bytes
    loader: str
    bytes_in_output: int = 0

    @property
    def dialect(self) -> Dialect | None:
        """What the scanner reads it as; None for what is no script."""
        return self.loader if self.loader in ("js", "jsx", "ts", "tsx") else None  # type: ignore[return-value]


class Bundle(msgspec.Struct, frozen=True):
    """What the bundler made."""

    code: bytes
    source_map: dict[str, Any]
    polyfills: tuple[str, ...]
    inputs: tuple[Input, ...]
    imports: tuple[Import, ...]
    warnings: tuple[str, ...]
    absent_packages: tuple[str, ...]
    sections: tuple[Section, ...] = ()
    provided: tuple[Span, ...] = ()  # where the packages stand that the host brings


def bundle(source: Source) -> Bundle:
    """Bundle an extension; anything that stops it is a `compile_failed` with file, line and column."""
    session = _Session(source)
    answer = session.run()
    if any(error.get("text", "").startswith('Could not resolve ".') for error in answer["errors"]):
        session = _Session(source, is_asked_all=True)
        answer = session.run()
    missing = session.lazily_missing(answer)
    if missing:
        session = _Session(source, missing, is_asked_all=any(name.startswith(".") for name, _ in missing))
        answer = session.run()
    if answer["errors"]:
        raise _failure(source, answer["errors"])
    files = {Path(item["path"]).suffix: item["contents"] for item in answer["outputFiles"]}
    meta = json.loads(answer["metafile"])
    source_map = json.loads(files[".map"])
    sizes = {
        name: part["bytesInOutput"] for output in meta["outputs"].values() for name, part in output["inputs"].items()
    }
    inputs = tuple(
        msgspec.structs.replace(item, bytes_in_output=sizes.get(item.name, 0))
        for item in sorted(session.inputs.values(), key=lambda item: item.name)
    )
    polyfills = rewrite.polyfills(item.contents for item in inputs)
    code = _prelude(polyfills) + files[".js"]
    source_map = _tidy(source_map, session)
    return Bundle(
        code=code,
        source_map=source_map,
        polyfills=polyfills,
        inputs=inputs,
        imports=tuple(sorted(set(session.imports), key=lambda i: (i.specifier, i.importer, i.kind))),
        warnings=tuple(_sentence(source, item) for item in answer["warnings"]),
        absent_packages=tuple(sorted({specifier for specifier, _ in session.missing})),
        sections=tuple(_sections(code, meta)),
        provided=stretches_of(virtual_modules.PACKAGE + ":", code, source_map),
    )


def _sections(code: bytes, meta: dict[str, Any]) -> Iterator[Section]:
    """Where each file begins and ends: the bundler's helpers come first, then the files, at last what is exported."""
    sizes = next(output["inputs"] for output in meta["outputs"].values() if "entryPoint" in output)
    end = code.rfind(b"export")
    place = end - sum(part["bytesInOutput"] for part in sizes.values())
    for name, part in sizes.items() if place >= 0 else ():
        size = part["bytesInOutput"]
        if size:
            imports = tuple(sorted(_imports(name, meta["inputs"], sizes)))
            yield Section(name, _package(name), place, place + size, imports)
        place += size


def _imports(name: str, inputs: dict[str, Any], sizes: dict[str, Any]) -> set[str]:
    """The files that a file imports; in place of one that left nothing in the bundle, those that it hands on."""
    found: set[str] = set()
    pending = [name]
    while pending:
        new = {item["path"] for item in inputs.get(pending.pop(), {"imports": ()})["imports"]} - found
        found |= new
        pending += [path for path in new if not sizes.get(path, {"bytesInOutput": 0})["bytesInOutput"]]
    return found


def _package(name: str) -> str:
    """The package that a file belongs to: "" for what every file uses, "." for the extension's own."""
    if name.startswith(virtual_modules.PACKAGE + ":"):
        return name.split("/", 1)[0]
    if virtual_modules.is_ours(name):
        return ""
    _, found, rest = name.rpartition("node_modules/")
    return "/".join(rest.split("/")[: 2 if rest.startswith("@") else 1]) if found else "."


def source_hash(inputs: tuple[Input, ...]) -> str:
    """One hash over every file that went in, by relative name."""
    digest = hashlib.sha256()
    for item in inputs:
        digest.update(f"{item.name}\0{hashlib.sha256(item.contents).hexdigest()}\n".encode())
    return "sha256:" + digest.hexdigest()


class _Session:
    """One run of the bundler and what it asked for.

    Most imports are of a file of the same package: the bundler finds it without asking, which costs as much as bundling
    it. It asks (`is_asked_all`) where such a file is missing: how it is imported decides whether that is a failure.
    """

    def __init__(
        self, source: Source, missing: frozenset[tuple[str, str]] = frozenset(), *, is_asked_all: bool = False
    ) -> None:
        self.source = source
        self.missing = missing
        self._asked = _EVERY if is_asked_all else _ELSEWHERE
        self.inputs: dict[str, Input] = {}
        self.imports: list[Import] = []
        self.kinds: dict[tuple[str, str], set[str]] = {}
        self.prefixes: dict[str, int] = {}
        self._inside: dict[Path, bool] = {}  # by folder

    def run(self) -> dict[str, Any]:
        plugin = esbuild.Plugin(
            resolve=((self._asked, "", self._resolve), (_EVERY, virtual_modules.PACKAGE, self._resolve)),
            load=(
                (".*", virtual_modules.ENTRY, self._load_entry),
                (".*", virtual_modules.IMPORT, virtual_modules.load_import),
                (".*", virtual_modules.REQUIRE, virtual_modules.load_require),
                (".*", virtual_modules.RAW, virtual_modules.load_raw),
                (".*", virtual_modules.MISSING, virtual_modules.load_missing),
                (".*", virtual_modules.HERE, virtual_modules.load_here),
                (".*", virtual_modules.PACKAGE, _load_package),
                (".*", "file", self._load_file),
            ),
        )
        flags = [*_FLAGS, f"--outfile={self.source.root / 'index.js'}"]
        return esbuild.service().build(f"{virtual_modules.ENTRY}:entry", flags, str(self.source.root), plugin)

    def lazily_missing(self, answer: dict[str, Any]) -> frozenset[tuple[str, str]]:
        """Imports that only fail when they are reached: `import()` and `require()` of a package that is not there."""
        found = set(self._left_outside(answer))
        for error in answer["errors"]:
            text, location = error.get("text", ""), error.get("location")
            if not text.startswith("Could not resolve") or not location:
                return frozenset()
            specifier = json.loads(text.removeprefix("Could not resolve "))
            importer = str((self.source.root / location["file"]).resolve())
            if "import-statement" in self.kinds.get((specifier, importer), {"import-statement"}):
                return frozenset()
            found.add((specifier, importer))
        return frozenset(found)

    def _left_outside(self, answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """What esbuild leaves as an import of the output because the code around it expects a failure."""
        if not answer.get("metafile"):
            return
        for name, item in json.loads(answer["metafile"])["inputs"].items():
            for part in item["imports"]:
                # An import statement is only left when nothing but types is taken by it: then it is not in the output.
                if part.get("external") and part["kind"] != "import-statement":
                    yield part["path"], str((self.source.root / name).resolve())

    def _resolve(self, ask: dict[str, Any]) -> dict[str, Any] | None:
        specifier, kind, importer = ask["path"], ask["kind"], ask["importer"]
        if kind == "entry-point":
            return {"path": "entry", "namespace": virtual_modules.ENTRY}
        if ask["namespace"] == virtual_modules.PACKAGE:
            path = f"{importer.rpartition('/')[0]}/{specifier.removeprefix('./')}"
            return {"path": path, "namespace": virtual_modules.PACKAGE, "sideEffects": False}
        if specifier.startswith((virtual_modules.RAW + ":", virtual_modules.HERE + ":")):
            namespace, _, name = specifier.partition(":")
            return {"path": name, "namespace": namespace, "sideEffects": False}
        if (specifier, importer) in self.missing:
            return {"path": specifier, "namespace": virtual_modules.MISSING}
        target = rewrite.virtual_module(specifier)
        if target is not None:
            target = self._pure(specifier, importer) or target
            return self._virtual(specifier, target, ask)
        package = rewrite.provided_package(specifier)
        if package is not None:
            self.imports.append(Import(specifier, f"npm:{package}", self._name(importer), kind))
            return {"path": provided.file_of(package), "namespace": virtual_modules.PACKAGE, "sideEffects": False}
        if rewrite.is_network(specifier):
            return _refuse(f'The import of "{specifier}" is refused: code is never loaded from elsewhere.')
        if specifier.endswith(".node"):
            if kind != "import-statement":
                return {"path": specifier, "namespace": virtual_modules.MISSING}
            return _refuse(f'The import of "{specifier}" is refused: native addons cannot run in the sandbox.')
        if specifier.startswith("#") and importer.startswith("/"):
            meant = subpaths.completed(specifier, Path(importer))
            if meant is not None:
                return {"path": str(meant)}
        self.kinds.setdefault((specifier, importer), set()).add(kind)
        return None

    def _pure(self, specifier: str, importer: str) -> str | None:
        """The computing part of a forbidden module, for a file that takes nothing else from it."""
        name = rewrite.node_builtin(specifier)
        item = self.inputs.get(self._name(importer))
        if name not in PURE_MEMBERS or item is None or item.dialect is None:
            return None
        findings = read(item.name, item.contents, item.dialect).findings
        asked = [finding for finding in findings if finding.module == name]
        return f"pi:node/{name}_computing" if asked and all(f.rule.severity == "flagged" for f in asked) else None

    def _virtual(self, specifier: str, target: str, ask: dict[str, Any]) -> dict[str, Any]:
        kind = ask["kind"]
        if ask["namespace"] != virtual_modules.ENTRY:
            self.imports.append(Import(specifier, target, self._name(ask["importer"]), kind))
        if target.startswith("pi:polyfills/"):
            return {"path": target, "namespace": virtual_modules.RAW, "sideEffects": True}
        namespace = virtual_modules.REQUIRE if kind.startswith("require") else virtual_modules.IMPORT
        return {"path": target, "namespace": namespace, "sideEffects": False}

    def _load_entry(self, ask: dict[str, Any]) -> dict[str, Any]:
        line = f"export {{default}} from {json.dumps('./' + self.source.entry_name)};"
        return {"contents": line.encode(), "loader": "js", "resolveDir": str(self.source.root)}

    def _load_file(self, ask: dict[str, Any]) -> dict[str, Any]:
        path = Path(ask["path"])
        loader = _LOADERS.get(path.suffix)
        if path.suffix == ".node":
            return virtual_modules.load_missing(ask)  # a package that is a native addon fails where it is reached
        if loader is None:
            return _refuse(f"{path.name}: a {path.suffix or 'nameless'} file cannot be bundled.")
        if not self._is_inside(path):
            return _refuse(f"{path.name} is outside the extension's folder; copy it in, or install it as a package.")
        if path.stat().st_size > _MAX_FILE:
            return _refuse(f"{path.name} is larger than {_MAX_FILE} bytes.")
        name = self._name(str(path))
        if virtual_modules.is_ours(name):
            return _refuse(f"{name} has a name that belongs to the host; give its folder another one.")
        contents = path.read_bytes()
        self.inputs[name] = Input(path, name, contents, loader)
        if loader in ("json", "text"):
            return {"contents": contents, "loader": loader, "resolveDir": str(path.parent)}
        prepared = module_location.place(contents, name, loader, path.suffix)
        if prepared.prefix:
            self.prefixes[name] = prepared.prefix
        own_map = _NO_MAP if b"sourceMappingURL" in contents else b""
        return {"contents": prepared.contents + own_map, "loader": loader, "resolveDir": str(path.parent)}

    def _is_inside(self, path: Path) -> bool:
        """Inside the extension's folder, or inside the `node_modules` that the extension itself is installed in."""
        folder = path.parent
        if path.is_symlink():
            folder = path.resolve().parent
        if folder not in self._inside:
            self._inside[folder] = self._holds(folder.resolve())
        return self._inside[folder]

    def _holds(self, real: Path) -> bool:
        root = self.source.root
        if real.is_relative_to(root):
            return True
        installed_in = next((folder for folder in reversed(root.parents) if folder.name == "node_modules"), None)
        return installed_in is not None and real.is_relative_to(installed_in)

    def _name(self, path: str) -> str:
        return Path(os.path.relpath(path, self.source.root)).as_posix() if path.startswith("/") else path


def _load_package(ask: dict[str, Any]) -> dict[str, Any]:
    return {"contents": provided.contents(ask["path"]), "loader": "js"}


def _prelude(polyfills: tuple[str, ...]) -> bytes:
    """The line that has the globals of Node in place before anything else runs (Pi §2A.3)."""
    return "".join(f"{virtual_modules.REGISTRY}({json.dumps(name)});" for name in polyfills).encode() + b"\n"


def _tidy(source_map: dict[str, Any], session: _Session) -> dict[str, Any]:
    """The map as it is kept: original contents in place of what `here` prepared."""
    by_name = session.inputs
    contents = [
        by_name[name].contents.decode("utf-8", "replace") if name in by_name else text
        for name, text in zip(source_map["sources"], source_map["sourcesContent"], strict=True)
    ]
    # The prelude is a line of its own in front: every mapping moves down by one line and nowhere else.
    tidy = {
        **source_map,
        "file": "index.js",
        "sourcesContent": contents,
        "mappings": ";" + source_map["mappings"],
    }
    if session.prefixes:
        from forestay.extensions.compiler.sourcemap import shift_first_lines

        tidy = shift_first_lines(tidy, session.prefixes)
    return tidy


def _refuse(text: str) -> dict[str, Any]:
    message: dict[str, Any] = {"id": "", "pluginName": "", "text": text, "location": None, "notes": [], "detail": -1}
    return {"errors": [message]}


def _sentence(source: Source, message: dict[str, Any]) -> str:
    location = message.get("location")
    where = f"{location['file']}:{location['line']}:{location['column'] + 1}: " if location else ""
    return where + str(message["text"])


def _failure(source: Source, errors: list[dict[str, Any]]) -> Problem:
    first = errors[0]
    location = first.get("location") or {}
    text = str(first["text"]).rstrip(".")
    details: dict[str, Any] = {}
    if location:
        details = {
            "file": location["file"],
            "line": location["line"],
            "column": location["column"] + 1,
            "at": f"{location['file']}:{location['line']}:{location['column'] + 1}",
            "source_line": location["lineText"],
        }
    return Problem(
        "compile_failed",
        text + ".",
        **details,
        errors=[_sentence(source, item) for item in errors[:20]],
    )
