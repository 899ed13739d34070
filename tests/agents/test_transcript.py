"""What a model is shown of a conversation is whole, whatever the session holds (R2)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forestay.agents import conversation
from forestay.agents.pi import NO_RESULT


def assistant(*calls: str, stop: str = "toolUse", text: str = "") -> dict[str, Any]:
    blocks = [{"type": "toolCall", "id": call, "name": "ls", "arguments": {}} for call in calls]
    return {"role": "assistant", "content": [{"type": "text", "text": text}, *blocks], "stopReason": stop}


def result(call: str, text: str = "done") -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": call, "content": [{"type": "text", "text": text}]}


MESSAGES = st.one_of(
    st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(lambda calls: assistant(*calls)),
    st.sampled_from("abc").map(result),
    st.just({"role": "user", "content": "hello"}),
    st.just({"role": "custom", "content": "tide"}),
    st.just(assistant("a", stop="aborted")),
    st.just({"role": "bashExecution", "command": "ls", "output": "x", "excludeFromContext": True}),
    st.just("nonsense"),
)


@given(st.lists(MESSAGES, max_size=12))
def test_r2_every_call_has_its_result_right_behind_it_and_every_result_its_call(messages: list[Any]) -> None:
    shown = conversation(messages)
    waiting: list[str] = []
    for message in shown:
        if message.role == "tool":
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call.id for call in message.tool_calls]
    assert not waiting


def test_an_id_that_comes_again_means_the_call_before_it() -> None:
    shown = conversation([assistant("a"), result("a", "one"), assistant("a"), result("a", "two"), assistant("a")])
    assert [message.content for message in shown if message.role == "tool"] == ["one", "two", NO_RESULT]


def test_summaries_and_programs_are_told_in_the_users_name() -> None:
    shown = conversation(
        [
            {"role": "compactionSummary", "summary": "berth 7"},
            {"role": "branchSummary", "summary": "berth 9"},
            {"role": "bashExecution", "command": "ls", "output": "notes"},
        ]
    )
    assert [message.role for message in shown] == ["user"] * 3
    words = ("berth 7", "berth 9", "notes")
    assert all(word in message.content for word, message in zip(words, shown, strict=True))
