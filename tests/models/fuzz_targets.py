"""Targets of models: tokenizers, and the pieces of an answer."""

from __future__ import annotations

from forestay.kernel import canonical
from forestay.models.assemble import SurrogateJoiner, ToolCallFragments
from forestay.models.embed.wordpiece import WordPiece, split
from forestay.models.tokens import Estimator
from forestay.models.vocabulary import content, words
from tests.fuzz.target import target, text_of

_PIECES = WordPiece(["[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "ab", "##ab", ".", "1"])


@target(
    ["models.embed.wordpiece", "models.vocabulary", "models.tokens"],
    [b"abab a.b", "Größe 日本語 naïve éa 한국어".encode(), b"don't stop-gap 3.14 a_b", "ไทย ព្រះ".encode()],
    (b"'", b"-", b"\xcc\x81", "日".encode(), "ﬁ".encode(), "İ".encode(), "ß".encode(), b"\xe2\x80\x8b", b" ", b"##"),
)
def tokenizer(data: bytes) -> None:
    """Words, stems, pieces and estimates of any text."""
    text = text_of(data)
    assert 2 <= len(_PIECES.encode(text, 64)) <= 64
    assert all(word and not word.isspace() for word in [*words(text), *split(text)])
    content(text)
    assert Estimator().count(text) >= 0


@target(
    ["models.assemble"],
    [b'0\x01{"a":1}\x02\xed\xa0\xbd\xed\xb8\x80', b"\xf0\x9f\x98\x80\x02\xed\xb0\x80", b'1\x01{"a":\x01"b"}'],
    (b"\x01", b"\x02", b"\xed\xa0\xbd", b"\xed\xb8\x80", b'{"a":', b"}"),
)
def model_stream(data: bytes) -> None:
    """Pieces of a model's answer, cut anywhere: what comes out is text, and each call has arguments or says none."""
    text = data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace") if _decodes(data) else text_of(data)
    joiner, calls = SurrogateJoiner(), ToolCallFragments()
    said = "".join(map(joiner.feed, text.split("\x02"))) + joiner.rest()
    said[1:].encode()  # a half at the very beginning may belong to the answer before
    for number, piece in enumerate(text.split("\x01")):
        calls.add(number % 2 if number % 3 else None, f"c{number % 2}", "tool", piece)
    for call in calls.finished("stop"):
        assert isinstance(call.arguments, dict)
        canonical.encode(call.arguments)


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True
