"""A form that no run waits for: the person at the terminal has it, and without one it is cancelled (U3)."""

from __future__ import annotations

from typing import Any

from forestay.extensions import ScriptedUi
from forestay.host.prompts import Prompts
from forestay.host.run_ui import RunUi
from forestay.kernel import ManualClock

FORM: dict[str, Any] = {
    "title": "Where to?",
    "message": "The berth.",
    "schema": {"type": "object", "properties": {"berth": {"type": "integer"}}},
}


def _no_runs() -> Any:
    raise AssertionError("nothing runs")


async def test_u3_the_person_at_the_terminal_is_asked(clock: ManualClock) -> None:
    answer = {"action": "accept", "content": {"berth": 7}}
    ui = RunUi(Prompts(clock, "life", runs=_no_runs), ScriptedUi([answer]))
    assert ui.interactive
    assert await ui.request("harbour", "form", FORM) == answer


async def test_u3_without_a_person_it_is_cancelled(clock: ManualClock) -> None:
    ui = RunUi(Prompts(clock, "life", runs=_no_runs))
    assert not ui.interactive
    assert await ui.request("harbour", "form", FORM) is None
