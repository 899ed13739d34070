"""The live view of a run: what it shows of events, what its keys do, and the whole on a real terminal."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from holdfast.cli.run import show_run
from holdfast.cli.run_view import View, span
from holdfast.cli.run_watch import Keys, render
from holdfast.kernel.clock import iso
from holdfast.kernel.problems import Problem
from tests.contracts.openwop.conftest import Api, LocalHost
from tests.contracts.openwop.documents import APPROVAL, node, workflow

START = 1_767_225_600_000
DOCUMENT = workflow(
    "watched", node("fetch", "core.http"), node("gate", "core.approvalGate", APPROVAL), node("last", "core.noop")
)


def seen(*events: tuple[str, str | None, dict[str, Any]], document: Any = DOCUMENT) -> View:
    """The view after events, one second apart."""
    view = View("run_1", {"workflowId": "watched", "status": "running"}, document)
    for number, (type, name, payload) in enumerate(events):
        moment = iso(START + 1000 * number)
        view.take({"type": type, "payload": payload, "timestamp": moment, "sequence": number, "nodeId": name})
    return view


def text(view: View, now: int = START + 10_000, height: int = 40) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(view, now, "keys", height))
    return console.export_text()


BEGUN: list[tuple[str, str | None, dict[str, Any]]] = [("run.started", None, {}), ("node.started", "fetch", {})]
ASKED: list[tuple[str, str | None, dict[str, Any]]] = [
    *BEGUN,
    ("node.completed", "fetch", {}),
    ("node.started", "gate", {}),
    ("node.suspended", "gate", {"kind": "approval"}),
    ("interrupt.requested", "gate", {"kind": "approval", "data": APPROVAL}),
]


def test_every_node_of_the_workflow_is_there_before_it_starts() -> None:
    shown = text(seen(*BEGUN))
    assert [name in shown for name in ("fetch", "gate", "last", "0/3")] == [True] * 4
    assert "core.http" not in shown


def test_a_retry_says_what_was_wrong_and_when_it_is_tried_again() -> None:
    error = {"code": "http_status", "message": "The server answered 503."}
    view = seen(*BEGUN, ("node.retried", "fetch", {"attempt": 2, "delayMs": 4000, "lastError": error}))
    assert "again in 2.5s" in text(view, START + 3500)
    assert "503" in text(view)
    again = {"type": "node.started", "payload": {"attempt": 2}, "nodeId": "fetch", "sequence": 3}
    view.take({**again, "timestamp": iso(START + 6000)})
    assert "attempt 2" in text(view) and "503" not in text(view)


def test_a_timer_counts_down() -> None:
    view = seen(*BEGUN, ("holdfast.timer.set", "fetch", {"key": "1", "dueAt": START + 60_000}))
    assert "wakes in 50.0s" in text(view)
    assert view.status == "running"


def test_a_question_shows_what_is_asked_and_how_to_answer() -> None:
    shown = text(seen(*ASKED))
    assert "Go on?" in shown and "Somebody must say so." in shown
    assert "holdfast run approve run_1 gate --action accept|reject" in shown
    assert "waiting" in shown


def test_the_end_shows_the_outputs_or_the_error() -> None:
    assert '"n": 1' in text(seen(*BEGUN, ("run.completed", None, {"outputs": {"n": 1}})))
    view = seen(*BEGUN, ("run.failed", None, {"error": {"code": "broke", "message": "It broke."}}))
    assert "broke: It broke." in text(view) and view.over
    many = seen(*BEGUN, ("run.completed", None, {"outputs": {"text": "x" * 3000}}))
    assert "holdfast run show run_1" in text(many)


def test_many_nodes_show_those_around_what_is_under_way() -> None:
    document = workflow("watched", *(node(f"n{number:03}", "core.noop") for number in range(500)))
    events: list[Any] = [("run.started", None, {})]
    for number in range(250):
        events += [("node.started", f"n{number:03}", {}), ("node.completed", f"n{number:03}", {})]
    events.append(("node.started", "n250", {}))
    shown = text(seen(*events, document=document), height=30)
    assert "n250" in shown and "n252" in shown and "n100" not in shown
    assert "248 more above" in shown and "250/500" in shown
    assert len(shown.splitlines()) <= 30


def test_a_run_whose_definition_cannot_be_read_shows_nodes_as_they_come() -> None:
    shown = text(seen(*ASKED, document=None))
    assert "fetch" in shown and "gate" in shown and "last" not in shown


@pytest.mark.parametrize(("ms", "said"), [(0, "0.0s"), (61_000, "1m01s"), (3_660_000, "1h01m"), (-5, "0.0s")])
def test_spans(ms: int, said: str) -> None:
    assert span(ms) == said


def test_what_a_run_says_is_text_and_no_markup() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    error = {"code": "broke", "message": "[/nothing] [bold]was[/bold] opened"}
    standing = {"status": "failed", "attempt": 2, "startedAt": iso(START), "endedAt": iso(START + 1500), "error": error}
    run = {"runId": "run_1", "workflowId": "w", "status": "failed", "error": error, "nodeStates": {"[/x]": standing}}
    show_run(console, run)
    shown = console.export_text()
    assert shown.count("[/nothing] [bold]was[/bold] opened") == 2
    assert "[/x]" in shown and "1.5s" in shown and "attempt 2" in shown
    open_now = {**run, "error": None, "nodeStates": {"gate": {"status": "suspended", "attempt": 1}}}
    show_run(console, open_now, {"gate": {"kind": "approval", "data": None}})
    assert "holdfast run approve run_1 gate" in console.export_text()


class Asked:
    """A host that remembers what it was asked."""

    def __init__(self, problem: Problem | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.problem = problem

    async def post(self, path: str, body: Any = None) -> None:
        self.calls.append((path, body))
        if self.problem is not None:
            raise self.problem


async def test_what_changes_a_run_is_asked_once_more() -> None:
    host = Asked()
    keys = Keys(host, seen(*ASKED))  # type: ignore[arg-type]
    await keys.press("a")
    assert host.calls == [] and "accept gate?" in keys.hint()
    await keys.press("x")
    await keys.press("y")
    assert host.calls == [], "any other key takes it back"
    await keys.press("a")
    await keys.press("y")
    assert host.calls == [("/v1/runs/run_1/interrupts/gate", {"resumeValue": {"action": "accept"}})]


async def test_keys_offer_what_can_be_done_now() -> None:
    host = Asked(Problem("state_conflict", "A run that is completed cannot be paused."))
    keys = Keys(host, seen(*BEGUN))  # type: ignore[arg-type]
    assert "accept" not in keys.hint() and "pause" in keys.hint()
    await keys.press("a")
    await keys.press("p")
    await keys.press("y")
    assert [path for path, _ in host.calls] == ["/v1/runs/run_1:pause"]
    assert keys.hint() == "A run that is completed cannot be paused."
    paused = Keys(host, seen(*BEGUN, ("run.paused", None, {})))  # type: ignore[arg-type]
    assert "go on" in paused.hint()
    await keys.press("q")
    assert keys.quit.is_set()


def test_a_question_is_answered_on_a_real_terminal(tmp_path: Path) -> None:
    host = LocalHost(tmp_path / "data")
    api = Api(host.start(), host.keys)
    try:
        run_id = api.start("approval")
        primary, secondary = pty.openpty()
        command = [sys.executable, "-m", "holdfast.cli.main", "run", "watch", run_id, "--url", host.url]
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            "HOLDFAST_API_KEY": host.keys["full"],
            "TERM": "xterm",
        }
        process = subprocess.Popen(command, stdin=secondary, stdout=secondary, stderr=secondary, env=environment)
        os.close(secondary)
        said = _until(primary, b"", "a: accept gate")
        os.write(primary, b"a")
        said = _until(primary, said, "accept gate?")
        os.write(primary, b"y")
        said = _until(primary, said, "completed")
        assert process.wait(60) == 0
        os.close(primary)
        assert api.run(run_id)["status"] == "completed"
        assert b"Go on?" in said
    finally:
        api.close()
        host.stop()


def _until(terminal: int, said: bytes, words: str) -> bytes:
    """Read a terminal until it shows `words`."""
    patience = time.monotonic() + 60
    while words.encode() not in said and time.monotonic() < patience:
        if select.select([terminal], [], [], 1)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:
                break
    assert words.encode() in said, said[-2000:]
    return said
