"""Strings that code puts together to hide what they say: joined, turned round, decoded, spelled by character codes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Protocol

from tree_sitter import Node

from holdfast.extensions.compiler.scan.syntax import call_arguments, text_of

_CHANGES: dict[str, Callable[[str], str]] = {"toLowerCase": str.lower, "toUpperCase": str.upper, "trim": str.strip}
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\b": "\b", "\\0": "\0", "\\f": "\f", "\\v": "\v"}


class Reader(Protocol):
    """What must be known of the expressions inside: their constant text, and the literal behind a name."""

    def string(self, node: Node | None) -> str | None: ...

    def literal(self, node: Node | None) -> Node | None: ...


def spelled(reader: Reader, callee: Node, arguments: list[Node]) -> str | None:
    """`[…].join("")`, `"…".split("").reverse().join("")`, `String.fromCharCode(…)`, `Buffer.from(…).toString()`."""
    if callee.type not in ("member_expression", "subscript_expression"):
        return None
    prop, target = callee.child_by_field_name("property"), callee.child_by_field_name("object")
    name = text_of(prop) if prop is not None else reader.string(callee.child_by_field_name("index"))
    if name == "join":
        parts = _parts(reader, target)
        glue = reader.string(arguments[0]) if arguments else ","
        return glue.join(parts) if parts is not None and glue is not None else None
    if name in ("fromCharCode", "fromCodePoint") and target is not None and text_of(target) == "String":
        codes = [text_of(item) for item in arguments]
        return "".join(chr(int(code, 0)) for code in codes) if codes and all(map(_is_code, codes)) else None
    if name in _CHANGES and not arguments:
        text = reader.string(target)
        return _CHANGES[name](text) if text is not None else None
    if name == "concat":
        texts = _texts(reader, [target, *arguments])
        return "".join(texts) if texts is not None else None
    if name == "toString" and target is not None and target.type == "call_expression":
        inner, given = target.child_by_field_name("function"), call_arguments(target)
        if inner is not None and text_of(inner) == "Buffer.from" and len(given) == 2:
            return decoded(reader.string(given[0])) if reader.string(given[1]) == "base64" else None
    return None


def _parts(reader: Reader, node: Node | None) -> list[str] | None:
    literal = reader.literal(node)
    if literal is not None and literal.type == "array":
        return _texts(reader, literal.named_children)
    if node is None or node.type != "call_expression":
        return None
    callee = node.child_by_field_name("function")
    if callee is None or callee.type != "member_expression":
        return None
    name, target = text_of(callee.child_by_field_name("property") or callee), callee.child_by_field_name("object")
    if name == "reverse":
        inner = _parts(reader, target)
        return inner[::-1] if inner is not None else None
    if name == "split":
        given = call_arguments(node)
        text, glue = reader.string(target), reader.string(given[0]) if given else None
        if text is None or glue is None:
            return None
        return list(text) if glue == "" else text.split(glue)
    return None


def _texts(reader: Reader, nodes: list[Node | None] | list[Node]) -> list[str] | None:
    texts = [text for text in map(reader.string, nodes) if text is not None]
    return texts if len(texts) == len(nodes) else None


def decoded(text: str | None) -> str | None:
    """What base64 stands for, when it is known and is text."""
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return None


def _is_code(text: str) -> bool:
    try:
        return 0 <= int(text, 0) < 0x110000
    except ValueError:
        return False


def unquoted(node: Node) -> str:
    """The text of a string literal."""
    return "".join(
        text_of(child) if child.type == "string_fragment" else unescaped(text_of(child))
        for child in node.named_children
    )


def unescaped(text: str) -> str:
    """The character that an escape sequence stands for."""
    if text in _ESCAPES:
        return _ESCAPES[text]
    digits = text[2:].strip("{}")
    if text[:2] in ("\\x", "\\u") and digits:
        try:
            return chr(int(digits, 16))
        except ValueError:
            return text
    return text[1:]
