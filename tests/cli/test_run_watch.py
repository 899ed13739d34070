"""The live view of a run: what it shows of events, what its keys do, and the whole on a real terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from forestay.cli.run_picture import picture
from forestay.cli.run_text import show_run
from forestay.cli.run_view import View, span
from forestay.cli.run_watch import Keys
from forestay.kernel import Problem, iso
from forestay.runs import RunEvent
from tests.contracts.openwop.conftest import Api, LocalHost
from tests.contracts.openwop.documents import APPROVAL, node, workflow

SOURCE = str(Path(__file__).parents[2] / "src")
START = 1_767_225_600_000
DOCUMENT = workflow(
    "watched", node("fetch", "core.http"), node("gate", "core.approvalGate", APPROVAL), node("last", "core.noop")
)


def seen(*events: tuple[str, str | None, dict[str, Any]], document: Any = DOCUMENT) -> View:
    """The view after events, one second apart."""
    view = View("run_1", {"workflowId": "watched", "status": "running"}, document)
    for number, (type, name, payload) in enumerate(events):
        moment = iso(START + 1000 * number)
        view.take(event(type, payload, moment, number, name))
    return view


def event(type: str, payload: dict[str, Any], moment: str, number: int, node: str | None) -> RunEvent:
    return RunEvent(
        event_id=f"e{number}",
        run_id="run_1",
        type=type,
        payload=payload,
        timestamp=moment,
        sequence=number,
        node_id=node,
    )


def text(view: View, now: int = START + 10_000, height: int = 40, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(picture(view, now, "keys", width, height))
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
    view.take(event("node.started", {"attempt": 2}, iso(START + 6000), 3, "fetch"))
    assert "attempt 2" in text(view) and "503" not in text(view)


def test_a_timer_counts_down() -> None:
    view = seen(*BEGUN, ("forestay.timer.set", "fetch", {"key": "1", "dueAt": START + 60_000}))
    assert "wakes in 50.0s" in text(view)
    assert view.status == "running"


def test_a_question_shows_what_is_asked_and_how_to_answer() -> None:
    shown = text(seen(*ASKED))
    assert "Go on?" in shown and "Somebody must say so." in shown
    assert "forestay run approve run_1 gate --action accept|reject" in shown
    assert "waiting" in shown


def test_the_end_shows_the_outputs_or_the_error() -> None:
    assert '"n": 1' in text(seen(*BEGUN, ("run.completed", None, {"outputs": {"n": 1}})))
    view = seen(*BEGUN, ("run.failed", None, {"error": {"code": "broke", "message": "It broke."}}))
    assert "broke: It broke." in text(view) and view.over
    many = seen(*BEGUN, ("run.completed", None, {"outputs": {"text": "x" * 3000}}))
    assert "forestay run show run_1" in text(many)


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


LONG = workflow(
    "a-workflow-with-a-name-that-is-longer-than-the-terminal",
    node("fetch", "core.http"),
    {**node("漢字", "core.noop"), "name": "計算する" * 8},
    node("a-node-with-an-id-that-goes-on-and-on-and-on", "core.noop"),
)


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (40, 24), (40, 12), (24, 10)])
def test_a_picture_fits_the_terminal(width: int, height: int) -> None:
    error = {"code": "http_status", "message": "The server answered 503. " * 4}
    retried = ("node.retried", "fetch", {"attempt": 1, "delayMs": 9000, "lastError": error})
    view = seen(*BEGUN, retried, ("node.started", "漢字", {}), document=LONG)
    lines = text(view, height=height, width=width).splitlines()
    assert max(map(cell_len, lines)) <= width and len(lines) < height
    assert any(line.startswith("↻  fetch") for line in lines), "the mark and the name stay"


def test_a_question_is_wrapped_and_never_cut() -> None:
    shown = " ".join(text(seen(*ASKED), width=40, height=20).replace("│", " ").split())
    assert "forestay run approve run_1 gate --action accept|reject" in shown
    assert "Somebody must say so." in shown


def test_what_has_many_parts_says_how_far_it_is() -> None:
    recorded = [("forestay.effect.recorded", "fetch", {"key": f"item:{number}"}) for number in range(1000)]
    assert "1000 items done" in text(seen(*BEGUN, *recorded))
    begun = [("node.dispatched", "fetch", {"childRunId": f"c{number}"}) for number in range(7)]
    ended = [
        ("node.dispatched", "fetch", {"childRunId": f"c{number}", "childStatus": "completed"}) for number in range(3)
    ]
    assert "3 of 7 children ended" in text(seen(*BEGUN, *begun, *ended))


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
    assert "forestay run approve run_1 gate" in console.export_text()


class Asked:
    """A host that remembers what it was asked."""

    def __init__(self, problem: Problem | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.problem = problem

    async def resolve(self, run: str, node: str, value: Any) -> None:
        await self.post(f"/v1/runs/{run}/interrupts/{node}", {"resumeValue": value})

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


class Watching:
    """`forestay run watch` in a real pseudo-terminal of a given size."""

    def __init__(self, host: LocalHost, run_id: str, columns: int = 80, rows: int = 24) -> None:
        self.terminal, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forestay.cli.main", "run", "watch", run_id, "--url", host.url],
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
            env={**kept, "PYTHONPATH": SOURCE, "FORESTAY_API_KEY": host.keys["full"], "TERM": "xterm", "NO_COLOR": "1"},
        )
        os.close(secondary)
        self.said = b""

    def until(self, words: str) -> None:
        self.said = _until(self.terminal, self.said, words)

    def press(self, key: str) -> None:
        os.write(self.terminal, key.encode())

    def ended(self) -> int:
        code = self.process.wait(60)
        os.close(self.terminal)
        return code


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path / "data")
    made.start()
    yield made
    made.stop()


def test_a_question_is_answered_on_a_real_terminal(host: LocalHost) -> None:
    api = Api(host.url, host.keys)
    run_id = api.start("approval")
    watching = Watching(host, run_id)
    watching.until("a: accept gate")
    watching.press("a")
    watching.until("accept gate?")
    watching.press("y")
    watching.until("completed")
    assert watching.ended() == 0
    assert api.run(run_id)["status"] == "completed"
    assert b"Go on?" in watching.said
    api.close()


def test_a_host_that_is_killed_and_started_again_is_watched_on(host: LocalHost) -> None:
    api = Api(host.url, host.keys)
    run_id = api.start("approval")
    api.close()
    watching = Watching(host, run_id)
    watching.until("a: accept gate")
    assert host.process is not None and host.process.stdout is not None
    host.process.kill()
    host.process.wait()
    host.process.stdout.close()
    watching.until("the host does not answer; trying again")
    host.start("--port", host.url.rsplit(":", 1)[-1])
    watching.said = b""
    watching.until("waiting")
    watching.press("a")
    watching.until("accept gate?")
    watching.press("y")
    watching.until("completed")
    assert watching.ended() == 0


def test_a_small_terminal_without_colours_is_drawn_over_and_not_down(host: LocalHost) -> None:
    """No line is longer than the terminal: each picture covers the one before, and says nothing in colour."""
    api = Api(host.url, host.keys)
    run_id = api.start("approval")
    api.close()
    watching = Watching(host, run_id, columns=40, rows=20)
    watching.until("gate asks")
    watching.press("q")
    assert watching.ended() == 0
    pictures = watching.said.decode().replace("\r\n", "\n")
    assert not re.findall(r"\x1b\[[0-9;]*3[0-9]m", pictures)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", pictures)
    assert max(cell_len(line) for frame in plain.split("\r") for line in frame.split("\n")) <= 40


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
