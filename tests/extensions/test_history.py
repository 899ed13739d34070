"""What an extension did, as a pure fold of its evidence."""

from __future__ import annotations

from typing import Any

from forestay.extensions.history import seen
from forestay.kernel import Record


def records(*events: tuple[str, dict[str, Any], dict[str, Any]]) -> list[Record]:
    return [
        Record(
            id=f"r{place}",
            stream="s",
            seq=place,
            ts=1000 + place,
            type=kind,
            payload=payload,
            attrs=attrs,
            prev="",
            hash="",
        )
        for place, (kind, payload, attrs) in enumerate(events)
    ]


def call(id: str, kind: str, session: str = "one", **payload: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return kind, payload, {"session_id": session, "host_call_id": id}


def test_v1_a_host_call_is_one_line_whatever_came_between() -> None:
    found = seen(
        records(
            call("a", "host_call.start", capability="read", method="fs", params_hash="1"),
            call("b", "host_call.start", capability="http", method="http", params_hash="2"),
            call("b", "policy.decision", effect="prompt", rule="mode-prompt", reason="asks", resource="x"),
            call("a", "policy.decision", effect="allow", rule="default", reason="granted"),
            call("b", "policy.decision", effect="deny", rule="person-deny", reason="a person said no"),
            call("a", "host_call.end", is_error=False, duration_ms=3.5),
            call("b", "host_call.end", is_error=True, duration_ms=1, error={"code": "denied"}),
            call("c", "host_call.start", capability="exec", method="exec", params_hash="3"),
        )
    )
    c, b, a = found.calls  # the latest first
    assert (a.decision, a.outcome, a.duration_ms) == ("allow", "ok", 3.5)
    assert (b.decision, b.rule, b.resource, b.outcome) == ("deny", "person-deny", "x", "denied")
    assert (c.outcome, c.waits) == ("under way", True)
    assert (found.used["read"].allowed, found.used["http"].refused) == (1, 1)
    assert (found.used["exec"].allowed, found.used["exec"].refused) == (0, 0)  # nobody decided yet


def test_v1_an_id_that_comes_again_in_a_later_life_is_another_call() -> None:
    found = seen(
        records(
            call("a", "host_call.start", "one", capability="read", method="fs", params_hash="1"),
            call("a", "host_call.start", "two", capability="read", method="fs", params_hash="2"),
            call("a", "host_call.end", "two", is_error=False, duration_ms=1),
        )
    )
    assert [(item.params_hash, item.outcome) for item in found.calls] == [("2", "ok"), ("1", "under way")]


def test_troubles_and_resolutions_are_the_latest() -> None:
    found = seen(
        records(
            ("capability.resolve", {"verdict": "accepted"}, {}),
            ("extension.trap", {"kind": "memory", "message": "too much"}, {}),
            ("event_hook.error", {"event": "session_start", "message": "threw"}, {}),
            ("capability.resolve", {"verdict": "refused"}, {}),
        )
    )
    assert [(item.kind, item.message) for item in found.troubles] == [
        ("session_start", "threw"),
        ("memory", "too much"),
    ]
    assert found.resolved == {"verdict": "refused"}
