"""Constant texts: what the string functions of the language make of them, computed here.

Only what needs no run: every function is total over its inputs and answers None where it cannot tell.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from urllib.parse import unquote

_LONGEST = 65_536  # of a text that is made up here; longer ones are nobody's module name


def called(name: str, text: str, given: Sequence[str | int]) -> str | None:
    """`text.name(...given)`."""
    method = METHODS.get(name)
    if method is None:
        return None
    try:
        made = method(text, *given)
    except (TypeError, ValueError, IndexError):
        return None
    return made if made is not None and len(made) <= _LONGEST else None


def decoded(text: str, encoding: str) -> str | None:
    """`Buffer.from(text, encoding).toString()`, and `atob` for base64."""
    try:
        if encoding == "hex":
            return bytes.fromhex(text).decode()
        if encoding in ("base64", "base64url"):
            plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
            return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
        return text if encoding in ("utf8", "utf-8", "ascii", "latin1", "binary") else None
    except (binascii.Error, ValueError):
        return None


def percent_decoded(text: str) -> str:
    """`decodeURIComponent`, `decodeURI`, `unescape`."""
    wide = re.sub(r"%u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return unquote(wide)


def unescaped(text: str) -> str:
    """One escape sequence of a string literal."""
    simple = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\b": "\b", "\\f": "\f", "\\v": "\v", "\\\n": "", "\\\r\n": ""}
    if text in simple:
        return simple[text]
    if text[:2] in ("\\x", "\\u"):
        digits = text[2:].strip("{}")
        try:
            return chr(int(digits, 16)) if digits else text
        except (ValueError, OverflowError):
            return text
    octal = re.fullmatch(r"\\([0-7]{1,3})", text)
    return chr(int(octal[1], 8)) if octal else text[1:]


def plain_name(name: str) -> str:
    """An identifier without its escapes: `\\u0065val` is `eval`."""
    if "\\" not in name:
        return name
    return re.sub(r"\\u(?:\{[0-9a-fA-F]+\}|[0-9a-fA-F]{4})", lambda found: unescaped(found[0]), name)


def in_base(number: int, base: int) -> str | None:
    """`(1138).toString(36)`."""
    if not 2 <= base <= 36 or number < 0:
        return None
    digits = ""
    while True:
        number, left = divmod(number, base)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[left] + digits
        if not number:
            return digits


def _slice(text: str, start: int = 0, end: int | None = None) -> str:
    return text[start:end]


def _substring(text: str, start: int, end: int | None = None) -> str:
    low, high = max(0, start), len(text) if end is None else max(0, end)
    return text[min(low, high) : max(low, high)]


def _substr(text: str, start: int, length: int | None = None) -> str:
    tail = text[start:]
    return tail if length is None else tail[: max(0, length)]


def _at(text: str, index: int = 0) -> str:
    return text[index] if -len(text) <= index < len(text) else ""


def _pad(text: str, width: int, fill: str, is_start: bool) -> str | None:
    missing = width - len(text)
    if missing > _LONGEST:
        return None
    padding = (fill * missing)[:missing] if missing > 0 and fill else ""
    return padding + text if is_start else text + padding


def _replace(text: str, old: str, new: str) -> str:
    return text.replace(str(old), str(new), 1)


def _repeat(text: str, count: int) -> str | None:
    return text * count if count >= 0 and len(text) * count <= _LONGEST else None


METHODS: dict[str, Callable[..., str | None]] = {
    "at": _at,
    "charAt": _at,
    "concat": lambda text, *others: text + "".join(map(str, others)),
    "normalize": lambda text, *_form: text,
    "padEnd": lambda text, width, fill=" ": _pad(text, width, fill, False),
    "padStart": lambda text, width, fill=" ": _pad(text, width, fill, True),
    "repeat": _repeat,
    "replace": _replace,
    "replaceAll": lambda text, old, new: text.replace(str(old), str(new)),
    "slice": _slice,
    "substr": _substr,
    "substring": _substring,
    "toLowerCase": lambda text: text.lower(),
    "toLocaleLowerCase": lambda text, *_locale: text.lower(),
    "toString": lambda text, *_encoding: text,
    "toUpperCase": lambda text: text.upper(),
    "toLocaleUpperCase": lambda text, *_locale: text.upper(),
    "trim": lambda text: text.strip(),
    "trimEnd": lambda text: text.rstrip(),
    "trimStart": lambda text: text.lstrip(),
    "valueOf": lambda text: text,
}
