"""The words by which a text is found or compared: lower case, stems, bigrams where a script has no spaces."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from forestay.models.irregular import IRREGULAR

if TYPE_CHECKING:
    import Stemmer

# A run of letters and digits, or one pictograph (an emoji is a word of its own).
_WORD = re.compile(r"[^\W_]+|[\u2190-\u2bff\U0001f000-\U0001faff]")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

STOP = frozenset(
    "a about all also an and any are as at be been but by can could did do does for from had has have he her his how i "
    "if in into is it its may me my no not of on or our she should so such than that the their them then there these "
    "they this those to was we were what when where which who whom whose why will with would you your".split()
)

_STEMS_KEPT = 200_000
# Of ASCII, what `_WORD` finds in lower case; all else is a space. Faster than a pattern.
_PLAIN = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}


class _Stems(dict[str, str]):
    """The stems of the words that were met, each computed once."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _STEMS_KEPT:
            self.clear()
        made = stem(word)
        result = self[word] = word if made == word else made  # one text for both
        return result


_stem_of = _Stems().__getitem__


def words(text: str) -> list[str]:
    """The stems of every word of `text`, in order, stop words included."""
    if text.isascii():
        return list(map(_stem_of, text.translate(_PLAIN).split()))
    return list(map(_stem_of, _split_unspaced(_WORD.findall(text.lower()))))


def content(text: str) -> list[str]:
    """The words that carry meaning; all of them when a text has only stop words."""
    every = words(text)
    return [word for word in every if word not in STOP] or every


def stem(word: str) -> str:
    """The English stem (Snowball) of a word, an irregular verb's by its infinitive; words with digits stay as they are.

    Stop words and short words stay too, unless they are a form of a verb.
    """
    word = IRREGULAR.get(word, word)
    if len(word) < 4 or word in STOP or not word.isascii() or not word.isalpha():
        return word
    return str(_snowball().stemWord(word))


@cache
def _snowball() -> Stemmer.Stemmer:
    import Stemmer

    return Stemmer.Stemmer("english")


def _split_unspaced(found: list[str]) -> list[str]:
    result: list[str] = []
    for word in found:
        if word.isascii() or not _UNSPACED.search(word):
            result.append(word)
            continue
        at = 0
        for run in _UNSPACED.finditer(word):
            if run.start() > at:
                result.append(word[at : run.start()])
            text = run.group()
            result.extend([text] if len(text) == 1 else [text[i : i + 2] for i in range(len(text) - 1)])
            at = run.end()
        if at < len(word):
            result.append(word[at:])
    return result


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_POSSESSIVE = re.compile(r"['’]s\b")
_ASKING = STOP | frozenset(words("please tell use using must might shall"))


def content_words(text: str) -> frozenset[str]:
    """The words to compare a question with: without the words of asking."""
    return frozenset(words(_POSSESSIVE.sub("", text))) - _ASKING


def name_words(name: str) -> frozenset[str]:
    """The words inside an identifier such as `searchNotes` or `word-count`."""
    return content_words(_CAMEL.sub(" ", name).replace("_", " ").replace("-", " "))
