"""Parses HTML from anybody without failing on malformed input."""

from __future__ import annotations

from html.parser import HTMLParser


class MarkupReader(HTMLParser):
    """A parser that takes `<![` with an unknown word for a comment, as browsers do; the standard library's raises."""

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i)
