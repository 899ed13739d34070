"""The command line from outside: what it prints where, and with which exit code."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forestay.cli import ledger as tail
from forestay.cli.commands import COMMANDS, GROUPS
from forestay.kernel import TABLE, Draft, Ledger
from tests import forked


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def envelope(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


def forestay(folder: Path, *words: str, **environ: str) -> Ran:
    done = forked.forestay(folder, *words, environ={**os.environ, "XDG_CONFIG_HOME": str(folder), **environ})
    return Ran(done.returncode, done.stdout, done.stderr)


async def fill(folder: Path, count: int = 3) -> Path:
    path = folder / ".forestay" / "ledger.db"
    async with Ledger.open(path) as ledger:
        for number in range(count):
            await ledger.append("run/a", [Draft("t.event", {"n": number, "text": "PAYLOAD"})])
            await ledger.append("ext/b", [Draft("t.other", {"n": number})])
    return path


def test_piped_output_is_one_envelope(tmp_path: Path) -> None:
    ran = forestay(tmp_path, "version")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("\n") == 1
    assert ran.envelope["success"] is True
    assert ran.envelope["_meta"]["transport"] == "cli"
    assert ran.envelope["_meta"]["operation"] == "version"


def test_on_a_terminal_people_are_addressed(tmp_path: Path) -> None:
    """A real pseudo-terminal: no flag, no pipe, no JSON."""
    leader, follower = pty.openpty()
    subprocess.run([sys.executable, "-m", "forestay.cli.main", "version"], cwd=tmp_path, stdout=follower, check=True)
    os.close(follower)
    assert os.read(leader, 4096).startswith(b"forestay 0.")
    os.close(leader)


@pytest.mark.parametrize("words", [("version", "--human"), ("--human", "version"), ("--version", "--human")])
def test_r4_human_wins_over_the_pipe_wherever_it_stands(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert forestay(tmp_path, *words).out.startswith("forestay 0.")


def test_r6_two_formats_conflict(tmp_path: Path) -> None:
    ran = forestay(tmp_path, "version", "--human", "--json")
    assert (ran.code, ran.envelope["error"]["code"]) == (2, "E_FORMAT_CONFLICT")
    ran = forestay(tmp_path, "version", "--field", "a", "--fields", "b")
    assert (ran.code, ran.envelope["error"]["code"]) == (2, "E_FIELD_CONFLICT")


def test_r8_the_project_file_beats_the_users_and_a_flag_beats_both(tmp_path: Path) -> None:
    (tmp_path / "forestay").mkdir()
    (tmp_path / "forestay" / "config.toml").write_text('[output]\nformat = "human"\n')
    assert not forestay(tmp_path, "version").out.startswith("{")
    (tmp_path / "forestay.toml").write_text('[output]\nformat = "json"\n')
    assert forestay(tmp_path, "version").out.startswith("{")
    assert not forestay(tmp_path, "version", "--human").out.startswith("{")


def test_r11_field_gives_the_plain_value_and_fields_a_filtered_envelope(tmp_path: Path) -> None:
    assert forestay(tmp_path, "version", "--json", "--field", "python").out.strip() == sys.version.split()[0]
    filtered = forestay(tmp_path, "version", "--json", "--fields", "python").envelope
    assert list(filtered["result"]) == ["python"]
    assert filtered["_meta"]["mvi"] == "custom"
    ran = forestay(tmp_path, "version", "--human", "--field", "python")
    assert ran.code == 0
    assert ran.err  # a warning, not an error
    assert forestay(tmp_path, "version", "--human", "--mvi", "minimal").err == ""
    assert forestay(tmp_path, "version", "--field", "nonsense").code == 4


def test_mvi_projects_the_envelope(tmp_path: Path) -> None:
    meta = forestay(tmp_path, "version", "--mvi", "minimal").envelope["_meta"]
    assert set(meta) == {"requestId", "contextVersion"}


def test_unknown_words_are_usage_problems(tmp_path: Path) -> None:
    for words in (["leger"], ["ledger", "tial"], ["version", "--nonsense"], ["ledger", "tail", "-n", "x"], ["--mvi"]):
        ran = forestay(tmp_path, *words)
        assert ran.code == 2, words
        assert ran.envelope["error"]["details"]["problem"] == "invalid_usage"
    assert "ledger" in forestay(tmp_path, "leger").envelope["error"]["message"]


def test_every_command_is_listed_and_has_help(tmp_path: Path) -> None:
    listing = forestay(tmp_path, "--help").out
    for name in {**GROUPS, **COMMANDS}:
        assert name in listing
        assert forestay(tmp_path, name, "--help").code == 0, name


def test_problems_lists_every_row_and_explains_one(tmp_path: Path) -> None:
    rows = forestay(tmp_path, "problems").envelope["result"]["problems"]
    assert [row["key"] for row in rows] == list(TABLE)
    human = forestay(tmp_path, "problems", "--human", COLUMNS="300").out
    assert all(key in human for key in TABLE)
    one = forestay(tmp_path, "problems", "chain_broken", "--human").out
    assert "What to do" in one and "E_INTERNAL_UNEXPECTED" in one
    by_code = forestay(tmp_path, "problems", "E_RATE_LIMITED").envelope["result"]["problems"]
    assert "rate_limited" in [row["key"] for row in by_code]
    assert forestay(tmp_path, "problems", "nonsense").code == 4


async def test_ledger_commands(tmp_path: Path) -> None:
    assert forestay(tmp_path, "ledger", "verify").code == 4
    await fill(tmp_path)
    tail = forestay(tmp_path, "ledger", "tail", "-n", "2").envelope["result"]["records"]
    assert [(record["stream"], record["seq"]) for record in tail] == [("run/a", 2), ("ext/b", 2)]
    assert len(forestay(tmp_path, "ledger", "tail", "run/").envelope["result"]["records"]) == 3
    streams = forestay(tmp_path, "ledger", "show").envelope["result"]["streams"]
    assert [item["stream"] for item in streams] == ["ext/b", "run/a"]
    shown = forestay(tmp_path, "ledger", "show", "run/a", "--start", "1").envelope["result"]["records"]
    assert [record["seq"] for record in shown] == [1, 2]
    assert forestay(tmp_path, "ledger", "show", "run/none").code == 4
    assert "PAYLOAD" in forestay(tmp_path, "ledger", "show", "run/a", "--human").out
    assert forestay(tmp_path, "ledger", "verify").envelope["result"] == {"streams": 2, "records": 6, "faults": []}


async def test_a_flipped_byte_is_named_and_gives_the_tables_exit_code(tmp_path: Path) -> None:
    path = await fill(tmp_path)
    heads = tmp_path / "heads.json"
    heads.write_text(forestay(tmp_path, "ledger", "show").out)
    assert forestay(tmp_path, "ledger", "verify", "--trusted", str(heads)).code == 0
    data = bytearray(path.read_bytes())
    data[data.index(b'"n":1,"text"') + 4] ^= 1
    path.write_bytes(data)
    ran = forestay(tmp_path, "ledger", "verify")
    assert ran.code == TABLE["chain_broken"].exit == 11
    error = ran.envelope["error"]
    assert (error["details"]["stream"], error["details"]["seq"]) == ("run/a", 1)
    assert ran.envelope["result"]["faults"][0]["seq"] == 1
    human = forestay(tmp_path, "ledger", "verify", "--human")
    assert (human.code, "run/a at sequence 1" in human.out) == (11, True)


async def test_export_import_and_a_second_export_agree(tmp_path: Path) -> None:
    await fill(tmp_path)
    exported = forestay(tmp_path, "ledger", "export")
    assert exported.out.count("\n") == 6
    (tmp_path / "backup.jsonl").write_text(exported.out)
    ran = forestay(tmp_path, "ledger", "import", "backup.jsonl", "--data", "copy")
    assert ran.envelope["result"] == {"records": 6}
    assert forestay(tmp_path, "ledger", "export", "--data", "copy").out == exported.out
    assert forestay(tmp_path, "ledger", "import", "backup.jsonl", "--data", "copy").code == 7
    assert forestay(tmp_path, "ledger", "export", "-o", "again.jsonl").envelope["result"]["records"] == 6
    assert (tmp_path / "again.jsonl").read_text() == exported.out


async def test_a_ledger_is_copied_once_and_to_a_place_of_its_own(tmp_path: Path) -> None:
    await fill(tmp_path)
    ran = forestay(tmp_path, "ledger", "copy", ".forestay", "other")
    assert ran.envelope["result"] == {"copied": 6, "records": 6, "streams": 2}
    assert forestay(tmp_path, "ledger", "copy", ".forestay", "other").envelope["result"]["copied"] == 0
    assert forestay(tmp_path, "ledger", "export", "--data", "other").out == forestay(tmp_path, "ledger", "export").out
    assert forestay(tmp_path, "ledger", "copy", "other", "other/ledger.db").code != 0
    assert forestay(tmp_path, "ledger", "copy", "nothing", "other").code == 4


async def test_tail_follows_what_another_process_writes(tmp_path: Path) -> None:
    path = await fill(tmp_path, 1)
    child = subprocess.Popen(
        [sys.executable, "-m", "forestay.cli.main", "ledger", "tail", "-f"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert [json.loads(child.stdout.readline())["stream"] for _ in range(2)] == ["run/a", "ext/b"]
    async with Ledger.open(path) as ledger:
        await ledger.append("run/new", [Draft("t", 1)])
    assert json.loads(child.stdout.readline())["stream"] == "run/new"
    child.kill()
    child.stdout.close()
    child.wait()


async def test_tail_loses_nothing_between_what_it_read_and_what_it_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Ledger.open(await fill(tmp_path, 1)) as ledger:
        records, position = await tail._last(ledger, "", 20)
        await ledger.append("run/between", [Draft("t", 1)])
        following = asyncio.ensure_future(tail._follow(ledger, "", records, position))
        await ledger.append("run/after", [Draft("t", 1)])
        printed: list[str] = []
        while len(printed) < 4:
            await asyncio.sleep(0)
            printed += [json.loads(line)["stream"] for line in capsys.readouterr().out.splitlines()]
        following.cancel()
        assert printed == ["run/a", "ext/b", "run/between", "run/after"]


def test_config_show_hides_the_password_in_an_address(tmp_path: Path) -> None:
    ran = forestay(tmp_path, "config", "show", FORESTAY_MODELS_DEFAULT="openai:m@https://me:hunter22@models.test/v1")
    assert "models.test" in ran.out and "hunter22" not in ran.out


def test_config_show_tells_sources_and_a_typo_is_a_problem(tmp_path: Path) -> None:
    settings = forestay(tmp_path, "config", "show", FORESTAY_HTTP_PORT="99").envelope["result"]["settings"]
    assert {"name": "http.port", "value": 99, "source": "environment"} in settings
    (tmp_path / "forestay.toml").write_text("[http]\nprot = 1\n")
    ran = forestay(tmp_path, "config", "show")
    assert ran.code == 2
    assert ran.envelope["error"]["suggestedAction"] == "Did you mean `port`?"
    doctor = forestay(tmp_path, "doctor")
    assert "configuration" in [
        item["name"] for item in doctor.envelope["result"]["findings"] if item["state"] == "broken"
    ]


def test_schemas_are_listed_shown_and_exported(tmp_path: Path) -> None:
    names = forestay(tmp_path, "schema", "list").envelope["result"]["schemas"]
    assert "forestay/record" in names
    record = forestay(tmp_path, "schema", "show", "forestay/record").envelope["result"]
    assert record["$defs"]["Record"]["required"] == [
        "stream", "seq", "id", "type", "ts", "payload", "attrs", "prev", "hash"
    ]  # fmt: skip
    files = forestay(tmp_path, "schema", "export", "out").envelope["result"]["files"]
    assert len(files) == len(names)
    assert all(json.loads((tmp_path / "out" / file).read_text()) for file in files)
    assert forestay(tmp_path, "schema", "show", "x").code == 4


def test_completion_scripts_are_offered(tmp_path: Path) -> None:
    done = forestay(tmp_path, "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "complete" in done.out


def test_the_help_does_not_load_heavy_modules(tmp_path: Path) -> None:
    code = (
        "import sys; from forestay.cli.main import run; run(['--help'])\n"
        "heavy = {'rich', 'sqlite3', 'starlette', 'wasmtime', 'grpc', 'jsonschema_rs', 'asyncio', 'httpx', 'typer'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "HEAVY []" in done.stdout


def test_a_command_of_a_host_without_extensions_loads_no_engine(tmp_path: Path) -> None:
    code = "import sys; from forestay.cli.main import run; run(['run', 'list']); print('wasmtime' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_a_host_that_was_asked_for_its_runs_has_loaded_nothing_that_other_work_needs(tmp_path: Path) -> None:
    """Memory: patterns, schemas, pages and settings that are changed have large libraries."""
    code = (
        "import atexit, sys\n"
        "heavy = {'jinja2', 'jsonschema_rs', 're2', 'rich', 'tomlkit', 'wasmtime'}\n"
        "atexit.register(lambda: print('HEAVY', sorted(heavy & set(sys.modules))))\n"
        "from forestay.cli.main import main; sys.exit(main())"
    )
    command = [sys.executable, "-P", "-c", code, "up", "--port", "0", "--json"]
    env = {**os.environ, "FORESTAY_API_KEY": "a-key-for-the-test"}
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["result"]["url"]
        asked = urllib.request.Request(f"{url}/v1/runs", headers={"Authorization": "Bearer a-key-for-the-test"})
        assert json.loads(urllib.request.urlopen(asked).read())["runs"] == []
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    assert "HEAVY []" in said


def test_without_a_command_people_get_the_help_and_programs_a_problem(tmp_path: Path) -> None:
    shown = forestay(tmp_path, "--human")
    assert shown.code == 2 and shown.out.startswith("Usage: forestay") and "workflow" in shown.out and not shown.err
    told = forestay(tmp_path, "ledger")
    assert told.envelope["error"]["message"] == "A command is missing."


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def leave_note(folder: Path, url: str, pid: int) -> None:
    (folder / ".forestay").mkdir(exist_ok=True)
    (folder / ".forestay" / "host.json").write_text(json.dumps({"url": url, "pid": pid}))


async def test_an_import_is_refused_while_a_host_has_the_folder_open(tmp_path: Path, listening: str) -> None:
    await fill(tmp_path)
    assert forestay(tmp_path, "ledger", "export", "--output", "all.jsonl").code == 0
    leave_note(tmp_path, listening, os.getpid())
    refused = forestay(tmp_path, "ledger", "import", "all.jsonl")
    assert refused.envelope["error"]["details"]["problem"] == "state_conflict"


def test_a_second_host_on_one_folder_is_refused(tmp_path: Path, listening: str) -> None:
    leave_note(tmp_path, listening, os.getpid())
    refused = forestay(tmp_path, "up", "--port", "0").envelope["error"]
    assert refused["details"]["problem"] == "state_conflict" and listening in refused["message"]


@pytest.mark.parametrize("alive", [True, False], ids=["a number that is somebody else's", "a number that is nobody's"])
def test_the_note_of_a_host_that_was_killed_is_not_believed(tmp_path: Path, alive: bool) -> None:
    """Nobody listens there, so a command opens the folder itself."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    leave_note(tmp_path, url, os.getpid() if alive else 2**22 + 1)
    assert forestay(tmp_path, "run", "list").envelope["result"]["runs"] == []


