"""What tests of writing write."""

from __future__ import annotations

import asyncio

from forestay.kernel.ledger import Append, Draft, Ledger


def one(number: int = 0, text: str = "") -> list[Draft]:
    return [Draft("t", {"n": number, "text": text})]


async def write_side_by_side(ledger: Ledger) -> None:
    def press() -> None:
        for number in range(100):
            ledger.submit(Append("run/thread", one(number), number - 1)).result()

    async def ask() -> None:
        for number in range(300):
            await ledger.append("run/loop", one(number), expect=number - 1)

    await asyncio.gather(asyncio.to_thread(press), ask())
    found = await ledger.verify()
    assert found.ok and found.records == 400
