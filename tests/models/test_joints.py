"""Characters that a tokenizer may cut in two (C19, B4): the joints by themselves. Real tokenizers: the sweep."""

from __future__ import annotations

import pytest

from forestay.models.joints import Joints, joint_bytes, joints_of
from forestay.models.most_tokens import most_tokens

LAST_OF_ALEF, FIRST_OF_HEBREW = "א".encode()[1:], b"\xd7"


@pytest.mark.parametrize(
    ("token", "joints"),
    [
        (b"quay", []),
        ("ﬁל港".encode(), []),
        (b"\xb8\xaf", []),
        ("о".encode() + b"\xd0", [("о".encode(), b"\xd0")]),
        (b"\xaf" + "港口".encode(), [(b"\xaf", "港".encode())]),
        (b"\xaf" + "港口".encode() + b"\xe5\x8f", [(b"\xaf", "港".encode()), ("口".encode(), b"\xe5\x8f")]),
        (LAST_OF_ALEF + FIRST_OF_HEBREW, [(LAST_OF_ALEF, FIRST_OF_HEBREW)]),
        (b"t\xe1\xbb", [(b"t", b"\xe1\xbb")]),
    ],
)
def test_the_joints_of_a_token_are_where_a_character_begins_beside_a_part(
    token: bytes, joints: list[tuple[bytes, bytes]]
) -> None:
    assert list(joints_of(token)) == joints


def test_j2_two_parts_count_for_the_character_that_follows() -> None:
    joints = Joints([(LAST_OF_ALEF, FIRST_OF_HEBREW)])
    assert joints.broken("אב".encode()) == {0: 1, 2: 2}


def test_j2_a_token_with_a_whole_character_counts_for_it() -> None:
    joints = Joints([("口".encode(), "港".encode()[:1]), (b"\xaf", "口".encode())])
    assert joints.broken("口港口".encode()) == {3: 2}


def test_j2_a_token_with_a_letter_counts_for_the_part() -> None:
    joints = Joints([(b"t", b"\xe1\xbb"), (b"\x8d", b"n")])
    assert joints.broken("tọn".encode()) == {1: 3}
    assert joints.broken("tệ".encode()) == {1: 2}


def test_j1_other_neighbours_touch_nothing() -> None:
    joints = Joints([(LAST_OF_ALEF, FIRST_OF_HEBREW)])
    assert joints.broken("בא בגא".encode()) == {}
    assert Joints([]).broken("אב".encode()) == {}


def test_half_a_character_is_what_tokenizers_get_for_it() -> None:
    assert joint_bytes("a\ud83d\ude00b\ud83d") == "a😀b\ufffd".encode()


def test_b4_a_pair_that_is_cut_costs_more_than_its_characters() -> None:
    """Claude has a token of the end of Alef and the beginning of the next letter: three tokens, not two."""
    apart = sum(most_tokens("א")) + sum(most_tokens("ב"))
    assert apart == 2
    assert sum(most_tokens("אב")) == 3
    assert sum(most_tokens("אב" * 20)) >= 3 * 20
