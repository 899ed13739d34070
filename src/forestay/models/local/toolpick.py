"""Chooses a tool by its description, and its arguments from the words of the question."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from forestay.models.protocol import ToolSpec
from forestay.models.vocabulary import content_words, name_words

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_URL = re.compile(r"https?://[^\s\"'<>]+[^\s\"'<>.,;:!?)]")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(
    r"(?<![\w/])(?:\.{0,2}/)?[\w.-]+(?:/[\w.-]+)+|(?<!\w)[\w-]+\.(?:md|txt|json|toml|csv|py|ts|js|ya?ml)\b"
)
_AFTER_NAME = r"\b{}\b\s*(?:=|:|is|of|to)?\s*([\w.@/-]+)"
_LEAST_SCORE = 2
_LONGEST_QUESTION = 2_000


def pick(question: str, tools: Sequence[ToolSpec], called: Collection[str]) -> tuple[ToolSpec, dict[str, Any]] | None:
    """Return the tool that fits the question, and its arguments; None when none fits or an argument is missing.

    After a first call, it chooses another tool only when the question names it.
    """
    wanted = content_words(question)
    ranked = sorted(
        ((_score(wanted, tool), -position, tool) for position, tool in enumerate(tools) if tool.name not in called),
        key=lambda entry: entry[:2],
        reverse=True,
    )
    for score, _, tool in ranked:
        named = name_words(tool.name) <= wanted
        if score < _LEAST_SCORE or (called and not named):
            continue
        arguments = fill(question, tool.parameters)
        if arguments is not None:
            return tool, arguments
    return None


def _score(wanted: frozenset[str], tool: ToolSpec) -> int:
    return 2 * len(wanted & name_words(tool.name)) + len(wanted & content_words(tool.description))


def fill(question: str, schema: dict[str, Any]) -> dict[str, Any] | None:
    """Find arguments for `schema` in `question`; None when a required one is missing."""
    properties: dict[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    pool = _Pool(question[:_LONGEST_QUESTION])
    arguments: dict[str, Any] = {}
    for name, rule in properties.items():
        value = pool.take(name, rule if isinstance(rule, dict) else {}, name in required)
        if value is not None:
            arguments[name] = value
        elif name in required:
            return None
    return arguments


class _Pool:
    """The values in a question; each is used once."""

    def __init__(self, question: str) -> None:
        self._question = question
        self._quoted: list[str] = [next(filter(None, match.groups())) for match in _QUOTED.finditer(question)]
        self._numbers: list[str] = _NUMBER.findall(question)
        self._links: list[str] = _URL.findall(question)
        self._emails: list[str] = _EMAIL.findall(question)
        self._paths: list[str] = _PATH.findall(_URL.sub(" ", question))

    def take(self, name: str, rule: dict[str, Any], required: bool) -> Any:
        if "const" in rule:
            return rule["const"]
        if "enum" in rule:
            return self._one_of(rule["enum"])
        kind = rule.get("type", "string")
        if kind in ("number", "integer"):
            return self._number(name, kind)
        if kind == "boolean":
            return True if name_words(name) <= content_words(self._question) else None
        if kind == "array":
            return self._list(name, rule.get("items", {}))
        return self._text(name, rule, required) if kind == "string" else None

    def _one_of(self, values: Sequence[Any]) -> Any:
        wanted = content_words(self._question)
        return next(
            (value for value in values if content_words(str(value)) and content_words(str(value)) <= wanted), None
        )

    def _number(self, name: str, kind: str) -> Any:
        beside = re.search(_AFTER_NAME.format(re.escape(name)), self._question, re.IGNORECASE)
        text = beside[1] if beside and _NUMBER.fullmatch(beside[1]) else next(iter(self._numbers), None)
        if text is None or (kind == "integer" and "." in text):
            return None
        if text in self._numbers:
            self._numbers.remove(text)
        return float(text) if "." in text else int(text)

    def _list(self, name: str, items: Any) -> list[Any] | None:
        kind = items.get("type", "string") if isinstance(items, dict) else "string"
        if kind in ("number", "integer"):
            values: list[Any] = []
            while (value := self._number(name, kind)) is not None:
                values.append(value)
            return values or None
        found, self._quoted = self._quoted or self._paths, []
        return list(found) or None

    def _text(self, name: str, rule: dict[str, Any], required: bool) -> str | None:
        hint = name.lower() + " " + str(rule.get("format", ""))
        for words, offers in (
            (("url", "uri", "link", "address"), self._links),
            (("mail",), self._emails),
            (("path", "file", "folder", "dir"), self._paths),
        ):
            if any(word in hint for word in words) and offers:
                return offers.pop(0)
        if self._quoted:
            return self._quoted.pop(0)
        beside = re.search(_AFTER_NAME.format(re.escape(name)), self._question, re.IGNORECASE)
        if beside:
            return str(beside[1])
        # A required text without a value is the question itself: right for queries, harmless for the rest.
        return self._question if required else None
