"""Counting tokens: exactly where a tokenizer is at hand, else by an estimate that learns from reported usage.

The estimate starts from the shape of the text (pieces of words, numbers, marks, wide characters) and not from a
fixed number of characters a token; each usage that a provider reports corrects its two weights.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# One match is one unit. The sizes are where byte-pair vocabularies of about 100,000 entries tend to cut.
_PLAIN = re.compile(
    r"[A-Za-z]{1,7}|\d{1,3}|[\u00c0-\u2dff]{1,3}|([!-/:-@\[-`{-~\u00a1-\u00bf])\1{0,3}|[ \t]{2,}|\n+|[\x00-\x08]"
)
_WIDE = re.compile(r"[\u2e80-\uffff\U00010000-\U0010ffff]")

_LEAST_WEIGHT, _MOST_WEIGHT = 0.25, 4.0
_LEAST_UNITS = 16
_LEARNING_RATE = 0.5

_TIKTOKEN_DATA = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


class Estimator:
    """An estimate with one weight for alphabetic text and one for wide characters, corrected by `learn`."""

    exact = False

    def __init__(self) -> None:
        self._plain = 1.0
        self._wide = 1.0

    def count(self, text: str) -> int:
        plain, wide = _units(text)
        return math.ceil(self._plain * plain + self._wide * wide)

    def learn(self, text: str, reported: int) -> None:
        """Move the weights towards `reported` (normalised least mean squares); nonsense is not believed."""
        plain, wide = _units(text)
        units = plain + wide
        if units < _LEAST_UNITS or not _LEAST_WEIGHT <= reported / units <= _MOST_WEIGHT:
            return
        error = reported - (self._plain * plain + self._wide * wide)
        step = _LEARNING_RATE * error / (plain * plain + wide * wide)
        self._plain = _clamp(self._plain + step * plain)
        self._wide = _clamp(self._wide + step * wide)


class ExactCounter:
    """Counts of a real tokenizer (a `tiktoken.Encoding`)."""

    exact = True

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
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


def _units(text: str) -> tuple[int, int]:
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return len(_PLAIN.findall(text)), wide


def _clamp(weight: float) -> float:
    return min(_MOST_WEIGHT, max(_LEAST_WEIGHT, weight))
