"""Builds happen in a process of their own, with a deadline (K1 to K4)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.build_process import Child, Workshop
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.compiler.scan import syntax
from forestay.extensions.compiler.scan.uses import scan_text
from forestay.extensions.compiler.scan.values import Values
from forestay.kernel import Problem, Seal

SMALL = "export default function (pi) { pi.on('input', () => undefined); }\n"


def source(folder: Path, name: str = "small", text: str = SMALL) -> Path:
    path = folder / f"{name}.ts"
    path.write_text(text)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Workshop:
    return Workshop()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _stat(pid: int | str) -> list[str]:
    """State, parent, group and so on of a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _wait_for_end(pid: int) -> None:
    """Until a process that was killed is gone, or a remnant that nobody has fetched yet."""
    while (stat := _stat(pid)) and stat[0] not in "ZX":
        os.sched_yield()


async def test_k1_a_child_builds_what_would_be_built_here_and_is_used_again(tmp_path: Path, place: Workshop) -> None:
    cache = Cache(tmp_path / "cache", Seal(b"key"))
    first = await place.build(source(tmp_path, "one"), cache)
    children = place.idle()
    second = await place.build(source(tmp_path, "two"), cache)
    assert place.idle() == children and len(children) == 1
    here = build(tmp_path / "one.ts")
    assert (first.meta, first.code, first.source_map, first.root) == (here.meta, here.code, here.source_map, here.root)
    assert second.meta.extension_id == "two"
    place.close()
    assert not _exists(children[0])


async def test_k5_a_build_says_what_it_does_before_its_end(tmp_path: Path, place: Workshop) -> None:
    cache, steps = Cache(tmp_path / "cache", Seal(b"key")), list[str]()
    await place.build(source(tmp_path), cache, told=steps.append)
    assert steps == ["joining its files", "reading 1 KB of code"]
    await place.build(tmp_path / "small.ts", cache, told=steps.append)
    assert len(steps) == 2, "what is cached is not built"
    place.close()


async def test_k1_what_is_cached_needs_no_child(tmp_path: Path, place: Workshop) -> None:
    cache, path = Cache(tmp_path / "cache", Seal(b"key")), source(tmp_path)
    build(path, cache=cache)
    await place.build(path, cache)
    assert place.idle() == []


async def test_a_problem_of_a_build_is_told_as_if_it_had_happened_here(tmp_path: Path, place: Workshop) -> None:
    cache = Cache(tmp_path / "cache", Seal(b"key"))
    for text in ("export default (pi) => {", "export default (pi) => { process.binding('fs') }", "42"):
        path = source(tmp_path, "bad", text)
        with pytest.raises(Problem) as here:
            build(path)
        with pytest.raises(Problem) as apart:
            await place.build(path, cache)
        assert (apart.value.key, apart.value.message) == (here.value.key, here.value.message)
        assert apart.value.as_lafs() == here.value.as_lafs()
    place.close()


async def _stopped_child(tmp_path: Path, place: Workshop, cache: Cache) -> int:
    """A child that was used once and now stands still."""
    await place.build(source(tmp_path, "warm"), cache)
    (pid,) = place.idle()
    os.kill(pid, signal.SIGSTOP)
    return pid


async def test_k2_a_build_that_takes_too_long_is_ended(tmp_path: Path, place: Workshop) -> None:
    cache = Cache(tmp_path / "cache", Seal(b"key"))
    pid = await _stopped_child(tmp_path, place, cache)
    with pytest.raises(Problem) as caught:
        await place.build(source(tmp_path), cache, seconds=0.01)
    assert caught.value.key == "compile_timeout"
    assert caught.value.details["setting"] == "extensions.build_seconds"
    assert "small.ts was not compiled within 0.01 seconds" in caught.value.message
    assert not _exists(pid)
    assert (await place.build(source(tmp_path), cache)).meta.extension_id == "small"
    place.close()


async def test_k2_a_build_that_nobody_waits_for_is_ended(tmp_path: Path, place: Workshop) -> None:
    cache = Cache(tmp_path / "cache", Seal(b"key"))
    pid = await _stopped_child(tmp_path, place, cache)
    waiting = asyncio.create_task(place.build(source(tmp_path), cache))
    while place.idle():
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not _exists(pid)
    assert (await place.build(source(tmp_path), cache)).meta.extension_id == "small"
    place.close()


async def test_k2_the_bundler_ends_with_the_child(tmp_path: Path) -> None:
    child = Child()
    child.build(source(tmp_path))
    everybody = [path.name for path in Path("/proc").glob("[0-9]*")]
    members = [int(pid) for pid in everybody if _stat(pid)[2:3] == [str(child.pid)]]
    assert len(members) >= 2, "the child and its bundler"
    child.kill()
    for pid in members:
        _wait_for_end(pid)


def test_k3_a_child_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    path = source(tmp_path)
    code = (
        "import os, pathlib, signal; from forestay.extensions.compiler.build_process import Child; child = Child();"
        f"child.build(pathlib.Path({str(path)!r})); print(child.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, timeout=60)
    pid = int(ended.stdout)
    _wait_for_end(pid)


async def test_the_current_folder_is_not_searched_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Workshop
) -> None:
    for name in ("msgspec", "forestay", "tree_sitter"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    await place.build(source(tmp_path), Cache(tmp_path / "cache", Seal(b"key")))
    assert not (tmp_path / "ran").exists()
    place.close()


# The scan itself


def _looked_up(monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """How often the scan asks in which scope a place lies, and what an expression stands for."""
    count = 0
    for owner, name in ((syntax.File, "innermost"), (Values, "of")):
        original = getattr(owner, name)

        def counted(self: object, node: object, original: object = original) -> object:
            nonlocal count
            count += 1
            return original(self, node)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, counted)
    scan_text("a.js", text.encode(), "js")
    monkeypatch.undo()
    return count


@pytest.mark.parametrize(
    "line",
    ["x=x.a(x);\n", "x.a=x;x=x.a();\n", "x+=x();\n", "[x]=[x.a(x)];\n", "x=f(x);\n", "({x}=x);\n"],
)
def test_the_scan_asks_a_bounded_number_of_questions_for_each_line(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    head = "export default function(pi){ let x={a(y){return y}, b: eval}; function f(y){return y.a}\n"
    few, many = (_looked_up(monkeypatch, head + line * times + "}\n") for times in (300, 1200))
    assert 0 < many < 5 * few
    if line.startswith("x=x.a"):
        assert many < 25 * 1200


def test_every_place_on_one_long_line_has_its_column() -> None:
    text = "ü;" * 10 + "new Proxy({}, {});" * 50 + "\n" + "new Proxy({}, {});"
    found = [(item.location.line, item.location.column) for item in scan_text("a.js", text.encode(), "js")]
    assert found == [*((1, 25 + 18 * index) for index in range(50)), (2, 5)]
