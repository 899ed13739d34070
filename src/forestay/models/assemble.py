"""Putting an answer together from what providers stream: tool calls in fragments, split surrogates, finish reasons."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from forestay.models.protocol import FinishReason, ToolCall, Usage

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
    "limit": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


def finish_reason(reported: str, has_calls: bool) -> FinishReason:
    """The provider's word in ours; a word that nobody knows is an error, never a natural end."""
    reason = _FINISH.get(reported, "error")
    # Several compatible servers say "stop" after a tool call.
    return "tool_calls" if has_calls and reason == "stop" else reason


def usage(input_tokens: Any, output_tokens: Any, hidden_tokens: Any = 0) -> Usage | None:
    """Usage when both counts are whole numbers that can be true, else None (M4)."""
    if not _is_count(input_tokens) or not _is_count(output_tokens):
        return None
    hidden = hidden_tokens if _is_count(hidden_tokens) and hidden_tokens <= output_tokens else 0
    return Usage(input_tokens, output_tokens, hidden)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class ToolCallFragments:
    """Tool calls as they arrive: an index, then an id, a name and the arguments' text in pieces."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[str, str, list[str]]] = {}

    def add(self, index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> None:
        position = self._position(index, call_id)
        known_id, known_name, pieces = self._parts.get(position, ("", "", []))
        pieces.append(arguments or "")
        self._parts[position] = (known_id or call_id or "", known_name or name or "", pieces)

    def finished(self, reason: FinishReason) -> tuple[ToolCall, ...]:
        """The calls in order. When the answer was cut, a call whose arguments are not whole is none (M2)."""
        calls = [
            _tool_call(call_id or f"call_{position}", name, "".join(pieces))
            for position, (call_id, name, pieces) in sorted(self._parts.items())
        ]
        return tuple(call for call in calls if reason != "length" or call.malformed is None)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def _position(self, index: int | None, call_id: str | None) -> int:
        if index is not None:
            return index
        last = max(self._parts, default=-1)
        # Without an index, an id that is new begins a new call, and everything else continues the last one.
        begins = last < 0 or (call_id and call_id != self._parts[last][0])
        return last + 1 if begins else last


def _tool_call(call_id: str, name: str, text: str) -> ToolCall:
    if not text.strip():
        return ToolCall(call_id, name, {})
    try:
        return ToolCall(call_id, name, msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ToolCall(call_id, name, {}, malformed=text)


class SurrogateJoiner:
    """Joins a character that a provider split between two deltas into its two halves.

    A half at the very beginning may belong to the answer before this one, which the token limit cut: it stays.
    """

    def __init__(self) -> None:
        self._held = ""
        self._begun = False

    def feed(self, text: str) -> str:
        text, self._held = halves(self._held + text)
        if self._begun or not text:
            return whole(text)
        self._begun = True
        return text[0] + whole(text[1:]) if "\udc00" <= text[0] <= "\udfff" else whole(text)

    def rest(self, cut: bool = False) -> str:
        """What is left at the end: half a character becomes U+FFFD, unless the next answer may bring the other half."""
        held, self._held = self._held, ""
        return held if cut else whole(held)


_HALF = re.compile("[\ud800-\udbff]")


def halves(text: str) -> tuple[str, str]:
    """`text`, and apart from it the first half of a character that it ends with."""
    return (text[:-1], text[-1]) if text and "\ud800" <= text[-1] <= "\udbff" else (text, "")


def joined(before: str, after: str) -> str:
    """Two texts with one character where its halves meet. A half that is then written again, alone or as the whole
    character, stands once."""
    kept, half = halves(before)
    if half and after:
        if "\udc00" <= after[0] <= "\udfff":
            return kept + _character(half + after[0]) + after[1:]
        if after[0] == half:
            return kept + after
        if after[0] > "\uffff" and after[0].encode("utf-16-be", "surrogatepass")[:2] == half.encode(
            "utf-16-be", "surrogatepass"
        ):
            return kept + after
    return before + after


def paired(text: str) -> str:
    """`text` with one character for two halves of it that stand side by side."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if _HALF.search(text) else text


def _character(pair: str) -> str:
    return pair.encode("utf-16", "surrogatepass").decode("utf-16")


def whole(text: str) -> str:
    """`text` as JSON can carry it: half a surrogate pair, which no encoding of Unicode has, becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
