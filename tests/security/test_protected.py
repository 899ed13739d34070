"""What no grant opens: settings, the host's own code, git's hooks, shells. Files and programs both try."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay import assets
from forestay.cli.main import run
from forestay.extensions import Sandbox, Subject, checked, protected
from forestay.extensions.connectors.paths import Kept, Roots
from forestay.extensions.layout import Confinement, mounts
from forestay.extensions.stand_ins import standing_in
from tests.extensions.dispatcher_world import World
from tests.extensions.test_connectors_exec import KINDS, sh

CONFINED = [one for one in KINDS if one.kind != "none"]
LONELY = [msgspec.structs.replace(one, namespaces=False) for one in CONFINED if one.kind == "landlock"]
HOOK = "#!/bin/sh\necho hooked\n"


@pytest.fixture(params=[*CONFINED, *LONELY], ids=lambda one: f"{one.kind}{'' if one.namespaces else '-alone'}")
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(tmp_path, grants=["exec", "read", "write"], sandbox=request.param)
    yield world
    world.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, grants=["read", "write"])
    yield world
    world.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


def guard(world: World, *, lifted: tuple[str, ...] = (), extra: Any = ()) -> None:
    """The extension as a suite admits it; the data folder lies outside the project."""
    data = world.project.parent / "data"
    data.mkdir(exist_ok=True)
    kept = Kept.of(protected(world.project, data, lifted=lifted), lifted)
    open_to(world, *(folder for folder, _ in extra))
    world.dispatcher.admit(Subject("ext.test", Roots.of(world.project, temp=world.temp, kept=kept, extra=extra)))


def open_to(world: World, *folders: Path) -> None:
    for folder in folders:
        for capability in ("read", "write"):
            world.dispatcher.learn("ext.test", "allow", checked(f"{capability}:{folder}/**"))


def may_make_beside(world: World) -> bool:
    """Rights that cannot be taken back further down leave no room beside a protected place; mounts do."""
    return bool(world.exec.sandbox.namespaces)


def tree(folder: Path) -> dict[str, str]:
    """Everything beneath a folder: what a link says, what a file holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = (
            str(path.readlink())
            if path.is_symlink()
            else path.read_text(errors="replace")
            if path.is_file()
            else "folder"
        )
    return found


def repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True, env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"})


