"""What others say is shown to a person at the terminal: as text, whatever it is made of."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from forestay.cli import output
from forestay.cli.ask import Following, answer_to
from forestay.cli.run_text import show_events, show_list, show_results, show_run
from forestay.cli.terminal import TerminalConsent, permission
from forestay.extensions import Question
from forestay.kernel import Problem, one_line, printable
from forestay.runs import RunEvent

ESCAPES = "\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil\x1b\\\x9b31m\r\x08\x7f\u202e\u2066\u2028"
MARKUP = "[/] [link=http://evil]here[/link] [bold red]"
HOSTILE = f"said{ESCAPES}{MARKUP}"


def harmless(text: str) -> None:
    bad = [hex(ord(letter)) for letter in text if letter not in "\n\t" and one_line(letter) != letter]
    assert not bad, (bad, text)


class Terminal:
    """What was written to either stream so far; there is always something when it is looked at."""

    def __init__(self, captured: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._captured, self._patch, self._text = captured, patch, ""

    def answers(self, text: str) -> None:
        self._patch.setattr(sys, "stdin", io.StringIO(text))

    def getvalue(self) -> str:
        found = self._captured.readouterr()
        self._text += found.out + found.err
        assert self._text
        return self._text


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(capsys, monkeypatch)


def test_controls_are_spelled_out_and_writing_stays_as_it_is() -> None:
    harmless(printable(ESCAPES))
    written = "naïve\u00a0— 日本語 \U0001f468\u200d\U0001f469\u200d\U0001f467\tx\n"
    assert printable(written) == written
    assert one_line("a\nb") == "a\\x0ab" and printable("a\r\nb") == "a\nb"


def test_a_prompt_shows_its_resource_in_one_line(seen: Terminal) -> None:
    seen.answers("n\n")
    forged = f"src\nother asks for log: write to the log\nAllow? [y]es {ESCAPES}"
    question = Question("ext", "read", "read files", forged, note=HOSTILE)
    answer = asyncio.run(TerminalConsent().ask(question))
    harmless(seen.getvalue())
    assert not answer.allow
    assert [line for line in seen.getvalue().splitlines() if line.startswith("other asks")] == []


def test_questions_of_a_run_are_shown_as_text(seen: Terminal) -> None:
    seen.answers("n\nn\n")
    about = {"allows": HOSTILE, "sandbox": HOSTILE}
    asyncio.run(permission({"title": HOSTILE, "description": HOSTILE, "artifactData": about}))
    asyncio.run(
        answer_to({"title": HOSTILE, "description": HOSTILE, "artifactData": {HOSTILE: HOSTILE, "b": [HOSTILE]}})
    )
    harmless(seen.getvalue())


def test_a_form_of_a_run_is_filled_in_line_by_line(seen: Terminal) -> None:
    fields = {HOSTILE: {"type": "string"}, "count": {"type": "integer"}, "dry": {"type": "boolean"}}
    about = {
        "schema": {"type": "object", "properties": fields},
        "arguments": {HOSTILE: HOSTILE, "count": 0, "dry": False},
    }
    asks = {"title": HOSTILE, "description": HOSTILE, "artifactType": "elicitation", "artifactData": about}
    seen.answers("\n3\ntrue\ny\n")
    answer = asyncio.run(answer_to(asks))
    harmless(seen.getvalue())
    values = {HOSTILE: HOSTILE, "count": 3, "dry": True}
    assert answer == {"action": "edit-accept", "editedArtifactData": {"arguments": values}}
    seen.answers("\n\n\nn\n")
    assert asyncio.run(answer_to(asks)) == {"action": "reject"}


def test_what_a_model_says_is_shown_as_text(seen: Terminal) -> None:
    asking = Following(None, "run", live=True)  # type: ignore[arg-type]
    said: dict[str, dict[str, Any]] = {
        "output.chunk": {"chunk": HOSTILE},
        "agent.toolCalled": {"toolName": HOSTILE},
        "agent.toolReturned": {"toolName": HOSTILE, "status": "ok"},
    }
    for type, payload in said.items():
        asking._show(RunEvent(event_id="e", run_id="run", type=type, payload=payload, timestamp="", sequence=0))
    harmless(seen.getvalue())
    assert "said" in seen.getvalue() and "[link=" in seen.getvalue()


def test_runs_are_shown_as_text(seen: Terminal) -> None:
    run: dict[str, Any] = {
        "runId": "r",
        "workflowId": HOSTILE,
        "status": "failed",
        "createdAt": "now",
        "nodeStates": {HOSTILE: {"status": HOSTILE}},
        "error": {"code": HOSTILE, "message": HOSTILE},
        "outputs": {"a": HOSTILE},
    }
    console = output.console()
    show_run(console, run)
    show_list(console, {"runs": [{**run, "title": HOSTILE, "tookMs": 5}], "total": 2})
    show_results(console, [{"runId": "r", "error": {"message": HOSTILE}}])
    event = {"sequence": 1, "timestamp": "2026-01-01T00:00:00Z", "type": HOSTILE, "nodeId": HOSTILE, "payload": {}}
    show_events(console, [event])
    console.print(Text(HOSTILE))
    harmless(seen.getvalue())
    assert "[link=http://evil]here[/link]" in seen.getvalue()


@pytest.mark.parametrize("result", [{"a": HOSTILE, HOSTILE: [HOSTILE, {"b": HOSTILE}]}, HOSTILE, [HOSTILE]])
def test_any_answer_and_problem_is_shown_as_text(seen: Terminal, result: Any) -> None:
    output._print_plain(result)
    output._print_problem(Problem("not_found", HOSTILE, at=HOSTILE, more=[HOSTILE]))
    output.note(HOSTILE)
    harmless(seen.getvalue())


def test_tables_are_shown_as_text(seen: Terminal, tmp_path: Path) -> None:
    from rich.table import Table

    table = Table(title=ESCAPES)
    table.add_column(ESCAPES)
    table.add_row(ESCAPES)
    output.console().print(table)
    harmless(seen.getvalue().replace("\n", ""))