def test_a_run_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    for words in (("ask", "--run-id", "run_none"), ("run", "show", "run_none")):
        assert forestay(tmp_path, *words).envelope["error"]["details"]["problem"] == "not_found"


@pytest.mark.parametrize("words", [("up", "--port", "0"), ("ledger", "verify"), ("relay", "ingest", "-")])
@pytest.mark.parametrize("place", ["file/inner", "n" * 300])
def test_a_data_folder_that_cannot_be_says_why(tmp_path: Path, words: tuple[str, ...], place: str) -> None:
    (tmp_path / "file").touch()
    ran = forestay(tmp_path, *words, "--data", place)
    error = ran.envelope["error"]
    assert (ran.code, error["retryable"]) == (TABLE[error["details"]["problem"]].exit, False)
    assert error["details"]["problem"] in ("config_invalid", "not_found")
    assert error["suggestedAction"]


UP = {
    "url": "http://127.0.0.1:1",
    "data": ".forestay",
    "model": "local",
    "key": None,
    "keyFrom": "earlier",
    "workflows": [],
    "startable": None,
    "elsewhere": False,
    "leftOut": [],
    "unloadable": None,
    "untrusted": [],
    "untrustedOfUser": [],
}


def shown_by_up(**result: Any) -> str:
    from forestay.cli.up import _lines

    return "\n".join(_lines({**UP, **result}))


