"""Looking at a page as a browser's parser does: which elements and attributes are there, and which text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

from tests.security.world import MARK

_ADDRESSES = frozenset({"href", "src", "action", "formaction", "xlink:href", "data", "poster", "background", "srcdoc"})


class Page(HTMLParser):
    """The elements, attributes and text of one page, and what is wrong with them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.links: set[str] = set()
        self.forms: list[dict[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check(tag, attrs)
        if tag == "form":
            self.forms.append(dict(attrs))
        for name, value in attrs:
            if value and name == "href" and value.startswith("/"):
                self.links.add(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        if MARK in data:
            self.faults.append(f"a payload is inside a comment: {data[:80]!r}")

    def unknown_decl(self, data: str) -> None:
        self.faults.append(f"a declaration: {data[:80]!r}")

    def _check(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if MARK in tag or not re.fullmatch(r"[a-z][a-z0-9]*", tag):
            self.faults.append(f"an element of the payload: <{tag}>")
        if tag in ("iframe", "object", "embed", "base", "style", "foreignobject", "math", "frame"):
            self.faults.append(f"an element that no page has: <{tag}>")
        source = dict(attrs).get("src") or ""
        if tag in ("script", "img") and not re.fullmatch(r"/static/[a-z]+\.(js|svg)", source):
            self.faults.append(f"something that is not ours: <{tag}> {attrs}")
        for name, value in attrs:
            if MARK in name or name.startswith("on") or name in ("style", "srcdoc"):
                self.faults.append(f"an attribute of the payload: <{tag} {name}={value!r}>")
            if name in _ADDRESSES and not _stays(value or ""):
                self.faults.append(f"an address that leads away: <{tag} {name}={value!r}>")


def _stays(address: str) -> bool:
    """Whether an address is a path of this host or a place in this page."""
    parts = urlsplit(address)
    return not parts.scheme and not parts.netloc and address[:1] in ("/", "#", "?", "") and address[:2] != "//"
