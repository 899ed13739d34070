"""SIGKILL at any moment: what was acknowledged is there, the chains hold, no sequence has a gap (L1, L2, L3)."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from forestay.kernel.ledger import Ledger
from tests.kernel.ledger.conftest import Address

WRITER = """
import asyncio, sys
from forestay.kernel.ledger import Append, Draft, Ledger

async def main(path, round):
    ledger = Ledger.open(path)

    async def write(task):
        for number in range(10_000):
            drafts = [Draft("crash.test", {"round": round, "task": task, "number": number})]
            if number % 7 == 0:
                records = await ledger.commit(Append(f"run/{task}", drafts), Append("audit", drafts))
            else:
                records = await ledger.append(f"run/{task}", drafts)
            for record in records:
                sys.stdout.write(f"{record.stream} {record.seq} {record.hash}\\n")
            sys.stdout.flush()

    await asyncio.gather(*(write(task) for task in range(50)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.sweep)])
async def test_no_acknowledged_record_is_lost_when_the_writer_is_killed(address: Address, kills: int) -> None:
    path = address("l")
    chance = random.Random(20261115)
    acknowledged: dict[tuple[str, int], str] = {}
    for round in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(round)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        moment = chance.randrange(1, 600)
        for count, line in enumerate(child.stdout, start=1):
            _remember(acknowledged, line)
            if count == moment:
                child.kill()  # what is still in the pipe was acknowledged before the kill
        child.stdout.close()
        assert child.wait() == -9
    async with Ledger.open(path) as ledger:
        verification = await ledger.verify()
        assert verification.ok, verification.faults
        present = {(record.stream, record.seq): record.hash for _, record in await ledger.read_all(limit=1_000_000)}
        for stream, head in (await ledger.streams()).items():
            assert [seq for name, seq in present if name == stream] == list(range(head.seq + 1))
    assert len(acknowledged) > 100 * kills
    missing = {key for key, hash in acknowledged.items() if present.get(key) != hash}
    assert missing == set()


def _remember(acknowledged: dict[tuple[str, int], str], line: str) -> None:
    if line.endswith("\n"):
        stream, seq, hash = line.split()
        acknowledged[stream, int(seq)] = hash
