"""Recognizes the kind of a document, and defines the result of reading one."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Kind = Literal["pdf", "docx", "html"]

_HTML_NAMES = (".html", ".htm", ".xhtml")
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)
_LOOKED = 1024  # bytes at the beginning that show the kind


class Converted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text of a document, or why it cannot be read."""

    text: str = ""
    refused: str = ""
    fix: str = ""
    package: str = ""  # a missing package


class Unreadable(Exception):
    """The document cannot be read: `why`, and `fix` says what its owner can do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why, self.fix = why, fix


def document_kind(content: bytes, name: str) -> Kind | None:
    """Recognize the kind of the file `name` by its content; None for a file of another kind."""
    head = content[:_LOOKED]
    if b"%PDF-" in head:
        return "pdf"
    if head.startswith(b"PK\x03\x04") and b"word/document.xml" in content:
        return "docx"
    if _HTML.match(head) or (name.lower().endswith(_HTML_NAMES) and b"<" in head):
        return "html"
    return None


def charset_of(content: bytes) -> str | None:
    """Return the encoding that a page declares."""
    found = _CHARSET.search(content[:_LOOKED])
    return found.group(1).decode("ascii") if found is not None else None
