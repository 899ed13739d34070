"""Running programs through the dispatcher: real ones, confined, bounded, and gone when they must be."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extensions.dispatcher_world import World

from forestay.extensions.connectors.process import descendants
from forestay.extensions.layout import Confinement, Layout
from forestay.extensions.sandbox import Sandbox, _bubblewrap, _programs
from forestay.kernel import ExtensionConfig, ExtensionOverride

confined = pytest.mark.skipif(Sandbox.detect().kind == "none", reason="this system offers no sandbox")
KINDS = [one for one in Sandbox.offered() if one.kind != "none"] or [Sandbox("none")]


@pytest.fixture(params=KINDS, ids=lambda one: one.kind)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(tmp_path, grants=["exec", "read"], sandbox=request.param)
    yield world
    world.close()


@pytest.fixture(params=KINDS, ids=lambda one: one.kind)
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(tmp_path, grants=["exec", "read", "write"], sandbox=request.param)
    yield world
    world.close()


def sh(world: World, script: str, **options: object) -> dict[str, object]:
    return world.ok("exec", command=script, shell=True, **options)


def test_output_code_and_signal(world: World) -> None:
    result = sh(world, "echo out; echo err >&2; exit 3")
    assert (result["stdout"], result["stderr"], result["code"], result["exitCode"]) == ("out\n", "err\n", 3, 3)
    assert (result["killed"], result["signal"]) == (False, None)
    ended = sh(world, "kill -TERM $$")
    # bubblewrap tells a signal as a shell does, 128 and its number.
    assert (ended["signal"], ended["code"]) in (("SIGTERM", None), (None, 143))
    assert world.ok("exec", command="cat", input="from stdin")["stdout"] == "from stdin"
    assert world.ok("exec", command="printf", args=["%s|", "a b", "$HOME"])["stdout"] == "a b|$HOME|"
    raw = world.ok("exec", command="printf", args=["\\377"], encoding="base64")["stdout"]
    assert base64.b64decode(raw["base64"]) == b"\xff"


def test_a_missing_program_is_enoent(world: World) -> None:
    error = world.refused("exec", command="no-such-program-here")
    assert (error.code, error.details["errno"]) == ("io", "ENOENT")
    (world.project / "plain").write_text("x")
    assert world.refused("exec", command="./plain").details["errno"] == "EACCES"


@confined
@pytest.mark.parametrize("sandbox", KINDS, ids=lambda one: one.kind)
def test_a_version_manager_starts_its_programs(tmp_path: Path, sandbox: Sandbox) -> None:
    manager = tmp_path / "manager"
    for place, script in (("shims", 'exec "${0%/*}/../versions/3/tool"'), ("versions/3", "echo the real one")):
        (manager / place).mkdir(parents=True)
        (manager / place / "tool").write_text(f"#!/bin/sh\n{script}\n")
        (manager / place / "tool").chmod(0o755)
    environ = {"PATH": f"{manager}/shims:/usr/bin:/bin"}
    world = World(tmp_path, grants=["exec", "read"], sandbox=sandbox, environ=environ)
    assert world.ok("exec", command="tool")["stdout"] == "the real one\n"
    world.close()


def test_a_shims_folder_in_the_home_does_not_show_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert _programs(f"{tmp_path}/me/shims:{tmp_path}/shims:{tmp_path}/me/.asdf/shims") == [
        f"{tmp_path}/me/shims",
        f"{tmp_path}/shims",
        f"{tmp_path}/me/.asdf/shims",
        f"{tmp_path}/me/.asdf",
    ]


def test_working_folder_stays_inside(world: World) -> None:
    (world.project / "sub").mkdir()
    assert sh(world, "pwd", cwd="sub")["stdout"] == f"{world.project}/sub\n"
    assert world.refused("exec", command="pwd", cwd="/etc").code == "denied"
    assert world.refused("exec", command="pwd", cwd="..").code == "denied"
    assert world.refused("exec", command="pwd", cwd="gone").details["errno"] == "ENOENT"


def test_the_environment_holds_no_secret(world: World) -> None:
    seen = str(sh(world, "env")["stdout"])
    assert "PATH=" in seen and "HOME=" in seen
    assert "sk-proj" not in seen and "hunter2" not in seen and "API_KEY" not in seen
    assert f"TMPDIR={world.temp}" in seen
    assert "X=1" in str(sh(world, "env", env={"X": "1", "BAD=NAME": "2"})["stdout"])


def test_a_timeout_kills_the_whole_tree(world: World) -> None:
    before = set(descendants(os.getpid()))
    result = sh(world, "(sleep 300 & sleep 300) & setsid sleep 300 & echo started; sleep 300", timeout=600)
    assert result["killed"] is True and result["timed_out"] is True and result["stdout"] == "started\n"
    deadline = time.monotonic() + 5
    while set(descendants(os.getpid())) - before and time.monotonic() < deadline:
        os.sched_yield()
    assert set(descendants(os.getpid())) <= before


def test_the_calls_own_deadline_is_a_timeout(world: World) -> None:
    call = world.request("exec", {"command": "sleep", "args": ["300"]}, timeout_ms=300)
    result = world.dispatcher.call_sync(call, "ext.test")
    assert result.error is not None and result.error.code == "timeout"


def test_a_fork_bomb_ends_with_its_deadline(world: World) -> None:
    before = set(descendants(os.getpid()))
    bomb = "n=0; while [ $n -lt 60 ]; do (setsid sleep 200 &) ; n=$((n+1)); done; sleep 200"
    assert sh(world, bomb, timeout=1500)["killed"] is True
    deadline = time.monotonic() + 5
    while set(descendants(os.getpid())) - before and time.monotonic() < deadline:
        os.sched_yield()
    assert set(descendants(os.getpid())) <= before


def test_huge_output_is_cut_and_the_program_stopped(world: World) -> None:
    result = world.ok("exec", command="yes", max_output_bytes=100_000)
    assert len(str(result["stdout"])) == 100_000 and result["truncated"] is True and result["killed"] is True


def test_a_stream_arrives_in_parts_and_can_be_steered(world: World) -> None:
    async def main() -> tuple[str, list[int], bool]:
        text, indexes = "", []
        params = {"command": "cat", "process": "p1", "stream": True}
        last = False
        async for result in world.dispatcher.call(world.request("exec", params), "ext.test"):
            assert result.chunk is not None
            indexes.append(result.chunk.index)
            last = result.chunk.is_last
            if "pid" in result.output:
                write = {"op": "write", "process": "p1", "base64": base64.b64encode(b"hello").decode()}
                await asyncio.to_thread(world.dispatcher.call_sync, world.request("exec", write), "ext.test")
            if result.output.get("stream") == "stdout":
                text += base64.b64decode(result.output["base64"]).decode()
                end = {"op": "write", "process": "p1", "end": True}
                await asyncio.to_thread(world.dispatcher.call_sync, world.request("exec", end), "ext.test")
        return text, indexes, last

    text, indexes, last = asyncio.run(asyncio.wait_for(main(), 30))
    assert text == "hello" and indexes == list(range(len(indexes))) and last


def test_a_slow_reader_holds_the_writer_back(world: World) -> None:
    async def main() -> list[int]:
        credits = []
        call = world.request("exec", {"command": "yes", "stream": True})
        async for result in world.dispatcher.call(call, "ext.test"):
            assert result.chunk is not None
            if result.chunk.backpressure is not None:
                credits.append(result.chunk.backpressure.credits or 0)
            if result.chunk.index >= 40:
                world.dispatcher.cancel(call.call_id)
        return credits

    credits = asyncio.run(asyncio.wait_for(main(), 30))
    assert min(credits) >= 0 and max(credits) <= 16 and len(credits) <= 80


def test_cancel_ends_the_program(world: World) -> None:
    async def main() -> str:
        call = world.request("exec", {"command": "sleep", "args": ["300"], "stream": True})
        async for result in world.dispatcher.call(call, "ext.test"):
            world.dispatcher.cancel(call.call_id)
            world.dispatcher.cancel(call.call_id)
            if result.error is not None:
                return result.error.details["problem"]
        return "?"

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "cancelled"


def test_kill_reaches_only_ones_own(world: World) -> None:
    assert world.refused("exec", op="kill", process="somebody-elses").details["errno"] == "ESRCH"
    assert world.refused("exec", op="kill", process="p", signal="SIGNONE").code in ("invalid_request", "io")


@confined
def test_the_sandbox_hides_what_was_not_granted(world: World) -> None:
    assert sh(world, "cat /etc/passwd")["code"] != 0
    assert sh(world, f"cat {world.outside}/secret.txt")["code"] != 0
    assert "sk-proj" not in str(sh(world, "cat /proc/*/environ")["stdout"])
    assert sh(world, f"cat /proc/{os.getpid()}/environ")["code"] != 0
    (world.project / "in.txt").write_text("in")
    assert sh(world, "cat in.txt")["stdout"] == "in"


@confined
def test_a_denied_write_says_so_and_offers_the_grant(world: World) -> None:
    result = sh(world, "echo x > new.txt")
    assert result["code"] != 0 and "--grant write" in str(result["note"])
    assert str(result["stderr"]).endswith(f"[{result['note']}]\n")
    assert world.records()[-1].payload["note"] == result["note"]
    assert not (world.project / "new.txt").exists()
    shell = world.refused("tool", name="bash", input={"command": "echo x > new.txt"})
    assert "--grant write" in shell.message and "exited with code 1" in shell.message


@confined
def test_a_write_scope_opens_its_folder_to_programs_and_nothing_beside_it(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["exec", "write:out/**", "write:*.log", "write:away/**"])
    (world.project / "out").mkdir()
    (world.project / "away").symlink_to(world.outside)
    assert sh(world, "echo x > out/new.txt")["code"] == 0 and (world.project / "out" / "new.txt").exists()
    for path in ("new.txt", "new.log", "away/new.txt"):
        assert sh(world, f"echo x > {path}")["code"] != 0
    assert not (world.outside / "new.txt").exists()
    world.close()
    config = ExtensionConfig(overrides={"ext.test": ExtensionOverride(deny=["write:out/keep/**"])})
    (tmp_path / "other").mkdir()
    world = World(tmp_path / "other", grants=["exec", "write:out/**"], config=config)
    (world.project / "out").mkdir()
    assert sh(world, "echo x > out/new.txt")["code"] != 0
    world.close()


@confined
def test_a_granted_write_works_and_only_there(writer: World) -> None:
    assert sh(writer, "echo x > new.txt && cat new.txt && echo y > $TMPDIR/t")["code"] == 0
    assert (writer.project / "new.txt").read_text() == "x\n"
    assert sh(writer, f"echo x > {writer.outside}/new.txt")["code"] != 0
    assert not (writer.outside / "new.txt").exists()


@confined
def test_no_network_without_http(world: World) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        assert world.ok("exec", command="bash", args=["-c", script])["code"] != 0


def test_bubblewrap_binds_only_what_is_granted() -> None:
    options = _bubblewrap("/p", Confinement(("/p",), ("/t",)), Layout(("/t",), (), ()), [], {"A": "1"})
    assert options[-2:] == ["--chdir", "/p"] and "--unshare-all" in options and "--share-net" not in options
    binds = [options[at - 1] for at, option in enumerate(options) if option == "/t" and options[at + 1] == "/t"]
    assert binds == ["--ro-bind-try", "--bind-try"] and "/home" not in options
    assert options.index("--clearenv") < options.index("--setenv")
    assert "--share-net" in _bubblewrap("/", Confinement(network=True), Layout((), (), ()), [], {})


def test_variables_of_the_extension_do_not_reach_the_sandbox_builder(writer: World) -> None:
    """A library that the extension wrote must not be loaded by the program that is about to confine it."""
    (writer.project / "evil.so").write_bytes(b"not a library")
    result = sh(
        writer, "echo $MINE", env={"LD_PRELOAD": f"{writer.project}/evil.so", "PYTHONSTARTUP": "x", "MINE": "yes"}
    )
    assert result["stdout"] == "yes\n"
    complaints = str(result["stderr"]).count("LD_PRELOAD")
    # Only programs inside complain (the shell, at most the launcher's last step), never the builder before them.
    assert complaints <= 1


def test_a_process_cannot_read_what_was_denied(tmp_path: Path) -> None:
    config = ExtensionConfig(overrides={"ext.test": ExtensionOverride(deny=["read"])})
    world = World(tmp_path, grants=["exec"], config=config)
    (world.project / "x").write_text("secret")
    if Sandbox.detect().kind != "none":
        assert sh(world, "cat x")["code"] != 0
    world.close()


def test_unconfined_needs_a_persons_word_and_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["exec"], sandbox=Sandbox("none"))
    refused = world.refused("exec", command="touch", args=[str(world.project / "made")])
    assert refused.code == "denied" and not (world.project / "made").exists()
    world.close()
    world = World(tmp_path, grants=["exec"], sandbox=Sandbox("none"), unconfined=True)
    assert sh(world, "echo hi")["sandbox"] == "none"
    assert world.records()[-1].payload["sandbox"] == "none"
    assert "UNCONFINED" in Sandbox("none").describes
    world.close()
