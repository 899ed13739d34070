"""Makes foreign text safe for a terminal: it cannot move the cursor, colour, hide or reorder anything.

Text of models, extensions, callers and files may contain any control sequence, and a terminal obeys them. So all text
for a person passes here first, and a prompt shows its subject in one line.
"""

from __future__ import annotations

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
_REORDERS = (0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ONE_LINE = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in (*_CONTROLS, *_REORDERS)}
_LINES = {code: shown for code, shown in _ONE_LINE.items() if code not in (0x09, 0x0A)} | {0x0D: ""}


def printable(text: str) -> str:
    """Return `text` with its lines and tabs kept and every other control character spelled out."""
    return text.translate(_LINES)


def one_line(text: str) -> str:
    """Return `text` with every control character spelled out, line ends too."""
    return text.translate(_ONE_LINE)
