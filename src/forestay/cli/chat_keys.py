"""Keys of extensions at a prompt: a shortcut sends `/key NAME`, and the typed text returns as the next draft."""

from __future__ import annotations

import re
from collections.abc import Iterable

MARK = " -- "
_KEPT = frozenset("cdhijmqsz")  # the terminal and line editing need these: end, suspend, backspace, tab, enter
_FUNCTIONS = ("OP", "OQ", "OR", "OS", "[15~", "[17~", "[18~", "[19~", "[20~", "[21~", "[23~", "[24~")
_NAMED = {"shift+tab": "[Z", "shift+up": "[1;2A", "shift+down": "[1;2B", "ctrl+up": "[1;5A", "ctrl+down": "[1;5B"}


def sequence(key: str) -> str | None:
    """Return what a terminal sends for a key, in GNU readline's notation; None for a key it cannot tell apart."""
    key = key.lower()
    if key in _NAMED:
        return rf"\e{_NAMED[key]}"
    if found := re.fullmatch(r"f(\d\d?)", key):
        number = int(found[1])
        return rf"\e{_FUNCTIONS[number - 1]}" if 1 <= number <= len(_FUNCTIONS) else None
    if found := re.fullmatch(r"(ctrl|alt)\+([a-z])", key):
        how, letter = found.groups()
        if how == "alt":
            return rf"\e{letter}"
        return None if letter in _KEPT else rf"\C-{letter}"
    if found := re.fullmatch(r"(?:ctrl\+shift|shift\+ctrl)\+([a-z])", key):
        return rf"\e[{ord(found[1])};6u"  # only some terminals tell this key apart
    return None


def bindings(keys: Iterable[str]) -> list[str]:
    """Return bindings for GNU readline: each key puts its name before the typed text and sends the line."""
    return [f'"{code}": "\\C-a/key {key}{MARK}\\C-e\\C-m"' for key in keys if (code := sequence(key)) is not None]


def pressed(arguments: str) -> tuple[str, str]:
    """Return the key, and the text that stood in the line when the person pressed it."""
    key, _, typed = arguments.partition(MARK.rstrip())
    return key.strip(), typed.removeprefix(" ")
