"""Answers that must be JSON: finds the value in the model's text, and writes the correction when it does not fit."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from forestay.kernel import Mistake, canonical, mistakes

_FENCE = re.compile(r"```(?:json)?[ \t]*+\n(.*?)```", re.DOTALL)


class Parsed(msgspec.Struct, frozen=True):
    value: Any
    mistakes: tuple[Mistake, ...] = ()


def read(text: str, schema: dict[str, Any]) -> Parsed:
    """Read the JSON value of an answer, which is all of it or its one code block, and its mistakes against `schema`."""
    blocks = _FENCE.findall(text)
    source = blocks[0] if len(blocks) == 1 else text
    try:
        value = msgspec.json.decode(source.strip())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Parsed(None, (Mistake("$", f"The answer is not one JSON value: {error}"),))
    return Parsed(value, tuple(mistakes(schema, value)))


def wanted(schema: dict[str, Any]) -> str:
    """Return the instruction that tells the model the form of its last answer."""
    return (
        "When you have the answer, say it as one JSON value and nothing else. It has to fit this JSON Schema:\n"
        + canonical.encode(schema).decode()
    )


def correction(found: tuple[Mistake, ...]) -> str:
    """Return the message of a repair turn."""
    lines = "\n".join(f"- {mistake.at}: {mistake.message}" for mistake in found)
    return (
        f"Your answer does not fit the schema:\n{lines}\nSay it again, corrected, as one JSON value and nothing else."
    )
