"""The words by which a text is found or compared: lower case, stems, bigrams where a script has no spaces.

And the words that can stand for each other, so that a question finds an answer that was worded differently. A line of
`thesaurus.txt` is a family: each of its words finds the others. A line `kind > one two` holds examples: the kind finds
each of them and each of them finds the kind, but an example does not find another one. Families are written by hand,
for English as it is spoken in everyday life, in offices and around computers; a word may be in several of them. They
hold what a stemmer cannot know: other words for a thing, and forms that do not share a stem (`choose`, `choice`).

`_ANSWERS` says what answers hold: a question that asks how long is answered in days or weeks.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
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


_FURTHER = 25
_FAMILIES = Path(__file__).with_name("thesaurus.txt")

# What an answer holds when a question begins so.
_ANSWERS = """
how long: second minute hour day week month year until
how often: every each daily weekly monthly yearly once twice hour day week month year quarter
how soon: second minute hour day week immediately
how far: metre kilometre mile
how much: euro dollar pound cent percent gigabyte megabyte kilobyte litre gram kilogram
how expensive: euro dollar pound cent
how many: one two three four five six seven eight nine ten dozen hundred thousand
how old: year age
how heavy: gram kilogram ton
how tall: metre centimetre
how big: metre kilobyte megabyte gigabyte
how large: metre kilobyte megabyte gigabyte
how fast: second minute hour
what time: clock morning noon afternoon evening midnight
"""


@cache
def _table() -> dict[str, tuple[str, ...]]:
    """By stem: the stems that can stand for it."""
    found: dict[str, dict[str, None]] = {}

    def join(one: str, other: str) -> None:
        if one != other and other not in STOP and one not in STOP:
            found.setdefault(one, {})[other] = None

    for line in _FAMILIES.read_text("utf-8").splitlines():
        kinds, _, examples = line.partition(" > ")
        family, held = ([stem(word) for word in part.split()] for part in (kinds, examples))
        for one in family:
            for other in (*family, *held):
                join(one, other)
        for one in held:
            for other in family:
                join(one, other)
    return {word: tuple(others) for word, others in found.items()}


def alike(word: str) -> tuple[str, ...]:
    """The stems that can stand for the stem `word`."""
    return _table().get(word, ())


@cache
def further(word: str) -> tuple[str, ...]:
    """The stems that can stand for a synonym of the stem `word`; none when they are many, for then it means much."""
    first = alike(word)
    found = dict.fromkeys(other for one in first for other in alike(one) if other != word and other not in first)
    return tuple(found) if len(found) <= _FURTHER else ()


@cache
def _answers() -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines = (line.partition(": ") for line in _ANSWERS.split("\n") if line)
    return tuple((asked, tuple(dict.fromkeys(map(stem, words.split())))) for asked, _, words in lines)


def answering(question: str) -> list[tuple[str, ...]]:
    """For each way of asking in `question`: the stems that an answer is likely to hold."""
    asked = question.lower()
    return [found for phrase, found in _answers() if phrase in asked]
