"""The views over the ledger: pure folds of records, and looking that changes nothing."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from forestay.host import relay_view
from forestay.host.agent_view import agent_work
from forestay.host.extension_evidence import seen
from forestay.kernel import ManualClock, Problem, Record, SeededRandomness
from forestay.models import Script, Scripted, Turn
from forestay.relay import Relay

SECRET = b"a secret of sixteen bytes and more"


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


# What extensions did


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


# An agent's steps


def effect(key: str, result: Any, node: str = "n") -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "forestay.effect.recorded", {"key": key}, {"n": node, "p": {"result": result}}


def started(node: str = "n") -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "agent.invocation.started", {"agentId": "a", "resolvedModel": "m"}, {"n": node}


def answered(text: str, *names: str) -> dict[str, Any]:
    calls = [{"name": name, "arguments": {"of": name}} for name in names]
    return {"text": text, "tool_calls": calls, "finish_reason": "tool_calls" if calls else "stop"}


def test_z1_steps_are_the_recorded_effects() -> None:
    asked = {"interruptId": "i", "key": "run:n:0:agent/turn-0/tool-1/approval", "kind": "approval"}
    (work,) = agent_work(
        records(
            started(),
            effect("agent/begin", {"messages": [{"role": "user", "content": "do"}], "surface": [{"name": "x"}]}),
            (
                "forestay.relay.answered",
                {"sessionId": "s", "windowId": "w", "tier": "A", "factsInEnvelope": 2},
                {"n": "n"},
            ),
            effect("agent/turn-0/model", answered("I call", "x", "y")),
            effect("agent/turn-0/tool-0/gate", {"verdict": "run", "reason": "granted", "arguments": {"of": "other"}}),
            effect("agent/turn-0/tool-0/result", {"content": "done", "status": "ok", "duration_ms": 4}),
            effect("agent/turn-0/tool-1/gate", {"verdict": "prompt", "reason": "must be asked"}),
            ("node.suspended", asked, {"n": "n", "p": {"data": {"title": "May it?"}}}),
        )
    )
    (turn,) = work.turns
    assert (turn.session, turn.window, turn.facts) == ("s", "w", 2)
    first, second = turn.tools
    assert (first.arguments, first.result, first.state) == ({"of": "other"}, "done", "ok")
    assert (second.questions[0].title, second.state, second.arguments) == ("May it?", "waits for a person", {"of": "y"})
    assert [said.content for said in work.seen_before(1)] == ["do", "I call", "done"]


def test_z1_an_answer_belongs_to_the_question_with_its_id() -> None:
    key = "run:n:0:agent/turn-0/tool-0/"
    (work,) = agent_work(
        records(
            started(),
            effect("agent/turn-0/model", answered("", "x")),
            ("node.suspended", {"interruptId": "i", "key": key + "a"}, {"n": "n", "p": {"data": {"title": "one"}}}),
            ("interrupt.resolved", {"interruptId": "i", "resumeValue": {"action": "reject"}}, {"n": "n"}),
            ("node.suspended", {"interruptId": "j", "key": key + "b"}, {"n": "n", "p": {"data": {"title": "two"}}}),
            ("interrupt.resolved", {"interruptId": "j", "resumeValue": "plain"}, {"n": "n"}),
        )
    )
    assert [(item.title, item.answer) for item in work.turns[0].tools[0].questions] == [
        ("one", {"action": "reject"}),
        ("two", {"value": "plain"}),
    ]


def test_agents_of_different_nodes_and_rounds_are_apart() -> None:
    works = agent_work(
        records(
            started("a"),
            started("b"),
            effect("agent/turn-0/model", answered("of a"), "a"),
            effect("agent/turn-0/model", answered("of b"), "b"),
            ("agent.invocation.completed", {"outcome": "completed"}, {"n": "a"}),
            started("a"),
            effect("agent/turn-0/model", answered("again"), "a"),
        )
    )
    assert [(work.node, work.turns[0].text, work.outcome) for work in works] == [
        ("a", "of a", "completed"),
        ("b", "of b", ""),
        ("a", "again", ""),
    ]


@pytest.mark.parametrize("result", [None, 3, "x", [], {}, {"tool_calls": []}])
def test_records_of_another_shape_do_not_break_the_view(result: Any) -> None:
    for key in ("agent/begin", "agent/turn-0/model", "agent/turn-0/tool-7/gate", "other"):
        agent_work(records(started(), effect(key, result)))


# The relay


async def relay_in(folder: Path, clock: ManualClock, stack: AsyncExitStack) -> Relay:
    model = Scripted(Script((Turn("The Aurora lies at berth 7."), Turn("Berth 3."))))
    return await stack.enter_async_context(
        Relay.open(folder / "r.db", model=model, secret=SECRET, clock=clock, randomness=SeededRandomness(1))
    )


async def test_y1_looking_writes_nothing_and_y2_a_closed_session_is_still_shown(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app")
        await session.ingest("# Ships\n\nThe Aurora lies at berth 7. The Pétrel lies at berth 3.", "notes")
        await session.dispatch("Be brief.", "Where does the Aurora lie?")
        await session.close()
        before = await relay.ledger.position()
        view = await relay_view.Looks(relay).session(session.id)
        assert view.state == "closed"
        petrel = next(fact for fact, _ in view.found("Pétrel"))
        passage = await view.passage(petrel)
        assert passage.own == "The Pétrel lies at berth 3."
        assert passage.before.endswith("The Aurora lies at berth 7. ")
        assert (await view.preview("", "Where is the Pétrel?")).facts_included > 0
        assert [line.state for line in await relay_view.sessions(relay)] == ["closed"]
        assert await relay.ledger.position() == before


async def test_y3_what_a_model_was_shown_hashes_to_the_record(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app")
        await session.ingest("The Aurora lies at berth 7.", "notes")
        await session.dispatch("Be brief.", "Where does the Aurora lie?")
        await session.ingest("The Aurora lies at berth 8.", "later")  # the state has moved on since
        await session.dispatch("Be brief.", "And now?")
        view = await relay_view.Looks(relay).session(session.id)
        windows = [item for dispatch in view.dispatches for item in dispatch.windows]
        assert [(await view.shown(item.id)).proven for item in windows] == [True, True]
        first = await view.shown(windows[0].id)
        assert "berth 8" not in first.envelope
        assert first.output == "The Aurora lies at berth 7."
        view.dispatches[0].task = "Another task"
        assert (await view.shown(windows[0].id)).proven is False


async def test_the_list_knows_tokens_and_budgets(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app", role="ADMIN", config={"max_total_output_tokens": 500})
        await session.dispatch("", "Where?")
        (line,) = await relay_view.sessions(relay)
        assert (line.windows, line.input_tokens, line.output_tokens) == (
            1,
            session.warm.input_tokens,
            session.warm.output_tokens,
        )
        assert (line.max_windows, line.max_output, line.state) == (None, 500, "open")
        await session.configure(max_windows=9)
        assert (await relay_view.sessions(relay))[0].max_windows == 9
        await session.reset_session()
        assert (await relay_view.sessions(relay))[0].input_tokens == 0


async def test_what_is_not_there_is_not_found(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        with pytest.raises(Problem, match="no such session"):
            await relay_view.Looks(relay).session("../run")
        view = await relay_view.Looks(relay).session((await relay.init("app")).id)
        for number in (0, -1):
            with pytest.raises(Problem, match="There is no such"):
                view.fact(number)
        with pytest.raises(Problem, match="There is no such"):
            await view.shown("none")


async def test_y4_what_was_folded_is_not_read_again_and_a_page_is_read_at_a_time(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app")
        for number in range(60):
            await session.ingest(f"Ship {number} lies at berth {number}.", f"note-{number}")
        reads: list[tuple[int, int | None]] = []
        read = relay.ledger.read

        async def counted(stream: str, start: int = 0, limit: int | None = None, **more: Any) -> Any:
            reads.append((start, limit))
            return await read(stream, start, limit, **more)

        monkeypatch.setattr(relay.ledger, "read", counted)
        looks = relay_view.Looks(relay)
        view = await looks.session(session.id)
        assert len(view.warm.facts) == 60
        assert max(limit or 10**9 for _, limit in reads) <= 50
        await session.ingest("The Aurora lies at berth 7.", "late")
        head = (await relay.ledger.head(f"relay/{session.id}")).seq
        reads.clear()
        again = await looks.session(session.id)
        assert again is view
        assert again.warm.facts[-1].text == "The Aurora lies at berth 7."
        assert min(start for start, _ in reads) > head - 5
        reads.clear()
        assert (await again.passage(again.fact(30))).own == "Ship 30 lies at berth 30."
        assert [limit for _, limit in reads] == [1]
        monkeypatch.setattr(relay_view, "MOST_RECORDS", head)
        with pytest.raises(Problem, match="too large"):
            await looks.session(session.id)


async def test_a_fact_after_a_reset_stands_in_its_own_source(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await relay_in(tmp_path, clock, stack)
        session = await relay.init("app", role="ADMIN")
        await session.ingest("The Aurora lies at berth 7.", "before")
        await session.reset_session()
        await session.ingest("The Petrel lies at berth 3.", "after")
        view = await relay_view.Looks(relay).session(session.id)
        assert (await view.passage(view.fact(0))).own == "The Petrel lies at berth 3."
