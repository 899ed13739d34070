"""Targets of the client: answers of a host, and its events."""

from __future__ import annotations

from forestay.client.answers import answer_of
from forestay.client.event_stream import EventStream
from forestay.kernel import canonical
from tests.fuzz.target import target, text_of

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1", b'""', b"{}", b"[]")


@target(
    ["client.answers"],
    [
        b'200\n{"_meta":{},"success":true,"result":{"a":1}}',
        b'404\n{"error":"not_found","message":"m","details":{"problem":"not_found","a":1},"retryAfterMs":5}',
        b'429\n{"_meta":{},"error":{"code":"E","message":"m","details":{"key":"k"}}}',
        b"500\n<html>",
        b'200\n{"_meta":{}}',
    ],
    (*_JSON, b'"error":', b'"_meta":', b'"details":', b'"problem":', b'"self":', b'"retryAfterMs":', b"\n404\n"),
)
def answer_of_a_host(data: bytes) -> None:
    """What something that claims to be a host answered."""
    status, rest = data.partition(b"\n")[::2]
    number = int(status) if status.isdigit() and len(status) == 3 else 200
    answer_of(number, rest, text_of(status))


@target(
    ["client.event_stream"],
    [
        b"id: 1\nevent: a\ndata: {}\n\n",
        b"data:a\r\ndata: b\r\n\r\n:keepalive\n\n",
        b"data: x\r\rdata: \xe2\x80\xa8\n\n",
    ],
    (b"data: ", b"data:", b"id: ", b"event: ", b"\n\n", b"\r\n", b"\r", b":", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c"),
)
def event_stream(data: bytes) -> None:
    """Events are the same however their bytes are cut, and any JSON is the data of one."""
    whole, pieces = EventStream(), EventStream()
    size = 1 + len(data) % 7
    cut = [data[at : at + size] for at in range(0, len(data), size)]
    assert whole.feed(data) == [event for piece in cut for event in pieces.feed(piece)]
    said = canonical.encode(text_of(data))
    assert EventStream().feed(b"id: 1\nevent: a\ndata: %b\n\ndata: {}\n\n" % said) == [said, b"{}"]
