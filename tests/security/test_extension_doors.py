"""Ways out of an extension that were open once: each is tried against real parts, with the grants that tempted."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.extensions import Extensions, Sandbox, Settings, Subject, protected
from forestay.extensions.connectors import exec as running
from forestay.extensions.connectors.paths import Kept, Roots
from forestay.extensions.connectors.process import descendants
from forestay.kernel import Ledger
from tests.extensions.dispatcher_world import World
from tests.extensions.test_connectors_exec import KINDS, sh

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
SECRET = "the-secret-of-the-host"
LONELY = [msgspec.structs.replace(one, namespaces=False) for one in KINDS if one.kind == "landlock"]


@pytest.fixture(params=[one for one in KINDS if one.kind != "none"], ids=lambda one: one.kind)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(tmp_path, grants=["exec"], sandbox=request.param)
    yield world
    world.close()


def keep(world: World) -> Path:
    """A data folder in the project, with what the host has in it and what a project brings."""
    data = world.project / ".forestay"
    (data / "skills" / "sail").mkdir(parents=True)
    (data / "skills" / "sail" / "SKILL.md").write_text("how to sail")
    (data / "secret.key").write_text(SECRET)
    (data / "ledger.db").write_text(SECRET)
    (world.project / "forestay.toml").write_text("# mine\n")
    kept = Kept.of(protected(world.project, data))
    roots = Roots.of(world.project, temp=world.temp, kept=kept, extra=[(world.own, True)])
    world.dispatcher.admit(Subject("ext.test", roots))
    return data


# Programs


def test_a_path_that_an_extension_chooses_opens_no_folder_to_its_commands(world: World) -> None:
    search = f"/usr/bin:/bin:{world.outside}"
    seen = world.ok("exec", command="cat", args=[str(world.outside / "secret.txt")], env={"PATH": search})
    assert seen["code"] != 0 and "top secret" not in str(seen)
    assert "top secret" not in str(sh(world, f"ls {world.outside}; cat {world.outside}/*", env={"PATH": search}))
    ran = world.ok("exec", command="printenv", args=["PATH"], env={"PATH": search})
    assert ran["stdout"] == search + "\n", "the command itself gets the path that was asked for"


def test_programs_beyond_the_limit_are_not_started(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(descendants(os.getpid()))
    monkeypatch.setattr(running, "MAX_RUNNING", 0)
    assert world.refused("exec", command="sleep", args=["30"]).details["errno"] == "EAGAIN"
    assert set(descendants(os.getpid())) <= before


def test_a_name_that_is_in_use_is_no_way_around_the_limit(world: World) -> None:
    async def both() -> list[Any]:
        first = world.request("exec", {"command": "cat", "process": "mine", "stream": True})
        ends: list[Any] = []
        async for part in world.dispatcher.call(first, "ext.test"):
            if "pid" in part.output:
                for _ in range(3):
                    again = world.request("exec", {"command": "true", "process": "mine"})
                    ends += [end async for end in world.dispatcher.call(again, "ext.test")]
                world.dispatcher.cancel(first.call_id)
        return ends

    ends = asyncio.run(both())
    assert [end.error.details["errno"] for end in ends] == ["EEXIST"] * 3
    assert sh(world, "echo freed", process="mine")["stdout"] == "freed\n"


def test_a_command_has_no_power_over_the_machine_even_where_the_host_is_root(world: World) -> None:
    """What it could do with it (the clock, the name, device files) is not tried: it would be done to this machine."""
    said = str(sh(world, "cat /proc/self/status")["stdout"])
    held = {line.partition(":")[0]: line.split()[1] for line in said.splitlines() if line.startswith("Cap")}
    assert all(int(held[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "CapInh")), said


# What is the host's own (F4)


def test_f4_commands_find_nothing_of_the_hosts_data(tmp_path: Path, world: World) -> None:
    data = keep(world)
    said = sh(world, "ls -a .forestay; cat .forestay/secret.key .forestay/ledger.db; cat .forestay/skills/sail/*")
    assert SECRET not in str(said) and "how to sail" in str(said["stdout"])
    assert (data / "secret.key").read_text() == SECRET


@pytest.mark.parametrize("kind", [*(one for one in KINDS if one.kind != "none"), *LONELY], ids=str)
def test_f4_a_command_that_may_write_everything_does_not_write_what_is_the_hosts(tmp_path: Path, kind: Sandbox) -> None:
    world = World(tmp_path, grants=["exec", "read", "write"], sandbox=kind)
    data = keep(world)
    (world.project / "notes.txt").write_text("old")
    script = (
        "echo x > .forestay/secret.key; echo x > .forestay/ledger.db; rm -rf .forestay/*; mv .forestay gone;"
        "umount .forestay; umount -l .forestay; umount -l forestay.toml;"
        "echo mode >> forestay.toml; echo new > notes.txt; cat .forestay/*key .forestay/skills/sail/*"
    )
    said = sh(world, script)
    assert SECRET not in str(said) and "how to sail" in str(said["stdout"]), said
    assert (world.project / "notes.txt").read_text() == "new\n"
    assert (data / "secret.key").read_text() == (data / "ledger.db").read_text() == SECRET
    assert (data / "skills" / "sail" / "SKILL.md").exists()
    assert (world.project / "forestay.toml").read_text() == "# mine\n"
    world.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, grants=["read", "write"])
    yield world
    world.close()


def test_f4_files_of_the_host_are_not_read_by_any_spelling(writer: World) -> None:
    data = keep(writer)
    (writer.project / "link").symlink_to(data)
    (writer.project / "straight").symlink_to(data / "secret.key")
    for path in (".forestay/secret.key", str(data / "ledger.db"), "link/secret.key", "straight", "./.forestay//x"):
        assert writer.refused("fs", op="read", path=path).code == "denied", path
        assert writer.refused("tool", name="read", input={"path": path}).code == "denied", path
        assert writer.refused("fs", op="copy", path=path, to="mine").code == "denied", path
    assert SECRET not in str(writer.ok("tool", name="grep", input={"pattern": "host"}))
    assert writer.ok("tool", name="read", input={"path": ".forestay/skills/sail/SKILL.md"})["content"]


def test_f4_files_of_the_host_are_not_changed_nor_moved_away(writer: World) -> None:
    data = keep(writer)
    attempts: Iterable[dict[str, Any]] = (
        {"op": "write", "path": ".forestay/secret.key", "text": "x"},
        {"op": "write", "path": ".forestay/new", "text": "x"},
        {"op": "append", "path": "forestay.toml", "text": "[extensions.policy]\nmode = 'permissive'\n"},
        {"op": "delete", "path": "forestay.toml"},
        {"op": "rename", "path": ".forestay", "to": "gone"},
        {"op": "rename", "path": "src", "to": "forestay.toml"},
        {"op": "delete", "path": ".forestay", "recursive": True},
        {"op": "chmod", "path": ".forestay", "mode": 0o777},
        {"op": "symlink", "path": "forestay.toml", "target": "other.toml"},
    )
    (writer.project / "src").mkdir()
    for attempt in attempts:
        assert writer.refused("fs", **attempt).code == "denied", attempt
    assert (data / "secret.key").read_text() == SECRET and (writer.project / "src").is_dir()
    assert (writer.project / "forestay.toml").read_text() == "# mine\n"
    assert writer.ok("fs", op="write", path=".forestay/skills/new.md", text="x") == {"bytes": 1}


def test_f4_a_folder_that_holds_the_hosts_data_is_not_moved_away(writer: World) -> None:
    data = writer.project / "var" / "data"
    data.mkdir(parents=True)
    (data / "secret.key").write_text(SECRET)
    roots = Roots.of(writer.project, kept=Kept.of(protected(writer.project, data)))
    writer.dispatcher.admit(Subject("ext.test", roots))
    assert writer.refused("fs", op="delete", path="var", recursive=True).code == "denied"
    assert writer.refused("fs", op="rename", path="var", to="gone").code == "denied"
    assert writer.refused("fs", op="write", path="forestay.toml", text="x").code == "denied", "nor made"
    assert (data / "secret.key").read_text() == SECRET


def test_what_may_be_written_is_not_read_by_moving_it_away(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["write:src/**", "read:docs/**"])
    (world.project / "src").mkdir()
    (world.project / "src" / "private.txt").write_text(SECRET)
    taken = str(world.temp / "taken")
    assert world.refused("fs", op="rename", path="src/private.txt", to=taken).code == "denied"
    assert world.refused("fs", op="copy", path="src/private.txt", to=taken).code == "denied"
    assert world.ok("fs", op="rename", path="src/private.txt", to="src/moved.txt") == {}
    assert (world.project / "src" / "moved.txt").read_text() == SECRET
    (world.temp / "made").write_text("x")
    assert world.ok("fs", op="rename", path=str(world.temp / "made"), to="src/made") == {}
    world.close()


# One extension and another, and what lies beside


def script(tool: str, body: str) -> str:
    return (
        "import fs from 'node:fs'; import os from 'node:os'; import path from 'node:path';\n"
        f"export default function (pi) {{ pi.registerTool({{ name: '{tool}', label: 'a', description: 'a',"
        " parameters: { type: 'object', properties: {} }, async execute() {\n"
        f" const say = (t) => ({{ content: [{{ type: 'text', text: String(t) }}] }});\n {body} }} }}); }}\n"
    )


async def called(folder: Path, files: dict[str, str], tools: list[str], **options: Any) -> list[str]:
    """What each tool says, of extensions that stand at `files` beneath `folder`."""
    project = folder / "project"
    project.mkdir()
    for name, code in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code)
    async with (
        Ledger.open(folder / "l.db") as ledger,
        Extensions(ledger, root=project, mode="strict", settings=Settings(environ=ENVIRON), **options) as suite,
    ):
        for name in files:
            await suite.load(folder / name)
        return [json.dumps((await suite.call_tool(tool, {})).content) for tool in tools]


def test_extensions_do_not_meet_in_the_temporary_folder(tmp_path: Path) -> None:
    files = {
        "one/index.ts": script(
            "one", "const p = path.join(os.tmpdir(), 'f'); fs.writeFileSync(p, 'PRIVATE'); return say(p);"
        ),
        "two/index.ts": script(
            "two",
            "const up = path.join(os.tmpdir(), '..');"
            "const shell = await pi.exec('sh', ['-c', 'cat $TMPDIR/f $TMPDIR/../*/f; ls $TMPDIR/..']);"
            "const seen = [shell.stdout];"
            "for (const p of [os.tmpdir() + '/f', up]) { try { seen.push(fs.readdirSync(p)); } catch (e) {} "
            "try { seen.push(fs.readFileSync(p, 'utf8')); } catch (e) { seen.push(e.code); } } return say(seen);",
        ),
    }
    grants = ("exec", "env", "read:src/**", "write:src/**")
    one, two = asyncio.run(called(tmp_path, files, ["one", "two"], grants=grants))
    assert "/f" in one and "PRIVATE" not in two, two


@pytest.mark.parametrize("grant", ["read:src/**", "read"])
def test_a_lone_script_reads_nothing_of_what_lies_beside_it(tmp_path: Path, grant: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "id_rsa").write_text("PRIVATE")
    body = f"try {{ return say(fs.readFileSync({json.dumps(str(tmp_path / 'home' / 'id_rsa'))}, 'utf8')); }}"
    code = script("attack", body + " catch (e) { return say(e.code); }")
    assert "EACCES" in asyncio.run(called(tmp_path, {"home/lone.ts": code}, ["attack"], grants=(grant,)))[0]
