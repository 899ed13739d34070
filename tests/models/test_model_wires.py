"""Both network providers over loopback, with the official packages and the real wire protocols (M1 to M6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forestay import models
from forestay.kernel import ManualClock, Problem
from forestay.models import Completion, Message, Params, Retries, ToolCall, ToolSpec, Usage
from forestay.models.assemble import joined
from tests.models.wire import Reply, Server, serving

WIRES = ("openai", "anthropic")
HELLO = (Message("system", "Be brief."), Message("user", "Say hello."))
ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "number"}}})
# Line ends that a careless SSE reader takes for its own, wide characters, and text that looks like the protocol.
UNICODE = "a\u2028b\u2029c\x85d\x0be\r\nf\ndata: x\n\n🧭 漢字 é\u0301 \\u0041 \x7f"

pytestmark = pytest.mark.parametrize("wire", WIRES)


@asynccontextmanager
async def opened(wire: str, server: Server, clock: ManualClock, **options: Any) -> AsyncIterator[models.OpenModel]:
    address = server.openai if wire == "openai" else server.anthropic
    options = {"retries": Retries(jitter=0), "api_key": "k-1", **options}
    model = models.open(f"{wire}:some-model@{address}", clock=clock, **options)
    try:
        yield model
    finally:
        await model.aclose()


async def ask(wire: str, clock: ManualClock, *replies: Reply, **more: Any) -> tuple[Completion, Server]:
    async with serving(*replies) as server, opened(wire, server, clock) as model:
        return await models.fold(model.stream(more.pop("messages", HELLO), **more)), server


async def failure(wire: str, clock: ManualClock, *replies: Reply, **more: Any) -> tuple[Problem, str, Server]:
    """The Problem that asking ends in, what was shown before it, and the server."""
    shown = []
    async with serving(*replies) as server, opened(wire, server, clock) as model:
        with pytest.raises(Problem) as caught:
            async for delta in model.stream(HELLO, **more):
                shown.append(delta.text)  # noqa: PERF401 - a comprehension would lose them
    return caught.value, "".join(shown), server


async def test_an_answer_with_usage_and_finish_reason(wire: str, clock: ManualClock) -> None:
    answer, server = await ask(wire, clock, Reply(("Hel", "lo", "!")))
    assert answer == Completion("Hello!", (), "stop", Usage(11, 7), served_by="m")
    assert server.requests[0]["model"] == "some-model"
    assert server.requests[0]["stream"] is True


@pytest.mark.parametrize("escaped", [True, False])
async def test_m1_text_is_the_providers_byte_for_byte(wire: str, clock: ManualClock, escaped: bool) -> None:
    pieces = tuple(UNICODE[at : at + 3] for at in range(0, len(UNICODE), 3))
    answer, _ = await ask(wire, clock, Reply(pieces, escaped=escaped))
    assert answer.text == UNICODE


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8), st.booleans())
def test_m1_for_any_text(wire: str, pieces: list[str], escaped: bool) -> None:
    clock = ManualClock(threshold=0.1)
    answer, _ = clock.run(ask(wire, clock, Reply(tuple(pieces), escaped=escaped)))
    assert answer.text == "".join(pieces)


async def test_m1_a_character_split_between_deltas_is_joined(wire: str, clock: ManualClock) -> None:
    answer, _ = await ask(wire, clock, Reply(("x\ud83e", "\udded", "y\ud83e")))
    assert answer.text == "x🧭y\ufffd"


async def test_a_half_of_a_character_that_the_limit_cut_off_waits_for_the_next_answer(
    wire: str, clock: ManualClock
) -> None:
    first, _ = await ask(wire, clock, Reply(("x\ud83e",), finish="length" if wire == "openai" else "max_tokens"))
    second, _ = await ask(wire, clock, Reply(("\udded", " y")))
    assert joined(first.text, second.text) == "x🧭 y"


async def test_m2_tool_calls_are_assembled_from_fragments(wire: str, clock: ManualClock) -> None:
    calls = (("c1", "add", ('{"a"', ": 1", ', "b":2}')), ("c2", "now", ()), ("c3", "add", ('{"a": "é🧭"}',)))
    answer, _ = await ask(wire, clock, Reply(("I add.",), calls), tools=[ADD])
    assert answer.text == "I add."
    assert answer.finish_reason == "tool_calls"
    assert answer.tool_calls == (
        ToolCall("c1", "add", {"a": 1, "b": 2}),
        ToolCall("c2", "now", {}),
        ToolCall("c3", "add", {"a": "é🧭"}),
    )


async def test_m2_malformed_arguments_are_kept_as_written(wire: str, clock: ManualClock) -> None:
    answer, _ = await ask(wire, clock, Reply((), (("c1", "add", ('{"a": ', "oops")),)), tools=[ADD])
    assert answer.tool_calls == (ToolCall("c1", "add", {}, malformed='{"a": oops'),)


async def test_m2_a_call_that_the_token_limit_cut_is_no_call(wire: str, clock: ManualClock) -> None:
    cut = "length" if wire == "openai" else "max_tokens"
    calls = (("c1", "add", ('{"a": 1}',)), ("c2", "add", ('{"a": ',)))
    answer, _ = await ask(wire, clock, Reply((), calls, finish=cut), tools=[ADD])
    assert answer.finish_reason == "length"
    assert [call.id for call in answer.tool_calls] == ["c1"]


@pytest.mark.parametrize(
    ("openai", "anthropic", "ours"),
    [
        ("stop", "end_turn", "stop"),
        ("stop", "stop_sequence", "stop"),
        ("length", "max_tokens", "length"),
        ("length", "model_context_window_exceeded", "length"),
        ("content_filter", "refusal", "content_filter"),
        ("surprise", "surprise", "error"),
    ],
)
async def test_finish_reasons(wire: str, clock: ManualClock, openai: str, anthropic: str, ours: str) -> None:
    answer, _ = await ask(wire, clock, Reply(("x",), finish=openai if wire == "openai" else anthropic))
    assert answer.finish_reason == ours


async def test_m4_impossible_usage_is_none(wire: str, clock: ManualClock) -> None:
    for wrong in ((-5, 3), ("many", 3), (3, -1)):
        answer, _ = await ask(wire, clock, Reply(("x",), usage=wrong))
        assert answer.text == "x"
        assert answer.usage is None


async def test_m4_reasoning_that_is_not_shown_is_counted_apart(wire: str, clock: ManualClock) -> None:
    answer, _ = await ask(wire, clock, Reply(("x",), usage=(5, 90), hidden=80))
    assert answer.usage == Usage(5, 90, 80)


async def test_parameters_reach_the_wire_by_their_names(wire: str, clock: ManualClock) -> None:
    params = Params(max_tokens=50, temperature=0.5, stop=("END",), seed=7)
    _, server = await ask(wire, clock, Reply(("x",)), params=params, tools=[ADD])
    request = server.requests[0]
    assert request["max_tokens"] == 50
    if wire == "openai":
        assert request["temperature"] == 0.5
        assert request["stop"] == ["END"] and request["seed"] == 7
        assert request["tools"][0]["function"]["name"] == "add"
        assert request["stream_options"] == {"include_usage": True}
    else:
        assert request["stop_sequences"] == ["END"]
        assert "seed" not in request and "temperature" not in request
        assert request["system"] == "Be brief."
        assert request["tools"][0]["input_schema"] == ADD.parameters


async def test_a_conversation_with_tools_is_one_that_the_provider_accepts(wire: str, clock: ManualClock) -> None:
    calls = (ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 2}))
    messages = (
        *HELLO,
        Message("assistant", "", calls),
        Message("tool", "1", tool_call_id="c1"),
        Message("tool", "2", tool_call_id="c2"),
        Message("user", "And now?"),
    )
    answer, server = await ask(wire, clock, Reply(("done",)), messages=messages)
    assert answer.text == "done"
    assert len(server.requests) == 1


async def test_m3_a_connection_cut_mid_stream_keeps_what_was_shown_and_is_not_sent_again(
    wire: str, clock: ManualClock
) -> None:
    problem, shown, server = await failure(wire, clock, Reply(("one ", "two ", "three"), cut_after=4))
    assert problem.key == "provider_error"
    assert shown.startswith("one ")
    assert len(server.requests) == 1


async def test_m3_a_body_that_ends_early_is_a_cut_not_an_answer(wire: str, clock: ManualClock) -> None:
    problem, shown, server = await failure(wire, clock, Reply(("one ", "two"), end_after=2 if wire == "openai" else 4))
    assert problem.key == "provider_error"
    assert "before the answer did" in str(problem.details["reason"])
    assert shown.startswith("one ") and len(server.requests) == 1


async def test_m6_cut_before_anything_was_shown_is_sent_again(wire: str, clock: ManualClock) -> None:
    answer, server = await ask(wire, clock, Reply(("lost",), cut_after=1), Reply(("found",)))
    assert answer.text == "found"
    assert len(server.requests) == 2


async def test_m3_a_cut_inside_a_tool_call_gives_no_half_of_it(wire: str, clock: ManualClock) -> None:
    calls = (("c1", "add", ('{"a"', ": 1", ', "b": 2', ', "c": 3}')),)
    for cut in range(3, 7) if wire == "openai" else range(6, 11):  # behind the text, at every fragment
        reply, again = Reply(("I add. ",), calls, cut_after=cut), Reply((), calls)
        heard: list[ToolCall] = []
        async with serving(reply, again) as server, opened(wire, server, clock) as model:
            with pytest.raises(Problem) as caught:
                async for delta in model.stream(HELLO, tools=[ADD]):
                    heard.extend(delta.tool_calls)
        assert caught.value.key == "provider_error"
        assert heard == [] and len(server.requests) == 1


async def test_m6_a_cut_inside_a_tool_call_with_no_text_before_it_is_sent_again(wire: str, clock: ManualClock) -> None:
    calls = (("c1", "add", ('{"a"', ": 1", "}")),)
    answer, server = await ask(wire, clock, Reply((), calls, cut_after=3), Reply((), calls), tools=[ADD])
    assert answer.tool_calls == (ToolCall("c1", "add", {"a": 1}),)
    assert len(server.requests) == 2


async def test_m6_a_429_waits_as_long_as_it_says(wire: str, clock: ManualClock) -> None:
    busy = Reply(status=429, headers=(("retry-after", "17"),), error={"error": {"type": "rate_limit_error"}})
    before = clock.monotonic()
    answer, server = await ask(wire, clock, busy, Reply(("ok",)))
    assert answer.text == "ok" and len(server.requests) == 2
    assert clock.monotonic() - before >= 17


async def test_m6_a_wait_beyond_the_longest_is_the_callers_to_decide(wire: str, clock: ManualClock) -> None:
    busy = Reply(status=429, headers=(("retry-after", "3600"),))
    problem, _, server = await failure(wire, clock, busy)
    assert (problem.key, problem.retry_after_ms) == ("rate_limited", 3_600_000)
    assert len(server.requests) == 1


async def test_m6_a_500_is_tried_a_bounded_number_of_times(wire: str, clock: ManualClock) -> None:
    problem, _, server = await failure(wire, clock, *[Reply(status=500)] * 9)
    assert problem.key == "provider_error" and problem.details["status"] == 500
    assert len(server.requests) == Retries().attempts


async def test_m6_the_providers_advice_not_to_retry_is_taken(wire: str, clock: ManualClock) -> None:
    problem, _, server = await failure(wire, clock, Reply(status=500, headers=(("x-should-retry", "false"),)))
    assert problem.key == "provider_error" and len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "key"), [(400, "provider_rejected"), (401, "provider_unauthenticated"), (404, "provider_rejected")]
)
async def test_a_refusal_is_not_sent_again(wire: str, clock: ManualClock, status: int, key: str) -> None:
    error = {"error": {"message": "because", "type": "some_error"}}
    problem, _, server = await failure(wire, clock, Reply(status=status, error=error))
    assert problem.key == key and problem.details["status"] == status
    assert "because" in problem.details["said"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"data: {not json}\n\n",
        b"event: message_start\ndata: {not json}\n\n",
        b"event: message_start\ndata: [1]\n\ndata: [1]\n\n",
        b"\xff\xfe\n\n: comment only\n\n",
        b"event: message_start\ndata: \xff\n\n",
        b"",
    ],
)
async def test_malformed_sse_is_a_problem_after_bounded_tries(wire: str, clock: ManualClock, body: bytes) -> None:
    problem, shown, server = await failure(wire, clock, *[Reply(raw=body)] * 9)
    assert problem.key == "provider_error" and shown == ""
    assert len(server.requests) == Retries().attempts


async def test_an_error_event_inside_the_stream(wire: str, clock: ManualClock) -> None:
    body = (
        b'data: {"error": {"message": "overloaded", "type": "overloaded_error"}}\n\n'
        if wire == "openai"
        else b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    )
    answer, server = await ask(wire, clock, Reply(raw=body), Reply(("ok",)))
    assert answer.text == "ok" and len(server.requests) == 2


async def test_a_server_that_never_answers_is_given_up(wire: str, clock: ManualClock) -> None:
    problem, _, server = await failure(wire, clock, *[Reply(never=True)] * 9, params=Params(timeout=30))
    assert problem.key == "provider_timeout" and problem.details["began"] is False
    assert len(server.requests) == Retries().attempts


async def test_a_slow_answer_is_not_a_dead_one(wire: str, clock: ManualClock) -> None:
    slow = Reply(("a", "b", "c"), pause_before=(3, 25.0))
    answer, server = await ask(wire, clock, slow, params=Params(timeout=30))
    assert answer.text == "abc" and len(server.requests) == 1


async def test_silence_after_something_was_shown_is_a_timeout_and_not_sent_again(wire: str, clock: ManualClock) -> None:
    problem, shown, server = await failure(
        wire, clock, Reply(("a", "b"), pause_before=(4, 500.0)), params=Params(timeout=30)
    )
    assert problem.key == "provider_timeout" and problem.details["began"] is True
    assert shown.startswith("a") and len(server.requests) == 1


async def test_m5_cancelling_the_reader_closes_the_request(wire: str, clock: ManualClock) -> None:
    async with serving(Reply(("a", "b"), pause_before=(4, 10_000.0))) as server, opened(wire, server, clock) as model:
        shown = asyncio.Event()

        async def read() -> None:
            async for _ in model.stream(HELLO, params=Params(timeout=9_000)):
                shown.set()

        task = asyncio.ensure_future(read())
        await shown.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.closed_by_client.wait(), 5)


async def test_m5_closing_the_iterator_closes_the_request(wire: str, clock: ManualClock) -> None:
    async with serving(Reply(("a", "b"), pause_before=(4, 10_000.0))) as server, opened(wire, server, clock) as model:
        stream: Any = model.stream(HELLO, params=Params(timeout=9_000))
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(server.closed_by_client.wait(), 5)


async def test_nobody_listening_is_a_problem(wire: str, clock: ManualClock) -> None:
    async with serving() as server:
        address = server.openai if wire == "openai" else server.anthropic
    model = models.open(f"{wire}:m@{address}", clock=clock, api_key="k", retries=Retries(attempts=2, jitter=0))
    with pytest.raises(Problem) as caught:
        await models.fold(model.stream(HELLO))
    assert caught.value.key == "provider_error"
    await model.aclose()


async def test_estimates_learn_from_reported_usage(wire: str, clock: ManualClock) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 8
    async with serving(*[Reply((text,), usage=(30, 160))] * 8) as server, opened(wire, server, clock) as model:
        first = model.count_tokens(text)
        for _ in range(8):
            await models.fold(model.stream(HELLO))
        assert 160 <= model.count_tokens(text) <= 1.04 * 160 and first < 120  # a little room above


async def test_wrong_usage_teaches_nothing(wire: str, clock: ManualClock) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 8
    async with serving(*[Reply((text,), usage=(0, 1_000_000))] * 3) as server, opened(wire, server, clock) as model:
        first = model.count_tokens(text)
        for _ in range(3):
            await models.fold(model.stream(HELLO))
        assert model.count_tokens(text) == first
