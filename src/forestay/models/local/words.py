"""Words to compare a question with: the stems that carry meaning, without the words of asking."""

from __future__ import annotations

import re

from forestay.models.vocabulary import STOP, words

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_POSSESSIVE = re.compile(r"['’]s\b")
_ASKING = STOP | frozenset(words("please tell use using must might shall"))


def content_words(text: str) -> frozenset[str]:
    return frozenset(words(_POSSESSIVE.sub("", text))) - _ASKING


def name_words(name: str) -> frozenset[str]:
    """The words inside an identifier such as `searchNotes` or `word-count`."""
    return content_words(_CAMEL.sub(" ", name).replace("_", " ").replace("-", " "))
