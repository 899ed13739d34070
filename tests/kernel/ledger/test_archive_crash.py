"""SIGKILL while streams are written, sealed and removed: each stream is whole or told to be removed (A1 to A3)."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from forestay.kernel.ledger import Ledger
from forestay.kernel.problems import Problem
from tests.kernel.ledger.conftest import Address

WORKER = """
import asyncio, sys
from forestay.kernel.ledger import Draft, Ledger, archives

archives._MOST_RECORDS = 3

def say(*words):
    print(*words, flush=True)

async def main(path, round):
    ledger = Ledger.open(path)
    for number in range(10_000):
        stream = f"run/{round}-{number}"
        for part in range(4):
            (record, _) = await ledger.append(stream, [Draft("t", {"part": part}), Draft("t", {"part": part})])
        say("written", stream, 8)
        if number % 3:
            while await ledger.seal(stream):
                say("sealing", stream, 8)
        if number % 3 == 2:
            await ledger.remove(stream, policy={"days": 1})
            say("removed", stream, 8)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.sweep)])
async def test_a_stream_is_whole_or_removed_when_its_sealer_is_killed(address: Address, kills: int) -> None:
    path = address("l")
    chance = random.Random(20261118)
    written: set[str] = set()
    removed: set[str] = set()
    for round in range(kills):
        line = [sys.executable, "-c", WORKER, str(path), str(round)]
        child = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        moment = chance.randrange(5, 120)
        for count, told in enumerate(child.stdout, start=1):
            match told.split():
                case ["written", stream, "8"]:
                    written.add(stream)
                case ["removed", stream, "8"]:
                    removed.add(stream)
            if count == moment:
                child.kill()
        child.stdout.close()
        assert child.wait() == -9
    assert written and removed
    async with Ledger.open(path) as ledger:
        found = await ledger.verify()
        assert found.ok, found.faults
        assert found.sealed > 0 and found.removed >= 8 * len(removed)
        for stream in written:
            if await ledger.removal(stream) is not None:
                with pytest.raises(Problem, match="were removed"):
                    await ledger.read(stream)
            else:
                assert [record.seq for record in await ledger.read(stream)] == list(range(8))
                assert stream not in removed
        # What was interrupted goes on.
        for stream in written:
            while await ledger.seal(stream):
                pass
        assert (await ledger.verify()).ok
        rows = await ledger.query(
            "SELECT count(*) FROM records r JOIN streams s ON s.id = r.stream WHERE s.name >= ? AND s.name < ?",
            ("run/", "run0"),
        )
        unwritten = set(await ledger.streams("run/", limit=100_000)) - written
        assert rows[0][0] == sum([(await ledger.head(name)).next for name in unwritten])
