"""Workspace trust: bound to content, refused without a person, following nothing out of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.extensions.trust import Trust, brought, content_hash
from forestay.kernel import Ledger, ManualClock, Problem


def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".pi" / "extensions" / "deep").mkdir(parents=True)
    (folder / ".forestay" / "extensions").mkdir(parents=True)
    (folder / ".pi" / "extensions" / "one.ts").write_text("export default () => {}")
    (folder / ".pi" / "extensions" / "notes.txt").write_text("not code")
    (folder / ".pi" / "extensions" / "deep" / "index.ts").write_text("export default () => {}")
    return folder


def test_t2_listing_names_what_would_run(tmp_path: Path) -> None:
    found = [(item.path, item.kind) for item in brought(project(tmp_path))]
    assert found == [(".pi/extensions/deep", "folder"), (".pi/extensions/one.ts", "file")]
    assert brought(tmp_path) == []


async def test_t1_trust_ends_when_anything_changes(tmp_path: Path, clock: ManualClock) -> None:
    folder = project(tmp_path)
    async with Ledger.open(tmp_path / "l.db", clock=clock) as ledger:
        trust = Trust(ledger)
        assert (await trust.standing(folder)).state == "untrusted"
        assert (await trust.give(folder)).state == "trusted"
        await trust.require(folder)
        changes = [
            lambda: (folder / ".pi/extensions/one.ts").write_text("evil()"),
            lambda: (folder / ".pi/extensions/deep/more.ts").write_text(""),
            lambda: (folder / ".forestay/extensions/new.js").write_text("x"),
            lambda: (folder / ".pi/extensions/deep/more.ts").rename(folder / ".pi/extensions/deep/other.ts"),
            lambda: (folder / ".pi/extensions/deep/other.ts").unlink(),
            lambda: (folder / ".pi/settings.json").write_text("{}"),
            lambda: (folder / ".pi/extensions/link.ts").symlink_to("/etc/passwd"),
        ]
        for change in changes:
            change()
            assert (await trust.standing(folder)).state == "changed"
            with pytest.raises(Problem, match="changed since") as refused:
                await trust.require(folder)
            assert refused.value.key == "folder_untrusted"
            assert (await trust.give(folder)).state == "trusted"
        await trust.withdraw(folder)
        assert (await trust.standing(folder)).state == "untrusted"


async def test_t3_refusal_says_how_to_go_on(tmp_path: Path, clock: ManualClock) -> None:
    async with Ledger.open(tmp_path / "l.db", clock=clock) as ledger:
        with pytest.raises(Problem) as refused:
            await Trust(ledger).require(project(tmp_path))
        assert "forestay ext trust" in refused.value.details["fix"]
        assert refused.value.as_pi()["code"] == "denied"
        await Trust(ledger).require(tmp_path)  # a folder that brings nothing needs no trust


async def test_what_was_looked_at_is_what_is_trusted(tmp_path: Path, clock: ManualClock) -> None:
    folder = project(tmp_path)
    async with Ledger.open(tmp_path / "l.db", clock=clock) as ledger:
        trust = Trust(ledger)
        seen = (await trust.standing(folder)).digest
        (folder / ".pi/extensions/one.ts").write_text("swapped")
        with pytest.raises(Problem, match="changed since it was reviewed"):
            await trust.give(folder, digest=seen)


def test_hash_does_not_follow_links_out(tmp_path: Path) -> None:
    folder = project(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("1")
    (folder / ".pi/extensions/out").symlink_to(outside)
    before = content_hash(folder)
    (outside / "a").write_text("2")
    assert content_hash(folder) == before
    (folder / ".pi/extensions/out").unlink()
    (folder / ".pi/extensions/out").symlink_to(tmp_path)
    assert content_hash(folder) != before
