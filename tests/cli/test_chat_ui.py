"""The dialogs of a chat with a keyboard that is played: what is asked, what comes back, and whose line it is (G3)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forestay.cli.chat_ui import ChatUi
from forestay.kernel import Problem


class Played:
    """A keyboard whose lines are given; one question stands at a time."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []
        self.busy = False
        self.drawing = threading.Lock()

    async def line(self, prompt: str, shown: Callable[[], str], draft: str = "", asker: str = "") -> str | None:
        self.prompts.append(shown() + prompt)
        if not self.lines:
            await asyncio.Event().wait()
        return self.lines.pop(0)


FORM = {
    "title": "The MCP server tide asks",
    "message": "Which berth?",
    "schema": {
        "type": "object",
        "properties": {"berth": {"type": "integer"}, "ship": {"type": "string", "description": "its name"}},
        "required": ["berth"],
    },
}


@pytest.mark.parametrize(
    ("operation", "params", "lines", "answer"),
    [
        ("select", {"title": "?", "options": ["a", "b"]}, ["2"], "b"),
        ("select", {"title": "?", "options": ["a", "b"]}, ["3"], None),
        ("select", {"title": "?", "options": ["a", "b"]}, [""], None),
        ("confirm", {"title": "?"}, ["YES"], True),
        ("confirm", {"title": "?"}, ["yes please"], False),
        ("input", {"title": "?"}, [" 7 "], "7"),
        ("input", {"title": "?"}, [None], None),
        ("editor", {"title": "?", "text": "old"}, ["one", "two", "."], "one\ntwo"),
        ("editor", {"title": "?", "text": "old"}, ["."], "old"),
        ("custom", {"lines": ["menu"]}, ["down enter x"], {"keys": ["\x1b[B", "\r", "x"]}),
        ("form", FORM, ["7", "Aurora", "y"], {"action": "accept", "content": {"berth": 7, "ship": "Aurora"}}),
        ("form", FORM, ["7", "", "n"], {"action": "decline"}),
        ("form", FORM, [None], None),
    ],
)
async def test_a_dialog_and_its_answer(operation: str, params: Any, lines: list[str | None], answer: Any) -> None:
    keyboard = Played(*lines)
    ui = ChatUi(keyboard)  # type: ignore[arg-type]
    assert await ui.request("harbour", operation, params) == answer
    assert all(line.startswith("[harbour] ") for prompt in keyboard.prompts for line in prompt.split("\n"))


async def test_a_form_that_does_not_fit_is_not_sent() -> None:
    with pytest.raises(Problem, match="do not fit its schema"):
        await ChatUi(Played("", "Aurora", "y")).request("harbour", "form", FORM)  # type: ignore[arg-type]


async def test_g4_what_is_given_up_is_cancelled_and_nothing_is_asked_until_something_new_begins() -> None:
    ui = ChatUi(keyboard := Played())  # type: ignore[arg-type]
    asked = asyncio.ensure_future(ui.request("harbour", "confirm", {"title": "?"}))
    while not keyboard.prompts:
        await asyncio.sleep(0)
    ui.give_up()
    assert await asked is None
    keyboard.lines = ["y"]
    assert await ui.request("harbour", "confirm", {"title": "Still?"}) is None, "the command that was ended goes on"
    assert len(keyboard.prompts) == 1
    ui.begin()
    assert await ui.request("harbour", "confirm", {"title": "?"}) is True


async def test_g3_a_question_is_announced_while_the_person_types(capsys: pytest.CaptureFixture[str]) -> None:
    ui = ChatUi(keyboard := Played("y"))  # type: ignore[arg-type]
    keyboard.busy = True
    assert await ui.request("harbour", "confirm", {"title": "?"}) is True
    assert capsys.readouterr().out == "\n[harbour] asks something; it comes after your line\n"


async def test_g2_the_editor_and_what_stands_beside_the_conversation() -> None:
    ui = ChatUi(Played())  # type: ignore[arg-type]
    await ui.request("harbour", "setEditorText", {"text": "moor"})
    await ui.request("harbour", "pasteToEditor", {"text": " it"})
    assert await ui.request("harbour", "getEditorText", {}) == "moor it" == ui.draft
    for number in range(100):
        await ui.request("harbour", "setStatus", {"key": str(number), "text": f"berth {number}"})
    assert ui.before_prompt().count("[harbour] berth") == 20
    assert ui.before_prompt() == "", "what has not changed is not shown again"
    for number in range(100):
        await ui.request("harbour", "setStatus", {"key": str(number), "text": None})
    await ui.request("harbour", "setWidget", {"key": "w", "lines": ["\x1b[2J" + "x" * 10_000]})
    shown = ui.before_prompt()
    assert len(shown) < 500 and "\x1b" not in shown and shown.endswith("…\n")


async def test_what_is_under_way_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    ui = ChatUi(Played())  # type: ignore[arg-type]
    await ui.request("harbour", "setWorkingMessage", {"message": "sounding"})
    await ui.request("harbour", "setWorkingVisible", {"visible": False})
    await ui.request("harbour", "setWorkingMessage", {"message": "still sounding"})
    assert capsys.readouterr().out == "[harbour] sounding\n" and ui.before_prompt() == ""
