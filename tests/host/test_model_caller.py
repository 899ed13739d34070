"""An agent's conversation with its model: one model writes an answer, and what failed is not on record (C1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from forestay.host.model_caller import Conversation
from forestay.host.models import HostModels, NodeModels
from forestay.kernel import ManualClock, Models, Problem
from forestay.models import FinishReason, Message, Params, fold
from forestay.runs import Caller, Execution, ModelRequest
from tests.relay.conftest import Pieces


class Node:
    """A node's effects as they survive a process: what was recorded is not done again."""

    node_id, run_id = "n", "run"

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def effect(self, key: str, body: Callable[[], Awaitable[Any]], **_: Any) -> Any:
        if key not in self.kept:
            self.kept[key] = await body()
        return self.kept[key]

    def emit(self, *_: Any) -> None:
        pass

    async def flush(self) -> None:
        pass


def talk(node: Node, model: Any) -> Conversation:
    made = Conversation(cast(Execution, node), model)
    made.begin((), (), 0, Params())
    return made


async def said(conversation: Conversation) -> str:
    return (await fold(conversation.stream([Message("user", "Write.")]))).text


async def test_a_host_that_restarts_with_another_model_does_not_go_on_with_an_answer() -> None:
    node = Node()
    assert await said(talk(node, Pieces(["First half, ", "second half."], name="a"))) == "First half, "
    other = Pieces(["another voice."], name="b")
    again = talk(node, other)
    assert await said(again) == "First half, ", "what is on record is given again, whoever wrote it"
    with pytest.raises(Problem) as caught:
        await said(again)
    assert caught.value.key == "provider_missing"
    assert other.calls == []
    same = talk(node, Pieces(["second half."], name="a"))
    assert await said(same) + await said(same) == "First half, second half."


@pytest.mark.parametrize("finish", ["error", None])
async def test_an_answer_that_ends_in_an_error_is_not_on_record(finish: FinishReason | None) -> None:
    node = Node()
    with pytest.raises(Problem) as caught:
        await said(talk(node, Pieces(["Half"], last=finish)))
    assert caught.value.key == "provider_error"
    assert await said(talk(node, Pieces(["Whole."]))) == "Whole."


@pytest.mark.parametrize("finish", ["error", None])
async def test_a_node_does_not_take_an_answer_that_broke_off_for_a_whole_one(finish: FinishReason | None) -> None:
    class Open(Pieces):
        async def aclose(self) -> None:
            pass

    models = HostModels(
        Models(default="m"), clock=ManualClock(), folder=cast(Any, None), own={"m": Open(["Half"], last=finish)}
    )
    request = ModelRequest(messages=[{"role": "user", "content": "x"}])
    with pytest.raises(Problem) as caught:
        async for _ in NodeModels(models).stream(request, Caller("t", "r", "n", "k")):
            pass
    assert caught.value.key == "provider_error"
