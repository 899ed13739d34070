"""A document's front matter and its body are cut at the same line."""

from __future__ import annotations

import pytest

from forestay.extensions.packs import body, front_matter


@pytest.mark.parametrize(
    ("text", "fields", "rest"),
    [
        ("---\nname: a\n---\nDo it.\n", {"name": "a"}, "Do it."),
        ("---\r\nname: a\r\n---\r\nDo\r\nit.", {"name": "a"}, "Do\nit."),
        ("---\nname: 'a'\n  ---  \nDo it.", {"name": "a"}, "Do it."),  # found by fuzzing: an indented end
        ("---\na:--\n\x1f---", {"a": "--"}, ""),
        ("---\nname: a\n----\nb: c\n---\nDo it.", {"name": "a", "b": "c"}, "Do it."),
        ("---\nname: a\n---\nDo it.\n---\nMore.", {"name": "a"}, "Do it.\n---\nMore."),
        ("---\nprose\n---\nDo it.", {}, "---\nprose\n---\nDo it."),
        ("---\nname: a\nDo it.", {}, "---\nname: a\nDo it."),
        ("---", {}, "---"),
        ("", {}, ""),
        ("Do it.\n---\nname: a\n---", {}, "Do it.\n---\nname: a\n---"),
    ],
)
def test_fields_and_body(text: str, fields: dict[str, str], rest: str) -> None:
    assert front_matter(text) == fields
    assert body(text) == rest
