"""Q1: what a server said is quoted, what it was asked is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.models.quoting import LEFT_OUT, unasked

PROMPT = "The harbour master keeps the key under the third stone."
letters = st.text(alphabet="ab c", max_size=120)


def test_a_servers_own_words_stay() -> None:
    said = "This model's maximum context length is 8192 tokens."
    assert unasked(said, (PROMPT, "How long is the context?")) == said
    assert unasked("", (PROMPT,)) == "" and unasked("short", ("short",)) == "short"


def test_q1_what_it_repeats_is_left_out() -> None:
    said = f"Refused: {PROMPT!r} is not allowed, nor is 'under the third stone'."
    assert unasked(said, ("Hello.", PROMPT)) == f"Refused: '{LEFT_OUT}' is not allowed, nor is '{LEFT_OUT}'."
    assert PROMPT[:20] not in unasked("x" * 900 + PROMPT * 20, (PROMPT,))


@given(st.lists(st.one_of(letters, st.just("?")), max_size=6), st.lists(letters, max_size=3))
def test_q1_no_part_of_32_characters_is_quoted(parts: list[str], asked: list[str]) -> None:
    """True for every text: 32 characters hold two whole steps of the search, and around the second stand at least 16
    characters of the message that nothing before can have taken."""
    found = unasked("".join([*parts, *asked, *parts]), asked)
    for part in found.split(LEFT_OUT):
        windows = {part[at : at + 32] for at in range(len(part) - 31)}
        assert not [window for window in windows for source in asked if window in source]
