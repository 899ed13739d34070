"""`@file` in a person's message adds that file for the model; `@agent` at its beginning chooses who answers.

M1  Only text that a person typed names files; a text from an extension does not. A name without a file stays a word.
M2  The tool `read` reads the files as the person: the same policy, the same protected places, the same limits.
M3  An agent answers a message that begins with its id. A name that is no agent's id stays a word.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

MOST = 10
_NAME = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
_ADDRESS = re.compile(r"@([A-Za-z0-9][A-Za-z0-9._-]{2,254})(?=[\s,:;!?]|\.\s|$)")
_AFTER = ".,;:!?)]}'"


def mentioned(text: str) -> list[str]:
    """Return the paths that a text names as `@path` or `@"path with spaces"`, each once."""
    found = [quoted or plain.rstrip(_AFTER) for quoted, plain in _NAME.findall(text)]
    return list(dict.fromkeys(path for path in found if path))[:MOST]


def addressed(text: str) -> str | None:
    """Return the name that a text begins with, as `@name` (M3)."""
    found = _ADDRESS.match(text.lstrip())
    return None if found is None else found[1].rstrip(".")


async def with_files(text: str, names: list[str], read: Callable[[str], Awaitable[str | None]]) -> str:
    """Return the text followed by the files that it names, in pi's form; `read` returns None when there is no file."""
    parts = [text]
    for name in names:
        content = await read(name)
        if content is not None:
            parts.append(f'<file name="{name}">\n{content}\n</file>')
    return "\n\n".join(parts)
