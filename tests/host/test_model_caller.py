"""An agent's conversation with its model: one model writes an answer, and what failed is not on record (C1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from forestay.host.model_caller import RelayModel
from forestay.kernel import Append, Ledger, ManualClock, Problem
from forestay.models import Completion, FinishReason, Message, Params
from forestay.runs import Execution
from tests.relay.conftest import Pieces, ledger, make_relay

__all__ = ["ledger"]


class Node:
    """A node's log as it survives a process: what was recorded is not done again."""

    node_id, run_id = "n", "run"

    def __init__(self, ledger: Ledger) -> None:
        self.kept: dict[str, Any] = {}
        self.said: list[dict[str, Any]] = []
        self.appends: list[Append] = []
        self._ledger = ledger

    async def effect(self, key: str, body: Callable[[], Awaitable[Any]], **_: Any) -> Any:
        if key not in self.kept:
            self.kept[key] = await body()
        return self.kept[key]

    def recorded(self, key: str) -> Any:
        return self.kept.get(key)

    def say(self, type: str, payload: dict[str, Any], place: str = "") -> None:
        self.said.append({"type": type, **payload})

    def along(self, append: Append) -> None:
        self.appends.append(append)

    async def write(self, append: Append) -> None:
        self.along(append)
        await self.flush()

    async def flush(self) -> None:
        appends, self.appends = self.appends, []
        if appends:
            await self._ledger.commit(*appends)


class Life:
    """One process: a relay over the ledger, a node, and an agent that asks once."""

    def __init__(self, ledger: Ledger, node: Node, model: Any) -> None:
        self.relay = make_relay(ledger, ManualClock())
        self._node = node
        self._model = model
        self.heard = ""

    async def ask(self, session_id: str | None = None) -> Completion:
        relay = self.relay
        session = await (relay.session(session_id) if session_id else relay.init("app"))
        model = RelayModel(cast(Execution, self._node), relay, session, self._model)

        async def heard(text: str) -> None:
            self.heard += text

        async def ask() -> Completion:
            return await model.turn(KEY, [Message("user", "Write.", task=True)], (), Params(), heard)

        answer = await model.once(KEY, ask)
        await self._node.flush()
        return answer


KEY = "agent/turn-0/model"


async def test_c4_the_run_names_the_answer_and_the_relay_holds_it(ledger: Ledger) -> None:
    node, model = Node(ledger), Pieces(["Berth 7, as the note says."])
    life = Life(ledger, node, model)
    first = await life.ask()
    assert first.text == life.heard == "Berth 7, as the note says."
    assert set(node.kept[KEY]) == {"session", "digest"}
    assert "Berth" not in str(node.kept), "the run's log has no copy of it"
    again = Life(ledger, node, Pieces(["never"]))
    assert await again.ask(node.kept[KEY]["session"]) == first
    assert len(model.calls) == 1 and again.heard == ""


async def test_c4_an_answer_that_is_not_the_one_that_was_named_is_refused(ledger: Ledger) -> None:
    node = Node(ledger)
    await Life(ledger, node, Pieces(["Berth 7."])).ask()
    node.kept[KEY]["digest"] = "sha256:" + "0" * 64
    with pytest.raises(Problem) as caught:
        await Life(ledger, node, Pieces(["never"])).ask(node.kept[KEY]["session"])
    assert caught.value.key == "chain_broken"


async def test_c3_chunks_put_together_are_the_answer(ledger: Ledger) -> None:
    text = "The Aurora lies at berth 7 and sails on Thursday. " * 20
    node = Node(ledger)
    await Life(ledger, node, Pieces([text])).ask()
    chunks = [item for item in node.said if item["type"] == "output.chunk"]
    assert "".join(item["chunk"] for item in chunks) == text
    assert [item["isLast"] for item in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len(chunks) > 3


def recorded(text: str, finish: str, model: str) -> dict[str, Any]:
    """An answer as 0.2 recorded it: an effect of the run for each window."""
    return {"text": text, "tool_calls": [], "finish_reason": finish, "usage": None, "served_by": "", "model": model}


async def test_an_answer_that_0_2_recorded_whole_is_given_back(ledger: Ledger) -> None:
    node = Node(ledger)
    node.kept[KEY] = {
        "type": "answered", "text": "Berth 7.", "tool_calls": [], "finish_reason": "stop",
        "usage": {"input_tokens": 4, "output_tokens": 2},
    }  # fmt: skip
    model = Pieces(["never"])
    assert (await Life(ledger, node, model).ask()).text == "Berth 7."
    assert model.calls == []


async def test_a_turn_in_which_a_host_of_0_2_died_goes_on_from_its_windows(ledger: Ledger) -> None:
    node = Node(ledger)
    node.kept["model/turn-0/window-0"] = recorded("First half, ", "length", "a")
    model = Pieces(["second half."], name="a")
    assert (await Life(ledger, node, model).ask()).text == "First half, second half."
    assert len(model.calls) == 1


async def test_no_other_model_goes_on_with_an_answer_of_0_2(ledger: Ledger) -> None:
    node = Node(ledger)
    node.kept["model/turn-0/window-0"] = recorded("First half, ", "length", "a")
    other = Pieces(["another voice."], name="b")
    with pytest.raises(Problem) as caught:
        await Life(ledger, node, other).ask()
    assert caught.value.key == "provider_missing" and other.calls == []


@pytest.mark.parametrize("finish", ["error", None])
async def test_an_answer_that_ends_in_an_error_is_not_on_record(ledger: Ledger, finish: FinishReason | None) -> None:
    node = Node(ledger)
    with pytest.raises(Problem) as caught:
        await Life(ledger, node, Pieces([""], last=finish)).ask()
    assert caught.value.key == "provider_error" and KEY not in node.kept
    assert (await Life(ledger, node, Pieces(["Whole."])).ask()).text == "Whole."
