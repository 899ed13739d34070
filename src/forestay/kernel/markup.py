"""Pages that anybody may have written, read to their end."""

from __future__ import annotations

from html.parser import HTMLParser


class MarkupReader(HTMLParser):
    """The standard library's parser, which raises for `<![` and an unknown word; a browser takes that for a comment."""

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i)
