"""The scripted model plays what its file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay import models
from forestay.kernel import ManualClock, Problem
from forestay.models import Completion, Message, Params, ToolCall, Usage, fold
from forestay.models.scripted import Script, Scripted, Turn, parse_script


def user(text: str) -> list[Message]:
    return [Message("user", text)]


def scripted(*turns: dict[str, Any], **settings: Any) -> Scripted:
    return Scripted(parse_script(json.dumps({"turns": turns, **settings}).encode()))


async def test_turns_in_order_then_exhausted() -> None:
    model = scripted({"text": "one"}, {"text": "two"})
    assert (await fold(model.stream(user("x")))).text == "one"
    assert (await fold(model.stream(user("x")))).text == "two"
    with pytest.raises(Problem) as caught:
        await fold(model.stream(user("x")))
    assert caught.value.key == "script_exhausted"
    assert model.calls == 3


async def test_tool_calls_and_usage() -> None:
    model = scripted({"text": "hm", "tool_calls": [{"name": "add", "arguments": {"a": 1}}], "usage": {"input_tokens": 3, "output_tokens": 4}})  # fmt: skip # noqa: E501
    answer = await fold(model.stream(user("x")))
    assert answer == Completion("hm", (ToolCall("call_0_0", "add", {"a": 1}),), "tool_calls", Usage(3, 4))


async def test_a_turn_is_chosen_by_the_words_of_the_last_message() -> None:
    model = scripted({"when": "rain", "text": "wet", "repeat": True}, {"text": "else", "repeat": True})
    answers = [(await fold(model.stream(user(text)))).text for text in ("sun?", "rain?", "rain again?")]
    assert answers == ["else", "wet", "wet"]


async def test_by_conversation_the_position_survives_a_restart() -> None:
    turns = ({"text": "first"}, {"text": "second"})
    history = [*user("x"), Message("assistant", "first"), *user("y")]
    assert (await fold(scripted(*turns, position="conversation").stream(history))).text == "second"


async def test_an_error_after_some_text() -> None:
    model = scripted({"text": "abcdefgh", "error": "rate_limited", "after": 1}, {"text": "fine"})
    shown = []
    with pytest.raises(Problem) as caught:
        async for delta in model.stream(user("x")):
            shown.append(delta.text)  # noqa: PERF401 - a comprehension would lose them
    assert (shown, caught.value.key) == (["abcd"], "rate_limited")
    assert (await fold(model.stream(user("x")))).text == "fine"


async def test_a_delay_is_time(clock: ManualClock) -> None:
    await fold(scripted({"text": "x", "delay": 60}).stream(user("x")))
    assert clock.monotonic() >= 60


@settings(deadline=None)
@given(st.text(min_size=1, max_size=300), st.integers(1, 40), st.integers(0, 30))
def test_cut_windows_overlap_by_exactly_the_echo(text: str, cut: int, echo: int) -> None:
    """Each window begins `echo` characters before the end of the last one; without echo they join to the text."""
    size = 4
    echo = min(echo, cut * size - 1)

    async def windows() -> list[str]:
        model = Scripted(Script((Turn(text, cut=cut, echo=echo),), token_characters=size))
        parts = []
        while True:
            answer = await fold(model.stream(user("x")))
            assert model.count_tokens(answer.text) <= cut
            parts.append(answer.text)
            if answer.finish_reason == "stop":
                return parts

    first, *rest = ManualClock().run(windows())
    joined = first
    for part in rest:
        repeated = min(echo, len(joined))
        assert part[:repeated] == joined[len(joined) - repeated :]
        joined += part[repeated:]
    assert joined == text


async def test_max_tokens_cuts_with_length() -> None:
    answer = await fold(scripted({"text": "abcdefgh"}).stream(user("x"), params=Params(max_tokens=1)))
    assert (answer.text, answer.finish_reason) == ("abcd", "length")


async def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"text": "one"}\n\n{"text": "two"}\n')
    model = models.open("scripted:s.jsonl", folder=tmp_path)
    assert [(await fold(model.stream(user("x")))).text for _ in range(2)] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "at"),
    [
        ("s.json", '{"turns": [{"txt": "x"}]}', "$.turns[0]"),
        ("s.json", '{"turns": [{"cut": 0}]}', "$.turns[0].cut"),
        ("s.json", '{"turns": [{"error": "nonsense"}]}', "$.turns[0].error"),
        ("s.json", "{", "$"),
        ("s.jsonl", '{"text": "fine"}\n{"text": 5}', "line 2: $.text"),
    ],
)
def test_a_mistake_in_a_script_says_where(tmp_path: Path, name: str, content: str, at: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(Problem) as caught:
        models.open(f"scripted:{name}", folder=tmp_path)
    assert (caught.value.key, caught.value.details["at"]) == ("script_invalid", at)


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(Problem, match="cannot be read"):
        models.open("scripted:nowhere.json")
