"""A model's Markdown in the console: it is read, and it can do nothing else."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from forestay.console.prose import MARKS, MOST, prose

ELEMENTS = set("p h3 h4 h5 h6 strong em s a ul ol li pre code blockquote hr br div table thead tbody tr th td".split())
ATTRIBUTES = {"href", "rel", "class", "tabindex", "role", "aria-label", "start"}


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(str(text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs


def test_markdown_is_rendered() -> None:
    page = str(prose("# Tides\n\n**Low** at `9`\nand *high* at 15.\n\n- a\n\n| x |\n|--:|\n| 1 |\n\n```py\n1 < 2\n```"))
    seen = Seen(page)
    for element in ("h3", "strong", "em", "code", "br", "li", "table", "pre"):
        assert element in seen.elements, (element, page)
    assert "1 &lt; 2" in page and "style" not in page


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>)",
        "[x](//evil.example)",
        "[x](/runs/1/cancel)",
        '[x](https://h "onmouseover=alert(1)")',
        "![x](https://h/pixel.png)",
        "[a]: javascript:alert(1)\n\n[a]",
        "`" * 3 + '"><script>\nx\n' + "`" * 3,
    ],
)
def test_q1_q2_nothing_is_run_or_loaded(text: str) -> None:
    check(prose(text))


@given(some.text(alphabet="[]()<>!*_`~|#-:\"' \n/ajsvcriptdhtml&;=.1", max_size=120))
@example("<a href=javascript:alert(1)>")
def test_q1_for_any_text(text: str) -> None:
    check(prose(text))


def check(page: Any) -> None:
    seen = Seen(page)
    assert set(seen.elements) <= ELEMENTS, page
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES, page
    links = [value or "" for name, value in seen.attributes if name == "href"]
    assert all(link.lower().startswith(("http://", "https://", "mailto:")) for link in links), page


@pytest.mark.parametrize("text", ["<b>" + "a" * MOST, "[" * (MARKS + 1)])
def test_q3_a_text_that_would_take_long_is_shown_as_it_is(text: str) -> None:
    assert Seen(prose(text)).elements == ["p"]
