"""Inputs made of inputs: a seeded stream of mutations, the same in every process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

_INTERESTING = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"-1",
    b"0",
    b"1e999",
    b"9" * 20,
    b"\xf0\x9f\x98\x80",
    b"\xe2\x80\xa8",
)


def mutations(pool: Sequence[bytes], words: Sequence[bytes], seed: int, longest: int) -> Iterator[bytes]:
    """Without end: one of `pool`, changed in one to eight places."""
    random = Random(seed)
    inserted = (*words, *_INTERESTING)
    while True:
        data = bytearray(random.choice(pool))
        for _ in range(1 << random.randrange(4)):
            _change(data, pool, inserted, random)
        yield bytes(data[:longest])


def _change(data: bytearray, pool: Sequence[bytes], inserted: Sequence[bytes], random: Random) -> None:
    """One change: a byte, a piece taken out, doubled or moved, a word, or a piece of another input."""
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + 1 + random.randrange(16))
    kind = random.randrange(6)
    if kind == 0 and at < len(data):
        data[at] = random.randrange(256)
    elif kind == 1:
        del data[at:end]
    elif kind == 2:
        data[at:at] = data[at:end] * (1 << random.randrange(8))
    elif kind == 3:
        data[at:end] = random.choice(inserted)
    elif kind == 4:
        other = random.choice(pool)
        data[at:at] = other[random.randrange(len(other) + 1) :]
    else:
        data[at:at] = random.choice(inserted)
