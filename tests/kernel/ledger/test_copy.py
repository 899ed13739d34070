"""A ledger that moves: whole, verified, and once, from one database to the other."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from forestay.kernel import copy_ledger
from forestay.kernel.ledger import Append, Draft, Ledger, transfer
from forestay.kernel.problems import Problem
from tests.postgres import new_ledger


def places(folder: Path, kinds: str) -> list[Path | str]:
    numbers = itertools.count()
    return [new_ledger() if kind == "postgres" else folder / f"{next(numbers)}.db" for kind in kinds.split()]


async def fill(ledger: Ledger, count: int) -> None:
    for number in range(count):
        drafts = [Draft("test.put", {"number": number, "text": "Grüße"}, {"mark": number})]
        await ledger.commit(Append(f"run/{number % 3}", drafts), Append("audit", drafts))


@pytest.mark.parametrize("kinds", ["sqlite postgres", "postgres sqlite"])
async def test_a_copy_has_every_record_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: str
) -> None:
    monkeypatch.setattr(transfer, "_COPY_PAGE", 7)
    one, two = places(tmp_path, kinds)
    async with Ledger.open(one) as source, Ledger.open(two) as target:
        await fill(source, 20)
        told: list[int] = []

        def stop(count: int) -> None:
            told.append(count)
            if len(told) == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await copy_ledger(source, target, stop)
        assert told == [7, 14]
        found = await copy_ledger(source, target)
        assert (found.copied, found.records, found.streams) == (26, 40, 4)
        assert await target.streams() == await source.streams()
        assert [record for _, record in await target.read_all()] == [record for _, record in await source.read_all()]
        await target.append("run/0", [Draft("test.put")])
        with pytest.raises(Problem) as refused:
            await copy_ledger(source, target)
        assert refused.value.key == "ledger_conflict"


async def test_a_source_that_is_written_meanwhile_is_told(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "a.db") as source, Ledger.open(tmp_path / "b.db") as target:
        await fill(source, 3)

        with pytest.raises(Problem) as refused:
            await copy_ledger(source, target, lambda _: source.submit(Append("audit", [Draft("more")])).result())
        assert refused.value.key == "state_conflict" and refused.value.details["stream"] == "audit"
        assert (await copy_ledger(source, target)).copied == 1


async def test_a_target_with_another_history_is_refused(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "a.db") as source, Ledger.open(tmp_path / "b.db") as target:
        await fill(source, 3)
        await fill(target, 2)
        with pytest.raises(Problem) as refused:
            await copy_ledger(source, target)
        assert refused.value.key == "ledger_conflict"
