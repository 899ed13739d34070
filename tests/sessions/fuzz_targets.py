"""Targets of sessions: the file of pi."""

from __future__ import annotations

from forestay.kernel import Ids, ManualClock, SeededRandomness
from forestay.sessions.pi_file import read_file, write_file
from forestay.sessions.tree import SessionTree
from tests.fuzz.target import target

_HEADER = b'{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n'
_ENTRY = b'{"type":"message","id":"a","parentId":null,"timestamp":"t","message":{"role":"user","content":"hi"}}\n'


@target(
    ["sessions.pi_file", "sessions.tree"],
    [
        _HEADER + _ENTRY + _ENTRY.replace(b'"id":"a","parentId":null', b'"id":"b","parentId":"a"'),
        _HEADER.replace(b'"version":3,', b"")
        + b'{"type":"compaction","timestamp":"t","summary":"x","firstKeptEntryIndex":1}\n'
        + _ENTRY,
        _HEADER + _ENTRY + b'{"type":"label","id":"l","parentId":"a","timestamp":"t","targetId":"a","label":"x"}',
        _HEADER + _ENTRY + b'{"type":"compaction","id":"c","parentId":"a","timestamp":"t","summary":"s",'
        b'"firstKeptEntryId":"a","tokensBefore":3}',
    ],
    (b'"type":"message"', b'"parentId":', b'"role":"assistant"', b'"content":[', b'"version":2', b"\n", b"null", b"{}"),
)
def session_file(data: bytes) -> None:
    """A session file of pi; what is taken can be shown and written again."""
    clock = ManualClock()
    ids = Ids(clock, SeededRandomness(1))
    header, entries = read_file(data, ids)
    tree = SessionTree(header, entries, clock=clock, ids=ids)
    tree.messages()
    again = read_file(b"".join(write_file(tree)), ids)
    assert again[1] == entries
