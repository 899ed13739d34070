"""Targets of the relay: the splitter of texts, web pages."""

from __future__ import annotations

from forestay.relay.documents import hypertext
from forestay.relay.documents.kinds import Unreadable
from forestay.relay.extract import units
from tests.fuzz.target import target, text_of


@target(
    ["relay.extract"],
    [
        b"# Title\n\nOne sentence. Another one, e.g. this.\n\n- item\n- item two\n",
        b"| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\ncode\n```\n",
        b'{"a": [1, 2]}\n\nTitle\n=====\nname: value\nother: value\n',
        b"Speaker: hello\n[10:00] Ann: Hi.\n",
    ],
    (
        b"# ",
        b"```",
        b"~~~",
        b"|",
        b"---",
        b"===",
        b"- ",
        b"1. ",
        b". ",
        b"\n\n",
        b"{",
        b"}",
        b"\r",
        b"\xe2\x80\xa8",
        b": ",
    ),
)
def splitter(data: bytes) -> None:
    """Units of a text stand in their order, inside it, and do not overlap."""
    text, at = text_of(data), 0
    for unit in units(text):
        assert at <= unit.start < unit.end <= len(text)
        at = unit.end


@target(
    ["relay.documents.hypertext"],
    [b"<h1>A</h1><p>b <b>c</b><table><tr><td>1<td>2</table><pre>x\ny</pre><ul><li>z</ul>", b"<script>x</script>y"],
    (b"<table>", b"<tr>", b"<td>", b"</table>", b"<pre>", b"<!--", b"<![CDATA[", b"&#x0;", b"<script>", b"<li>", b"<?"),
)
def web_page(data: bytes) -> None:
    """The text of a web page that somebody had ingested."""
    try:
        hypertext.text_of(text_of(data).encode())
    except Unreadable:
        pass
