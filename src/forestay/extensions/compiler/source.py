"""What is compiled: an entry file, the folder that it may not leave, and its manifest."""

from __future__ import annotations

from pathlib import Path

import msgspec

from forestay.extensions.components.binary import carried_manifest
from forestay.extensions.manifest import Manifest, derive_manifest, package_pi, read_extension_json, read_package_json
from forestay.kernel import Problem

COMPONENT = ".wasm"
_CODE = (".ts", ".js", ".mts", ".mjs", ".cts", ".cjs", ".tsx", ".jsx", COMPONENT)
_INDEX = ("index.ts", "index.js", "index.mts", "index.mjs")


class Source(msgspec.Struct, frozen=True):
    """One extension on disk."""

    root: Path
    entry: Path
    manifest: Manifest

    @property
    def entry_name(self) -> str:
        return self.entry.relative_to(self.root).as_posix()


def source(path: Path | str) -> Source:
    """The one extension at `path`; a folder that holds several needs the path of one of them."""
    found = sources(path)
    if len(found) > 1:
        raise Problem(
            "extension_invalid",
            f"This package holds {len(found)} extensions.",
            entries=[item.entry_name for item in found],
            fix="Name one of the entries.",
        )
    return found[0]


def sources(path: Path | str) -> list[Source]:
    """Every extension at `path`: a file is one, a folder holds what its manifest lists or its index file."""
    place = Path(path).expanduser().resolve()
    if not place.exists():
        raise Problem("extension_invalid", f"There is no {Path(path).name} here.", fix="Check the path.")
    if place.is_file():
        if place.name == "extension.json":
            return sources(place.parent)
        root = _root_of(place)
        return [Source(root, place, _manifest(root, place))]
    entries = folder_entries(place)
    if not entries:
        raise Problem(
            "extension_invalid",
            f"The folder {place.name} holds no extension.",
            fix="Add extension.json, package.json with pi.extensions, or an index.ts.",
        )
    return [Source(place, entry, _manifest(place, entry)) for entry in entries]


def folder_entries(folder: Path) -> list[Path]:
    """The entry files of a folder: `extension.json`, then `package.json#pi`, then the index file."""
    declared = read_extension_json(folder)
    if declared is not None:
        return [_declared_entry(folder, declared)]
    pi = package_pi(read_package_json(folder))
    if pi is not None and "schema" in pi:
        return [_declared_entry(folder, derive_manifest(folder, folder / "index.ts"))]
    listed = pi.get("extensions") if pi else None
    found = [entry for item in listed or () if isinstance(item, str) for entry in _listed(folder, item)]
    if found:
        return list(dict.fromkeys(found))
    return [folder / name for name in _INDEX if (folder / name).is_file()][:1]


def discover(folder: Path) -> list[Path]:
    """Scripts and components directly in `folder`, and what each of its sub-folders declares; one level, sorted."""
    found: list[Path] = []
    for item in sorted(folder.iterdir()):
        if item.is_file() and item.suffix in (".ts", ".js", COMPONENT) and not item.name.endswith(".d.ts"):
            found.append(item)
        elif item.is_dir() and item.name != "node_modules" and not item.name.startswith("."):
            found += folder_entries(item)
    return found


def _listed(folder: Path, item: str) -> list[Path]:
    if item.startswith("!"):
        return []
    if "*" in item:
        return [p.resolve() for p in sorted(folder.glob(item.removeprefix("./"))) if p.suffix in _CODE]
    place = (folder / item).resolve()
    if not place.is_relative_to(folder):
        raise Problem("manifest_invalid", f"pi.extensions names {item}, which is outside the package.", at="pi")
    if place.is_dir():
        return folder_entries(place) or discover(place)
    return [place] if place.is_file() else []


def _declared_entry(folder: Path, manifest: Manifest) -> Path:
    entry = (folder / manifest.entrypoint).resolve()
    if not entry.is_relative_to(folder):
        raise Problem(
            "manifest_invalid", "The entrypoint is outside the extension's folder.", at="entrypoint", fix="Move it in."
        )
    if not entry.is_file():
        raise Problem(
            "manifest_invalid", f"The entrypoint {manifest.entrypoint} does not exist.", at="entrypoint", fix="Name it."
        )
    return entry


def is_own_folder(folder: Path, entry: Path) -> bool:
    """Whether `folder` is the extension's own; a lone script says nothing about what else lies beside it."""
    declared = (folder / "extension.json").is_file() or package_pi(read_package_json(folder)) is not None
    return declared or (entry.name in _INDEX and entry.parent == folder)


def _root_of(entry: Path) -> Path:
    """The nearest folder that says it is an extension, inside the package that the file belongs to."""
    for folder in entry.parents:
        if (folder / "extension.json").is_file() or package_pi(read_package_json(folder)) is not None:
            return folder
        if folder.name == "node_modules" or folder.parent.name == "node_modules":
            break
    return entry.parent


def _manifest(root: Path, entry: Path) -> Manifest:
    declared = read_extension_json(root)
    if declared is not None and (root / declared.entrypoint).resolve() == entry:
        return _fitting(declared, entry)
    carried = carried_manifest(entry) if entry.suffix == COMPONENT else None
    return _fitting(carried or derive_manifest(root, entry), entry)


def _fitting(manifest: Manifest, entry: Path) -> Manifest:
    if (manifest.runtime == "wasm") != (entry.suffix == COMPONENT):
        told = f"The runtime is {manifest.runtime!r} and the entrypoint is {entry.name}."
        raise Problem("manifest_invalid", told, at="runtime", fix="A component has the runtime wasm, a script js.")
    return manifest
