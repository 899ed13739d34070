"""The process that reads a document: its bytes on standard input, a `Converted` on standard output.

The document comes from others, and the libraries that read it are large. So they run in their own process: without
files and network where the system can confine it, and everywhere with limits on memory and processor time.
"""

from __future__ import annotations

import importlib
import resource
import sys

import msgspec

from forestay.relay.documents.kinds import Converted, Unreadable

_MEMORY = 1024 * 1024 * 1024
_READERS = {"pdf": "pdf", "docx": "word", "html": "hypertext"}


def confine(seconds: int) -> None:
    """Limit address space, processor time and open files; forbid writing files."""
    for kind, limit in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))


def converted(kind: str, content: bytes, most: int) -> Converted:
    """Return the text of a document, or the reason why it has none."""
    try:
        text = importlib.import_module(f"forestay.relay.documents.{_READERS[kind]}").text_of(content)
    except ModuleNotFoundError as error:
        return Converted(package=error.name or kind)
    except Unreadable as error:
        return Converted(refused=error.why, fix=error.fix)
    except MemoryError:
        return Converted(refused=f"needs more than {_MEMORY >> 20} MB to be read", fix="Split it.")
    if len(text) > most:
        return Converted(refused=f"holds more than {most:,} characters", fix="Split it.")
    return Converted(text=text)


def main() -> None:
    kind, seconds, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    confine(seconds)
    answer = converted(kind, sys.stdin.buffer.read(), most)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
