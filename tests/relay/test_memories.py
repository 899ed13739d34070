"""What is remembered and forgotten (M1 to M6), on a real ledger, against a plain model, and cut after any write."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.kernel import Ids, ManualClock, Problem, SeededRandomness, base64url
from forestay.models import embed
from forestay.relay import Memories, MemoryEntry, MemoryTable, Origin
from forestay.relay.memories import MAX_ENTRY_BYTES, MAX_PER_REF
from forestay.relay.memory_entry import Sealed, seal, unseal
from tests.kernel.ledger.patient import CountedLedger, PatientClock
from tests.kernel.ledger.patient import _CountedSqlite as OnFiles

CANARY = "Ms. Ixworth-Quill is allergic to penicillin"


class World:
    """Memories that are opened again on the same folder."""

    def __init__(self, folder: Path, ledger: Any = CountedLedger) -> None:
        self.folder, self.clock, self.lives, self._ledger = folder, PatientClock(), 0, ledger
        folder.mkdir(exist_ok=True)

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Memories]:
        self.lives += 1
        chance = SeededRandomness(self.lives)
        ids = Ids(self.clock, chance)
        file = self.folder / "l.db"
        async with self._ledger.open(file, projections=[MemoryTable()], clock=self.clock, ids=ids) as self.ledger:
            yield Memories(self.ledger, clock=self.clock, ids=ids, randomness=chance, **options)


def holders(folder: Path, text: str) -> list[str]:
    """The files below `folder` that hold `text`, in any of the forms in which bytes are written down here."""
    forms = [text.encode(), base64url.encode(text.encode()).encode()[:-2], text.encode().hex().encode()]
    return [
        file.name for file in folder.rglob("*") if file.is_file() and any(form in file.read_bytes() for form in forms)
    ]


async def test_m1_m2_what_is_forgotten_is_in_no_file(tmp_path: Path) -> None:
    """The ledger and its write-ahead log stay open: nothing was tidied up for the test."""
    world = World(tmp_path / "d", OnFiles)
    async with world.open() as kept:
        put = await kept.put("acme", "patients", CANARY, tags=["subject:ixworth-quill"])
        other = await kept.put("acme", "patients", "The tide turns at nine.")
        assert (await kept.get("acme", put.memory_id)).content == CANARY
        assert [item.entry.id for item in await kept.search("acme", "Who is allergic?")] == [put.memory_id]
        (key,) = (await world.ledger.vault().get([put.key_name])).values()
        assert any(key in file.read_bytes() for file in world.folder.rglob("*") if file.is_file())
        assert holders(world.folder, "Ixworth") == []  # M1: sealed from the first moment
        await kept.forget("acme", put.memory_id)
        assert {file.name for file in world.folder.rglob("*")} >= {"l.db", "l.db-wal", "l.db.keys"}
        assert await world.ledger.vault().names("") == [other.key_name]
        for text in (CANARY, "Ixworth", "allergic", "penicillin", "ixworth-quill"):
            assert holders(world.folder, text) == []
        assert not any(key in file.read_bytes() for file in world.folder.rglob("*") if file.is_file())
        records = await world.ledger.read(f"memory/{put.memory_id}")
        assert [record.type for record in records] == ["memory.kept", "memory.forgotten"]
        assert records[0].payload["mark"] and records[1].payload["reason"] == "requested"
        assert (await world.ledger.verify()).ok
        assert await kept.search("acme", "Who is allergic?") == []
        with pytest.raises(Problem, match="no such memory"):
            await kept.get("acme", put.memory_id)
        with pytest.raises(Problem, match="no such memory"):
            await kept.forget("acme", put.memory_id)
        assert [entry.id for entry in await kept.listed("acme")] == [other.memory_id]


async def test_the_search_for_copies_finds_one(tmp_path: Path) -> None:
    """`holders` can fail: a ledger that holds the text is found."""
    world = World(tmp_path / "d", OnFiles)
    async with world.open():
        from forestay.kernel import Draft

        await world.ledger.append("x", [Draft("said", {"text": CANARY})])
        assert holders(world.folder, "Ixworth")


async def test_m3_another_tenant_reads_finds_and_forgets_nothing(tmp_path: Path) -> None:
    async with World(tmp_path).open() as kept:
        mine = await kept.put("acme", "notes", "The Aurora lies at berth 7.", tags=["ship"])
        assert await kept.listed("other") == [] and await kept.search("other", "Aurora") == []
        for touch in (kept.get, kept.forget):
            with pytest.raises(Problem) as caught:
                await touch("other", mine.memory_id)
            assert caught.value.key == "not_found"
        assert await kept.forget_all("other", "notes") == 0
        with pytest.raises(Problem) as caught:
            await kept.put("other", "notes", "Mine now.", memory_id=mine.memory_id)
        assert caught.value.key == "state_conflict"
        assert (await kept.get("acme", mine.memory_id)).content == "The Aurora lies at berth 7."


async def test_m4_what_has_expired_is_given_to_nobody_and_then_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open() as kept:
        now = world.clock.now_ms()
        short = await kept.put("acme", "notes", "The gate code changed.", expires_ms=now + 1000)
        late = await kept.put("acme", "notes", "The gate code of last year.", expires_ms=now - 1)
        assert [entry.id for entry in await kept.listed("acme")] == [short.memory_id]
        assert 0 < await kept.sweep() <= 1
        world.clock.advance(1)
        assert await kept.listed("acme") == [] and await kept.search("acme", "gate") == []
        with pytest.raises(Problem):
            await kept.get("acme", short.memory_id)
        assert await kept.sweep() == 60.0
        ends = [(await world.ledger.read(f"memory/{item.memory_id}"))[1].payload["reason"] for item in (short, late)]
        assert ends == ["expired", "expired"]
        assert await world.ledger.vault().names("") == []


def test_m4_the_sweep_runs_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        async with world.open() as kept:
            await kept.start()
            await kept.put("acme", "notes", "For an hour.", expires_ms=world.clock.now_ms() + 3_600_000)
            await asyncio.sleep(3_700)
            assert await world.ledger.vault().names("") == []
            await kept.close()

    world.clock.run(story())


async def test_m5_an_entry_is_made_once_for_its_id_also_when_it_was_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open() as kept:
        both = await asyncio.gather(*(kept.put("acme", "n", "once", memory_id="mem_1") for _ in range(4)))
        assert len({item.sealed for item in both}) == 1
        await kept.forget("acme", "mem_1")
        assert (await kept.put("acme", "n", "again", memory_id="mem_1")).sealed == both[0].sealed
        assert await kept.listed("acme") == [] and await world.ledger.vault().names("") == []


async def test_m6_secrets_do_not_reach_the_memory(tmp_path: Path) -> None:
    async with World(tmp_path).open() as kept:
        made = await kept.put("acme", "n", "The password: hunter2hunter2 of anna@example.org", tags=["", "a", "a"])
        found = await kept.get("acme", made.memory_id)
        assert "hunter2" not in found.content and "example.org" not in found.content and found.tags == ("a",)


@pytest.mark.parametrize(
    ("content", "tags"), [("", []), (" ", []), ("x" * (MAX_ENTRY_BYTES + 1), []), ("x", ["t"] * 33), ("x", ["t" * 257])]
)
async def test_what_is_no_entry_is_refused(content: str, tags: list[str], tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.open() as kept:
        with pytest.raises(Problem) as caught:
            await kept.put("acme", "n", content, tags=tags)
        assert caught.value.key == "schema_mismatch" and await world.ledger.vault().names("") == []
        with pytest.raises(Problem):
            await kept.forget_all("acme")


async def test_a_full_memory_makes_room_only_when_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_PER_REF == 1_000
    monkeypatch.setattr("forestay.relay.memories.MAX_PER_REF", 3)
    world = World(tmp_path)
    async with world.open() as kept:
        for number in range(3):
            await kept.put("acme", "n", f"number {number}")
        with pytest.raises(Problem) as caught:
            await kept.put("acme", "n", "number 3")
        assert caught.value.key == "state_conflict"
        await kept.put("acme", "other", "number 3")
        await kept.put("acme", "n", "number 4", make_room=True)
        assert [entry.content for entry in await kept.listed("acme", "n")] == ["number 4", "number 2", "number 1"]


async def test_an_entry_of_another_owner_does_not_open(clock: ManualClock) -> None:
    entry = MemoryEntry("mem_1", "n", "text", (), 0, None, Origin())
    sealed = seal(entry, "acme", b"k" * 32, b"n" * 12)
    assert unseal(sealed, b"k" * 32) == entry
    for moved in ({"tenant": "other"}, {"memory_ref": "m"}, {"memory_id": "mem_2"}):
        with pytest.raises(Problem, match="does not open"):
            unseal(msgspec.structs.replace(sealed, **moved), b"k" * 32)
    with pytest.raises(Problem, match="does not open"):
        unseal(sealed, b"x" * 32)


async def test_entries_are_found_by_meaning_where_there_is_an_embedder(tmp_path: Path) -> None:
    """The hashed embedder knows parts of words: a misspelt word finds what words alone do not."""
    async with World(tmp_path).open() as plain:
        assert plain.capability()["search"]["modes"] == ["filter"]
        await plain.put("acme", "n", "The harbourmaster keeps the register.")
        await plain.put("acme", "n", "Bread is baked at four.")
        assert await plain.search("acme", "harbormasters") == []
    async with World(tmp_path / "meaning").open(embedder=embed.open("hashed")) as kept:
        assert kept.capability()["search"]["modes"] == ["filter", "semantic"]
        first = await kept.put("acme", "n", "The harbourmaster keeps the register.")
        await kept.put("acme", "n", "Bread is baked at four.")
        assert (await kept.search("acme", "harbormasters"))[0].entry.id == first.memory_id
        await kept.forget("acme", first.memory_id)
        assert first.memory_id not in {item.entry.id for item in await kept.search("acme", "harbormasters")}


# Against a plain model, and cut

_WORDS = ("aurora", "petrel", "berth", "tide", "gate")


class Model:
    """What should be remembered: a dictionary."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[str, str, str, tuple[str, ...], int | None]] = {}

    def of(self, tenant: str, now: int, ref: str | None = None, tag: str | None = None) -> set[str]:
        return {
            name
            for name, (owner, memory, _, tags, expires) in self.entries.items()
            if owner == tenant
            and (expires is None or expires > now)
            and ref in (None, memory)
            and (not tag or tag in tags)
        }


