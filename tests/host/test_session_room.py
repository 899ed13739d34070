"""The room of a session: how many dialogs an extension has, and a component that goes on after a person's keys."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from forestay.host.session_room import DIALOGS, SessionRoom
from forestay.kernel import Problem


def room() -> SessionRoom:
    numbers = count()
    return SessionRoom(lambda: f"ask-{next(numbers)}")


def component(*lines: str, number: int = 1) -> dict[str, Any]:
    return {"op": "custom", "component": number, "lines": list(lines)}


async def asked(place: SessionRoom, extension: str, params: dict[str, Any]) -> asyncio.Task[Any]:
    """A question that stands in the room."""
    task = asyncio.ensure_future(place.ask(extension, str(params["op"]), params))
    await asyncio.sleep(0)
    return task


async def test_l1_a_component_goes_on_as_long_as_a_person_sends_it_keys() -> None:
    place = room()
    with place.followed():
        for number in range(3 * DIALOGS):
            task = await asked(place, "menu", component(f"line {number}"))
            (dialog,) = place.shown().dialogs
            assert (dialog.lines, dialog.component) == ([f"line {number}"], "1")
            await place.answer(dialog.request_id, {"keys": ["down"]})
            assert await task == {"keys": ["\x1b[B"]}
        assert place.shown().left_out == {"notices": 0, "dialogs": 0}


async def test_l1_a_component_that_nobody_sent_keys_to_is_a_further_dialog() -> None:
    place = room()
    with place.followed():
        for number in range(DIALOGS):
            task = await asked(place, "menu", component("x", number=number))
            await place.answer(place.shown().dialogs[0].request_id, None)
            assert await task is None
        assert await place.ask("menu", "custom", component("x", number=DIALOGS)) is None
        assert place.shown().left_out["dialogs"] == 1


async def test_an_open_component_is_drawn_again_by_its_own_extension_alone() -> None:
    place = room()
    with place.followed():
        task = await asked(place, "menu", component("low"))
        for extension, number, said in (("menu", 2, "forged"), ("other", 1, "forged"), ("menu", 1, "high\x1b[2J")):
            place.notice(extension, "redraw", {"op": "redraw", "component": number, "lines": [said]})
        (dialog,) = place.shown().dialogs
        assert dialog.lines == ["high\\x1b[2J"]
        with pytest.raises(Problem):
            await place.answer(dialog.request_id, "enter")
        await place.answer(dialog.request_id, None)
        assert await task is None
        place.notice("menu", "redraw", {"op": "redraw", "component": 1, "lines": ["late"]})
        assert place.shown().dialogs == []


async def test_extensions_draw_for_the_place_that_somebody_looks_from() -> None:
    place = room()
    with place.followed(100):
        assert place.columns == 100
        with place.followed(5):
            assert place.columns == 20
    place.notice("menu", "setStatus", {"key": "tide", "text": "high"})
    assert place.notice("other", "getStatuses", {}) == {"tide": "high"}


@pytest.mark.api("ctx.ui.setWorkingMessage|ctx.ui.setWorkingVisible|ctx.ui.setWorkingIndicator")
async def test_what_is_under_way_is_shown_behind_its_indicator_until_it_is_hidden() -> None:
    place = room()
    seen: list[list[str]] = []
    for operation, params in (
        ("setWorkingIndicator", {"options": {"frames": ["*", "+"]}}),
        ("setWorkingMessage", {"message": "sounding"}),
        ("setWorkingVisible", {"visible": False}),
        ("setWorkingVisible", {"visible": True}),
        ("setWorkingMessage", {"message": None}),
    ):
        place.notice("menu", operation, {"op": operation, **params})
        seen.append([line for item in place.shown().places for line in item.lines])
    assert seen == [[], ["* sounding"], [], ["* sounding"], []]