def test_up_says_where_the_key_is() -> None:
    shown = shown_by_up(keyFrom="environment")
    assert "the one in FORESTAY_API_KEY" in shown and "shown once" not in shown
    assert "fsk_new" in shown_by_up(keyFrom="new", key="fsk_new")
    assert "in .forestay/first-key, which only you may read" in shown_by_up(
        keyFrom="file", keyFile=".forestay/first-key"
    )
    assert "Stop this host; `forestay key create NAME`" in shown_by_up()


def test_up_names_the_workflows_that_it_left_out_and_the_extensions_that_it_cannot_load() -> None:
    left_out = [{"file": "strange.json", "problem": "workflow_invalid", "reason": "There is no type acme.absent."}]
    lacking = {"paths": ["extensions/tally"], "reason": "No engine.", "fix": "Run `forestay setup`."}
    shown = shown_by_up(leftOut=left_out, unloadable=lacking)
    assert "left out   strange.json: There is no type acme.absent." in shown
    assert "not loaded extensions/tally: No engine." in shown and "Run `forestay setup`. Then start again." in shown


def test_up_prints_a_command_that_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "clone" / ".venv" / "bin" / "forestay"
    command.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setattr(sys, "argv", [str(command)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "  .venv/bin/forestay ask" in shown_by_up()
    command.touch(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    assert "  forestay ask" in shown_by_up()


def test_up_names_the_workflows_and_how_to_start_one() -> None:
    shown = shown_by_up(workflows=[f"w{number}" for number in range(9)], startable="w0")
    assert "w0, w1, w2, w3, w4 and 4 more" in shown and "forestay run start w0 --wait" in shown
