"""Who can write the cache cannot have their code run under another extension's id: it is made again, and told."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions import ArtifactMeta, Extensions, Settings
from forestay.extensions.compiler.artifact import artifact_hash
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.engine.vm import Vm
from forestay.kernel import Ledger, Randomness, Seal, canonical, kept_secret

ANSWER = "genuine"
EVIL = "poison!"  # as long, so that sizes do not tell
CODE = """
export default function (pi) {
  pi.registerTool({ name: 'say', label: 's', description: 's', parameters: { type: 'object', properties: {} },
    async execute() { return { content: [{ type: 'text', text: '%s' }] }; } });
}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a victim, beside it an attacker's own extension and a cache that everybody can write."""
    monkeypatch.setenv("FORESTAY_CACHE", str(tmp_path / "cache"))
    for name, text in (("victim", ANSWER), ("attacker", EVIL)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.ts").write_text(CODE % text)
    (tmp_path / "project").mkdir()
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path


def said(place: Path, name: str = "victim", data: str = "data") -> tuple[str, list[dict[str, Any]]]:
    """What the tool of an extension says in a new host, and what the evidence tells of the cache."""

    async def go() -> tuple[str, list[dict[str, Any]]]:
        async with Ledger.open(place / data / "ledger.db") as ledger:
            start = await ledger.position()
            async with Extensions(
                ledger, root=place / "project", mode="strict", settings=Settings(data=place / data)
            ) as suite:
                await suite.load(place / name)
                outcome = await suite.call_tool("say", {})
            records = [record for at, record in await ledger.read_all("ext/", limit=10_000) if at > start]
        return str(outcome.content[0]["text"]), [item.payload for item in records if item.type == "cache.refused"]

    return asyncio.run(go())


def told(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["what"] for entry in entries}


def test_a_cached_build_is_used_and_nothing_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(place) == (ANSWER, [])
    monkeypatch.setattr(importlib.import_module("forestay.extensions.compiler.build"), "compile_source", None)
    monkeypatch.setattr(Vm, "compile", None)
    assert said(place) == (ANSWER, [])


def rewritten(place: Path) -> None:
    """The code of the artifact is another, and its own description and index say so."""
    for folder in (place / "cache" / "artifacts").iterdir():
        code = folder / "index.js"
        code.write_bytes(code.read_bytes().replace(ANSWER.encode(), EVIL.encode()))
        meta = json.loads((folder / "artifact.json").read_bytes())
        meta["code_hash"] = "sha256:" + hashlib.sha256(code.read_bytes()).hexdigest()
        manifest = canonical.decode(canonical.encode(meta), ArtifactMeta).manifest
        meta["hash"] = artifact_hash(manifest, code.read_bytes(), (folder / "index.js.map").read_bytes())
        (folder / "artifact.json").write_bytes(canonical.encode(meta))


def less_is_required(place: Path) -> None:
    """The code is the same; what it is said to need and to be flagged for is less."""
    for folder in (place / "cache" / "artifacts").iterdir():
        meta = json.loads((folder / "artifact.json").read_bytes())
        meta["capabilities_required"], meta["forbidden_apis"] = ["log"], []
        (folder / "artifact.json").write_bytes(canonical.encode(meta) + b"\n\n")


def another_index(place: Path) -> None:
    """The victim's path leads to the attacker's own artifact, which this host compiled."""
    said(place, "attacker")
    files = sorted((place / "cache" / "index").rglob("*"), key=lambda path: path.stat().st_mtime_ns)
    victim, attacker = [path for path in files if path.is_file()]
    shutil.copyfile(attacker, victim)


def another_seal(place: Path) -> None:
    """Index and digests are sealed, with a key of the attacker's."""
    forged = Cache(place / "cache", Seal(b"mine"))
    for path in (place / "cache").rglob("*"):
        if path.is_file() and path.parent.parent.name in ("index", "sealed"):
            what = "index" if path.parent.parent.name == "index" else "artifact"
            path.write_bytes(forged.seal.close(f"{what} {path.name}", path.read_bytes()[32:]))
    rewritten(place)


@pytest.mark.parametrize("poison", [rewritten, less_is_required, another_index, another_seal])
def test_a_poisoned_artifact_is_built_again_and_told(place: Path, poison: Callable[[Path], None]) -> None:
    assert said(place)[0] == ANSWER
    poison(place)
    answer, entries = said(place)
    assert answer == ANSWER and told(entries) <= {"index", "artifact"} and entries
    assert said(place) == (ANSWER, []), "what was made again is whole"


def test_a_poisoned_artifact_does_not_come_back_by_another_data_folder(place: Path) -> None:
    """It compiles for itself, and does not seal what it found where its own build belongs."""
    assert said(place)[0] == ANSWER
    rewritten(place)
    (place / "other").mkdir()
    for _ in range(2):
        assert said(place, data="other")[0] == ANSWER


@pytest.mark.parametrize("forge", ["own hash", "another's", "cut short"])
def test_poisoned_bytecode_is_made_again_and_told(place: Path, forge: str) -> None:
    assert said(place)[0] == ANSWER
    (file,) = (place / "cache" / "bytecode").rglob("*.qbc")
    data = file.read_bytes()
    if forge == "own hash":
        evil = data[32:].replace(ANSWER.encode(), EVIL.encode())
        assert evil != data[32:]
        file.write_bytes(hashlib.sha256(evil).digest() + evil)
    elif forge == "another's":
        said(place, "attacker")
        other = next(path for path in (place / "cache" / "bytecode").rglob("*.qbc") if path != file)
        shutil.copyfile(other, file)
    else:
        file.write_bytes(data[:-3])
    answer, entries = said(place)
    assert answer == ANSWER and told(entries) == {"bytecode"}
    assert said(place) == (ANSWER, [])


def test_each_data_folder_has_its_own_seal_and_neither_disturbs_the_other(place: Path) -> None:
    (place / "other").mkdir()
    for _ in range(2):
        for data in ("data", "other"):
            assert said(place, data=data) == (ANSWER, [])


def test_without_a_data_folder_nothing_is_cached(place: Path) -> None:
    async def go() -> None:
        async with Ledger.open(place / "l.db") as ledger, Extensions(ledger, root=place / "project") as suite:
            await suite.load(place / "victim")

    asyncio.run(go())
    assert not (place / "cache").exists()


class Interrupted(Randomness):
    """Another process makes the same secret while this one is about to."""

    def __init__(self, file: Path) -> None:
        self.file, self.other = file, b""

    def bytes(self, count: int) -> bytes:
        self.other = kept_secret(self.file)
        return b"x" * count


def test_two_processes_that_start_at_once_have_one_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    randomness = Interrupted(file)
    assert kept_secret(file, randomness) == randomness.other == kept_secret(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and [path.name for path in tmp_path.iterdir()] == ["secret.key"]
