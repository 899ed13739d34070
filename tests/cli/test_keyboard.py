"""One reader for the prompt, for questions of the host and for dialogs."""

from __future__ import annotations

import asyncio
import os
import pty
import queue
import sys

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


async def test_b5_keys_are_taken_one_by_one_until_nobody_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    person, side = pty.openpty()
    with os.fdopen(person, "wb", buffering=0) as typing, os.fdopen(side) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr("builtins.input", lambda _prompt: terminal.readline().rstrip("\n"))
        keyboard = Keyboard()
        pressing = asyncio.ensure_future(keyboard.key(lambda: None, "menu"))
        typing.write(b"\x1b[B")
        assert await pressing == "\x1b[B", "no line has to be ended"
        given_up = asyncio.ensure_future(keyboard.key(lambda: None, "menu"))
        await asyncio.sleep(0)
        given_up.cancel()
        asking = asyncio.ensure_future(keyboard.line("> "))
        await asyncio.sleep(0)
        typing.write(b"Where is it?\n")
        assert await asking == "Where is it?", "it is whole, and no key of it went to the component"
        typing.write(b"\n")
        assert await keyboard.line("> ") == ""


async def test_b5_a_line_that_was_begun_before_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    person, side = pty.openpty()
    with os.fdopen(person, "wb", buffering=0) as typing, os.fdopen(side) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr("builtins.input", lambda _prompt: terminal.readline().rstrip("\n"))
        keyboard = Keyboard()
        begun = asyncio.ensure_future(keyboard.line("yes or no: ", asker="harbour"))
        await asyncio.sleep(0)
        begun.cancel()  # its extension does not wait any more
        shown: list[str] = []
        pressing = asyncio.ensure_future(keyboard.key(lambda: shown.append("menu"), "menu"))
        await asyncio.sleep(0)
        assert shown == []
        typing.write(b"no\n")
        while not shown:
            await asyncio.sleep(0)
        typing.write(b"q")
        assert await pressing == "q"
