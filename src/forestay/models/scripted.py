"""A model that plays a file: for tests, evals and demonstrations, with every behaviour a real one can show.

The file is a JSON object `{"turns": [...], …settings}` or JSON lines with one turn each. A turn answers one call:

    {"text": "…"}                                            says it, stops
    {"tool_calls": [{"name": "add", "arguments": {…}}]}      calls tools
    {"text": "…long…", "cut": 50, "echo": 20}                at most 50 tokens a call, finish reason `length`; the next
                                                             call goes on, repeating the last 20 characters first
    {"when": "weather", "text": "…", "repeat": true}         only when the last message contains the words; every time
    {"error": "provider_error", "after": 10}                 fails, here after 10 tokens of its text
    {"delay": 5, "finish_reason": "content_filter"}          waits; ends as told

A token is `token_characters` code points: that is this model's tokenizer, so its counts are exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from forestay.kernel import TABLE, Problem, canonical
from forestay.models.protocol import (
    DEFAULT_PARAMS,
    Delta,
    Deltas,
    FinishReason,
    Message,
    Params,
    ToolCall,
    ToolSpec,
    Usage,
)

T = TypeVar("T")

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    id: str | None = None


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the script; the module's text shows what each field does."""

    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    cut: Positive | None = None
    echo: Natural = 0
    when: str | None = None
    repeat: bool = False
    delay: Annotated[float, msgspec.Meta(ge=0)] = 0
    error: str | None = None
    after: Natural = 0


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns in order. `position` says how the next one is found: by calls played, or by answers in the conversation
    (which survives a restart, because a recorded answer is part of the conversation)."""

    turns: tuple[Turn, ...]
    name: str = "scripted"
    context_window: Positive = 8_192
    max_output_tokens: Positive | None = None
    token_characters: Positive = 4
    position: Literal["calls", "conversation"] = "calls"


class Scripted:
    """A `Model` that plays a `Script`; `calls` is how often it was asked."""

    def __init__(self, script: Script) -> None:
        self.name = script.name
        self.context_window = script.context_window
        self.max_output_tokens = script.max_output_tokens
        self.calls = 0
        self._script = script
        self._played: set[int] = set()
        self._unfinished: tuple[int, int] | None = None  # the turn that was cut, and how much of it was said

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        return self._play(messages, params)

    def count_tokens(self, text: str) -> int:
        return -(-len(text) // self._script.token_characters)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def _play(self, messages: Sequence[Message], params: Params) -> Deltas:
        self.calls += 1
        index, start = self._choose(messages)
        turn = self._script.turns[index]
        if turn.delay:
            await asyncio.sleep(turn.delay)
        text = turn.text[start:]
        limits = [limit for limit in (params.max_tokens, self.max_output_tokens, turn.cut) if limit is not None]
        tokens = self._tokens(text)
        shown = tokens[: min(limits, default=len(tokens))]
        if turn.error is not None:
            for token in shown[: turn.after]:
                yield Delta(token)
            self._played.add(index)
            raise Problem(turn.error, "The script says that the model fails here.", turn=index)
        for token in shown:
            yield Delta(token)
        was_cut = len(shown) < len(tokens)
        if was_cut:
            said = start + sum(map(len, shown))
            self._unfinished = (index, max(0, said - turn.echo))
        else:
            self._unfinished = None
            self._played.add(index)
        yield self._end(index, turn, was_cut, messages, len(shown))

    def _end(self, index: int, turn: Turn, was_cut: bool, messages: Sequence[Message], shown: int) -> Delta:
        used = turn.usage or Usage(sum(self.count_tokens(message.content) for message in messages), shown)
        if was_cut:
            return Delta(finish_reason="length", usage=used)
        calls = tuple(
            ToolCall(call.id or f"call_{index}_{number}", call.name, call.arguments)
            for number, call in enumerate(turn.tool_calls)
        )
        reason: FinishReason = turn.finish_reason or ("tool_calls" if calls else "stop")
        return Delta(tool_calls=calls, finish_reason=reason, usage=used)

    def _choose(self, messages: Sequence[Message]) -> tuple[int, int]:
        """The turn to play and where to begin in its text."""
        if self._unfinished is not None:
            return self._unfinished
        turns = self._script.turns
        if self._script.position == "conversation":
            index = sum(message.role == "assistant" for message in messages)
            if index < len(turns):
                return index, 0
        else:
            last = messages[-1].content if messages else ""
            for index, turn in enumerate(turns):
                fits = turn.when is None or turn.when in last
                if fits and (turn.repeat or index not in self._played):
                    return index, 0
        raise Problem(
            "script_exhausted",
            "The scripted model has no answer left for this question.",
            turns=len(turns),
            calls=self.calls,
            fix="Add a turn to the script, or mark one with `repeat`.",
        )

    def _tokens(self, text: str) -> list[str]:
        size = self._script.token_characters
        return [text[start : start + size] for start in range(0, len(text), size)]


def load_script(path: Path) -> Script:
    """The script in `path`; mistakes are Problems that say where."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Problem("script_invalid", f"The script {path.name} cannot be read.", reason=str(error)) from error
    return parse_script(data, lines=path.suffix == ".jsonl")


def parse_script(data: bytes, *, lines: bool = False) -> Script:
    if not lines:
        script = _decode(data, Script, "$")
    else:
        numbered = ((number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip())
        script = Script(tuple(_decode(line, Turn, f"line {number}") for number, line in numbered))
    for index, turn in enumerate(script.turns):
        if turn.error is not None and turn.error not in TABLE:
            raise Problem(
                "script_invalid", f"{turn.error!r} is no kind of problem.", at=f"$.turns[{index}].error",
                fix="Use a key of the problem table, such as provider_error or rate_limited.",
            )  # fmt: skip
    return script


def _decode(data: bytes, type: type[T], where: str) -> T:
    try:
        return canonical.decode(data, type)
    except Problem as problem:
        at = problem.details.get("at", "$")
        place = at if where == "$" else f"{where}: {at}"
        raise Problem("script_invalid", f"The script has a mistake: {problem.message}", at=place) from problem
