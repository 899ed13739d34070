"""F1 to F3 over random trees of folders, files and links: whatever the path, a walk never reaches a place outside."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.extensions.dispatcher_world import plain_call

from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.fs import FsConnector
from forestay.extensions.connectors.paths import Roots, resolve
from forestay.kernel import Problem

NAMES = ("a", "b", "c", "l")
SEGMENT = st.sampled_from((*NAMES, "..", ".", "", "secret"))
PATH = st.lists(SEGMENT, min_size=1, max_size=7).map("/".join)
TARGET = st.one_of(
    PATH, PATH.map(lambda path: "ABS/" + path), st.sampled_from(["/etc/passwd", "/proc/self", "/", "..", "../outside"])
)
TREE = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join),
        st.sampled_from(["dir", "file", "link"]),
        TARGET,
    ),
    max_size=12,
)


def build(base: Path, tree: list[tuple[str, str, str]]) -> Path:
    root, outside = base / "root", base / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("top secret")
    (base / "secret").write_text("top secret")
    for name, kind, target in tree:
        path = root / name
        try:
            if path.is_symlink() or not os.path.realpath(path.parent).startswith(str(root)):
                continue  # the tree itself is built inside; only links point out
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "dir":
                path.mkdir()
            elif kind == "file":
                path.write_text("inside")
            else:
                path.symlink_to(target.replace("ABS", str(base)))
        except OSError:
            continue
    assert sorted(item.name for item in base.iterdir()) == ["outside", "root", "secret"]
    return root


def looked(files: FsConnector, call: Call, path: str) -> int | None:
    try:
        return int(files.run(call, {"op": "stat", "path": path})["ino"])
    except Problem:
        return None


def walked(roots: Roots, path: str) -> int | None:
    """The same by a walk that opens every folder on its way, whether or not one look would do."""
    try:
        with resolve(roots, path) as place:
            return os.stat(place.name or ".", dir_fd=place.folder, follow_symlinks=False).st_ino
    except (Problem, OSError):
        return None


@settings(max_examples=200, deadline=None)
@given(TREE, PATH, st.booleans())
def test_f2_no_walk_leaves_the_root(tree: list[tuple[str, str, str]], path: str, absolute: bool) -> None:
    base = Path(os.path.realpath(tempfile.mkdtemp()))
    try:
        root = build(base, tree)
        roots = Roots.of(root)
        asked = f"{base}/{path}" if absolute else path
        try:
            with resolve(roots, asked) as place:
                assert place.real == str(root) or place.real.startswith(f"{root}/")
                held = (
                    os.path.realpath(f"/proc/self/fd/{place.folder}") if Path("/proc/self/fd").is_dir() else str(root)
                )
                assert held == str(root) or held.startswith(f"{root}/")
        except (Problem, OSError):
            pass
        files, call = FsConnector(), plain_call(roots)
        assert looked(files, call, asked) == walked(roots, asked)
        for operation in ("read", "stat", "list", "realpath"):
            try:
                output = files.run(call, {"op": operation, "path": asked, "encoding": "utf8"})
            except Problem as problem:
                assert problem.key in ("path_outside_root", "io_failed", "invalid_text")
                continue
            assert output.get("text") != "top secret" and "secret" not in str(output.get("entries", ""))
        for operation in ("write", "append", "mkdir", "truncate", "delete"):
            try:
                files.run(call, {"op": operation, "path": asked, "text": "changed", "recursive": True})
            except Problem:
                continue
        assert (base / "outside" / "secret").read_text() == "top secret"
        assert (base / "secret").read_text() == "top secret"
        assert sorted(item.name for item in base.iterdir()) == ["outside", "root", "secret"]
        assert [item.name for item in (base / "outside").iterdir()] == ["secret"]
    finally:
        shutil.rmtree(base)


@given(PATH)
def test_f3_the_kernels_trees_are_closed_beneath_a_granted_root(path: str) -> None:
    roots = Roots.of("/usr", extra=[("/", False)])
    for tree in ("/proc", "/sys", "/dev"):
        try:
            with resolve(roots, f"{tree}/{path}") as place:
                assert not place.real.startswith(tree)
        except (Problem, OSError):
            pass


@pytest.mark.parametrize("swapped", ["project/granted", "project", "project/own"])
def test_f1_a_root_that_was_put_in_the_place_of_another_is_not_used(tmp_path: Path, swapped: str) -> None:
    """Who may write around a root could make it a link to anywhere; what was granted is the folder that was there."""
    project, elsewhere = tmp_path / "wide" / "project", tmp_path / "elsewhere"
    for folder in (project / "granted", project / "own", elsewhere / "granted", elsewhere / "own"):
        folder.mkdir(parents=True)
        (folder / "note").write_text("mine")
    (project / "note").write_text("mine")
    for folder in (elsewhere, elsewhere / "granted", elsewhere / "own"):
        (folder / "note").write_text("top secret")
    roots = Roots.of(project, extension=project / "own", extra=[(project / "granted", True), (tmp_path / "wide", True)])
    target = tmp_path / "wide" / swapped
    files, call = FsConnector(), plain_call(roots)
    read = {"op": "read", "path": str(target / "note"), "encoding": "utf8"}
    assert files.run(call, read)["text"] == "mine"
    shutil.move(target, tmp_path / "moved")
    target.symlink_to(elsewhere)
    with pytest.raises(Problem) as refused:
        files.run(call, read)
    assert refused.value.key == "path_outside_root"
