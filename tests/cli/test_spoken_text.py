"""What a model says on a terminal: Markdown where it can be shown, the words themselves elsewhere."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as some

from forestay.cli.spoken_text import SpokenText, whole_blocks

ANSWER = (
    "# The harbour\n\nIt opens **at seven**, see [the page](https://h.example/a).\n\n"
    "```sh\nls\n\npwd\n```\n\n- one\n- two\n"
)


def shown(*chunks: str, rich: bool) -> str:
    out = io.StringIO()
    spoken = SpokenText(out, rich=rich)
    for chunk in chunks:
        spoken.say(chunk)
    spoken.end()
    return out.getvalue()


def test_s1_markdown_is_shown_however_it_is_cut() -> None:
    whole = shown(ANSWER, rich=True)
    assert whole == shown(*ANSWER, rich=True)
    assert "The harbour" in whole and "at seven" in whole and " • one" in whole
    assert "**" not in whole and "```" not in whole and "# The" not in whole
    assert "https://h.example/a" in whole, "the address is not hidden behind its words"
    assert whole.index("ls") < whole.index("pwd"), "an empty line inside code ends nothing"


def test_s1_a_block_is_shown_when_it_is_whole() -> None:
    out = io.StringIO()
    spoken = SpokenText(out, rich=True)
    spoken.say("It opens at ")
    assert out.getvalue() == ""
    spoken.say("seven.\n\nAnd")
    assert out.getvalue().strip() == "It opens at seven."


def test_s2_without_a_terminal_the_words_are_written_as_they_come() -> None:
    assert shown(ANSWER, rich=False) == ANSWER
    assert shown("It opens ", "at seven.", rich=False) == "It opens at seven.\n"


def test_nothing_that_a_terminal_would_obey_gets_there() -> None:
    for rich in (False, True):
        assert "\x1b]" not in shown("a \x1b]0;title\x07 b\n\n[x](https://h/\x1b[2J)", rich=rich)


@given(some.text(alphabet="a`~\n -", max_size=60))
def test_no_text_is_lost_between_blocks(text: str) -> None:
    blocks, rest = whole_blocks(text)
    assert "".join([*blocks, rest]).split() == text.split()
