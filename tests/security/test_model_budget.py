"""An extension's budget of model tokens holds, whatever it does with the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.model import ModelConnector
from forestay.extensions.connectors.paths import Roots
from forestay.kernel import Problem
from tests.extensions.dispatcher_world import plain_call

REQUEST = {"op": "complete", "context": {"messages": [{"role": "user", "content": "x" * 400}]}}


class Talks:
    """A model that says a hundred words of about ten tokens each, and counts them at the end."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        self.asked += 1
        for _ in range(100):
            yield {"delta": "word " * 8}
            await asyncio.sleep(0)
        await self.gate.wait()
        yield {"message": {"model": "m", "provider": "p", "usage": {"input": 100, "output": 1000}}}

    async def models(self) -> list[Mapping[str, Any]]:
        return []


def called(folder: Path) -> Call:
    return plain_call(Roots.of(folder))


async def test_an_answer_that_is_broken_off_counts_too(tmp_path: Path) -> None:
    model = Talks()
    connector = ModelConnector(model, tokens=5_000)
    with pytest.raises(Problem) as refused:
        for _ in range(50):
            work = asyncio.ensure_future(connector.wait(called(tmp_path), REQUEST))
            for _ in range(400):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if work.done() and not work.cancelled() and work.exception():
                raise work.exception()  # type: ignore[misc]
    assert refused.value.key == "budget_exhausted" and model.asked <= 8


async def test_what_is_under_way_counts(tmp_path: Path) -> None:
    model = Talks()
    connector = ModelConnector(model, tokens=1_000)
    works = [asyncio.ensure_future(connector.wait(called(tmp_path), REQUEST)) for _ in range(50)]
    for _ in range(400):
        await asyncio.sleep(0)
    model.gate.set()
    ends = await asyncio.gather(*works, return_exceptions=True)
    assert model.asked < 15
    assert [end.key for end in ends if isinstance(end, Problem)] == ["budget_exhausted"] * (50 - model.asked)


async def test_what_a_provider_counted_is_what_counts(tmp_path: Path) -> None:
    model = Talks()
    model.gate.set()
    connector = ModelConnector(model, tokens=2_000)
    await connector.wait(called(tmp_path), REQUEST)
    assert connector._spent["ext.test"].tokens == 1_100
    await connector.wait(called(tmp_path), REQUEST)
    with pytest.raises(Problem):
        await connector.wait(called(tmp_path), REQUEST)
