"""SIGKILL in the middle of a dispatch of twenty windows: it goes on behind the last whole window (D3, S3)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from forestay.kernel import Ledger
from forestay.relay import Relay
from forestay.relay.types import SessionConfig

from .conftest import Pieces
from .documents import KINDS

CHILD = """
import asyncio, random, sys
from pathlib import Path
from forestay.relay import Relay
from tests.relay.conftest import Pieces
from tests.relay.documents import KINDS, windows

class Slow(Pieces):
    async def stream(self, messages, **options):
        place = len(self.calls)
        async for delta in super().stream(messages, **options):
            yield delta
            if place == int(sys.argv[2]):
                print("now", flush=True)
                await asyncio.sleep(60)

async def main():
    pieces = Path(sys.argv[1]).with_name("pieces").read_text("utf-8").split(chr(31))
    async with Relay.open(sys.argv[1], model=Slow(pieces)) as relay:
        session = await relay.init("crash", config={"max_total_output_tokens": 100000, "max_output_tokens": 8000})
        await session.ingest("The first basin has 12 m. The second has 9 m.", "basins")
        print(session.id, flush=True)
        await session.dispatch("You write documents.", "Write about the basin.")

asyncio.run(main())
"""


def test_sigkill_in_the_middle_of_twenty_windows(tmp_path: Path) -> None:
    import random

    from .documents import windows

    rng = random.Random(4)
    document = KINDS["markdown"](rng) + KINDS["prose"](rng)
    pieces, _ = windows(document, rng, 20, echo=True)
    (tmp_path / "pieces").write_text(chr(31).join(pieces), "utf-8")
    path = tmp_path / "relay.db"
    killed_in = 11
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(killed_in)], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert child.stdout is not None
    session_id = child.stdout.readline().strip()
    assert child.stdout.readline().strip() == "now"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()

    async def after() -> None:
        rest = Pieces(pieces[killed_in:])
        async with Relay.open(path, model=rest) as relay:
            assert (await relay.ledger.verify("relay/")).ok
            session = await relay.session(session_id)
            state = session.warm.dispatch
            assert state is not None
            assert state.windows == killed_in
            assert document.startswith(state.output)
            before = session.warm.output_tokens
            assert before == sum(rest.count_tokens(piece) for piece in pieces[:killed_in])
            # The window that was killed had been sent: its input stays counted (S3).
            assert session.warm.reserved > 0
            assert session.warm.config == SessionConfig(max_total_output_tokens=100_000, max_output_tokens=8000)
            reply = await session.resume()
            assert reply.output == document
            assert len(rest.calls) == len(pieces) - killed_in
            assert reply.report.telemetry is not None
            assert reply.report.telemetry.windows == len(pieces)
            status = await session.session_status()
            assert status.windows_completed == len(pieces)
            assert status.remaining_budget is not None
            assert status.remaining_budget.output_tokens_remaining == 100_000 - sum(map(rest.count_tokens, pieces))
            spans = [(fact.source, fact.start, fact.end) for fact in session.warm.facts]
            assert len(set(spans)) == len(spans)  # no fact twice
            written = [fact for fact in session.warm.facts if fact.source.startswith("window:")]
            raw = document.encode()
            assert all(raw[fact.start : fact.end].decode() == fact.text for fact in written)
            assert (await relay.ledger.verify("relay/")).ok

    asyncio.run(after())


def test_a_ledger_that_cannot_be_written_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    """O2: a failed append is not remembered as if it had happened."""

    async def main() -> None:
        async with Relay.open(tmp_path / "relay.db", model=Pieces(["An answer."])) as relay:
            session = await relay.init("one")
            other = Ledger.open(tmp_path / "relay.db")
            from forestay.kernel import Draft

            await other.append(session.stream_name, [Draft("crp.note", {})])  # somebody else wrote into the stream
            other.close()
            from forestay.kernel import Problem

            try:
                await session.ingest("A fact that cannot be written.", "x")
                raise AssertionError("the append should have failed")
            except Problem as problem:
                assert problem.key == "ledger_conflict"
            await session.ingest("A fact.", "x")  # the state was read again
            assert [fact.text for fact in session.warm.facts] == ["A fact."]

    asyncio.run(main())
