"""Each package is used through its face, and shows nothing that nobody uses (`scripts/faces.py`)."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from scripts import faces

MOST_REACHING = 60  # imports of tests that look inside a package which is not theirs: let this number fall
SHOWN = [(package, name) for package, names in sorted(faces.faces().items()) for name in sorted(names)]


def test_nobody_reaches_into_another_package() -> None:
    assert list(faces.broken()) == []


def test_every_exported_name_is_used_outside_or_documented() -> None:
    assert list(faces.unused()) == []


def test_tests_use_other_packages_through_their_faces() -> None:
    assert len(list(faces.reaching())) <= MOST_REACHING


def test_a_benchmark_looks_inside_one_package() -> None:
    assert [place for place in faces.reaching() if place.startswith("benchmarks/")] == []


@pytest.mark.parametrize(("package", "name"), SHOWN, ids=lambda item: str(item))
def test_a_face_gives_what_it_names(package: str, name: str) -> None:
    assert getattr(importlib.import_module(f"forestay.{package}"), name) is not None


def test_the_library_gives_what_it_names_and_imports_nothing_before() -> None:
    code = "import sys, forestay; assert not [n for n in sys.modules if n.startswith('forestay.')]; "
    code += "print(*(getattr(forestay, name).__name__ for name in forestay.__all__ if name != 'workflow'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Host" in done.stdout and "Client" in done.stdout
