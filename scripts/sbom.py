"""The bill of materials of a release (CycloneDX 1.6), from the locks; `python scripts/sbom.py [FILE]` writes it.

- B1  It has every package of the locks, with its version, all hashes of its files and its licence.
- B2  A package without a hash, or without an allowed licence in `licences.toml`, is an error.
- B3  The same locks give the same bytes: no date, no random number.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from base64 import b64decode
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYTHON_LOCKS = ("requirements.lock", "requirements-node.lock", "requirements-fuzz.lock")
NPM_LOCK = "src/forestay/assets/package-lock.json"
_ENTRY = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_SHA256 = re.compile(r"--hash=sha256:([0-9a-f]{64})(?:\s|$)")
_HASHES = {"sha512": "SHA-512", "sha256": "SHA-256", "sha384": "SHA-384"}


class Package(NamedTuple):
    """One package of a lock, with the hashes that its files may have."""

    system: str
    name: str
    version: str
    hashes: tuple[tuple[str, str], ...]
    licence: str

    @property
    def purl(self) -> str:
        return f"pkg:{self.system}/{self.name.replace('@', '%40')}@{self.version}"


class Licences(NamedTuple):
    """The content of `licences.toml`."""

    allowed: frozenset[str]
    exceptions: dict[str, str]
    packages: dict[str, str]

    def allows(self, package: Package) -> bool:
        """Whether a licence is allowed: one of its alternatives (OR), with all parts of it (AND)."""
        if package.name in self.exceptions:
            return True
        choices = package.licence.split(" OR ")
        return any(all(part.strip("() ") in self.allowed for part in choice.split(" AND ")) for choice in choices)


def licences() -> Licences:
    read = tomllib.loads((ROOT / "scripts" / "licences.toml").read_text("utf-8"))
    return Licences(frozenset(read["allowed"]), read["exceptions"], read["packages"])


def python_packages(text: str, known: dict[str, str]) -> Iterator[Package]:
    """Yield the packages of one lock of pip."""
    for entry in re.split(r"\n(?=\S)", text.strip()):
        found = _ENTRY.match(entry)
        if found is None:
            raise SystemExit(f"This is not a line of a lock: {entry[:80]!r}")
        name = canonicalize_name(found[1])
        hashes = tuple(("SHA-256", digest) for digest in sorted(_SHA256.findall(entry)))
        yield Package("pypi", name, found[2], hashes, known.get(name, ""))


def npm_packages(text: str) -> Iterator[Package]:
    """Yield the packages of npm's lock, without its first entry, the folder itself."""
    for place, item in json.loads(text)["packages"].items():
        if place:
            kind, _, digest = item.get("integrity", "").partition("-")
            hashes = ((_HASHES[kind], b64decode(digest).hex()),) if digest else ()
            yield Package("npm", place.rpartition("node_modules/")[2], item["version"], hashes, item.get("license", ""))


def packages(known: Licences) -> list[Package]:
    """Return every package of every lock (B1)."""
    found = {
        package.purl: package
        for lock in PYTHON_LOCKS
        for package in python_packages((ROOT / lock).read_text("utf-8"), known.packages)
    }
    found |= {package.purl: package for package in npm_packages((ROOT / NPM_LOCK).read_text("utf-8"))}
    return [found[purl] for purl in sorted(found)]


def faults(found: list[Package], known: Licences) -> Iterator[str]:
    """Yield what must not be released (B2)."""
    for package in found:
        if not package.hashes:
            yield f"{package.purl} has no hash in its lock."
        if not package.licence:
            yield f"{package.purl} has no licence in scripts/licences.toml."
        elif not known.allows(package):
            yield f"{package.purl} is under {package.licence}, which is not allowed."


def runtime() -> set[str]:
    """Return the packages that a host needs, with every extra: forestay's requirements, and theirs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    pending = [Requirement(text) for text in (*project["dependencies"], *extras)]
    seen, names = set[tuple[str, str]](), set[str]()
    while pending:
        item = pending.pop()
        name = canonicalize_name(item.name)
        for extra in ("", *sorted(item.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                needs = [Requirement(text) for text in metadata.requires(name) or []]
            except metadata.PackageNotFoundError:
                continue  # for another platform, or for another Python
            names.add(name)
            pending += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return names


def document(found: list[Package], needed: set[str]) -> dict[str, Any]:
    """The bill, as CycloneDX has it (B3)."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    components = [
        {
            "type": "library",
            "bom-ref": package.purl,
            "name": package.name,
            "version": package.version,
            "scope": "required" if package.system == "npm" or package.name in needed else "excluded",
            "hashes": [{"alg": kind, "content": digest} for kind, digest in package.hashes],
            "licenses": [{"expression": package.licence}],
            "purl": package.purl,
        }
        for package in found
    ]
    own = f"pkg:pypi/forestay@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + json.dumps(components))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "forestay",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
                "purl": own,
            }
        },
        "components": components,
    }


def main() -> int:
    known = licences()
    found = packages(known)
    wrong = list(faults(found, known))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "sbom.cdx.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    bill = document(found, runtime())
    target.write_text(json.dumps(bill, indent=2) + "\n", "utf-8")
    needed = sum(item["scope"] == "required" for item in bill["components"])
    print(f"{target}: {len(found)} packages, {needed} of them in a host, each with hashes and an allowed licence.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
