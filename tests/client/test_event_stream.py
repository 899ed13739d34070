"""Events of a stream however its bytes are cut, and answers of something that claims to be a host."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forestay.client.answers import answer_of
from forestay.client.event_stream import EventStream
from forestay.kernel import Problem


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_an_event_is_read_however_it_is_cut(size: int) -> None:
    stream, sent = EventStream(), b":keepalive\n\nid: 1\nevent: a\ndata: one\r\ndata:two\r\n\r\ndata: three\r\r"
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert [event for piece in [*pieces, b":"] for event in stream.feed(piece)] == [b"one\ntwo", b"three"]


@pytest.mark.parametrize("letter", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c"])
def test_only_line_breaks_end_a_line(letter: str) -> None:
    """A text in an event may hold what `str.splitlines` takes for the end of a line."""
    said = msgspec.json.encode({"text": f"a{letter}b"})
    assert EventStream().feed(b"id: 7\nevent: node.completed\ndata: %b\n\n" % said) == [said]


def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forestay.client.event_stream.MAX_EVENT", 100)
    for piece in (b"data: " + b"x" * 40 + b"\n", b"data: " + b"x" * 40):
        stream = EventStream()
        with pytest.raises(Problem) as caught:
            for _ in range(10):
                stream.feed(piece)
        assert caught.value.key == "upstream_confused"


@pytest.mark.parametrize(
    ("status", "body", "key", "details"),
    [
        (200, {"_meta": {}}, "upstream_confused", {}),
        (500, {"_meta": {}, "error": "words"}, "upstream_confused", {}),
        (404, {"error": "not_found", "details": {"self": 1, "key": 2, "a": 3}}, "not_found", {"a": 3}),
        (409, {"details": {"problem": ["conflict"]}}, "upstream_confused", {}),
        (429, {"details": {"problem": "rate_limited"}, "retryAfterMs": "soon"}, "rate_limited", {}),
        (400, ["a list"], "upstream_confused", {}),
    ],
)
def test_an_answer_that_no_host_gives_is_a_problem(status: int, body: Any, key: str, details: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        answer_of(status, msgspec.json.encode(body), "\u00b2")
    assert (caught.value.key, caught.value.details, caught.value.retry_after_ms) == (key, details, None)


@pytest.mark.parametrize("content", [b"<html>", b'"\xff"', b"[" * 100_000])
def test_an_answer_that_is_no_json_is_a_problem(content: bytes) -> None:
    with pytest.raises(Problem) as caught:
        answer_of(200, content)
    assert caught.value.key == "upstream_confused"
