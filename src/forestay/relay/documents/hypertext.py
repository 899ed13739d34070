"""Reads the text of a web page that a reader sees, without scripts and styles."""

from __future__ import annotations

from forestay.kernel import MarkupReader
from forestay.relay.documents.kinds import Unreadable
from forestay.relay.documents.markdown import block, heading, item, line, rows

_HIDDEN = frozenset(("script", "style", "template"))
_HEADINGS = {f"h{level}": level for level in range(1, 7)} | {"title": 1}
_BLOCKS = frozenset(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure "
    "footer form header hr html legend li main nav ol option p pre section summary table tbody td tfoot th thead tr ul "
    "h1 h2 h3 h4 h5 h6 title head".split()
)


def text_of(content: bytes) -> str:
    """Return the page as headings, paragraphs, items, rows and blocks of code, in their order."""
    page = _Page()
    page.feed(content.decode())
    page.close()
    page.flush()
    if not page.parts:
        raise Unreadable("holds no text", "A page that a script fills must be saved from the browser.")
    return "\n\n".join(page.parts) + "\n"


class _Page(MarkupReader):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._text: list[str] = []
        self._hidden = 0
        self._pre = 0
        self._level = 0  # of the heading that is being read
        self._item = False
        self._tables: list[list[list[str]]] = []  # the rows of each open table, the innermost last

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag == "br":
            self._text.append("\n")
        elif tag == "img":
            self._text.append(" ".join(["", *(value or "" for name, value in attrs if name == "alt"), ""]))
        elif tag in _BLOCKS:
            self.flush()
            self._open(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag in _BLOCKS:
            self.flush()
            self._close(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._text.append(data if self._pre else data.replace("\n", " "))

    def flush(self) -> None:
        """Add the collected text to the page, or to the open cell."""
        text, self._text = "".join(self._text), []
        if not text.strip():
            return
        if self._tables and self._tables[-1]:
            cells = self._tables[-1][-1] or self._new_cell()
            cells[-1] = f"{cells[-1]} {line(text)}".strip()
        elif self._level:
            self.parts.append(heading(self._level, text))
        elif self._pre:
            self.parts.append(block(text))
        elif self._item:
            self.parts.append(item(text))
        else:
            self.parts.append("\n".join(filter(None, map(line, text.split("\n")))))

    def _new_cell(self) -> list[str]:
        self._tables[-1][-1].append("")
        return self._tables[-1][-1]

    def _open(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._level = _HEADINGS[tag]
        elif tag == "pre":
            self._pre += 1
        elif tag in ("li", "dd"):
            self._item = True
        elif tag == "table":
            self._tables.append([])
        elif tag == "tr" and self._tables:
            self._tables[-1].append([])
        elif tag in ("td", "th") and self._tables and self._tables[-1]:
            self._new_cell()

    def _close(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._level = 0
        elif tag == "pre":
            self._pre = max(0, self._pre - 1)
        elif tag in ("li", "dd", "ul", "ol", "dl"):  # HTML lets the end tag of an item be left out
            self._item = False
        elif tag == "table" and self._tables:
            self._end_table()

    def _end_table(self) -> None:
        """Add the innermost table to the page, or to the cell of the table around it."""
        table = self._tables.pop()
        if self._tables:
            self._text.append(" ".join(cell for row in table for cell in row))
            self.flush()
        elif written := rows(table):
            self.parts.append(written)

    def close(self) -> None:
        super().close()
        self.flush()
        while self._tables:
            self._end_table()
