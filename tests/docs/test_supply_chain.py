"""What a release is made of: locks, licences, the bill of materials, and a wheel that anybody can build again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts import sbom

ROOT = Path(__file__).parents[2]
KNOWN = sbom.licences()
FOUND = sbom.packages(KNOWN)


def test_every_package_has_hashes_and_an_allowed_licence() -> None:
    assert list(sbom.faults(FOUND, KNOWN)) == []


def test_what_is_not_allowed_is_found() -> None:
    bad = [
        sbom.Package("pypi", "a", "1", (), "MIT"),
        sbom.Package("pypi", "b", "1", (("SHA-256", "0"),), ""),
        sbom.Package("npm", "c", "1", (("SHA-256", "0"),), "MIT AND GPL-3.0-only"),
        sbom.Package("npm", "d", "1", (("SHA-256", "0"),), "GPL-3.0-only OR MIT"),
    ]
    assert [fault.split(" ")[0] for fault in sbom.faults(bad, KNOWN)] == ["pkg:pypi/a@1", "pkg:pypi/b@1", "pkg:npm/c@1"]


def test_the_list_of_licences_has_no_package_that_is_gone() -> None:
    names = {package.name for package in FOUND}
    assert KNOWN.packages.keys() <= names and KNOWN.exceptions.keys() <= names


def test_the_licences_are_those_that_the_packages_name() -> None:
    """Where a package says its licence as an SPDX expression."""
    for name, licence in KNOWN.packages.items():
        try:
            told = metadata.metadata(name).get("License-Expression")
        except metadata.PackageNotFoundError:
            continue
        assert told in (None, licence), name


def test_the_locks_hold_hashes_and_no_address() -> None:
    for lock in sbom.PYTHON_LOCKS:
        text = (ROOT / lock).read_text("utf-8")
        assert "://" not in text and "--index" not in text and "--find-links" not in text
        assert text.count("--hash=") == text.count("--hash=sha256:") > 0


def test_every_dependency_is_locked_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for name, extra in project["project"]["optional-dependencies"].items():
        asked += extra if name != "embeddings" else []  # its weights are fetched on demand
    locked = {package.name: package.version for package in FOUND if package.system == "pypi"}
    for text in asked:
        wanted = Requirement(text)
        assert locked[canonicalize_name(wanted.name)] in wanted.specifier, text


def test_the_bill_is_the_same_each_time_and_names_everything(tmp_path: Path) -> None:
    needed = sbom.runtime()
    bill = sbom.document(FOUND, needed)
    assert bill == sbom.document(sbom.packages(KNOWN), needed)
    scopes = {item["name"]: item["scope"] for item in bill["components"]}
    assert len(bill["components"]) == len(FOUND) and all(item["hashes"] for item in bill["components"])
    assert {scopes[name] for name in ("msgspec", "psycopg", "quickjs-wasi")} == {"required"}
    assert scopes["pytest"] == "excluded"


@pytest.mark.sweep
def test_two_builds_of_the_wheel_are_the_same_bytes(tmp_path: Path) -> None:
    """From two copies in two places, by users with other habits: neither times, modes nor paths get into it."""
    digests = []
    for number, mask in ((1, 0o022), (2, 0o077)):
        copy = tmp_path / f"copy-{number}" / ("deeper" * number)
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60)
        for name in listed.stdout.decode().split("\0")[:-1]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
            os.utime(copy / name, (number * 10**9, number * 10**9))
        out = tmp_path / f"out-{number}"
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(out)]
        subprocess.run([*build, str(copy)], check=True, timeout=600, umask=mask)
        digests.append(hashlib.sha256(next(out.glob("*.whl")).read_bytes()).hexdigest())
    assert digests[0] == digests[1]
