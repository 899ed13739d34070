"""Each package is used through its face, and shows nothing that nobody uses (`scripts/faces.py`)."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from scripts import faces

MOST_REACHING = 57  # imports of tests that look inside a package which is not theirs: let this number fall
SHOWN = [(package, name) for package, names in sorted(faces.faces().items()) for name in sorted(names)]


def test_packages_are_used_through_their_faces() -> None:
    """In one test, so that each file is read once."""
    assert list(faces.broken()) == [], "nobody reaches into another package"
    assert list(faces.unused()) == [], "every exported name is used outside or documented"
    reaching = list(faces.reaching())
    assert len(reaching) <= MOST_REACHING
    assert [place for place in reaching if place.startswith("benchmarks/")] == [], (
        "a benchmark looks inside one package"
    )


@pytest.mark.parametrize(("package", "name"), SHOWN, ids=lambda item: str(item))
def test_a_face_gives_what_it_names(package: str, name: str) -> None:
    assert getattr(importlib.import_module(f"forestay.{package}"), name) is not None


def test_the_library_gives_what_it_names_and_imports_nothing_before() -> None:
    code = "import sys, forestay; assert not [n for n in sys.modules if n.startswith('forestay.')]; "
    code += "print(*(getattr(forestay, name).__name__ for name in forestay.__all__ if name != 'workflow'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Host" in done.stdout and "Client" in done.stdout
