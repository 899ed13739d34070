"""base64url: what goes in comes out, and what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel import base64url


@given(st.binary(max_size=64))
def test_bytes_survive_and_need_no_escaping_in_an_address(data: bytes) -> None:
    text = base64url.encode(data)
    assert base64url.decode(text) == data
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize("text", ["a", "ab cd", "é", "a\0bc", "abc!", "ab\n"])
def test_what_is_no_base64url_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        base64url.decode(text)
