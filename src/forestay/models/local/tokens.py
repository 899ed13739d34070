"""The tokens of the local model: words and marks, each with the white space before it."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(text)
