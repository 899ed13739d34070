"""Invariants of a session's tree, over random sequences of changes, and what it shows of itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel import Ids, ManualClock, Problem, Record, SeededRandomness
from forestay.sessions import SessionTree, TurnStart, context_usage

CHANGES = st.lists(st.tuples(st.sampled_from(["say", "keep", "move", "root", "label", "name"]), st.integers(0, 99)))


def tree() -> SessionTree:
    clock = ManualClock()
    return SessionTree.new("/harbour", clock=clock, ids=Ids(clock, SeededRandomness(1)), tenant="default")


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def change(session: SessionTree, kind: str, number: int) -> None:
    ids = [entry["id"] for entry in session.entries]
    if kind == "say":
        session.append("message", message=said(str(number)), place=f"turn-{number}")
    elif kind == "keep":
        session.append("custom", customType="mark", data=number)
    elif kind == "root":
        session.move(None)
    elif kind == "name":
        session.rename(str(number))
    elif ids and kind == "move":
        session.move(ids[number % len(ids)])
    elif ids:
        session.label(ids[number % len(ids)], str(number) if number % 3 else None)


def read_again(session: SessionTree) -> SessionTree:
    records = [
        Record(f"session/{session.id}", seq, str(seq), draft.type, 0, draft.payload, draft.attrs, "", "")
        for seq, draft in enumerate(session.unsaved)
    ]
    clock = ManualClock()
    return SessionTree.fold(records, clock=clock, ids=Ids(clock, SeededRandomness(2)))


@given(CHANGES)
def test_s1_s3_what_is_unsaved_folds_to_the_same_session(changes: list[tuple[str, int]]) -> None:
    session, before = tree(), list[dict[str, Any]]()
    for kind, number in changes:
        change(session, kind, number)
        assert session.entries[: len(before)] == before, "entries are never changed"
        before = list(session.entries)
    again = read_again(session)
    assert (again.header, again.entries, again.leaf) == (session.header, session.entries, session.leaf)
    assert (again.name, again.messages(), again.tree()) == (session.name, session.messages(), session.tree())
    assert again.saved == len(session.unsaved) - 1
    ids = [entry["id"] for entry in session.entries]
    assert len(set(ids)) == len(ids)
    assert all(entry["parentId"] in {None, *ids[:at]} for at, entry in enumerate(session.entries))


@given(CHANGES)
def test_s4_a_place_stands_once_also_after_a_crash(changes: list[tuple[str, int]]) -> None:
    session = tree()
    for kind, number in changes:
        change(session, kind, number)
    again = read_again(session)
    count = len(again.entries)
    for kind, number in changes:
        if kind == "say":
            assert again.has(f"turn-{number}")
            change(again, kind, number)
    assert len(again.entries) == count and again.unsaved == []


def test_a_branch_a_fork_and_a_compaction() -> None:
    session = tree()
    first = session.append("message", message=said("one"))
    session.append("message", message=said("1", "assistant"))
    second = session.append("message", message=said("two"))
    session.append("compaction", summary="before two", firstKeptEntryId=second, tokensBefore=9)
    session.append("custom_message", customType="tide", content="low", display=True)
    roles = [(message["role"], message.get("summary")) for message in session.messages()]
    assert roles == [("compactionSummary", "before two"), ("user", None), ("custom", None)]
    path, draft = session.fork_point(second, "before")
    assert [entry["id"] for entry in path] == [first, session.entries[1]["id"]] and draft == "two"
    assert session.fork_point(first, "before") == ([], "one")
    assert session.fork_point(second, "at")[0][-1]["id"] == second
    with pytest.raises(Problem, match="no message of the user"):
        session.fork_point(session.entries[1]["id"], "before")
    session.move(first)
    assert [message["content"][0]["text"] for message in session.messages()] == ["one"]
    assert len(session.messages(second)) == 3, "what was said until an entry does not depend on where it stands now"
    with pytest.raises(Problem, match="not found"):
        session.move("nowhere")


def test_a_turn_is_noted_and_found_again() -> None:
    session = tree()
    session.begin_turn(TurnStart("run_1", {"question": "?"}))
    assert read_again(session).turn == TurnStart("run_1", {"question": "?"})


def test_the_window_is_as_full_as_the_provider_counted_and_what_came_after() -> None:
    session = tree()
    assert context_usage(session, 0) is None
    assert context_usage(session, 1000) == {"tokens": 0, "contextWindow": 1000, "percent": 0}
    session.append("message", message=said("x" * 40))
    assert context_usage(session, 1000)["tokens"] >= 10  # type: ignore[index]
    session.append("message", message={**said("seven", "assistant"), "usage": {"totalTokens": 120}})
    assert context_usage(session, 1000) == {"tokens": 120, "contextWindow": 1000, "percent": 12}
    session.append("custom_message", customType="note", content="12345678", display=True)
    assert context_usage(session, 1000)["tokens"] == 122  # type: ignore[index]
    session.append("compaction", summary="s", firstKeptEntryId=session.leaf, tokensBefore=122)
    assert context_usage(session, 1000) == {"tokens": None, "contextWindow": 1000, "percent": None}
