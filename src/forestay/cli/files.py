"""Reads and writes the files that a command names; a failure says which file, why, and what to do."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path
from typing import Any

from forestay.kernel import Problem

STDIN = "-"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def first_bytes(path: Path, count: int = -1) -> bytes:
    """Return the first `count` bytes of a file, a pipe or standard input (`-`); by default all."""
    name = shown(path)
    try:
        if str(path) == STDIN:
            return sys.stdin.buffer.read(count)
        with path.open("rb") as file:
            return file.read(count)
    except FileNotFoundError:
        raise Problem("file_missing", f"There is no file {name}.", at=name) from None
    except IsADirectoryError:
        raise Problem("file_unreadable", f"{name} is a folder.", at=name, fix="Name a file in it.") from None
    except PermissionError:
        raise Problem(
            "file_unreadable", f"You may not read {name}.", at=name, fix=f"Make it readable: chmod u+r {name}"
        ) from None
    except OSError as error:
        raise Problem(
            "file_unreadable", f"{name} cannot be read: {error.strerror or error}.", at=name, reason=error.strerror
        ) from error


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Return all of a file; more than `limit` bytes are a Problem."""
    content = first_bytes(path, -1 if limit is None else limit + 1)
    if limit is not None and len(content) > limit:
        regular = str(path) != STDIN and path.is_file()
        raise _too_large(shown(path), limit, path.stat().st_size if regular else None)
    return content


def read_text(path: Path, limit: int | None = None, encoding: str | None = None) -> str:
    """Return the text of a file, decoded by `encoding`, else its byte order mark, else UTF-8."""
    return decoded(read_bytes(path, limit), shown(path), encoding)


def write_file(path: Path, content: str | bytes, *, with_folders: bool = False) -> None:
    """Write a file; `with_folders` creates the missing folders above it."""
    try:
        if with_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise Problem("io_failed", f"{path} cannot be written.", reason=error.strerror or "") from error


def decoded(content: bytes, name: str, encoding: str | None = None) -> str:
    """Return `content` as text. No encoding is guessed: a Problem names a likely one instead."""
    how = encoding or next((how for mark, how in _MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(how)
    except LookupError:
        raise Problem(
            "invalid_usage", f"{how!r} is no encoding.", at="--encoding", fix="Use a name such as latin-1."
        ) from None
    except UnicodeDecodeError as error:
        raise _not_text(content, name, how, error.start) from None
    if "\0" in text:
        raise _not_text(content, name, how, content.find(b"\0"))
    return text


def shown(path: Path) -> str:
    return "standard input" if str(path) == STDIN else str(path)


def fix_of(problem: Problem) -> str:
    return str(problem.details.get("fix") or problem.row.remedy)


def _not_text(content: bytes, name: str, encoding: str, offset: int) -> Problem:
    if b"\0" in content:
        likely = _without_mark(content)
        if likely is None:
            return Problem(
                "file_not_text",
                f"{name} is a binary file, and no text.",
                at=name,
                fix="Give a text file; convert a document of another kind to text first.",
            )
    elif all(byte >= 0xA0 or byte in b"\t\n\r\f" or 0x20 <= byte < 0x7F for byte in content):
        likely = "latin-1"
    else:
        likely = None
    line = content.count(b"\n", 0, offset) + 1
    where: dict[str, Any] = {"at": name, "encoding": encoding, "offset": offset, "line": line}
    if likely is None:
        return Problem(
            "file_not_text",
            f"{name} is not {encoding}: byte {offset} (0x{content[offset]:02x}) cannot be read.",
            **where,
            fix="Save it as UTF-8, or say what it is with --encoding, such as --encoding cp1252.",
        )
    return Problem(
        "file_not_text",
        f"{name} is not {encoding}: byte {offset} (0x{content[offset]:02x}) cannot be read. It may be {likely}.",
        **where,
        likely=likely,
        fix=f"Save it as UTF-8, or give --encoding {likely} where that is what it is.",
    )


def _without_mark(content: bytes) -> str | None:
    """Return the UTF-16 encoding of content without a mark: decoded that way it is printable and mostly ASCII."""
    for name in ("utf-16-le", "utf-16-be"):
        try:
            text = content[:4096].decode(name)
        except UnicodeDecodeError:
            continue
        readable = all(character.isprintable() or character.isspace() for character in text)
        if readable and 2 * sum(character.isascii() for character in text) > len(text):
            return name
    return None


def _too_large(name: str, limit: int, size: int | None) -> Problem:
    has = f"{size:,}" if size is not None else f"more than {limit:,}"
    return Problem(
        "payload_too_large",
        f"{name} has {has} bytes; the limit is {limit:,}.",
        at=name,
        limit=limit,
        **({"observed": size} if size is not None else {}),
        fix=f"Split it, for example with: split -C {limit // 1_000_000 or 1}MB {name}",
    )
