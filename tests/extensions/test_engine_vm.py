"""The VM itself: what it keeps apart, what it gives back, and that nothing of the guest's gets past it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.extensions.runtime_world import StillWorld

from forestay.extensions.engine import bytecode, mapping, snapshot
from forestay.extensions.engine.bytecode import KeptBytecode, compile_module
from forestay.extensions.engine.image import base_image
from forestay.extensions.engine.limits import EngineTrap, GuestError, Limits
from forestay.extensions.engine.native import native
from forestay.extensions.engine.snapshot import Snapshot
from forestay.extensions.engine.vm import Vm
from forestay.kernel import Problem, Seal


@pytest.fixture
def vm() -> Vm:
    made = snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=32, slice_ms=500))
    yield made
    made.close()


def _text(vm: Vm, code: str) -> str:
    with vm.running():
        value = vm.evaluate(f"'' + ({code})", "test.js")
        found = vm.text(value).decode("utf-8", "surrogatepass")
        vm.free(value)
    return found


def test_code_runs_and_values_come_back(vm: Vm) -> None:
    assert _text(vm, "[1, 2, 3].map((x) => x * 2).join()") == "2,4,6"


def test_two_vms_share_nothing(vm: Vm) -> None:
    other = snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=32))
    _text(vm, "globalThis.secret = 1")
    assert _text(other, "typeof secret") == "undefined"
    other.close()


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_text_crosses_unchanged(text: str) -> None:
    vm = _shared()
    with vm.running():
        value = vm.new_string(text.encode())
        assert vm.text(value).decode() == text
        vm.free(value)


_kept: list[Vm] = []


def _shared() -> Vm:
    if not _kept:
        _kept.append(snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=32)))
    return _kept[0]


def test_large_text_crosses(vm: Vm) -> None:
    text = ("ä€𐍈" * 100_000).encode()
    with vm.running():
        value = vm.new_string(text)
        assert vm.text(value) == text
        vm.free(value)


@pytest.mark.parametrize(
    "thrown",
    ["new TypeError('no')", "'text'", "null", "undefined", "42", "Symbol('s')", "{ get message() { throw 1 } }"],
)
def test_v1_whatever_is_thrown_is_a_guest_error_and_the_vm_lives(vm: Vm, thrown: str) -> None:
    with pytest.raises(GuestError), vm.running():
        vm.evaluate(f"throw ({thrown})", "test.js")
    assert _text(vm, "1 + 1") == "2"


@pytest.mark.parametrize(
    "thrown",
    [
        "{ get message() { for (;;); } }",
        "{ name: { toString() { for (;;); } } }",
        "{ toString() { for (;;); } }",
        "new Proxy({}, { get() { for (;;); } })",
    ],
)
def test_v1_a_thrown_value_that_never_ends_is_a_timeout(thrown: str) -> None:
    """Reading it runs the guest's code: the deadline must reach that, too, so the interpreter must be free."""
    vm = snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=32, slice_ms=100))
    with pytest.raises(EngineTrap, match="100 ms"), vm.running():
        vm.evaluate(f"throw ({thrown})", "test.js")
    vm.close()


def test_v2_after_a_trap_nothing_runs(vm: Vm) -> None:
    with pytest.raises(EngineTrap) as caught, vm.running():
        vm.evaluate("while (true) {}", "test.js")
    assert caught.value.kind == "timeout"
    with pytest.raises(EngineTrap), vm.running():
        vm.evaluate("1", "test.js")


def test_time_chance_and_zone_are_the_hosts(vm: Vm) -> None:
    world = vm.host
    assert isinstance(world, StillWorld)
    world.now = 1_234
    assert _text(vm, "Date.now()") == "1234"
    assert _text(vm, "new Date(0).getHours()") == "1"
    first, second = _text(vm, "Math.random()"), _text(vm, "Math.random()")
    assert first != second
    again = snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=32))
    assert [_text(again, "Math.random()"), _text(again, "Math.random()")] == [first, second]
    again.close()


def test_chance_is_different_with_another_seed() -> None:
    numbers = set()
    for seed in range(4):
        vm = snapshot.restore(base_image(), StillWorld(seed), Limits(memory_mb=32))
        numbers.add(_text(vm, "Math.random()"))
        vm.close()
    assert len(numbers) == 4


