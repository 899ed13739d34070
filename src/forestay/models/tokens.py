"""Counting tokens: by the model's own tokenizer where one is at hand, else by an estimate that usage corrects (C19).

The estimate takes 3.3 characters for a token, and more where a text can be more tokens for one of the tokenizers that
were measured (`most_tokens.py`): words that nobody knows, digits, marks, base64, rare scripts, emoji.
What a provider reports corrects it: at once where it was too low, step by step where it was too high, and never below
what the text can be: a report of one text says little of the next, which may be gibberish.
Each line counts for itself, so that the lines of a request never count less than the whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from forestay.models.most_tokens import most_tokens
from forestay.models.protocol import Message, ToolSpec

CHARACTERS_PER_TOKEN = 3.3
MESSAGE_TOKENS = 8  # what a provider adds to a message: its role and marks, as far as known chat formats go
OPENING_TOKENS = 5  # what a provider adds to a request: its first mark, and the role of the answer
TOOLS_TOKENS = 350  # what a provider says about tools in general; the most that one documents is 346

_LEAST_WEIGHT, _MOST_WEIGHT = 0.25, 4.0
_LEAST_UNITS = 16
_LEARNING_RATE = 0.5
_ROOM = 1.03  # what is kept above a report: the next request is of another mixture
_CACHED, _CACHED_LENGTH = 65_536, 1_000

_TIKTOKEN_DATA = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


class Estimator:
    """An estimate with one weight for ASCII and one for the other characters, corrected by `learn`."""

    exact = False

    def __init__(self) -> None:
        self._plain = 1.0
        self._wide = 1.0

    def count(self, text: str) -> int:
        plain, wide, most = _units(text)
        return max(most, math.ceil(self._plain * plain + self._wide * wide))

    def learn(self, text: str, reported: int) -> None:
        """Move the weights towards `reported` (normalised least mean squares); nonsense is not believed."""
        plain, wide, _ = _units(text)
        units = plain + wide
        if units < _LEAST_UNITS or not _LEAST_WEIGHT <= reported / units <= _MOST_WEIGHT:
            return
        error = _ROOM * reported - (self._plain * plain + self._wide * wide)
        # A window that is counted too small is overrun; one that is counted too large is only not quite full.
        step = (1.0 if error > 0 else _LEARNING_RATE) * error / (plain * plain + wide * wide)
        self._plain = _clamp(self._plain + step * plain)
        self._wide = _clamp(self._wide + step * wide)


class ExactCounter:
    """Counts of a real tokenizer (a `tiktoken.Encoding`)."""

    exact = True

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self._kept = lru_cache(_CACHED)(self._count)  # a tokenizer never changes its mind

    def count(self, text: str) -> int:
        return self._kept(text) if len(text) <= _CACHED_LENGTH else self._count(text)

    def _count(self, text: str) -> int:
        return len(self._encoding.encode(text, disallowed_special=()))

    def learn(self, text: str, reported: int) -> None:
        """There is nothing to learn."""


def counter_for(model: str, environ: Mapping[str, str] = os.environ) -> Estimator | ExactCounter:
    """The model's own tokenizer when `tiktoken` and its data are on this machine, else an estimator."""
    try:
        import tiktoken
        from tiktoken.model import encoding_name_for_model
    except ImportError:
        return Estimator()
    try:
        name = encoding_name_for_model(model)
    except KeyError:
        return Estimator()
    if not tokenizer_data(name, environ).is_file():
        return Estimator()
    try:
        return ExactCounter(tiktoken.get_encoding(name))
    except (OSError, ImportError, ValueError):  # a damaged file: tiktoken would fetch it anew
        return Estimator()


def tokenizer_data(encoding: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where tiktoken keeps the data of `encoding`; looked at first, because tiktoken would download what is missing."""
    folder = environ.get("TIKTOKEN_CACHE_DIR") or environ.get("DATA_GYM_CACHE_DIR")
    root = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    address = _TIKTOKEN_DATA.format(encoding)
    return root / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()


def message_tokens(count: Callable[[str], int], message: Message) -> int:
    """Tokens of one message with its role and its tool calls."""
    calls = sum(
        count(call.name) + count(call.malformed or _json(call.arguments)) + count(call.id) + MESSAGE_TOKENS
        for call in message.tool_calls
    )
    own = sum(count(text) for text in (message.content, message.tool_call_id) if text)
    return own + calls + MESSAGE_TOKENS


def tool_tokens(count: Callable[[str], int], tools: Iterable[ToolSpec]) -> int:
    """Tokens of what the model is told about its tools: a line of JSON for each, behind an introduction."""
    told = [count(_spaced_json(msgspec.json.encode(tool))) + MESSAGE_TOKENS for tool in tools]
    return sum(told) + TOOLS_TOKENS if told else 0


@lru_cache(maxsize=512)  # the same tools are offered again and again
def _spaced_json(tool: bytes) -> str:
    """A tool as chat formats write it; the spaces count."""
    said = msgspec.json.decode(tool)
    shown = {name: said[name] for name in ("name", "description", "parameters")}
    return json.dumps({"type": "function", "function": shown}, ensure_ascii=False)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _units(text: str) -> tuple[float, int, int]:
    """Tokens before any correction, of the ASCII part and of the rest, and the most that the whole can be."""
    plain, wide = most_tokens(text)
    ascii_characters = len(text) if text.isascii() else sum(character <= "\x7f" for character in text)
    return max(plain, ascii_characters / CHARACTERS_PER_TOKEN), wide, plain + wide


def _clamp(weight: float) -> float:
    return min(_MOST_WEIGHT, max(_LEAST_WEIGHT, weight))
