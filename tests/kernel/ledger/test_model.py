"""The ledger beside a plain Python model: any appends, reads, follows and restarts give the same answers."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forestay.kernel.ambient import Ids, ManualClock, SeededRandomness
from forestay.kernel.ledger import Append, Draft, Ledger, Record
from forestay.kernel.problems import Problem
from tests.postgres import new_ledger

STREAMS = ("run/a", "run/b", "ext/c")
numbers = st.lists(st.integers(0, 99), max_size=4)
streams = st.sampled_from(STREAMS)
expectations = st.none() | st.integers(-1, 6)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.folder = Path(tempfile.mkdtemp())
        self.address = self.new_address()
        self.runner = asyncio.Runner()
        self.model: dict[str, list[int]] = {name: [] for name in STREAMS}
        self.followers: list[tuple[str, int, AsyncIterator[Record]]] = []
        self.trusted: dict[str, Any] = {}
        self.open()

    def new_address(self) -> Path | str:
        return self.folder / "l.db"

    def open(self) -> None:
        self.ledger = Ledger.open(self.address, clock=self.clock, ids=Ids(self.clock, SeededRandomness(3)), readers=1)

    def run(self, main: Any) -> Any:
        return self.runner.run(main)

    @initialize()
    def begin(self) -> None:
        self.model = {name: [] for name in STREAMS}

    @rule(stream=streams, values=numbers, expect=expectations)
    def append(self, stream: str, values: list[int], expect: int | None) -> None:
        self.commit([(stream, values, expect)])

    @rule(
        parts=st.lists(
            st.tuples(streams, numbers, expectations), min_size=2, max_size=3, unique_by=lambda part: part[0]
        )
    )
    def append_to_several(self, parts: list[tuple[str, list[int], int | None]]) -> None:
        self.commit(parts)

    def commit(self, parts: list[tuple[str, list[int], int | None]]) -> None:
        fits = all(expect is None or expect == len(self.model[stream]) - 1 for stream, _, expect in parts)
        appends = [
            Append(stream, [Draft("t", {"n": value}) for value in values], expect) for stream, values, expect in parts
        ]
        try:
            records = self.run(self.ledger.commit(*appends))
        except Problem as problem:
            assert problem.key == "ledger_conflict"
            assert not fits
            return
        assert fits
        for stream, values, _ in parts:
            mine = [record for record in records if record.stream == stream]
            assert [record.seq for record in mine] == list(
                range(len(self.model[stream]), len(self.model[stream]) + len(values))
            )
            self.model[stream].extend(values)

    @rule(stream=streams, count=st.integers(1, 8))
    def append_from_many_tasks(self, stream: str, count: int) -> None:
        async def many() -> list[list[Record]]:
            return await asyncio.gather(
                *(self.ledger.append(stream, [Draft("t", {"n": number})]) for number in range(count))
            )

        self.run(many())
        self.model[stream].extend(range(count))

    @rule(stream=streams, start=st.integers(0, 12), limit=st.none() | st.integers(1, 5))
    def read(self, stream: str, start: int, limit: int | None) -> None:
        records = self.run(self.ledger.read(stream, start, limit))
        end = None if limit is None else start + limit
        assert [record.payload["n"] for record in records] == self.model[stream][start:end]
        assert [record.seq for record in records] == list(range(start, start + len(records)))

    @rule(stream=streams, back=st.integers(0, 5))
    def follow(self, stream: str, back: int) -> None:
        start = max(0, len(self.model[stream]) - back)
        if len(self.followers) < 4:
            self.followers.append((stream, start, self.ledger.follow(stream, start)))

    @rule()
    def let_followers_catch_up(self) -> None:
        for index, (stream, start, follower) in enumerate(self.followers):
            for expected in self.model[stream][start:]:
                record = self.run(_next(follower))
                assert (record.stream, record.seq, record.payload["n"]) == (stream, start, expected)
                start += 1
            self.followers[index] = (stream, start, follower)

    @rule(seconds=st.integers(0, 5))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def trust_the_heads(self) -> None:
        self.trusted = self.run(self.ledger.streams())

    @rule()
    def restart(self) -> None:
        self.close_followers()
        self.ledger.close()
        self.open()

    @invariant()
    def heads_and_chains_hold(self) -> None:
        for stream, values in self.model.items():
            assert self.run(self.ledger.head(stream)).seq == len(values) - 1
        assert self.run(self.ledger.verify()).ok
        assert self.run(self.ledger.verify(trusted=self.trusted)).ok

    def close_followers(self) -> None:
        for _, _, follower in self.followers:
            self.run(follower.aclose())  # type: ignore[attr-defined]
        self.followers = []

    def teardown(self) -> None:
        self.close_followers()
        self.ledger.close()
        self.runner.close()
        shutil.rmtree(self.folder)


async def _next(follower: AsyncIterator[Record]) -> Record:
    return await anext(follower)


class PgLedgerMachine(LedgerMachine):
    def new_address(self) -> Path | str:
        return new_ledger()


_WITHOUT_TIME = {"deadline": None, "suppress_health_check": list(HealthCheck)}
TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=40, stateful_step_count=30, **_WITHOUT_TIME)  # type: ignore[arg-type]
TestPgLedger = PgLedgerMachine.TestCase
TestPgLedger.settings = settings(max_examples=8, stateful_step_count=20, **_WITHOUT_TIME)  # type: ignore[arg-type]
