"""The corpus: the real extensions that are measured, pinned by version and integrity. Their code is not committed.

`corpus/lock.json` names packages; `corpus/locks/<group>.json` pins what npm installs with them (versions and hashes).
`fetch` installs them into `corpus/cache`, which git ignores.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay import assets
from forestay.extensions.compiler.source import sources
from forestay.extensions.conform.oracle import LOADER, Oracle
from forestay.kernel import Problem, canonical

SCHEMA: Literal["forestay.corpus.v1"] = "forestay.corpus.v1"
Part = Literal["named", "further"]  # `named` gives the published figures; `further` is counted separately


class Package(msgspec.Struct, frozen=True, omit_defaults=True):
    """One package of the corpus.

    `install` puts it and its dependencies into the group's folder. `unpack` only unpacks its archive among the
    packages of the group `into`; this is for a version whose dependencies the registry lacks.
    """

    group: str
    package: str
    version: str
    integrity: str
    oracle: str
    entries: tuple[str, ...] = ()
    how: Literal["install", "unpack"] = "install"
    into: str = ""
    tier: str = "npm-registry"
    part: Part = "named"
    note: str = ""


class OracleSpec(msgspec.Struct, frozen=True):
    """A version of the real loader: the group that installs it, and the Node that it needs."""

    group: str
    package: str
    node: tuple[int, ...]


class Lock(msgspec.Struct, frozen=True):
    """`corpus/lock.json`."""

    schema: Literal["forestay.corpus.v1"]
    oracles: dict[str, OracleSpec]
    packages: tuple[Package, ...]
    unavailable: dict[str, str] = {}  # packages that cannot be fetched, and why


class Corpus:
    """A corpus folder: its lock and the fetched packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"

    def lock(self) -> Lock:
        path = self.folder / "lock.json"
        if not path.is_file():
            raise Problem("not_found", "There is no corpus lock here.", file="corpus/lock.json", fix="Name the folder.")
        return canonical.decode(path.read_bytes(), Lock)

    def save(self, lock: Lock) -> None:
        ordered = msgspec.structs.replace(lock, packages=tuple(sorted(lock.packages, key=lambda p: p.group)))
        text = msgspec.json.format(msgspec.json.encode(ordered), indent=1)
        (self.folder / "lock.json").write_bytes(text + b"\n")

    def home(self, package: Package) -> Path:
        """The folder of a fetched package."""
        if package.how == "unpack":
            return self.cache / package.into / "node_modules" / package.group
        return self.cache / package.group / "node_modules" / package.package

    def entries(self, package: Package) -> list[Path]:
        return [self.home(package) / entry for entry in package.entries]

    def is_fetched(self, package: Package) -> bool:
        return all(entry.is_file() for entry in self.entries(package)) and self.home(package).is_dir()

    def oracle(self, name: str) -> Oracle:
        known = self.lock().oracles
        if name not in known:
            raise Problem("not_found", f"There is no oracle {name}.", known=sorted(known), fix="Use one of `known`.")
        spec = known[name]
        folder = self.cache / spec.group / "node_modules" / spec.package
        if not (folder / LOADER).is_file():
            raise Problem("asset_missing", f"The oracle {name} has not been fetched.", fix="Run `make corpus`.")
        return Oracle(folder, spec.node)

    def fetch(self) -> tuple[list[str], dict[str, Problem]]:
        """Install missing packages; return the fetched names, and the problems of the others."""
        fetched: list[str] = []
        failed: dict[str, Problem] = {}
        for package in sorted(self.lock().packages, key=lambda p: p.how == "unpack"):
            if self.is_fetched(package):
                continue
            name = f"{package.package}@{package.version}"
            try:
                self._fetch(package)
                fetched.append(name)
            except Problem as problem:
                failed[name] = problem
        return fetched, failed

    def _fetch(self, package: Package) -> None:
        if package.how == "unpack":
            self._unpack(package)
            return
        folder = self.cache / package.group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_bytes(_project(package))
        pinned = self.folder / "locks" / f"{package.group}.json"
        if pinned.is_file():
            shutil.copyfile(pinned, folder / "package-lock.json")
            _npm(folder, "ci")
        else:
            _npm(folder, "install")
        found = _installed_integrity(folder, package.package)
        if found != package.integrity:
            raise _changed(package, found)

    def _unpack(self, package: Package) -> None:
        folder = self.cache / package.into
        done = _run(folder, "pack", f"{package.package}@{package.version}")
        archive = folder / done.strip().splitlines()[-1]
        digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != package.integrity:
            archive.unlink()
            raise _changed(package, digest)
        home = self.home(package)
        with tarfile.open(archive) as tar:
            tar.extractall(home.with_name(f".{home.name}"), filter="data")
        archive.unlink()
        (home.with_name(f".{home.name}") / "package").rename(home)
        home.with_name(f".{home.name}").rmdir()

    def add(self, name: str, version: str, oracle: str, part: Part = "named") -> Package:
        """Pin a package of the registry: install it; record its integrity, entries and dependency versions."""
        lock = self.lock()
        self.oracle(oracle)
        group = name.replace("@", "").replace("/", "-")
        folder = self.cache / group
        folder.mkdir(parents=True, exist_ok=True)
        draft = Package(group, name, version, "", oracle, part=part)
        (folder / "package.json").write_bytes(_project(draft))
        try:
            _npm(folder, "install")
            home = self.home(draft)
            entries = tuple(found.entry.relative_to(home.resolve()).as_posix() for found in sources(home))
        except Problem:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        package = msgspec.structs.replace(draft, integrity=_installed_integrity(folder, name), entries=entries)
        (self.folder / "locks").mkdir(exist_ok=True)
        (self.folder / "locks" / f"{group}.json").write_bytes(_pinned(folder / "package-lock.json"))
        others = tuple(item for item in lock.packages if item.group != group)
        self.save(msgspec.structs.replace(lock, packages=(*others, package)))
        return package


def _project(package: Package) -> bytes:
    return canonical.encode({"private": True, "dependencies": {package.package: package.version}})


def _pinned(lock: Path) -> bytes:
    """Return npm's lock with versions and hashes, without download addresses: those depend on the machine."""
    document: dict[str, Any] = msgspec.json.decode(lock.read_bytes())
    for item in document["packages"].values():
        item.pop("resolved", None)
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _npm(folder: Path, command: str) -> None:
    _run(folder, command, "--ignore-scripts", "--no-audit", "--no-fund", "--legacy-peer-deps", "--omit=dev")


def _run(folder: Path, *arguments: str) -> str:
    npm = assets.npm_command()
    if npm is None:
        raise Problem("asset_missing", "There is no npm here.", fix=assets.NPM_FIX)
    done = subprocess.run(
        [*npm, *arguments, "--loglevel=error"], cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode != 0:
        reason = "\n".join(line for line in done.stderr.splitlines() if "complete log" not in line)[:600]
        raise Problem("asset_missing", "npm could not fetch a package of the corpus.", reason=reason)
    return done.stdout


def _installed_integrity(folder: Path, name: str) -> str:
    document: dict[str, Any] = canonical.decode((folder / "package-lock.json").read_bytes())
    return str(document["packages"][f"node_modules/{name}"]["integrity"])


def _changed(package: Package, found: str) -> Problem:
    return Problem(
        "asset_missing",
        f"{package.package}@{package.version} is not what the corpus pins.",
        expected=package.integrity,
        found=found,
    )
