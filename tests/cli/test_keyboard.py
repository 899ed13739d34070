"""One reader for the prompt, for questions of the host and for dialogs."""

from __future__ import annotations

import asyncio
import queue

import pytest

from forestay.cli.keyboard import Keyboard


async def test_what_stands_before_a_prompt_is_shown_when_its_turn_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read(_prompt: str) -> str:
        line = typed.get(timeout=60)
        if not line:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", read)
    keyboard = Keyboard()
    dialog = asyncio.ensure_future(keyboard.line("yes or no: ", lambda: "Go on?\n", asker="harbour"))
    await asyncio.sleep(0)
    stands = ["low"]
    prompt = asyncio.ensure_future(keyboard.line("> ", lambda: f"tide: {stands[0]}\n"))
    await asyncio.sleep(0)
    stands[0] = "high"
    assert capsys.readouterr().out == "Go on?\n", "nothing comes between a question and its answer"
    typed.put("no")
    assert await dialog == "no"
    typed.put("Where is it?")
    assert await prompt == "Where is it?"
    assert capsys.readouterr().out == "tide: high\n"
    typed.put("")
    assert await keyboard.line("> ") is None
    assert await keyboard.line("> ") is None, "input that has ended stays ended (B4)"