async def step(world: World, kept: Memories, model: Model, chance: random.Random, number: int) -> None:
    tenant, ref, tag = chance.choice("ab"), chance.choice("xy"), chance.choice("pq")
    now = world.clock.now_ms()
    match chance.choice(("put", "put", "put", "forget", "forget_all", "wait", "sweep")):
        case "put":
            text, expires = " ".join(chance.sample(_WORDS, 2)), chance.choice((None, now + 500))
            name = f"mem_{number}"
            model.entries[name] = (tenant, ref, text, (tag,), expires)
            await kept.put(tenant, ref, text, tags=[tag], expires_ms=expires, memory_id=name)
        case "forget":
            if names := sorted(model.entries):
                name = chance.choice(names)
                if name in model.of(tenant, now):
                    del model.entries[name]
                    await kept.forget(tenant, name)
        case "forget_all":
            for name in model.of(tenant, now, ref, tag):
                del model.entries[name]
            await kept.forget_all(tenant, ref, tag)
        case "wait":
            world.clock.advance(0.3)
        case "sweep":
            await kept.sweep()


async def check(world: World, kept: Memories, model: Model) -> None:
    now = world.clock.now_ms()
    for tenant in "ab":
        assert {entry.id for entry in await kept.listed(tenant)} == model.of(tenant, now)
        for ref, tag in (("x", None), (None, "p"), ("y", "q")):
            assert {entry.id for entry in await kept.listed(tenant, ref, tag)} == model.of(tenant, now, ref, tag)
        for word in _WORDS:
            wanted = {name for name in model.of(tenant, now) if word in model.entries[name][2]}
            assert {item.entry.id for item in await kept.search(tenant, word, limit=100)} == wanted
        for name in model.of(tenant, now):
            assert (await kept.get(tenant, name)).content == model.entries[name][2]