def test_a_snapshot_survives_being_bytes(vm: Vm) -> None:
    _text(vm, "globalThis.kept = { deep: [1, 'two'] }")
    data = snapshot.take(vm, {}).to_bytes()
    again = snapshot.restore(Snapshot.from_bytes(data), StillWorld(), Limits(memory_mb=32))
    assert _text(again, "JSON.stringify(kept)") == '{"deep":[1,"two"]}'
    again.close()


def test_a_vm_that_rested_for_long_can_still_be_taken(vm: Vm) -> None:
    _text(vm, "globalThis.kept = 1")
    for _ in range(10_000):
        native().engine.increment_epoch()
    again = snapshot.restore(snapshot.take(vm, {}), StillWorld(), Limits(memory_mb=32))
    assert _text(again, "kept") == _text(vm, "kept") == "1"
    again.close()


def test_a_snapshot_is_untouched_by_what_its_vm_does_later(vm: Vm) -> None:
    _text(vm, "globalThis.count = 1")
    image = snapshot.take(vm, {})
    _text(vm, "globalThis.count = 2")
    again = snapshot.restore(image, StillWorld(), Limits(memory_mb=32))
    assert (_text(again, "count"), _text(vm, "count")) == ("1", "2")
    again.close()


@pytest.mark.parametrize("mapped", [True, False])
def test_mapped_or_copied_a_restored_vm_is_the_same(vm: Vm, mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from forestay.extensions.engine import mapping

    if not mapped:
        monkeypatch.setattr(mapping, "available", lambda: False)
    _text(vm, "globalThis.kept = 'here'")
    image = snapshot.take(vm, {})
    first, second = (snapshot.restore(image, StillWorld(), Limits(memory_mb=32)) for _ in range(2))
    assert snapshot.take(first, {}).blocks == image.blocks
    assert _text(first, "kept += '!'") == "here!"
    assert _text(second, "kept") == "here", "what one writes the other does not see"
    for restored in (first, second):
        restored.close()


def test_the_file_of_an_image_goes_with_it() -> None:
    import gc

    from forestay.extensions.engine import mapping

    vm = snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=32))
    image = snapshot.take(vm, {})
    snapshot.restore(image, StillWorld(), Limits(memory_mb=32)).close()
    key = id(image)
    assert (key in mapping._files) == mapping.available()
    del image
    gc.collect()
    assert key not in mapping._files
    vm.close()


def test_a_restored_vm_has_no_bytes_of_the_instance_below(vm: Vm) -> None:
    image = base_image()
    taken = snapshot.take(snapshot.restore(image, StillWorld(), Limits(memory_mb=32)), image.roots)
    before, after = dict(image.blocks), dict(taken.blocks)
    assert before.keys() == after.keys()


@pytest.mark.parametrize("data", [b"", b"forestay-vm-1\n", b"forestay-vm-1\nxx", b"other"])
def test_damaged_snapshots_are_refused(data: bytes) -> None:
    with pytest.raises(Problem) as caught:
        Snapshot.from_bytes(data)
    assert caught.value.key == "state_corrupted"


def test_a_snapshot_of_another_engine_is_refused() -> None:
    import msgspec

    image = msgspec.structs.replace(base_image(), engine="0" * 64)
    with pytest.raises(Problem, match="Another engine made the snapshot"):
        snapshot.restore(image, StillWorld(), Limits())


def test_bytecode_runs_as_its_source_does(vm: Vm, tmp_path) -> None:  # type: ignore[no-untyped-def]
    source = "globalThis.ran = [1, 2].concat(3); export default 1"
    kept = KeptBytecode(tmp_path, Seal(b"key"))
    data = compile_module(source, "index.js", kept)
    assert compile_module(source, "index.js", kept) == data
    assert len(list(kept.folder.iterdir())) == 1
    with vm.running():
        vm.free(vm.evaluate_bytecode(data))
        vm.run_jobs()
    assert _text(vm, "ran") == "1,2,3"


def test_a_syntax_error_is_found_at_compile_time() -> None:
    with pytest.raises(GuestError, match="SyntaxError"):
        compile_module("let let = ;", "index.js")


