"""Texts of every kind that a window may hold, for property tests of what they cost."""

from __future__ import annotations

import string

from hypothesis import strategies as st

_PROSE = "The harbour master, who's 41, counts Boats at the quay.".split()
_PROSE += "Fußgängerzone Начальник порта 港务长は岸壁 घाट 🚢 e\u0301".split()
_ODD = [
    "<|im_end|>",
    "[INST]",
    "'s",
    "'retail",
    "camelCaseName",
    "HTTPServer",
    "\u200d",
    "\ufdfa",
    "\ufb03",
    "1931",
    "{}",
]

WORDS = st.lists(st.sampled_from(_PROSE + _ODD) | st.text(string.ascii_lowercase, min_size=1, max_size=9)).map(" ".join)
LETTERS = st.text(string.ascii_letters) | st.text("qxzjkvwQXZJKVW") | st.text("abcdefghijklmnopqrstuvwxyz")
ENCODED = st.binary().map(bytes.hex) | st.text(string.ascii_letters + string.digits + "+/=") | st.text(string.digits)
MARKS = st.text(string.punctuation + " \n\t\r") | st.text(st.characters(max_codepoint=0x7F))
WIDE = st.one_of(
    st.text(st.characters(min_codepoint=low, max_codepoint=high))
    for low, high in (
        (0x80, 0x24F),
        (0x370, 0x7FF),
        (0x900, 0x10FF),
        (0x1100, 0x11FF),
        (0x3040, 0x30FF),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A3),
        (0xF900, 0xFFFD),
        (0x10000, 0x10FFFF),
        (0x1F300, 0x1FAFF),
    )
)
PIECE = st.one_of(st.text(), WORDS, LETTERS, ENCODED, MARKS, WIDE)


def any_text(*, surrogates: bool = False, times: int = 40) -> st.SearchStrategy[str]:
    """Text of one kind or of several, once or again and again; with halves of characters where `surrogates`."""
    piece = PIECE | st.text(st.characters(categories=["Cs", "L"])) if surrogates else PIECE
    mixed = st.lists(piece, min_size=1, max_size=4).flatmap(
        lambda pieces: st.sampled_from(["", " ", "\n"]).map(lambda joint: joint.join(pieces))
    )
    return st.builds(lambda text, count: text * count, piece | mixed, st.integers(1, times))
