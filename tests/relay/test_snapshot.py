"""A session that is opened from its snapshot is the one that its records fold to; a wrong file is never used."""

from __future__ import annotations

import random
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.kernel import Head, Ledger, ManualClock, Record
from forestay.relay import Relay, Warm, rank
from forestay.relay.index import Index
from forestay.relay.session import Session
from forestay.relay.snapshot import KeptFacts, State, read, write

from .conftest import make_relay

SECRET = b"a secret of thirty-two bytes ...."
SESSION = "0" * 36
_SUBJECTS = ("pump", "Falcon basin", "harbour", "Grüße", "灯塔")


def sentence(rng: random.Random) -> str:
    subject = rng.choice(_SUBJECTS)
    return f"The {subject} is {rng.randint(1, 3)} m deep. It was built in {rng.choice(['May', 'June'])} 2024."


async def programme(session: Session, rng: random.Random, steps: int) -> None:
    """Texts that correct, replace and take each other back, compactions, feedback and resets."""
    for _ in range(steps):
        label = rng.choice(["one", "two", None])
        text = "# 8 May 2025\n\n" + "\n\n".join(sentence(rng) for _ in range(rng.randint(1, 4)))
        if rng.random() < 0.3:
            text += "\n\nMara: Good morning.\nJonas: The pump runs.\nMara: Since May?\n"
        done = rng.random()
        if done < 0.6 or not session.warm.facts:
            await session.ingest(text, label, whole=label is not None and rng.random() < 0.4)
        elif done < 0.7:
            await session.compact()
        elif done < 0.8:
            await session.fact_feedback(f"f{rng.randrange(len(session.warm.facts))}", rng.choice(["reject", "boost"]))
        elif done < 0.9:
            await session.restore_facts([f"f{rng.randrange(len(session.warm.facts))}"])
        elif "ingest:one" in session.warm.corrects:
            await session.take_back("one")


def folded(records: list[Record], warm: Warm | None = None) -> Warm:
    warm = warm or Warm()
    for record in records:
        warm.apply(record.type, record.payload)
    return warm


def index_of(index: Index) -> tuple[Any, ...]:
    index._terms.load()
    held = {word: posting.tolist() for word, posting in index._terms.items() if posting}
    tops = {word: top for word, top in index._terms.tops.items() if word in held and top > 4}
    return held, tops, index._lengths.tolist(), index._total, index._moved


def everything(warm: Warm) -> dict[str, Any]:
    facts = [(msgspec.structs.astuple(fact)[:10], fact.shown, fact.superseded_by) for fact in warm.facts]
    marks = [(fact.folded_into, fact.quarantined, fact.talk, fact.hash, fact.signature) for fact in warm.facts]
    parts = ("facts", "index", "cold", "verified", "kept", "kept_to", "rates", "_claims", "_sources")
    small = {name: value for name, value in vars(warm).items() if name not in parts}
    whole = {"facts": facts, "marks": marks, "index": index_of(warm.index), "cold": index_of(warm.cold)}
    return {**small, **whole, "rates": list(warm.rates), "claims": warm.claims, "sources": warm.sources}


def test_every_part_of_a_warm_state_is_in_a_snapshot() -> None:
    elsewhere = {"facts", "index", "cold", "_claims", "_sources"}
    of_this_process = {"verified", "kept", "kept_to"}
    of_a_session_at_rest = {"dispatch", "closed", "closed_by", "failed"}
    made_later = {name for name, part in vars(Warm).items() if isinstance(part, cached_property)}
    assert set(vars(Warm())) | made_later == {
        *State.__struct_fields__,
        *elsewhere,
        *of_this_process,
        *of_a_session_at_rest,
    }


