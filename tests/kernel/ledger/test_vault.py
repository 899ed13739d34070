"""Keys beside the ledger: kept, given, destroyed (V1 to V4 of `vault.py`), over files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from forestay.kernel import SeededRandomness
from forestay.kernel.ledger.vault import FileVault


def holds(folder: Path, key: bytes) -> bool:
    return any(key in file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_v4_fresh_keys_are_on_disk_each_once_and_found_by_another_process(tmp_path: Path) -> None:
    vault, chance = FileVault(tmp_path / "keys"), SeededRandomness(1)
    given = await asyncio.gather(*(vault.fresh("mem_", chance) for _ in range(70)), vault.fresh("cred_", chance))
    names, keys = [name for name, _ in given], [key for _, key in given]
    assert len(set(names)) == len(set(keys)) == 71
    assert all(len(key) == 32 and holds(tmp_path, key) for key in keys)
    assert await vault.names("") == sorted(names), "those that nobody was given are not listed"
    assert await vault.names("cred_") == names[-1:]
    other = FileVault(tmp_path / "keys")
    assert await other.get(names) == dict(given) == await vault.get(names)
    assert set(names) < set(await other.names("")), "a process that died leaves what it made ahead to be destroyed"


async def test_v3_a_key_of_a_pack_goes_alone_and_the_pack_with_its_last_key(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    vault, chance = FileVault(folder), SeededRandomness(2)
    (gone, key), (stays, other) = await vault.fresh("mem_", chance), await vault.fresh("mem_", chance)
    await vault.destroy([gone, "mem_unknown", "mem_unknown-7"])
    assert not holds(tmp_path, key) and holds(tmp_path, other)
    assert await vault.get([gone, stays]) == {stays: other} and await vault.names("") == [stays]
    later = FileVault(folder)
    await later.destroy(await later.names(""))
    assert list(folder.iterdir()) == [] and await later.get([stays]) == {}


async def test_v1_v2_a_name_has_the_first_key_that_was_kept_until_it_is_destroyed(tmp_path: Path) -> None:
    vault, first, second = FileVault(tmp_path / "keys"), b"1" * 32, b"2" * 32
    assert await vault.keep("a-1", first) == first == await vault.keep("a-1", second)
    assert await vault.get(["a-1", "b"]) == {"a-1": first} and await vault.names("a") == ["a-1"]
    await vault.destroy(["a-1"])
    assert await vault.get(["a-1"]) == {} and not holds(tmp_path, first)
