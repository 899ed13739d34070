"""A vault: keys beside the ledger. They can be destroyed; the append-only ledger cannot.

The part of a record that must be forgettable is sealed under a key of the vault. Without the key it is noise.

- V1  A name has one key: the first that is kept under it stays.
- V2  When `keep` returns, the key is on disk; when `destroy` returns, it is not.
- V3  A destroyed key is overwritten before its file is deleted. Copies on the disk itself, in a snapshot or in a backup
      are out of the vault's reach.
- V4  `fresh` gives a key to one caller. Keys made ahead are not listed until a caller gets them. The unused keys of a
      process that died are listed, so that a caller that knows the used ones can destroy them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from forestay.kernel.ambient import Randomness
from forestay.kernel.cipher import KEY_BYTES
from forestay.kernel.folders import kept_in, make_folder
from forestay.kernel.problems import Problem

_NAME = re.compile(r"[A-Za-z0-9_-]{1,120}")
_FEW = 8  # up to this many keys are read without another thread
_AHEAD = 64
_PACK = ".pack"


class Vault(Protocol):
    """Keys by name."""

    async def keep(self, name: str, key: bytes) -> bytes:
        """Keep `key` under `name`; return the key that the name has from now on (V1)."""

    async def fresh(self, prefix: str, randomness: Randomness) -> tuple[str, bytes]:
        """Return a new key with its name, which begins with `prefix`; the caller must remember the name (V4)."""

    async def get(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the keys of `names`; missing ones are left out."""

    async def destroy(self, names: Sequence[str]) -> None:
        """Destroy keys for good; missing ones are ignored (V2)."""

    async def names(self, prefix: str) -> list[str]:
        """Return the names of all keys that begin with `prefix`."""


class FileVault:
    """A vault of files in a folder that only its owner can read.

    A key with its own name has its own file. Keys made ahead are in packs; such a key is named by its pack and slot.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spare: dict[str, list[tuple[str, bytes]]] = {}

    async def keep(self, name: str, key: bytes) -> bytes:
        return await asyncio.to_thread(self._keep, check_name(name), key)

    async def fresh(self, prefix: str, randomness: Randomness) -> tuple[str, bytes]:
        spare = self._spare.setdefault(check_name(prefix), [])
        while not spare:
            spare += await asyncio.to_thread(self._pack, prefix, randomness.bytes(KEY_BYTES * _AHEAD))
        return spare.pop()

    async def get(self, names: Sequence[str]) -> dict[str, bytes]:
        checked = [check_name(name) for name in names]
        return self._get(checked) if len(checked) <= _FEW else await asyncio.to_thread(self._get, checked)

    async def destroy(self, names: Sequence[str]) -> None:
        if names:
            await asyncio.to_thread(self._destroy, [check_name(name) for name in names])

    async def names(self, prefix: str) -> list[str]:
        return await asyncio.to_thread(self._names, prefix)

    # In a thread

    def _keep(self, name: str, key: bytes) -> bytes:
        make_folder(self._folder)
        with kept_in(self._folder):
            beside = self._folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
                out.write(key)
                out.flush()
                os.fsync(out.fileno())
            try:
                os.link(beside, self._folder / name)  # whole, or not at all
            except FileExistsError:
                key = (self._folder / name).read_bytes()
            finally:
                beside.unlink()
            self._settle()
        return key

    def _pack(self, prefix: str, keys: bytes) -> list[tuple[str, bytes]]:
        """Store a pack of keys, with only two waits for the disk."""
        stem = prefix + hashlib.sha256(keys).hexdigest()[:24]
        make_folder(self._folder)
        with kept_in(self._folder):
            beside = self._folder / f".{stem}"
            with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
                out.write(keys)
                out.flush()
                os.fsync(out.fileno())
            beside.rename(self._folder / f"{stem}{_PACK}")
            self._settle()
        return [(f"{stem}-{slot}", key) for slot, key in enumerate(_slots(keys))]

    def _get(self, names: Iterable[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with kept_in(self._folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    pack, slot = self._place(name)
                    keys = pack.read_bytes()
                    key = keys if slot is None else _slots(keys)[slot]
                    if any(key):
                        found[name] = key
        return found

    def _destroy(self, names: Iterable[str]) -> None:
        slots: dict[Path, list[int | None]] = {}
        for name in names:
            file, slot = self._place(name)
            slots.setdefault(file, []).append(slot)
        with kept_in(self._folder):
            for file, gone in slots.items():
                with contextlib.suppress(FileNotFoundError):
                    _overwrite(file, gone)
            if self._folder.exists():
                self._settle()

    def _names(self, prefix: str) -> list[str]:
        if not self._folder.exists():
            return []
        spare = {name for made in self._spare.values() for name, _ in made}
        with kept_in(self._folder):
            found = [name for entry in os.scandir(self._folder) for name in self._named(entry.name)]
        return sorted(name for name in found if name.startswith(prefix) and name not in spare)

    def _named(self, file: str) -> list[str]:
        """Return the names of the keys in a file."""
        if not file.endswith(_PACK):
            return [file] if _NAME.fullmatch(file) else []
        stem = file.removesuffix(_PACK)
        return [f"{stem}-{slot}" for slot, key in enumerate(_slots((self._folder / file).read_bytes())) if any(key)]

    def _place(self, name: str) -> tuple[Path, int | None]:
        """Return the file of a key, and its slot if the file is a pack."""
        stem, _, slot = name.rpartition("-")
        pack = self._folder / f"{stem}{_PACK}"
        return (pack, int(slot)) if slot.isdecimal() and pack.exists() else (self._folder / name, None)

    def _settle(self) -> None:
        """Sync the folder's entries to disk."""
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _slots(keys: bytes) -> list[bytes]:
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]


def _overwrite(file: Path, slots: Sequence[int | None]) -> None:
    """Overwrite keys of a file, and delete the file with its last key (V3)."""
    with file.open("r+b") as out:
        size = file.stat().st_size
        for slot in slots:
            out.seek(0 if slot is None else slot * KEY_BYTES)
            out.write(bytes(size if slot is None else KEY_BYTES))
        out.flush()
        os.fsync(out.fileno())
        out.seek(0)
        is_empty = not any(out.read())
    if is_empty:
        file.unlink(missing_ok=True)


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Problem("invalid_request", "A key's name may have only letters, digits, _ and -.", name=name[:120])
    return name
