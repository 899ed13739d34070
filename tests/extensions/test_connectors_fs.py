"""The file connector through the dispatcher: what works, and every way out that must not."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extensions.dispatcher_world import World

from forestay.extensions.connectors.paths import Roots, resolve


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, grants=["read", "write"])
    yield world
    world.close()


def test_write_reaches_the_disk_and_reads_back(world: World) -> None:
    assert world.ok("fs", op="write", path="a.txt", text="hëllo") == {"bytes": 6}
    assert (world.project / "a.txt").read_text() == "hëllo"
    assert world.ok("fs", op="read", path="a.txt", encoding="utf8") == {"text": "hëllo"}
    world.ok("fs", op="append", path="a.txt", base64=base64.b64encode(b"\x00\xff").decode())
    assert base64.b64decode(world.ok("fs", op="read", path="a.txt")["base64"]) == b"h\xc3\xabllo\x00\xff"
    assert base64.b64decode(world.ok("fs", op="read", path="a.txt", offset=1, length=2)["base64"]) == b"\xc3\xab"


def test_every_operation_does_what_it_says(world: World) -> None:
    world.ok("fs", op="mkdir", path="d/e/f", recursive=True)
    assert world.ok("fs", op="mkdir", path="d/e/f", recursive=True) == {"first": None}
    world.ok("fs", op="write", path="d/x", text="1")
    world.ok("fs", op="copy", path="d/x", to="d/y")
    world.ok("fs", op="rename", path="d/y", to="d/e/z")
    world.ok("fs", op="symlink", path="d/link", target="x")
    assert world.ok("fs", op="readlink", path="d/link") == {"path": "x"}
    assert world.ok("fs", op="realpath", path="d/link")["path"].endswith("/project/d/x")
    kinds = {entry["name"]: entry["kind"] for entry in world.ok("fs", op="list", path="d")["entries"]}
    assert kinds == {"e": "directory", "link": "symlink", "x": "file"}
    world.ok("fs", op="chmod", path="d/x", mode=0o600)
    world.ok("fs", op="utimes", path="d/x", atime_ms=1000, mtime_ms=2000)
    facts = world.ok("fs", op="stat", path="d/x")
    assert (facts["mode"] & 0o777, facts["mtime_ms"], facts["size"], facts["kind"]) == (0o600, 2000.0, 1, "file")
    assert world.ok("fs", op="stat", path="d/link", follow=False)["kind"] == "symlink"
    world.ok("fs", op="truncate", path="d/x", length=0)
    assert world.ok("fs", op="stat", path="d/x")["size"] == 0
    made = world.ok("fs", op="mkdtemp", prefix="d/tmp-")["path"]
    assert (world.project / made).is_dir() and made.startswith("d/tmp-") and len(made) == len("d/tmp-") + 6
    world.ok("fs", op="delete", path="d", recursive=True)
    assert not (world.project / "d").exists()
    world.ok("fs", op="delete", path="d", force=True)


@pytest.mark.parametrize(
    ("params", "errno"),
    [
        ({"op": "read", "path": "none"}, "ENOENT"),
        ({"op": "read", "path": "."}, "EISDIR"),
        ({"op": "read", "path": "file/x"}, "ENOTDIR"),
        ({"op": "list", "path": "file"}, "ENOTDIR"),
        ({"op": "mkdir", "path": "file"}, "EEXIST"),
        ({"op": "mkdir", "path": "no/way"}, "ENOENT"),
        ({"op": "write", "path": "file", "flag": "wx", "text": ""}, "EEXIST"),
        ({"op": "delete", "path": "full", "kind": "directory"}, "ENOTEMPTY"),
        ({"op": "delete", "path": "full", "kind": "file"}, "EISDIR"),
        ({"op": "delete", "path": "."}, "EBUSY"),
        ({"op": "readlink", "path": "file"}, "EINVAL"),
        ({"op": "read", "path": "loop"}, "ELOOP"),
        ({"op": "read", "path": "x" * 5000}, "ENAMETOOLONG"),
        ({"op": "read", "path": ""}, "ENOENT"),
        ({"op": "read", "path": "pipe"}, "EINVAL"),
    ],
)
def test_failures_carry_the_errno(world: World, params: dict[str, object], errno: str) -> None:
    (world.project / "file").write_text("x")
    (world.project / "full").mkdir()
    (world.project / "full" / "x").write_text("")
    (world.project / "loop").symlink_to("loop")
    os.mkfifo(world.project / "pipe")
    error = world.refused("fs", **params)
    assert (error.code, error.details["errno"]) == ("io", errno)


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "../../../../../../etc/passwd",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "a/../../outside/secret.txt",
        "out/secret.txt",
        "hop/outside/secret.txt",
        "file-out",
        "proc/environ",
        "chain/secret.txt",
    ],
)
def test_no_path_leaves_the_roots(world: World, path: str) -> None:
    (world.project / "a").mkdir()
    (world.project / "out").symlink_to(world.outside)
    (world.project / "hop").symlink_to("..")
    (world.project / "file-out").symlink_to(world.outside / "secret.txt")
    (world.project / "proc").symlink_to("/proc/self")
    (world.project / "chain").symlink_to("out")
    for params in (
        {"op": "read"},
        {"op": "stat"},
        {"op": "list"},
        {"op": "access"},
        {"op": "realpath"},
        {"op": "write", "text": "x"},
        {"op": "append", "text": "x"},
        {"op": "truncate"},
        {"op": "chmod", "mode": 0o777},
        {"op": "copy", "to": "stolen"},
        {"op": "watch"},
    ):
        error = world.refused("fs", path=path, **params)
        assert error.code == "denied", (params, error)
        assert "secret" not in error.message.replace("secret.txt", "")
    assert (world.outside / "secret.txt").read_text() == "top secret"
    assert not (world.project / "stolen").exists()


def test_links_out_cannot_be_made_or_written_through(world: World) -> None:
    assert world.refused("fs", op="symlink", path="evil", target="/etc").code == "denied"
    assert world.refused("fs", op="symlink", path="evil", target="../outside").code == "denied"
    (world.project / "dangling").symlink_to(world.outside / "new.txt")
    assert world.refused("fs", op="write", path="dangling", text="x").code == "denied"
    assert world.refused("fs", op="copy", path="x", to="../outside/x").code in ("denied", "io")
    assert world.refused("fs", op="rename", path="dangling", to="../outside/moved").code == "denied"
    assert [item.name for item in world.outside.iterdir()] == ["secret.txt"]


def test_deleting_a_tree_removes_links_and_not_what_they_point_to(world: World) -> None:
    (world.project / "tree").mkdir()
    (world.project / "tree" / "out").symlink_to(world.outside)
    world.ok("fs", op="delete", path="tree", recursive=True)
    assert (world.outside / "secret.txt").exists()


def test_a_folder_swapped_for_a_link_between_check_and_use_changes_nothing(world: World) -> None:
    (world.project / "dir").mkdir()
    (world.project / "dir" / "secret.txt").write_text("ours")
    roots = Roots.of(world.project)
    with resolve(roots, "dir/secret.txt") as place:
        (world.project / "dir").rename(world.project / "old")
        (world.project / "dir").symlink_to(world.outside)
        descriptor = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place.folder)
        try:
            assert os.read(descriptor, 100) == b"ours"
        finally:
            os.close(descriptor)


def test_scope_follows_where_a_link_leads(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["read:src/**"])
    (world.project / "src").mkdir()
    (world.project / "private").mkdir()
    (world.project / "private" / "key").write_text("k")
    (world.project / "src" / "ok.txt").write_text("ok")
    (world.project / "src" / "link").symlink_to("../private/key")
    assert world.ok("fs", op="read", path="src/ok.txt", encoding="utf8") == {"text": "ok"}
    assert world.refused("fs", op="read", path="private/key").code == "denied"
    assert world.refused("fs", op="read", path="src/../private/key").code == "denied"
    assert world.refused("fs", op="read", path="src/link").code == "denied"
    assert world.refused("fs", op="write", path="src/ok.txt", text="").code == "denied"
    world.close()


def test_own_folder_is_readable_and_temp_is_private(world: World) -> None:
    assert world.ok("fs", op="read", path=str(world.own / "asset.txt"), encoding="utf8") == {"text": "asset"}
    assert world.refused("fs", op="write", path=str(world.own / "asset.txt"), text="x").details["errno"] == "EROFS"
    world.ok("fs", op="write", path=str(world.temp / "t"), text="x")
    assert (world.temp / "t").read_text() == "x"


def test_a_grant_opens_a_folder_outside_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    world = World(tmp_path, mode="permissive", grants=[f"read:{tmp_path}/outside/secret.txt"])
    (world.outside / "other.txt").write_text("other")
    path = str(world.outside / "secret.txt")
    assert world.ok("fs", op="read", path=path, encoding="utf8") == {"text": "top secret"}
    assert world.refused("fs", op="write", path=path, text="x").code == "denied"
    assert world.refused("fs", op="read", path=str(world.outside / "other.txt")).code == "denied"
    world.close()


def test_watch_reports_what_changes(world: World) -> None:
    import asyncio

    async def main() -> list[tuple[str, str]]:
        seen = []
        call = world.request("fs", {"op": "watch", "path": "."})
        async for result in world.dispatcher.call(call, "ext.test"):
            if result.output.get("event") == "ready":
                (world.project / "new.txt").write_text("x")
            elif "name" in result.output:
                seen.append((result.output["event"], result.output["name"]))
                world.dispatcher.cancel(call.call_id)
        return seen

    assert asyncio.run(asyncio.wait_for(main(), 20)) == [("rename", "new.txt")]


def test_bad_parameters_are_named(world: World) -> None:
    assert world.refused("fs", op="nothing", path="x").code == "invalid_request"
    assert world.refused("fs", op="read", path=7).details["at"] == "$.params.path"
    assert world.refused("fs", op="read", path="a\0b").code == "invalid_request"
    assert world.refused("fs", op="write", path="a", base64="%%").code == "invalid_request"
    assert world.refused("fs", op="read", path="a", offset=-1).code == "invalid_request"


def test_whether_something_is_there_is_an_answer_and_no_failure(world: World) -> None:
    (world.project / "a.txt").write_text("x")
    (world.project / "out").symlink_to(world.outside / "secret.txt")
    assert world.ok("fs", op="exists", path="a.txt") == {"exists": True}
    assert world.ok("fs", op="exists", path="nothing/here") == {"exists": False}
    assert world.refused("fs", op="exists", path="out").code == "denied"
    ends = [record.payload for record in world.records() if record.type == "host_call.end"]
    assert [end["is_error"] for end in ends] == [False, False, True]


def test_a_link_that_takes_a_files_place_is_followed_by_the_walk_alone(world: World) -> None:
    (world.project / "real.txt").write_text("inside")
    (world.project / "near").symlink_to("real.txt")
    (world.project / "far").symlink_to(world.outside / "secret.txt")
    assert world.ok("fs", op="read", path="near", encoding="utf8") == {"text": "inside"}
    world.ok("fs", op="write", path="near", text="changed")
    assert (world.project / "real.txt").read_text() == "changed" and (world.project / "near").is_symlink()
    for operation in ("read", "write", "truncate", "append"):
        assert world.refused("fs", op=operation, path="far", text="x").code == "denied"
    assert (world.outside / "secret.txt").read_text() == "top secret"
    os.mkfifo(world.project / "pipe")
    assert world.refused("fs", op="read", path="pipe").details["errno"] == "EINVAL"
    assert world.refused("fs", op="read", path=".").details["errno"] == "EISDIR"
    (world.project / "folder").mkdir()
    assert world.refused("fs", op="read", path="folder").details["errno"] == "EISDIR"
    assert world.refused("fs", op="write", path=str(world.own / "asset.txt"), text="x").details["errno"] == "EROFS"