def venv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in `folder`, as the running interpreter's own."""
    packages = folder / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "msgspec.py").write_text("genuine = True\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text("#!/bin/sh\n")
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    return packages


# Item 19: the settings, wherever they lie


SETTINGS = "[extensions.overrides.esc]\\nallow = ['read:/etc/**', 'env:MY_SECRET_TOKEN']"
ON_SETTINGS = (
    f'printf "{SETTINGS}" > forestay.toml',
    f'printf "{SETTINGS}" > s; mv -f s forestay.toml',
    "mkdir -p d; ln -s d/x forestay.toml",
    "rm -f forestay.toml; ln forestay.toml twin; echo x >> twin",
    "umount -l forestay.toml; echo x > forestay.toml",
    "unshare -Urm sh -c 'umount -l forestay.toml; echo x > forestay.toml'",
    "echo x > /proc/self/root$PWD/forestay.toml; echo x > /proc/1/root$PWD/forestay.toml",
    "cd ..; mv project p; mkdir project; echo x > project/forestay.toml",
)


@pytest.mark.parametrize("attack", ON_SETTINGS)
@pytest.mark.parametrize("text", [None, "# mine\n"], ids=["missing", "there"])
def test_a_program_does_not_write_the_settings(world: World, home: Path, attack: str, text: str | None) -> None:
    settings = world.project / "forestay.toml"
    if text is not None:
        settings.write_text(text)
    guard(world)
    sh(world, attack)
    assert (settings.read_text() if settings.exists() or settings.is_symlink() else None) == text
    assert world.project.is_dir()


@pytest.mark.parametrize("name", ["forestay.toml", "ForeStay.TOML", "holdfast.toml", "./src/../forestay.toml"])
def test_files_do_not_write_the_settings(files: World, home: Path, name: str) -> None:
    (files.project / "src").mkdir()
    (files.project / "plain").write_text("x")
    (files.project / "way").symlink_to(files.project)
    guard(files)
    for path in (name, f"way/{name}", str(files.project / name)):
        for attempt in (
            {"op": "write", "path": path, "text": "x"},
            {"op": "mkdir", "path": path},
            {"op": "symlink", "path": path, "target": "src"},
            {"op": "rename", "path": "src", "to": path},
            {"op": "copy", "path": "plain", "to": path},
        ):
            assert files.refused("fs", **attempt).code == "denied", attempt
        assert files.refused("tool", name="write", input={"path": path, "content": "x"}).code == "denied"
    assert sorted(tree(files.project)) == ["plain", "src", "way"]


def test_the_users_settings_are_protected_where_a_grant_opens_their_folder(tmp_path: Path, home: Path) -> None:
    world = World(tmp_path, grants=["exec", "read", "write", f"write:{home}/**"])
    guard(world, extra=[(home, True)])
    (home / "notes").mkdir()
    target = home / ".config" / "forestay" / "config.toml"
    sh(world, f"mkdir -p {target.parent}; echo x > {target}; echo fine > {home}/notes/n")
    assert world.refused("fs", op="mkdir", path=str(target.parent), recursive=True).code == "denied"
    assert not target.exists() and (home / "notes" / "n").read_text() == "fine\n"
    world.close()


def test_the_settings_of_where_the_host_was_started_are_protected(
    files: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = files.project / "where" / "started"
    started.mkdir(parents=True)
    monkeypatch.chdir(started)
    guard(files)
    assert files.refused("fs", op="write", path="where/started/forestay.toml", text="x").code == "denied"
    assert files.refused("fs", op="rename", path="where", to="gone").code == "denied"


@pytest.mark.parametrize("place", ["", "sub"])
def test_a_data_folder_that_is_the_project_or_around_it_still_keeps_its_secrets(world: World, place: str) -> None:
    """`data.dir = "."`: what the host has there cannot be hidden as a folder, so each of its files is."""
    data = world.project
    for name in ("secret.key", "ledger.db", "ledger.db-wal", "ledger.db-shm", "host.lock"):
        (data / name).write_text("SECRET")
    (data / "vectors").mkdir()
    (data / "sub").mkdir()
    root = data / place
    kept = Kept.of(protected(root, data))
    open_to(world, data)
    world.dispatcher.admit(Subject("ext.test", Roots.of(root, temp=world.temp, kept=kept, extra=[(data, True)])))
    (data / "sub" / "made").touch()
    before = tree(data)
    attack = "cat *; echo x > secret.key; rm -f ledger.db; mv vectors v; echo x > vectors/y; echo fine > sub/made"
    said = sh(world, f"cd {data}; {attack}")
    assert "SECRET" not in str(said) and tree(data) == {**before, "sub/made": "fine\n"}
    for path in ("secret.key", "SECRET.KEY", "vectors/x"):
        full = str(data / path)
        assert world.refused("fs", op="write", path=full, text="x").code == "denied"
    assert world.refused("fs", op="read", path=str(data / "secret.key")).code == "denied"
    assert "SECRET" not in str(world.ok("tool", name="grep", input={"pattern": "SECRET", "path": str(data)}))


# Item 20: the host's own code


ON_CODE = (
    "echo evil > .venv/lib/python3/site-packages/msgspec.py",
    "echo evil > .venv/lib/python3/site-packages/sitecustomize.py",
    "echo 'import os' > .venv/lib/python3/site-packages/evil.pth",
    "printf evil > .venv/bin/python; printf evil > .venv/bin/forestay",
    "rm -rf .venv; mkdir -p .venv/bin; echo evil > .venv/bin/python",
    "mv .venv old; mkdir -p .venv/bin; echo evil > .venv/bin/python",
    "ln .venv/bin/python twin && echo evil > twin",
    "umount -l .venv; echo evil > .venv/bin/python",
    "cp -r .venv copy; mv -T copy .venv; mv --exchange copy .venv",
    "echo evil > /proc/self/root$PWD/.venv/bin/python; echo evil > /proc/self/cwd/.venv/bin/python",
    "ln -s .venv way; echo evil > way/bin/python",
    "chmod -R 777 .venv; touch -d 2001-01-01 .venv/bin/python; truncate -s 0 .venv/bin/python",
)


@pytest.mark.parametrize("attack", ON_CODE)
def test_a_program_does_not_write_the_hosts_code(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    venv(world.project / ".venv", monkeypatch)
    (world.project / "src").mkdir()
    guard(world)
    before = tree(world.project / ".venv")
    sh(world, f"{attack}; echo fine > src/made; echo fine > made")
    assert tree(world.project / ".venv") == before
    assert (world.project / "src" / "made").read_text() == "fine\n"
    assert (world.project / "made").exists() == may_make_beside(world)


@pytest.mark.parametrize(
    "attack",
    [
        "mv tools t; mkdir -p tools/env/bin; echo evil > tools/env/bin/python",
        "mv tools/deep t; mkdir -p tools/deep/env/bin; echo evil > tools/deep/env/bin/python",
        "mv -T tools/other tools/deep",
        "rm -rf tools",
    ],
)
def test_folders_on_the_way_to_it_are_not_moved(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    venv(world.project / "tools" / "deep" / "env", monkeypatch)
    (world.project / "tools" / "other").mkdir()
    guard(world)
    before = tree(world.project / "tools" / "deep")
    sh(world, attack)
    assert tree(world.project / "tools" / "deep") == before


def test_a_link_on_the_way_to_it_is_not_replaced(world: World, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.project.parent / "environments" / "one"
    venv(real, monkeypatch)
    (world.project / ".venv").symlink_to(real)
    (world.project / "src").mkdir()
    monkeypatch.setattr(sys, "prefix", str(world.project / ".venv"))
    guard(world)
    sh(world, "rm -f .venv; mkdir -p .venv/bin; echo evil > .venv/bin/python; echo fine > src/made")
    assert (world.project / ".venv").readlink() == real
    assert (world.project / "src" / "made").read_text() == "fine\n"


def test_files_do_not_write_the_hosts_code(files: World, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = venv(files.project / "tools" / ".venv", monkeypatch)
    (files.project / "way").symlink_to(packages)
    (files.project / "evil").mkdir()
    os.link(packages / "msgspec.py", files.project / "plain.py")
    guard(files)
    inside = "tools/.venv/lib/python3/site-packages"
    before = tree(files.project)
    for attempt in (
        {"op": "write", "path": f"{inside}/msgspec.py", "text": "evil"},
        {"op": "write", "path": f"{inside}/evil.pth", "text": "evil"},
        {"op": "append", "path": "way/msgspec.py", "text": "evil"},
        {"op": "write", "path": "TOOLS/.VENV/bin/python", "text": "evil"},
        {"op": "rename", "path": "tools", "to": "gone"},
        {"op": "rename", "path": "evil", "to": "tools/.venv"},
        {"op": "delete", "path": "tools", "recursive": True},
        {"op": "chmod", "path": "tools/.venv/bin/python", "mode": 0o777},
        {"op": "symlink", "path": f"{inside}/json", "target": "../../../../evil"},
        {"op": "mkdtemp", "prefix": f"{inside}/x"},
        {"op": "truncate", "path": f"{inside}/msgspec.py"},
    ):
        error = files.refused("fs", **attempt)
        # Letters of another case are another folder here, and are refused all the same, or are not there.
        assert error.code == "denied" or error.details["errno"] == "ENOENT", attempt
    assert tree(files.project) == before
    error = files.refused("fs", op="write", path=f"{inside}/msgspec.py", text="evil")
    assert error.details["protected"] == "interpreter" and "interpreter" in str(error.details["fix"])


def test_a_folder_that_is_there_is_made_again_without_a_change(
    files: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mkdirSync(folder, { recursive: true })` on the way to a protected place is no change of it."""
    venv(files.project / "tools" / ".venv", monkeypatch)
    guard(files)
    before = tree(files.project)
    for path in ("tools", ".", str(files.project), "tools/.venv/bin"):
        assert files.ok("fs", op="mkdir", path=path, recursive=True) == {"first": None}, path
    assert files.refused("fs", op="mkdir", path="tools/.venv/new", recursive=True).code == "denied"
    assert files.refused("fs", op="mkdir", path="forestay.toml", recursive=True).code == "denied"
    assert tree(files.project) == before


def test_a_file_with_another_name_in_the_project_is_still_the_settings(files: World, home: Path) -> None:
    (files.project / "forestay.toml").write_text("# mine\n")
    os.link(files.project / "forestay.toml", files.project / "twin")
    guard(files)
    assert files.refused("fs", op="write", path="twin", text="x").code == "denied"


def test_a_folder_of_the_import_path_or_the_search_path_is_protected(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("src", "bin", "other"):
        (world.project / name).mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(world.project / "src")])
    monkeypatch.setenv("PATH", f"{world.project / 'bin'}:/usr/bin:/bin")
    guard(world)
    sh(world, "echo evil > src/json.py; echo evil > bin/bwrap; echo fine > other/made")
    assert tree(world.project) == {"bin": "folder", "other": "folder", "other/made": "fine\n", "src": "folder"}
    assert world.refused("fs", op="write", path="src/json.py", text="x").details["protected"] == "import-path"


@pytest.mark.parametrize("around", ["..", ".", "src"])
def test_secrets_stay_hidden_in_what_is_protected_itself(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    """What lies on the import path cannot be written, and what is secret in it is not read either."""
    (world.project / "src").mkdir()
    imports = (world.project / around).resolve()
    monkeypatch.setattr(sys, "path", [*sys.path, str(imports)])
    data = (imports if around == "src" else world.project) / ".forestay"
    data.mkdir()
    (data / "secret.key").write_text("SECRET")
    (world.project / "src" / "plain").write_text("plain")
    world.dispatcher.admit(
        Subject("ext.test", Roots.of(world.project, temp=world.temp, kept=Kept.of(protected(world.project, data))))
    )
    said = sh(world, f"cd src; cat plain; cat {data}/secret.key; echo x > made; echo x > plain")
    assert said["stdout"] == "plain" and "SECRET" not in str(said)
    assert not (world.project / "src" / "made").exists() and (world.project / "src" / "plain").read_text() == "plain"


def test_a_write_grant_for_the_place_itself_does_not_open_it(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (*CONFINED, *LONELY):
        folder = tmp_path / f"{kind.kind}-{kind.namespaces}"
        folder.mkdir()
        (folder / "project").mkdir()
        packages = venv(folder / "project" / ".venv", monkeypatch)
        world = World(folder, grants=["exec", "read", "write:.venv/**", f"write:{packages}/**"], sandbox=kind)
        guard(world, extra=[(packages, True)])
        sh(world, "echo evil > .venv/bin/python; echo evil > .venv/lib/python3/site-packages/evil.pth")
        assert tree(folder / "project" / ".venv")["bin/python"] == "#!/bin/sh\n"
        assert not (packages / "evil.pth").exists()
        world.close()


# Git


def attacks_on(folder: str) -> list[str]:
    return [
        f"printf evil > {folder}/hooks/pre-commit; chmod +x {folder}/hooks/pre-commit",
        f"git config core.fsmonitor evil; printf evil >> {folder}/config",
        f"mv {folder} gone; mkdir -p {folder}/hooks; printf evil > {folder}/hooks/pre-commit",
        f"rm -rf {folder}/hooks; ln -s ../evil {folder}/hooks",
    ]


@pytest.mark.parametrize("attack", attacks_on(".git"))
def test_a_program_does_not_write_hooks_and_settings_of_git(world: World, home: Path, attack: str) -> None:
    repository(world.project)
    guard(world)
    before = tree(world.project / ".git")
    sh(world, attack)
    assert tree(world.project / ".git") == before


def test_git_works_beside_what_is_protected(world: World, home: Path) -> None:
    repository(world.project)
    guard(world)
    who = "-c user.name=a -c user.email=a@b"
    said = sh(
        world, f"echo x > f && git add f && git {who} commit -qm one && git checkout -qb two && git log --oneline"
    )
    assert (said["code"] == 0 and "one" in str(said["stdout"])) == may_make_beside(world), said


@pytest.mark.parametrize(
    "attack", ["mkdir .git/hooks; printf evil > .git/hooks/pre-commit", "mkdir x; mv x .git/hooks"]
)
def test_hooks_that_are_not_there_yet_are_not_made(world: World, home: Path, attack: str) -> None:
    repository(world.project)
    for path in (world.project / ".git" / "hooks").iterdir():
        path.unlink()
    (world.project / ".git" / "hooks").rmdir()
    guard(world)
    sh(world, attack)
    assert not (world.project / ".git" / "hooks").exists()


@pytest.mark.parametrize("attack", ["git init; printf evil > .git/hooks/pre-commit", "echo gitdir: evil > .git"])
def test_a_repository_that_is_not_there_yet_is_not_made(world: World, home: Path, attack: str) -> None:
    guard(world)
    sh(world, attack)
    assert not (world.project / ".git").exists()


def test_hooks_elsewhere_worktrees_and_submodules_are_protected(world: World, home: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    main = world.project.parent / "main"
    other = world.project.parent / "other"
    for folder in (main, other):
        repository(folder)
        subprocess.run([*git, "commit", "-qm", "one", "--allow-empty"], cwd=folder, check=True)
    world.project.rmdir()
    subprocess.run([*git, "worktree", "add", "-q", str(world.project)], cwd=main, check=True)
    subprocess.run([*git, "submodule", "--quiet", "add", str(other), "libs/other"], cwd=world.project, check=True)
    subprocess.run(["git", "config", "core.hooksPath", ".husky/_"], cwd=world.project, check=True)
    (world.project / ".husky" / "_").mkdir(parents=True)
    (main / "src").mkdir()
    guard(world, extra=[(main, True)])
    assert sh(world, f"echo fine > {main}/src/made")["code"] == 0, "it is open, but for what follows"
    kept = (world.project / ".git", world.project / "libs" / "other" / ".git")
    before = [path.read_text() for path in kept], tree(main / ".git"), tree(world.project / ".husky")
    module = next((main / ".git").rglob("modules/libs/other"))
    for attack in (
        "rm .git; mkdir -p .git/hooks; printf evil > .git/config",
        "echo gitdir: evil > .git",
        "echo gitdir: evil > libs/other/.git; mv libs l",
        f"printf evil > {main}/.git/hooks/pre-commit; printf evil >> {main}/.git/config",
        f"printf evil > {module}/hooks/pre-commit; printf evil >> {module}/config",
        "printf evil > .husky/_/pre-commit; printf evil > .husky/pre-commit",
        f"for f in {main}/.git/worktrees/*/commondir; do echo evil > $f; done",
    ):
        sh(world, attack)
        assert ([path.read_text() for path in kept], tree(main / ".git"), tree(world.project / ".husky")) == before, (
            attack
        )


def test_files_do_not_write_hooks_and_settings_of_git_at_any_depth(files: World, home: Path) -> None:
    (files.project / "evil").mkdir()
    (files.project / "vendor" / ".git" / "objects").mkdir(parents=True)
    guard(files)
    for path in (".git", ".git/hooks/pre-commit", "a/b/.git", "vendor/.git/hooks", "vendor/.git/config", ".GIT/config",
                 "vendor/.git/modules/x/hooks", "vendor/.git"):  # fmt: skip
        for attempt in ({"op": "write", "path": path, "text": "x"}, {"op": "rename", "path": "evil", "to": path}):
            error = files.refused("fs", **attempt)
            assert error.code == "denied" or error.details["errno"] == "ENOENT", attempt
    assert files.ok("fs", op="write", path="vendor/.git/objects/ab", text="x")
    assert files.ok("fs", op="write", path="config", text="x")


# Shells and logins


def test_shell_start_up_files_are_neither_changed_nor_made(tmp_path: Path, home: Path) -> None:
    for kind in (*CONFINED, *LONELY):
        world = World(tmp_path, grants=["exec", "read", "write", f"write:{home}/**"], sandbox=kind)
        (home / ".bashrc").write_text("# mine\n")
        (home / "notes").mkdir(exist_ok=True)
        guard(world, extra=[(home, True)])
        before = tree(home)
        sh(
            world,
            f"cd {home}; echo evil >> .bashrc; echo evil > .bash_profile; echo evil > .zshenv; mkdir -p .config/fish;"
            "echo evil > .config/fish/config.fish; mkdir .ssh; echo evil > .ssh/config; echo evil > .gitconfig",
        )
        assert tree(home) == before
        assert sh(world, f"echo fine > {home}/notes/n")["code"] == 0
        (home / "notes" / "n").unlink()
        for name in (".bashrc", ".bash_profile", ".zshrc", ".config/fish/config.fish", ".ssh/config"):
            path = str(home / name)
            assert world.refused("tool", name="write", input={"path": path, "content": "x"}).code == "denied", name
        world.close()


# Lifting, and what is left behind


def test_a_person_lifts_one_by_name_or_by_path_and_never_the_settings(world: World, home: Path) -> None:
    repository(world.project)
    guard(world, lifted=("git", "settings", "data"))
    sh(world, "printf fine > .git/hooks/pre-commit; echo evil > forestay.toml")
    assert (world.project / ".git" / "hooks" / "pre-commit").read_text() == "fine"
    assert not (world.project / "forestay.toml").exists()
    assert world.ok("fs", op="write", path=".git/hooks/post-commit", text="fine")
    guard(world, lifted=(".git/hooks",))
    sh(world, "printf more > .git/hooks/pre-commit; printf evil >> .git/config")
    assert (world.project / ".git" / "hooks" / "pre-commit").read_text() == "more"
    assert "evil" not in (world.project / ".git" / "config").read_text()


def test_doctor_lists_what_is_protected_and_what_is_lifted(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forestay.toml").write_text("[extensions]\nunprotected = ['shell', 'setings', 'settings']\n")
    run(["doctor"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])["result"]
    listed = {item["path"]: item for item in result["protected"]}
    for path in (tmp_path / "forestay.toml", tmp_path / ".forestay", tmp_path / ".git", Path(sys.prefix)):
        assert not listed[str(path)]["lifted"] and listed[str(path)]["why"], path
    assert listed[str(home / ".bashrc")]["lifted"]
    finding = next(item for item in result["findings"] if item["name"] == "protected")
    assert "setings, settings" in finding["fix"]
    # The project on the import path: everything in it is protected, and the person is told.
    monkeypatch.syspath_prepend(str(tmp_path))
    run(["doctor"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])["result"]
    finding = next(item for item in result["findings"] if item["name"] == "protected")
    assert finding["state"] == "optional" and "whole project" in finding["detail"]


def test_what_stands_in_is_gone_when_the_last_program_ends(world: World, home: Path) -> None:
    guard(world)
    before = tree(world.project)
    sh(world, "true")
    assert tree(world.project) == before
    inner, outer = [(str(world.project / "forestay.toml"), "file"), (str(world.project / ".git"), "folder")], []
    with standing_in(inner):  # type: ignore[arg-type]
        with standing_in(inner):  # type: ignore[arg-type]
            outer.append(sorted(tree(world.project)))
        outer.append(sorted(tree(world.project)))
    assert outer == [[".git", "forestay.toml"]] * 2 and tree(world.project) == before


def test_a_persons_own_empty_file_stays(world: World, home: Path) -> None:
    (world.project / "forestay.toml").touch()
    guard(world)
    sh(world, "true")
    assert (world.project / "forestay.toml").exists()


def test_a_program_that_ends_first_leaves_the_other_protected(world: World, home: Path) -> None:
    guard(world)
    limits = Confinement((), (str(world.project),), places=protected(world.project))
    with standing_in(mounts(limits).stand_ins):
        sh(world, "true")
        assert (world.project / "forestay.toml").exists() or not may_make_beside(world)
        sh(world, "echo evil > forestay.toml")
    assert not (world.project / "forestay.toml").exists()


@pytest.mark.parametrize("kind", LONELY, ids=str)
def test_a_link_beside_a_protected_place_opens_nothing(tmp_path: Path, home: Path, kind: Sandbox) -> None:
    world = World(tmp_path, grants=["exec", "read", "write"], sandbox=kind)
    (world.project / "way").symlink_to(world.outside)
    guard(world)
    sh(world, f"echo evil > way/made; echo evil > {world.outside}/made")
    assert not (world.outside / "made").exists()
    world.close()


# As a person meets it: a real command, a real environment in the project, the data folder elsewhere


ESC = """
export default function (pi) {
  pi.registerTool({ name: 'attack', label: 'a', description: 'a',
    parameters: { type: 'object', properties: { script: { type: 'string' } } },
    async execute(id, params) {
      const ran = await pi.exec('sh', ['-c', params.script]);
      return { content: [{ type: 'text', text: JSON.stringify(ran) }] };
    } });
}
"""


def test_a_grant_does_not_become_every_grant(tmp_path: Path, home: Path) -> None:
    """With `exec` and `write`, a program tries for the settings and for the code of the next run."""
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    packages = next((project / ".venv" / "lib").glob("python3*/site-packages"))
    (packages / "here.pth").write_text("\n".join(path for path in sys.path if path))
    (project / "esc.ts").write_text(ESC)
    before = tree(project)
    script = (
        f'printf "{SETTINGS}" > forestay.toml; echo evil > {packages}/sitecustomize.py; rm .venv/bin/python;'
        "echo evil > .venv/bin/python; mv .venv away; echo fine > made"
    )
    command = [
        str(project / ".venv" / "bin" / "python"), "-m", "forestay", "ext", "call", "esc.ts", "attack",
        json.dumps({"script": script}), "--policy", "strict", "--data", str(tmp_path / "data"),
        "--grant", "exec", "--grant", "read", "--grant", "write",
    ]  # fmt: skip
    environ = {**os.environ, "FORESTAY_ASSETS": str(assets.folder().parent), "FORESTAY_CACHE": str(tmp_path / "cache")}
    ran = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert tree(project) == {**before, "made": "fine\n"}