@pytest.mark.parametrize("seed", range(4))
async def test_random_programs_remember_what_a_dictionary_would(tmp_path: Path, seed: int) -> None:
    chance, model, world = random.Random(seed), Model(), World(tmp_path)
    for _ in range(2):  # two lives
        async with world.open() as kept:
            await kept.mend()
            await check(world, kept, model)
            for number in range(25):
                await step(world, kept, model, chance, world.lives * 100 + number)
                if number % 5 == 0:
                    await check(world, kept, model)
            await check(world, kept, model)
            living = {*model.of("a", world.clock.now_ms()), *model.of("b", world.clock.now_ms())}
            assert living <= (await _keys(world.ledger)).keys()


async def _keys(ledger: Any) -> dict[str, str | None]:
    """The entries on record, each with the name of its key; None where the vault has no such key."""
    rows = await ledger.query("SELECT doc FROM memory_entries")
    sealed = [msgspec.json.decode(doc, type=Sealed) for (doc,) in rows]
    there = await ledger.vault().get([item.key_name for item in sealed])
    return {item.memory_id: item.key_name if item.key_name in there else None for item in sealed}


class Killed(Exception):
    pass


class Life:
    """Ends before the write with this number, and stays ended."""

    def __init__(self, boundary: int) -> None:
        self._left = boundary

    def __call__(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise Killed


@pytest.mark.parametrize("seed", range(2))
async def test_m2_killed_before_any_write_nothing_is_half_remembered_or_half_forgotten(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write to the ledger and to the vault is a boundary: the host dies there, and another one opens the folder.

    What was said to be done is done; the step that died is done or not, and its key is there exactly when its entry is.
    """
    program = random.Random(seed)
    steps = [program.random() for _ in range(9)]
    died_at, boundary = 0, 0
    while died_at is not None:
        boundary += 1
        folder = tmp_path / f"cut-{boundary}"
        world, model = World(folder, OnFiles), Model()
        async with world.open() as kept:
            _interrupt(world, kept, Life(boundary), monkeypatch)
            before = dict(model.entries)
            try:
                for number, chosen in enumerate(steps):
                    before = dict(model.entries)
                    await step(world, kept, model, random.Random(chosen), number)
            except Killed:
                pass
            else:
                died_at = None  # the program ended before this boundary: all were tried
        copy = tmp_path / "next"
        shutil.copytree(folder, copy)
        second = World(copy, OnFiles)
        second.clock, second.lives = world.clock, world.lives
        async with second.open() as kept:
            await kept.mend()
            now = world.clock.now_ms()
            there = {entry.id for tenant in "ab" for entry in await kept.listed(tenant)}
            asked = {name for tenant in "ab" for name in model.of(tenant, now)}
            stood = {name for name in before if before[name][4] is None or before[name][4] > now}
            assert stood & asked <= there <= stood | asked
            assert None not in (await _keys(second.ledger)).values()
            assert sorted((await _keys(second.ledger)).values()) == await second.ledger.vault().names("")
            assert (await second.ledger.verify()).ok
        shutil.rmtree(copy)
    assert boundary > 9


def _interrupt(world: World, kept: Memories, alive: Life, patch: pytest.MonkeyPatch) -> None:
    vault: Any = kept._vault
    fresh, destroy, commit = vault.fresh, vault._destroy, world.ledger.commit

    async def dying_fresh(*given: Any) -> Any:
        alive()
        return await fresh(*given)

    def dying_destroy(names: Any) -> None:
        for name in names:
            alive()
            destroy([name])

    async def dying_commit(*appends: Any) -> Any:
        alive()
        return await commit(*appends)

    patch.setattr(vault, "fresh", dying_fresh)
    patch.setattr(vault, "_destroy", dying_destroy)
    patch.setattr(world.ledger, "commit", dying_commit)


async def test_m2_a_process_that_starts_leaves_the_key_of_an_entry_that_another_one_is_writing(tmp_path: Path) -> None:
    world = World(tmp_path / "d", OnFiles)
    async with world.open() as kept, asyncio.TaskGroup() as group:
        append, written = world.ledger.append, asyncio.Event()

        async def late(*arguments: Any, **options: Any) -> Any:
            await written.wait()
            return await append(*arguments, **options)

        world.ledger.append = late
        putting = group.create_task(kept.put("acme", "patients", CANARY))
        while not await world.ledger.vault().names("mem_"):
            await asyncio.sleep(0.01)
        beside = Memories(world.ledger, clock=world.clock, ids=Ids(world.clock, SeededRandomness(9)), shared=True)
        await beside.mend()
        written.set()
        assert (await beside.get("acme", (await putting).memory_id)).content == CANARY