@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 25), (1, 25), *(pytest.param(seed, 120, marks=pytest.mark.sweep) for seed in range(2, 30))]
)
async def test_p1_a_snapshot_and_the_records_behind_it_are_the_session(
    ledger: Ledger, clock: ManualClock, tmp_path: Path, seed: int, steps: int
) -> None:
    rng = random.Random(seed)
    session = await make_relay(ledger, clock).init("x")
    await programme(session, rng, steps)
    records = await ledger.read(session.stream_name)
    wanted = everything(folded(records))
    path = tmp_path / "kept"
    for cut in sorted(rng.sample(range(1, len(records)), 4)):
        first = folded(records[:cut])
        head = Head(records[cut - 1].seq, records[cut - 1].hash)
        assert write(path, first, SESSION, head, SECRET)
        opened = read(path, SESSION, SECRET)
        assert opened is not None and opened[1] == head
        warm = opened[0]
        for question in ("How deep is the pump?", "What did Mara say in May?", "灯塔"):
            assert rank(warm, question) == rank(first, question)
        # Written again, with some facts and words read and others not, it is still the same.
        assert write(path, warm, SESSION, head, SECRET)
        again = read(path, SESSION, SECRET)
        assert again is not None
        assert everything(folded(records[cut:], again[0])) == wanted
        assert everything(folded(records[cut:], warm)) == wanted


async def test_p2_a_file_that_is_not_what_was_written_is_not_used(
    ledger: Ledger, clock: ManualClock, tmp_path: Path
) -> None:
    session = await make_relay(ledger, clock).init("x")
    await programme(session, random.Random(5), 6)
    path, rng = tmp_path / "kept", random.Random(6)
    assert write(path, session.warm, SESSION, Head(3, "h"), SECRET)
    whole = path.read_bytes()
    assert read(path, SESSION, SECRET) is not None
    assert read(path, "1" * 36, SECRET) is None
    assert read(path, SESSION, b"another secret of a relay") is None
    assert read(tmp_path / "none", SESSION, SECRET) is None
    for _ in range(200):
        at = rng.randrange(len(whole))
        changed = rng.choice([whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole + b"\0"])
        path.write_bytes(changed)
        assert read(path, SESSION, SECRET) is None


async def test_p3_a_question_reads_few_of_many_facts(ledger: Ledger, clock: ManualClock, tmp_path: Path) -> None:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest("\n\n".join(f"Berth n{number} has lamp k{number}." for number in range(500)), "berths")
    path = tmp_path / "kept"
    assert write(path, session.warm, SESSION, Head(3, "h"), SECRET)
    opened = read(path, SESSION, SECRET)
    assert opened is not None and isinstance(opened[0].facts, KeptFacts)
    assert [item.number for item in rank(opened[0], "k77")][:1] == [77]
    made = sum(list.__getitem__(opened[0].facts, number).number >= 0 for number in range(500))
    assert made < 20


async def test_a_large_session_is_resumed_from_its_snapshot_and_from_the_ledger_without_one(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forestay.relay.relay._WORTH_KEEPING", 3)
    path, folder = tmp_path / "relay.db", tmp_path / "relay.db.sessions"
    async with Relay.open(path, clock=clock) as relay:
        session = await relay.init("x")
        await session.ingest("The pump is red.\n\nThe basin is deep.\n\nThe crane is old.\n\nThe lamp is new.", "port")
        name = session.id
    kept = folder / name
    assert kept.exists() and kept.stat().st_mode & 0o777 == 0o600
    whole = kept.read_bytes()
    for content, kept_facts in ((whole, 4), (whole[:-1], 0), (b"", 0)):  # a torn one is found out, and made again
        kept.write_bytes(content)
        async with Relay.open(path, clock=clock) as relay:
            session = await relay.session(name)
            assert session.warm.kept == kept_facts
            assert (await session.facts("crane"))[0][0].text == "The crane is old."
            await session.ingest(f"The winch is number {len(session.warm.facts)}.", "more")
            before = len(session.warm.facts)
    async with Relay.open(path, clock=clock) as relay:
        session = await relay.session(name)
        assert len(session.warm.facts) == before
        assert await session.take_back("port") == 4
        assert await session.facts("crane") == []
        await session.close()
        assert not kept.exists()
