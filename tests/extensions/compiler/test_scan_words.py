"""One pattern for many words, and what a file tells of its outermost names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.extensions.compiler.scan.syntax import File
from forestay.extensions.compiler.scan.words import any_of

_WORDS = st.lists(st.text("abc_$", min_size=1, max_size=5), min_size=1, max_size=8)


@given(_WORDS, st.text("abc_$ ", max_size=60))
def test_a_pattern_finds_what_a_list_of_the_words_finds(words: list[str], text: str) -> None:
    plain = b"|".join(re.escape(word.encode()) for word in sorted(words, key=len, reverse=True))
    found = re.findall(rb"(?<!\S)(?:" + plain + rb")(?!\S)", text.encode())
    assert re.findall(rb"(?<!\S)" + any_of(words) + rb"(?!\S)", text.encode()) == found


@pytest.mark.parametrize(
    "text",
    [
        "var a=1,{b,c:[d]}=x;let e;const f=()=>{var no};function g(){let no}class H{m(no){}}g();",
        "import i,{j as k}from'x';function*l(){}",
        "{var m;let no}for(var n of x);if(x)var o;",
        "export const p=1;export default function q(){}",
        "function r(){}",
        "",
    ],
)
def test_the_outermost_names_are_the_same_with_and_without_a_walk(text: str) -> None:
    told, walked = File("", text.encode(), "js"), File("", text.encode(), "js")
    walked.nodes("scope")
    assert list(told.declared()) == list(walked.declared())
    assert "no" not in list(told.declared())


@pytest.mark.parametrize("text", ["function f(){}", "f=>f", "for(const f of x)f()"])
def test_a_program_is_around_a_statement_that_fills_it(text: str) -> None:
    file = File("", text.encode(), "js")
    scope = file.innermost(0)
    assert scope is not None and scope.node.type != "program"
    assert scope.outer is not None and scope.outer.node.type == "program"
