"""`forestay run`, `workflow` and `key`: against a running host, and against a data folder that none has open."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.openwop.conftest import LocalHost
from tests.contracts.openwop.documents import DOCUMENTS, node, workflow
from tests.forked import Forked, forestay


class Ran:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def result(self) -> Any:
        document = json.loads(self.out)
        assert document["success"] is (self.code == 0), document
        return document["result"]

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)["error"]
        return found


class Shell:
    """The command line with a given environment."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        known = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        source = str(Path(__file__).parents[2] / "src")
        self.environment = {**known, "PYTHONPATH": source, "XDG_CONFIG_HOME": str(folder), **environment}

    def __call__(self, *words: str) -> Ran:
        return Ran(forestay(self.folder, *words, environ=self.environment))


def write(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / f"{name}.json").write_text(json.dumps(DOCUMENTS[name]))
    return [f"{name}.json" for name in names]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell beside a running host that has the workflows of the suite."""
    folder = tmp_path_factory.mktemp("cli")
    host = LocalHost(folder / "data")
    made = Shell(folder, FORESTAY_URL=host.start(), FORESTAY_API_KEY=host.keys["full"])
    made("workflow", "put", *write(folder, "noop", "chain", "approval", "identity", "failing", "delay"))
    yield made
    host.stop()


def test_a_run_is_started_watched_and_shown(shell: Shell) -> None:
    done = shell("run", "start", "suite-identity", "--input", 'payload={"a":1}', "--tag", "cli", "--wait").result
    assert done["status"] == "completed" and done["tags"] == ["cli"]
    run_id = done["runId"]
    assert shell("run", "show", run_id).result["runId"] == run_id
    listed = shell("run", "list", "--tag", "cli").result["runs"]
    assert [item["runId"] for item in listed] == [run_id]
    assert shell("run", "watch", run_id).result["status"] == "completed"
    types = [event["type"] for event in shell("run", "events", run_id).result["events"]]
    assert types[0] == "run.started" and types[-1] == "run.completed"
    lines = shell("run", "events", run_id, "--follow", "--mode", "updates").out.splitlines()
    assert [json.loads(line)["type"] for line in lines][-1] == "run.completed"


def test_an_approval_is_answered(shell: Shell) -> None:
    waiting = shell("run", "start", "suite-approval", "--wait").result
    assert waiting["status"] == "waiting-approval"
    refused = shell("run", "approve", waiting["runId"], "nobody")
    assert refused.code == 4 and "nobody" in refused.error["message"]
    assert shell("run", "approve", waiting["runId"], "--comment", "fine").result["nodeId"] == "gate"
    assert shell("run", "watch", waiting["runId"]).result["status"] == "completed"
    again = shell("run", "approve", waiting["runId"])
    assert again.code == 4


def test_a_run_is_waited_for_until_it_ends_or_asks(shell: Shell) -> None:
    run_id = shell("run", "start", "suite-approval").result["runId"]
    assert shell("run", "wait", run_id).result["status"] == "waiting-approval"
    shell("run", "approve", run_id, "--reject")
    assert shell("run", "wait", run_id).code != 0


def test_a_rejection_fails_the_run(shell: Shell) -> None:
    run_id = shell("run", "start", "suite-approval", "--wait").result["runId"]
    shell("run", "approve", run_id, "--reject")
    assert shell("run", "watch", run_id).result["status"] == "failed"


def test_runs_are_cancelled_one_or_many(shell: Shell) -> None:
    runs = [shell("run", "start", "suite-delay").result["runId"] for _ in range(3)]
    assert shell("run", "cancel", runs[0], "--reason", "enough").result["results"][0]["runId"] == runs[0]
    results = shell("run", "cancel", *runs[1:], "run_none").result["results"]
    assert [item["ok"] for item in results] == [True, True, False]


def test_cancelling_a_run_that_has_ended_is_told(shell: Shell) -> None:
    ended = shell("run", "start", "suite-noop", "--wait").result["runId"]
    refused = shell("run", "cancel", ended)
    assert (refused.code, refused.error["details"]["runStatus"]) == (7, {ended: "completed"})
    assert "had ended already" in refused.error["message"]
    asking = shell("run", "start", "suite-approval", "--wait").result["runId"]
    both = shell("run", "cancel", asking, ended, "no-such-run")
    assert both.code == 7 and ended in both.error["message"] and asking not in both.error["message"]
    assert [item.get("status") for item in json.loads(both.out)["result"]["results"]] == [
        "cancelled",
        "completed",
        None,
    ]
    again = shell("run", "cancel", asking)
    assert again.code == 0 and "was cancelled before" in again.err


def test_pause_and_resume(shell: Shell) -> None:
    run_id = shell("run", "start", "suite-approval", "--wait").result["runId"]
    assert shell("run", "pause", run_id).result["status"] == "paused"
    twice = shell("run", "pause", run_id)
    assert twice.code == 7 and twice.error["details"]["runStatus"] == "paused"
    assert shell("run", "resume", run_id).code == 0
    shell("run", "cancel", run_id)


def test_fork_diff_and_replay(shell: Shell) -> None:
    run_id = shell("run", "start", "suite-chain", "--wait").result["runId"]
    replayed = shell("run", "replay", run_id).result
    assert replayed["same"] is True and replayed["sourceRunId"] == run_id
    forked = shell("run", "fork", run_id, "--from", "3", "--wait").result
    assert forked["status"] == "completed"
    other = shell("run", "start", "suite-failing", "--wait").result["runId"]
    assert shell("run", "diff", run_id, other).result["divergedAtSeq"] is not None


def test_an_idempotency_key_starts_once(shell: Shell) -> None:
    first = shell("run", "start", "suite-noop", "--idempotency-key", "cli-1").result["runId"]
    assert shell("run", "start", "suite-noop", "--idempotency-key", "cli-1").result["runId"] == first


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", "show", "run_none"], 4, "run"),
        (["run", "start", "there-is-none"], 4, "workflow"),
        (["run", "start", "suite-noop", "--inputs", "{"], 2, "--inputs"),
        (["run", "start", "suite-noop", "--inputs", "@nowhere.json"], 4, "nowhere.json"),
        (["run", "start", "suite-noop", "--input", "novalue"], 2, "NAME=VALUE"),
        (["run", "list", "--limit", "0"], 2, "limit"),
        (["run", "show", "run_none", "--key", "wrong-key-wrong-key"], 3, "key"),
        (["run", "show", "run_none", "--url", "http://127.0.0.1:1"], 9, "does not answer"),
        (["workflow", "graph", "suite-noop", "--format", "png"], 2, "format"),
    ],
)
def test_failures_have_their_exit_code_and_say_what_to_do(shell: Shell, words: list[str], code: int, says: str) -> None:
    ran = shell(*words)
    assert ran.code == code, ran.out
    assert says in ran.error["message"] and ran.error["suggestedAction"]


def test_workflows_are_checked_without_a_host(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    write(tmp_path, "noop")
    bad = workflow("bad", node("a", "core.there.is.none"))
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    assert shell("workflow", "check", "noop.json").result["results"][0]["valid"] is True
    ran = shell("workflow", "check", "noop.json", "bad.json")
    assert ran.code == 2
    results = json.loads(ran.out)["result"]["results"]
    assert [item["valid"] for item in results] == [True, False]
    assert results[1]["errors"][0]["at"].startswith("$.nodes[0]")
    assert not (tmp_path / ".forestay").exists()


def test_workflows_are_drawn(shell: Shell) -> None:
    text = shell("workflow", "graph", "chain.json").result["graph"]
    assert text.startswith("flowchart TD") and text.count("-->") == 4
    run_id = shell("run", "start", "suite-chain", "--wait").result["runId"]
    drawn = shell("workflow", "graph", "suite-chain", "--format", "svg", "--run", run_id, "-o", "chain.svg").result
    picture = (shell.folder / drawn["file"]).read_text()
    assert picture.startswith("<svg") and picture.count("· completed</text>") == 5
    stored = shell("workflow", "list").result["workflows"]
    assert "suite-chain" in [item["workflowId"] for item in stored]
    assert shell("workflow", "show", "suite-chain").result["id"] == "suite-chain"


def test_keys_are_made_listed_and_revoked(shell: Shell) -> None:
    made = shell("key", "create", "ci", "--scope", "runs:read").result
    reader = made["apiKey"]
    assert shell("run", "list", "--key", reader).code == 0
    assert shell("run", "start", "suite-noop", "--key", reader).code == 5
    assert reader not in shell("key", "list").out
    shell("key", "revoke", made["description"]["keyId"])
    assert shell("run", "list", "--key", reader).code == 3


def test_without_a_host_the_data_folder_is_opened(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("workflow", "put", *write(tmp_path, "noop", "approval"))
    done = shell("run", "start", "suite-noop", "--wait").result
    assert done["status"] == "completed"
    waiting = shell("run", "start", "suite-approval", "--wait").result["runId"]
    assert shell("run", "approve", waiting).code == 0
    assert shell("run", "watch", waiting).result["status"] == "completed"
    assert len(shell("run", "list").result["runs"]) == 2


def test_without_a_host_it_is_said_that_a_run_waits_for_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("workflow", "put", *write(tmp_path, "noop", "approval"))
    (tmp_path / "long.json").write_text(json.dumps(workflow("long", node("a", "core.delay", {"delayMs": 600_000}))))
    shell("workflow", "put", "long.json")
    left = shell("run", "start", "long")
    assert left.code == 0 and "forestay up" in left.err and left.result["runId"] in left.err
    waits = shell("run", "start", "suite-approval")
    assert "forestay up" not in waits.err, "it waits for a person, not for a host"


def test_a_host_that_has_the_folder_open_is_found_and_wants_a_key(tmp_path: Path) -> None:
    host = LocalHost(tmp_path / ".forestay")
    host.start()
    try:
        ran = Shell(tmp_path)("run", "list")
        assert ran.code == 3 and "FORESTAY_API_KEY" in ran.error["suggestedAction"]
        assert Shell(tmp_path, FORESTAY_API_KEY=host.keys["full"])("run", "list").code == 0
    finally:
        host.stop()
    assert Shell(tmp_path)("run", "list").code == 0


def test_on_a_terminal_a_run_is_watched_live(shell: Shell) -> None:
    """A real pseudo-terminal: the picture names the nodes and ends with the run."""
    run_id = shell("run", "start", "suite-chain", "--wait").result["runId"]
    primary, secondary = pty.openpty()
    environment = {**shell.environment, "TERM": "xterm", "COLUMNS": "100"}
    process = Forked(shell.folder, "run", "watch", run_id, environ=environment, stdout=secondary, stderr=secondary)
    os.close(secondary)
    seen = b""
    try:
        while chunk := os.read(primary, 65536):
            seen += chunk
    except OSError:
        pass  # the terminal closes with its last writer
    os.close(primary)
    assert process.wait(30) == 0
    text = seen.decode()
    assert "suite-chain" in text and "completed" in text
    for number in range(5):
        assert f"step{number}" in text
    assert "_meta" not in text


def test_a_run_that_fails_is_a_failure_for_the_one_who_waits(shell: Shell) -> None:
    """A script that waits for a run goes by the exit code."""
    ran = shell("run", "start", "suite-failing", "--wait")
    document = json.loads(ran.out)
    assert ran.code != 0 and document["success"] is False
    assert document["result"]["status"] == "failed"
    assert document["error"]["details"]["runId"] == document["result"]["runId"]
    assert shell("run", "watch", document["result"]["runId"]).code == ran.code
    assert shell("run", "show", document["result"]["runId"]).code == 0  # looking at it is no failure
    named = shell("run", "start", "suite-failing", "--wait", "--field", "runId")
    assert named.code == ran.code and named.out.startswith("run_") and "Problem: " in named.err


def test_a_run_that_was_cancelled_did_not_complete(shell: Shell) -> None:
    run_id = shell("run", "start", "suite-delay").result["runId"]
    shell("run", "cancel", run_id)
    watched = shell("run", "watch", run_id)
    assert watched.code == 7 and "cancelled" in watched.error["message"]


@pytest.mark.parametrize("kind", ["@file", "-"])
def test_inputs_come_from_a_file_or_from_standard_input(shell: Shell, kind: str) -> None:
    (shell.folder / "inputs.json").write_text('{"payload": {"a": 1}}')
    words = ["run", "start", "suite-identity", "--wait", "--inputs", "@inputs.json" if kind == "@file" else "-"]
    text = (shell.folder / "inputs.json").read_text()
    done = forestay(shell.folder, *words, environ=shell.environment, stdin=text)
    assert Ran(done).result["outputs"] == {"payload": {"a": 1}}


def test_what_a_run_waits_for_is_shown_with_the_command_that_answers_it(shell: Shell) -> None:
    questions = [{"id": "why", "question": "Why?"}]
    ask = node("ask", "core.clarificationGate", {"questions": questions})
    pay = node("pay", "core.waitForEvent", {"event": "paid"})
    (shell.folder / "asks.json").write_text(json.dumps(workflow("suite-asks", ask, pay, edges=[])))
    shell("workflow", "put", "asks.json")
    run_id = shell("run", "start", "suite-asks", "--wait").result["runId"]
    shown = shell("run", "show", run_id, "--human").out
    assert f"""forestay run approve {run_id} ask --value '{{"why":"…"}}'""" in shown
    assert f"forestay run signal {run_id} paid" in shown
    refused = shell("run", "approve", run_id, "ask")
    assert refused.code == 2 and "--value" in refused.error["suggestedAction"]
    assert shell("run", "approve", run_id, "ask", "--value", '{"why":"because"}').code == 0
    assert shell("run", "signal", run_id, "paid").code == 0
    assert shell("run", "watch", run_id).result["status"] == "completed"


@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (["run", "start", "suite-noop", "--inputs", "[1]"], 2, "{"),
        (["run", "start", "suite-noop", "--configurable", "3"], 2, "{"),
        (["run", "start", "suite-noop", "--inputs", "chain.json"], 2, "@chain.json"),
        (["run", "start", "suite-noop", "--inputs", "x" * 5000], 2, "JSON"),
        (["run", "start", "chain.json"], 4, "forestay workflow put chain.json"),
        (["run", "start", "there-is-none"], 4, "forestay workflow list"),
        (["run", "list", "--status", "done"], 2, "completed"),
        (["run", "show", "run_none"], 4, "forestay run list"),
    ],
)
def test_a_slip_at_the_keyboard_is_answered_with_what_to_type(
    shell: Shell, words: list[str], code: int, fix: str
) -> None:
    ran = shell(*words)
    assert ran.code == code, ran.out
    assert fix in ran.error["suggestedAction"]


def test_the_columns_of_the_list_stand_under_each_other(shell: Shell) -> None:
    waiting = shell("run", "start", "suite-approval", "--wait").result["runId"]
    shell("run", "start", "suite-noop", "--wait")
    heading, *lines = shell("run", "list", "--human", "--limit", "2").out.splitlines()[:3]
    assert heading.split()[:4] == ["RUN", "STATUS", "STARTED", "(UTC)"]
    places = {line.index(name) for line, name in zip(lines, ("suite-noop", "suite-approval"), strict=True)}
    assert places == {heading.index("WORKFLOW")}, [heading, *lines]
    shell("run", "cancel", waiting)


def test_runs_are_found_by_their_words_and_show_what_they_were_asked(shell: Shell) -> None:
    run = shell("run", "start", "suite-noop", "--input", "question=Where is the zebra?", "--wait").result["runId"]
    found = shell("run", "list", "--search", "ZEBRA").result
    assert [item["runId"] for item in found["runs"]] == [run]
    assert (found["total"], found["runs"][0]["title"]) == (1, "Where is the zebra?")
    assert found["runs"][0]["tookMs"] >= 0
    line = shell("run", "list", "--search", "zebra", "--human").out.splitlines()[1]
    assert line.endswith("suite-noop  Where is the zebra?")
    assert shell("run", "list", "--search", "zebra", "--status", "failed").result["total"] == 0
    assert shell("run", "list", "--sort", "nonsense").code == 2
    assert "more: --start 1" in shell("run", "list", "--limit", "1", "--human").out


def test_a_failed_run_is_tried_again_from_its_failed_node(shell: Shell) -> None:
    run = json.loads(shell("run", "start", "suite-failing", "--wait").out)["error"]["details"]["runId"]
    again = shell("run", "retry", run).result
    assert again["sourceRunId"] == run and again["fromSeq"] > 0
    refused = shell("run", "retry", shell("run", "start", "suite-noop", "--wait").result["runId"])
    assert "No node of this run failed" in refused.error["message"]
