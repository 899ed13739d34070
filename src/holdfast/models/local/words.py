"""Words to compare by: lower case, a light stem, pairs of characters where a script has no spaces."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STOP = frozenset(
    _WORD.findall(
        "a about an and any are as at be but by can could did do does for from had has have how i if in into is it its "
        "me my of on or our please so tell than that the their them then there these they this those to use using was "
        "we were what when where which who whom whose why will with would you your"
    )
)


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that carry meaning."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower()):
        for run in _UNSPACED.findall(word):
            found.update(run[at : at + 2] for at in range(max(1, len(run) - 1)))
        plain = _UNSPACED.sub("", word)
        if plain and plain not in _STOP:
            found.add(_stem(plain))
    return frozenset(found)


def name_words(name: str) -> frozenset[str]:
    """The words inside an identifier such as `searchNotes` or `word-count`."""
    return content_words(_CAMEL.sub(" ", name).replace("_", " ").replace("-", " "))


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending) + ("y" if ending == "ies" else "")
            break
    return word.removesuffix("e") if len(word) > 3 else word
