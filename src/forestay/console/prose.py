"""Renders a model's Markdown as harmless HTML.

Q1  The elements are those of Markdown, with no attribute but a link's address and what this file writes itself.
Q2  A link may lead to another site (`noopener noreferrer nofollow`); nothing is loaded from there.
Q3  A text longer than `MOST`, or with more marks than `MARKS`, is shown as it was written: parsing it could take too
    long for a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MOST, MARKS = 20_000, 1_500
_HEADING = 2  # levels by which a heading is lowered below those of the page
_LINKS = ("http://", "https://", "mailto:")


@lru_cache(maxsize=256)
def prose(text: str) -> Markup:
    """Return `text` as HTML for the body of an element (Q1 to Q3)."""
    if len(text) > MOST or sum(map(text.count, "[*_&<|~`")) > MARKS:
        return Markup('<p class="plain">{}</p>').format(text)
    return Markup(_reader().render(text))  # noqa: S704 - the reader escapes all that it does not write itself


@cache
def _reader() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "breaks": True})
    made.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    made.validateLink = lambda url: url.lower().startswith(_LINKS)  # type: ignore[method-assign]
    made.core.ruler.push("harmless", _harmless)
    rules: dict[str, Any] = {"fence": _code, "code_block": _code, "table_open": _table, "table_close": _table_end}
    made.renderer.rules.update(rules)  # type: ignore[attr-defined]
    return made


def _harmless(state: Any) -> None:
    """Lower the headings, and leave no attribute but a link's address (Q1, Q2)."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + _HEADING)}"
        token.attrs = {name: value for name, value in token.attrs.items() if name == "start"}
        for inner in token.children or ():
            if inner.type == "link_open":
                inner.attrs = {"href": inner.attrs["href"], "rel": "noopener noreferrer nofollow"}
            else:
                inner.attrs = {}


def _code(tokens: Sequence[Token], place: int, *_: Any) -> str:
    return f'<pre tabindex="0" role="group" aria-label="Code"><code>{escape(tokens[place].content)}</code></pre>\n'


def _table(*_: Any) -> str:
    return '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>\n'


def _table_end(*_: Any) -> str:
    return "</table></div>\n"