def test_bytecode_is_kept_in_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "MAX_KEPT", 3)
    kept = KeptBytecode(tmp_path, Seal(b"key"))
    for number in range(5):
        compile_module(f"export default {number}", "index.js", kept)
        for at, path in enumerate(sorted(kept.folder.glob("*.qbc"), key=lambda path: path.stat().st_mtime_ns)):
            os.utime(path, ns=(at, at))  # older than whatever comes next, however fast that is
    assert len(list(kept.folder.glob("*.qbc"))) == 3
    assert (kept.folder / f"{bytecode.bytecode_key('export default 4', 'index.js')}.qbc").exists()


def test_bytecode_that_cannot_be_kept_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    data = compile_module("export default 1", "index.js")
    assert compile_module("export default 1", "index.js", KeptBytecode(tmp_path / "file", Seal(b"key"))) == data


def test_memory_outside_the_vm_is_out_of_reach(vm: Vm) -> None:
    for address, length in ((vm.memory.size, 1), (vm.memory.size - 1, 2), (0xFFFFFFFF, 4)):
        with pytest.raises(IndexError):
            vm.memory.read(address, length)
        with pytest.raises(IndexError):
            vm.memory.write(address, bytes(length))


def test_a_host_that_fails_stops_the_vm_and_its_error_comes_out(vm: Vm) -> None:
    class Broken(StillWorld):
        def clock_ns(self, monotonic: bool) -> int:
            raise OSError("no clock")

    vm.host = Broken()
    with pytest.raises(OSError, match="no clock"), vm.running():
        vm.evaluate("Date.now()", "test.js")
    with pytest.raises(EngineTrap), vm.running():
        vm.evaluate("1", "test.js")


def test_a_budget_stops_at_the_same_step_each_time() -> None:
    counts = set()
    for _ in range(3):
        world = StillWorld()
        vm = snapshot.restore(base_image(), world, Limits(memory_mb=32, budget=5))
        with pytest.raises(EngineTrap, match="5 steps"), vm.running():
            vm.evaluate("globalThis.n = 0; while (true) { n++; if (n % 1000 === 0) Date.now(); }", "test.js")
        counts.add(world.touched)
        vm.close()
    assert counts == {True}


def test_garbage_is_collected() -> None:
    """A hundred thousand dead cycles fit into a VM that could not hold them alive."""
    vm = snapshot.restore(base_image(), StillWorld(), Limits(memory_mb=12, slice_ms=60_000))
    with vm.running():
        vm.free(
            vm.evaluate("for (let i = 0; i < 100000; i++) { const a = {}; a.self = a; a.pad = [i, i, i] }", "test.js")
        )
    assert vm.memory.size <= 12 * 1024 * 1024
    with pytest.raises(GuestError, match=r"out of memory|null"), vm.running():
        vm.evaluate("globalThis.kept = []; for (let i = 0; i < 100000; i++) kept.push({ pad: [i, i, i] })", "test.js")
    vm.close()


def test_the_engine_is_compiled_once_per_process() -> None:
    assert native() is native()


def test_a_snapshot_over_another_holds_what_differs(vm: Vm) -> None:
    with vm.running():
        vm.free(vm.evaluate("globalThis.kept = { text: 'x'.repeat(3000000), list: [1, 2] }", "x.js"))
    whole, over = snapshot.take(vm, {}), snapshot.take(vm, {}, base_image())
    assert over.size > base_image().size  # it has grown, too
    if mapping.available():
        assert over.over is base_image()
        assert _length(over) < _length(whole)
    again = snapshot.restore(over, StillWorld(), Limits(memory_mb=32))
    try:
        assert again.memory.blocks() == vm.memory.blocks()
        assert _text(again, "kept.text.length + '/' + kept.list") == "3000000/1,2"
    finally:
        again.close()


def test_a_snapshot_over_another_is_whole_where_memory_cannot_be_mapped(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with vm.running():
        vm.free(vm.evaluate("globalThis.kept = 'here'", "x.js"))
    over = snapshot.take(vm, {}, base_image())
    monkeypatch.setattr(mapping, "available", lambda: False)
    assert snapshot.take(vm, {}, base_image()).over is None
    for taken in (over, snapshot.take(vm, {}, base_image())):
        again = snapshot.restore(taken, StillWorld(), Limits(memory_mb=32))
        try:
            assert _text(again, "kept") == "here"
        finally:
            again.close()


def _length(taken: Snapshot) -> int:
    return sum(len(data) for _, data in taken.blocks)
