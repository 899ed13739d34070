"""The seam between two windows (J1 to J6 of `continuation.py`)."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from forestay.relay.continuation import FLOOR, REACH, Seam, is_wall, join

few = st.text(alphabet="ab", max_size=120)
some = st.text(alphabet="abc \n", max_size=200)
anything = st.text(max_size=200)


def longest(before: str, window: str) -> int:
    """The rule of the contract, word for word and slowly."""
    tail = before[-REACH:]
    for length in range(min(len(tail), len(window)), FLOOR - 1, -1):
        if tail.endswith(window[:length]):
            return length
    return 0


@given(st.one_of(few, some, anything), st.integers(0, 200), st.one_of(few, some, anything), st.integers(1, 9))
@example("a" * 50, 30, "a" * 50, 1)
@example("ab" * 30, 25, "ab" * 30, 3)
def test_j1_j2_j3_only_the_longest_echo_goes_however_the_window_arrives(
    before: str, echo: int, new: str, step: int
) -> None:
    window = before[max(0, len(before) - echo) :] + new
    seam = Seam(before)
    shown = ""
    for at in range(0, len(window), step):
        shown += seam.feed(window[at : at + step])
        assert seam.held <= REACH
    shown += seam.end()
    removed = longest(before, window)
    assert shown == window[removed:]
    assert seam.echo is not None
    assert seam.echo.length == removed


@given(some, some, st.lists(st.integers(1, 30), max_size=20))
def test_j3_the_cut_into_deltas_does_not_matter(before: str, window: str, steps: list[int]) -> None:
    whole, _ = join(before, window)
    seam = Seam(before)
    shown, at = "", 0
    for step in [*steps, len(window)]:
        shown += seam.feed(window[at : at + step])
        at += step
    assert before + shown + seam.end() == whole


def test_j4_a_window_that_is_no_echo_is_shown_from_its_first_character() -> None:
    seam = Seam("The quick brown fox jumps over the lazy dog.")
    assert seam.feed("X") == "X"
    assert seam.held == 0


def test_j4_what_could_only_be_a_short_echo_is_not_held_back() -> None:
    seam = Seam("a tail whose last words are: and so on")
    assert seam.feed("an") == "an"  # `and so on` has 9 characters: below the floor


def test_j4_holding_back_ends_with_the_last_possible_echo() -> None:
    before = "x" * 100 + "0123456789abcdefghijklmno"
    seam = Seam(before)
    assert seam.feed("0123456789abcdefghijklmn") == ""
    assert seam.held == 24
    assert seam.feed("oNEW") == "NEW"


def test_j5_work_is_linear_in_the_tail_and_the_window() -> None:
    class Counting(list[str]):
        looks = 0

        def __getitem__(self, index: object) -> str:  # type: ignore[override]
            Counting.looks += 1
            return super().__getitem__(index)  # type: ignore[index,return-value]

    seam = Seam("a" * 5000)
    seam._window = Counting()
    seam.feed("a" * 1999 + "b" + "a" * 5000)
    assert Counting.looks < 12 * REACH


def test_c12_an_echo_below_twenty_characters_stays() -> None:
    before = "one two three four five six seven"
    echo = before[-19:]
    assert join(before, echo + " eight")[0] == before + echo + " eight"
    echo = before[-20:]
    assert join(before, echo + " eight")[0] == before + " eight"


def test_c12_beyond_two_thousand_characters_nothing_is_an_echo() -> None:
    before = "".join(chr(0x4E00 + n) for n in range(3000))
    assert join(before, before[-2500:] + "!")[1].length == 0
    assert join(before, before[-2000:] + "!")[1].length == 2000


def test_j6_an_echo_of_text_that_does_not_repeat_is_not_ambiguous() -> None:
    before = "The harbour master wrote the depth of each basin into the chart by hand."
    assert join(before, before[-30:] + " Then he slept.")[1].ambiguous is False


def test_j6_equal_rows_are_ambiguous_and_the_longest_echo_goes() -> None:
    row = "| buoy | 12 | north |\n"
    table = row * 40
    joined, echo = join(table, row * 3 + "| end | 1 | south |\n")
    assert echo.ambiguous
    assert echo.length == len(row) * 3
    assert echo.other == len(row) * 2
    assert joined == table + "| end | 1 | south |\n"


def test_j6_a_run_of_one_character_is_ambiguous() -> None:
    joined, echo = join("a" * 300, "a" * 100)
    assert (echo.length, echo.ambiguous, joined) == (100, True, "a" * 300)


def test_wall() -> None:
    assert all(is_wall(reason, 0, 100) for reason in ("length", "max_tokens", "limit"))
    assert not is_wall("stop", 100, 100)
    assert is_wall(None, 99, 100)
    assert not is_wall(None, 98, 100)
