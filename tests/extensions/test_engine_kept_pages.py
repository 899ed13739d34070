"""The pages of a kept extension: shared by all its VMs, and each VM's own once it writes to them (G1 to G3)."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from tests.extensions.runtime_world import StillWorld, extension, text_of, tool

from forestay.extensions.engine import kept_pages, mapping, snapshot
from forestay.extensions.engine.image import base_image
from forestay.extensions.engine.kept_pages import held_bytes
from forestay.extensions.engine.limits import Limits
from forestay.extensions.engine.pool import Pool
from forestay.extensions.engine.snapshot import Snapshot, blocks
from forestay.extensions.engine.vm import Vm

pytestmark = pytest.mark.skipif(not mapping.available(), reason="this system cannot map memory")
WRITES = "globalThis.kept = { text: 'x'.repeat(2000000), list: Array.from({ length: 20000 }, (_, i) => ({ i })) }; ''"


@pytest.fixture
def vm() -> Iterator[Vm]:
    made = snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=32, slice_ms=60_000))
    _say(made, WRITES)
    yield made
    made.close()


def _say(vm: Vm, code: str) -> str:
    with vm.running():
        value = vm.evaluate(f"'' + ({code})" if ";" not in code else code, "test.js")
        text = vm.text(value).decode()
        vm.free(value)
    return text


def _shared(vm: Vm) -> Snapshot:
    return snapshot.take(vm, {}, base_image(), share=True)


def _again(taken: Snapshot) -> Vm:
    return snapshot.restore(taken, StillWorld(), Limits(memory_mb=32, slice_ms=60_000))


@pytest.mark.parametrize(("runs", "mapped"), [(64, 12_000), (1, 12_000), (0, 12_000), (64, 0), (64, 70)])
def test_shared_pages_are_the_pages(vm: Vm, runs: int, mapped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs are mapped: what is not mapped is copied (G3)."""
    gc.collect()
    monkeypatch.setattr(kept_pages, "MAX_RUNS", runs)
    monkeypatch.setattr(kept_pages, "MAX_MAPPED", kept_pages._counts.mapped + mapped)
    before = blocks(vm.memory)
    taken = _shared(vm)
    assert taken.pages is not None and not taken.blocks
    assert blocks(vm.memory) == before
    first, second = _again(taken), _again(taken)
    assert blocks(first.memory) == blocks(second.memory) == before
    first.close()
    second.close()


def test_what_one_vm_writes_no_other_sees(vm: Vm) -> None:
    taken = _shared(vm)
    other = _again(taken)
    _say(vm, "kept.list.forEach((item) => { item.i = 'mine' }); ''")
    _say(other, "kept.list.forEach((item) => { item.i = 'other' }); ''")
    third = _again(taken)
    assert [_say(each, "kept.list[19999].i + '/' + kept.text.length") for each in (vm, other, third)] == [
        "mine/2000000",
        "other/2000000",
        "19999/2000000",
    ]
    other.close()
    third.close()


def test_g2_a_file_ends_with_the_last_who_needs_it(vm: Vm) -> None:
    gc.collect()
    before, mapped = held_bytes(), kept_pages._counts.mapped
    taken = _shared(vm)
    size = taken.pages.size
    assert held_bytes() == before + size > before + 2_000_000
    assert kept_pages._counts.mapped > mapped
    other = _again(taken)
    del taken
    vm.close()
    gc.collect()
    assert held_bytes() == before + size, "the other VM still needs it"
    other.close()
    del other
    gc.collect()
    assert held_bytes() == before


def test_where_no_file_can_be_made_the_pages_are_copied(vm: Vm, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError("too many files")

    before = blocks(vm.memory)
    base_image()
    monkeypatch.setattr(kept_pages.os, "memfd_create", refuse)
    taken = _shared(vm)
    assert taken.pages is None and taken.blocks
    again = _again(taken)
    assert blocks(again.memory) == before
    again.close()


async def test_p3_a_spare_is_made_ready_for_who_comes_again() -> None:
    pool = Pool()
    for expected in (0, 1, 1):
        subject = extension(tool("globalThis.n = (globalThis.n ?? 0) + 1; return '' + globalThis.n"), pool=pool)
        await subject.load()
        assert text_of(await subject.call_tool("go", {})) == "1"
        await subject.close()
        pool.wait()
        assert [len(ready) for ready in pool._ready.values()] == [1] * expected
    pool.close()
