"""`@file` in what a person says: the files that a message names, for the model to read with it; and `@agent` at its
beginning: who is to answer.

M1  Only what a person typed names files; a text that an extension wrote does not. A name that is no file stays a word.
M2  Files are read by the tool `read`, as the person: the same policy, the same protected places, the same limits.
M3  A message that begins with the id of an agent is answered by that agent. An id that is none stays a word.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

MOST = 10
_NAME = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
_ADDRESS = re.compile(r"@([A-Za-z0-9][A-Za-z0-9._-]{2,254})(?=[\s,:;!?]|\.\s|$)")
_AFTER = ".,;:!?)]}'"


def mentioned(text: str) -> list[str]:
    """The paths that a text names, as `@path` or `@"path with spaces"`, each once."""
    found = [quoted or plain.rstrip(_AFTER) for quoted, plain in _NAME.findall(text)]
    return list(dict.fromkeys(path for path in found if path))[:MOST]


def addressed(text: str) -> str | None:
    """The name that a text begins with, as `@name` (M3)."""
    found = _ADDRESS.match(text.lstrip())
    return None if found is None else found[1].rstrip(".")


async def with_files(text: str, names: list[str], read: Callable[[str], Awaitable[str | None]]) -> str:
    """The text, and after it the files that it names, as pi gives them to a model; `read` gives None for no file."""
    parts = [text]
    for name in names:
        content = await read(name)
        if content is not None:
            parts.append(f'<file name="{name}">\n{content}\n</file>')
    return "\n\n".join(parts)
