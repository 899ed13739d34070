"""One JavaScript VM: a WebAssembly instance with its own memory, driven through a dozen of its exports.

A VM belongs to one thread at a time. V1: nothing that a guest does raises anything but `GuestError` (it threw, the VM
lives) or `EngineTrap` (the engine stopped, the VM is lost). V2: after a trap every further call traps. V3: time spent
in a synchronous host call does not count against the guest's slice.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec
import wasmtime
from wasmtime import _ffi as ffi

from forestay.extensions.engine import crossing
from forestay.extensions.engine.crossing import BUFFER, WORDS
from forestay.extensions.engine.kept_pages import KeptPages
from forestay.extensions.engine.limits import EngineTrap, GuestError, Limits
from forestay.extensions.engine.native import EXPORTS, RUNNING, TICK_SECONDS, calls, current, ended, native, quick
from forestay.kernel import Problem

MODULE = 1
PAGE = 65_536  # what WebAssembly grows by
_BYTECODE_FLAGS = 1 << 4  # leave the source text out; line numbers stay for stack traces
_EXCEPTION = 6  # the tag of a value that stands for a thrown one, in the upper word of its box
_DESCRIPTION = 65_536  # bytes of a thrown value's name, message or stack that are read
_DESCRIBED = 32  # rejections of one tick that are described one by one


class Host(Protocol):
    """What a VM asks of its owner while it runs."""

    def clock_ns(self, monotonic: bool) -> int: ...
    def random(self, count: int) -> bytes: ...
    def timezone_offset(self, seconds: int) -> int: ...
    def sync(self, request: bytes) -> bytes:
        """Answer a synchronous host call; both sides are JSON."""


class Slice(NamedTuple):
    """What came of one slice of JavaScript: how many microtasks ran, what was said, what was thrown."""

    jobs: int
    said: bytes
    thrown: GuestError | None
    unhandled: list[bytes]
    """Descriptions of the rejections that nobody handled."""


class _Running:
    __slots__ = ("_before", "_vm")

    def __init__(self, vm: Vm) -> None:
        self._vm = vm

    def __enter__(self) -> None:
        self._before = current.vm
        current.vm = self._vm
        self._vm.pulse.begin(self)

    def __exit__(self, *_: object) -> None:
        self._vm.pulse.end(self)
        current.vm = self._before


class Memory:
    """A VM's linear memory. Addresses are the guest's; whatever it says, nothing outside its own memory is touched."""

    def __init__(self, context: Any, memory: Any) -> None:
        self._context = context
        self._memory = memory
        self.refresh()

    def refresh(self) -> None:
        """Look at the memory again: it may have grown."""
        self.size: int = ffi.wasmtime_memory_data_size(self._context, ctypes.byref(self._memory))
        pointer = ffi.wasmtime_memory_data(self._context, ctypes.byref(self._memory))
        self.base: int = ctypes.cast(pointer, ctypes.c_void_p).value or 0
        self._bytes = memoryview((ctypes.c_ubyte * self.size).from_address(self.base)).cast("B")
        self._words = self._bytes.cast("I")

    def release(self) -> None:
        """The instance is gone: nothing can be read or written any more."""
        self.size = 0
        self._bytes = self._words = memoryview(b"")

    def grow(self, size: int) -> None:
        """Make room for `size` bytes; the store's limit may say no, which is a Python error here."""
        if size > self.size:
            before = ctypes.c_uint64(0)
            pages = -(-(size - self.size) // PAGE)
            error = ffi.wasmtime_memory_grow(self._context, ctypes.byref(self._memory), pages, ctypes.byref(before))
            if error:
                ffi.wasmtime_error_delete(error)
                raise MemoryError(f"{size} bytes are more than this VM may have")
            self.refresh()

    def read(self, address: int, length: int) -> bytes:
        if address + length > self.size:
            self._check(address, length)
        return bytes(self._bytes[address : address + length])

    def write(self, address: int, data: bytes) -> None:
        if address + len(data) > self.size:
            self._check(address, len(data))
        self._bytes[address : address + len(data)] = data

    def read_u32(self, address: int) -> int:
        """A word at an aligned address."""
        if address + 4 > self.size:
            self._check(address, 4)
        return self._words[address >> 2]

    def write_u32(self, address: int, value: int) -> None:
        if address + 4 > self.size:
            self._check(address, 4)
        self._words[address >> 2] = value

    def view(self, start: int, end: int) -> memoryview:
        """What stands there, without a copy; valid as long as the VM does not run."""
        if end > self.size:
            self._check(start, end - start)
        return self._bytes[start:end]

    def _check(self, address: int, length: int) -> None:
        if self.size:
            self.refresh()
        if address + length > self.size:
            raise IndexError(f"{length} bytes at {address} lie outside the VM's memory")


class Vm:
    def __init__(self, host: Host, limits: Limits) -> None:
        self.host = host
        self.limits = limits
        self.raised: BaseException | None = None
        self.lost: EngineTrap | None = None
        self._shared = native()
        self._store = wasmtime.Store(self._shared.engine)
        self._store.set_limits(memory_size=limits.memory_bytes)
        self._context = self._store._context()
        self._context_address = ctypes.cast(self._context, ctypes.c_void_p).value
        self._store.set_epoch_deadline(1 << 40)
        try:
            self._instance = self._shared.instantiate(self._store)
        except wasmtime.WasmtimeError as error:
            raise Problem(
                "extension_memory", f"{limits.memory_mb} MB are too little for a VM.", reason=str(error)[:200]
            ) from error
        self.pulse = self._shared.pulse
        self.pulse.hold()
        self._raw = (ctypes.c_uint32 * 32)()
        self._trap = ctypes.c_void_p(0)
        self._functions: list[Any] = []
        self._call = {name: self._bind(name, arity) for name, arity in EXPORTS.items()}
        # For a value that may be no string, this runs a `toString`.
        self._convert = self._bound(self._export("qjs_get_string_len"), 2, calls)
        self.memory = Memory(self._context, self._export("memory").of.memory)
        self.stack_pointer_global = self._export("__stack_pointer").of.global_
        self.scratch = 0
        self.undefined = 0
        self._deadline = 0.0
        self._steps = 0
        self._rejections: dict[int, tuple[int, int]] = {}
        self.pages: KeptPages | None = None  # those that it shares
        self._crossing: tuple[Callable[..., int], Callable[..., int], Callable[..., int]] | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Start an empty engine; a VM that is restored from a snapshot does not need it."""
        with self.running():
            self._call["_initialize"]()
            if self._call["qjs_init"]() != 0:
                raise EngineTrap("engine", "the engine did not start")
            self.apply_limits()
            self.scratch = self._call["wasm_malloc"](BUFFER + WORDS)
            self.undefined = self._call["qjs_get_undefined"]()

    def apply_limits(self) -> None:
        """Set the limits of the engine. They live in its memory, so they are set again after a restore."""
        # The engine's own limit is a little lower than the store's: it can then say "out of memory" instead of dying.
        self._call["qjs_set_memory_limit"](self.limits.memory_bytes - self.limits.memory_bytes // 16)
        self._call["qjs_set_max_stack_size"](self.limits.stack_kb * 1024)
        self._call["qjs_set_interrupt_handler"](0 if self.limits.budget is None else 1)
        self._call["qjs_set_promise_rejection_handler"](1)

    def close(self) -> None:
        """Give the memory back; the VM cannot be used afterwards."""
        if self.lost is None:
            self.lost = EngineTrap("engine", "the VM is closed")
        if self._context_address:
            self._context_address = 0
            self._call.clear()
            self._crossing = None
            self.memory.release()
            self.pulse.release()
            self._store.close()
            self.pages = None

    def running(self) -> _Running:
        """One slice of JavaScript, as a `with` block: this thread owns the VM, and the clock of its deadline runs."""
        if self.lost is not None:
            raise self.lost
        self._steps = 0
        self._arm(self.limits.slice_ms / 1000)
        return _Running(self)

    def _arm(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        ticks = int(seconds / TICK_SECONDS) + 2
        quick.wasmtime_context_set_epoch_deadline(self._context_address, ticks)

    # -- running ------------------------------------------------------------------------------------------------

    def evaluate(self, code: str, filename: str, flags: int = 0) -> int:
        """Run source text; the value, as the engine's handle. For a module that is a promise of its exports."""
        data, name = code.encode("utf-8", "surrogatepass"), filename.encode() + b"\0"
        source, label = self._put(data + b"\0"), self._put(name)
        try:
            return self._checked(self._call["qjs_eval"](source, len(data), label, flags))
        finally:
            self._free(source, label)

    def evaluate_bytecode(self, bytecode: bytes) -> int:
        address = self._put(bytecode)
        try:
            return self._checked(self._call["qjs_eval_bytecode"](address, len(bytecode)))
        finally:
            self._free(address)

    def compile(self, code: str, filename: str, flags: int = MODULE) -> bytes:
        """Bytecode of source text, for this version of the engine only."""
        data, name = code.encode("utf-8", "surrogatepass"), filename.encode() + b"\0"
        source, label = self._put(data + b"\0"), self._put(name)
        try:
            address = self._call["qjs_compile"](source, len(data), label, flags, _BYTECODE_FLAGS, self.scratch)
            if address == 0:
                raise GuestError(self._exception())
            bytecode = self.memory.read(address, self.memory.read_u32(self.scratch))
            self._free(address)
            return bytecode
        finally:
            self._free(source, label)

    def call(self, function: int, *arguments: int) -> int:
        """Call a function with handles; the result, as a handle that the caller frees."""
        for index, argument in enumerate(arguments):
            self.memory.write_u32(self.scratch + 4 * index, argument)
        return self._checked(self._call["qjs_call"](function, self.undefined, len(arguments), self.scratch))

    def call_text(self, function: int, text: bytes) -> None:
        """Call a function with one string, and drop what it returns."""
        argument = self.new_string(text)
        try:
            result = self.call(function, argument)
        finally:
            self.free(argument)
        self.free(result)

    def call_for_text(self, function: int, *arguments: int) -> bytes:
        """Call a function that returns a string."""
        result = self.call(function, *arguments)
        text = self.text(result)
        self.free(result)
        return text

    def run_jobs(self) -> int:
        """Run microtasks until there are none (I2); how many ran."""
        execute, count = self._call["qjs_execute_pending_job"], 0
        while True:
            ran = execute()
            if ran == 0:
                return count
            self.check()
            if ran != 1:  # a job that failed keeps its exception; what failed is a rejected promise elsewhere
                self.free(self._call["qjs_get_exception"]())
            count += 1
            self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            self._lose(EngineTrap("timeout", f"the tick took more than {self.limits.slice_ms} ms"))

    def tick(self, deliver: int, collect: int, text: bytes) -> tuple[int, bytes, GuestError | None]:
        """Call `deliver` with a text, then `settle`; what that gives, and what `deliver` threw."""
        if len(text) > BUFFER or self.limits.budget is not None:
            thrown = self._caught(lambda: self.call_text(deliver, text))
            self.check()
            return *self.settle(collect), thrown
        start, _, _ = self._crossing or self._crossed()
        self.memory.write(self.scratch + WORDS, text)
        ended = start(deliver, collect, self.undefined, self.scratch, len(text))
        if ended == crossing.THREW:
            thrown = self._caught(lambda: self._checked(self._word(crossing.AT_VALUE)))
            return *self.settle(collect), thrown
        return *self._settled(ended, collect), None

    def slice(self, deliver: int, collect: int, describe: int, text: bytes) -> Slice:
        """One slice of JavaScript: what `tick` gives, and the rejections that nobody handled in it."""
        with self.running():
            jobs, said, thrown = self.tick(deliver, collect, text)
            return Slice(jobs, said, thrown, self.unhandled(describe))

    def settle(self, collect: int) -> tuple[int, bytes]:
        """Run microtasks until there are none and `collect` gives a text; how many ran, and the text (I2)."""
        if self.limits.budget is None:
            _, go_on, _ = self._crossing or self._crossed()
            return self._settled(go_on(collect, self.undefined, self.scratch), collect)
        jobs = self.run_jobs()
        while not (text := self.call_for_text(collect)):  # a `nextTick` ran
            self.check()
            jobs += self.run_jobs()
        return jobs, text

    def _settled(self, ended: int, collect: int) -> tuple[int, bytes]:
        """What came of a crossing that ended this way; it goes on as long as there are microtasks."""
        before = 0
        while ended == crossing.MORE:
            before += self._word(crossing.AT_JOBS)
            self._check_time()
            assert self._crossing is not None
            ended = self._crossing[1](collect, self.undefined, self.scratch)
        jobs = before + self._word(crossing.AT_JOBS)
        if ended == crossing.SAID:
            return jobs, self.memory.read(self.scratch + WORDS, self._word(crossing.AT_LENGTH))
        value, address = self._checked(self._word(crossing.AT_VALUE)), self._word(crossing.AT_TEXT)
        if address == 0:
            raise GuestError(self._exception())
        text = self.memory.read(address, self._word(crossing.AT_LENGTH))
        self._call["qjs_free_cstring"](address)
        self.free(value)
        return jobs, text

    def _caught(self, work: Callable[[], object]) -> GuestError | None:
        try:
            work()
        except GuestError as error:
            return error
        return None

    def _word(self, number: int) -> int:
        return self.memory.read_u32(self.scratch + 4 * number)

    def _crossed(self) -> tuple[Callable[..., int], Callable[..., int], Callable[..., int]]:
        needed = [self._export(name) for name in crossing.NEEDED]
        tick, settle, read = crossing.beside(self._context, self._shared.crossing, needed)
        self._functions += (tick, settle, read)
        self._crossing = self._bound(tick, 5, calls), self._bound(settle, 3, calls), self._bound(read, 2, quick)
        return self._crossing

    def check(self) -> None:
        """Trap if the budget ran out: the engine's own error for that can be swallowed by a promise."""
        if self.raised is not None:
            self._lose(self._taken())

    def unhandled(self, describe: int) -> list[bytes]:
        """The rejections that nobody handled in this slice, described by the guest; they are then forgotten."""
        if not self._rejections:
            return []
        found, self._rejections = self._rejections, {}
        descriptions: list[bytes] = []
        for promise, reason in found.values():
            if len(descriptions) < _DESCRIBED:
                descriptions.append(self.call_for_text(describe, reason))
            self.free(promise)
            self.free(reason)
        if len(found) > _DESCRIBED:
            more = f"{len(found) - _DESCRIBED} more promises were rejected in the same tick and nobody handled them."
            descriptions.append(msgspec.json.encode({"name": "Error", "message": more, "stack": ""}))
        return descriptions

    # -- values -------------------------------------------------------------------------------------------------

    def new_string(self, text: bytes) -> int:
        if len(text) <= BUFFER:
            address = self.scratch + WORDS
            self.memory.write(address, text)
            return self._call["qjs_new_string"](address, len(text))
        address = self._put(text)
        value = self._call["qjs_new_string"](address, len(text))
        self._free(address)
        return value

    def text(self, value: int) -> bytes:
        """The UTF-8 of a string value."""
        address = self._call["qjs_get_string_len"](value, self.scratch)
        if address == 0:
            raise GuestError(self._exception())
        text = self.memory.read(address, self.memory.read_u32(self.scratch))
        self._call["qjs_free_cstring"](address)
        return text

    def property(self, value: int, name: str) -> int:
        label = self._put(name.encode() + b"\0")
        found = self._call["qjs_get_prop_string"](value, label)
        self._free(label)
        return found

    def global_object(self) -> int:
        return self._call["qjs_get_global"]()

    def define_host_function(self, name: str) -> None:
        """Put a function on the global object that calls the host by this name."""
        text = name.encode()
        label = self._put(text + b"\0")
        function, target = self._call["qjs_new_host_function"](label, len(text), 0), self.global_object()
        self._call["qjs_set_prop_string"](target, label, function)
        self.free(function)
        self.free(target)
        self._free(label)

    def free(self, value: int) -> None:
        self._call["qjs_free_value"](value)

    def collect_garbage(self) -> None:
        self._call["qjs_run_gc"]()

    def pointers(self) -> tuple[int, int, int]:
        """Stack pointer, runtime and context: what a snapshot keeps beside the memory."""
        value = ffi.wasmtime_val_t()
        ffi.wasmtime_global_get(self._context, ctypes.byref(self.stack_pointer_global), ctypes.byref(value))
        return value.of.i32, self._call["qjs_get_runtime_ptr"](), self._call["qjs_get_context_ptr"]()

    def set_pointers(self, stack: int, runtime: int, context: int) -> None:
        value = ffi.wasmtime_val_t(ffi.WASMTIME_I32, ffi.wasmtime_valunion_t(i32=stack))
        error = ffi.wasmtime_global_set(self._context, ctypes.byref(self.stack_pointer_global), ctypes.byref(value))
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        self._call["qjs_set_runtime_and_context"](runtime, context)

    # -- what the engine calls ------------------------------------------------------------------------------------

    def on_host_call(self, name: int, name_length: int, count: int, arguments: int) -> int:
        which = self.memory.read(name, name_length)
        request = self._request(self.memory.read_u32(arguments) if count > 0 else self.undefined)
        started = time.monotonic()
        if which == b"__host_random__":
            answer = self.host.random(min(int(float(request)), 65536)).hex().encode()
        elif which == b"__host_memory__":
            answer = b"%d" % self.memory.size
        else:
            answer = self.host.sync(request)
        self._arm(max(0.0, self._deadline - started))  # V3
        return self.new_string(answer)

    def _request(self, value: int) -> bytes:
        """The text of a host call's argument, in one crossing where it fits into the buffer, which is free now."""
        _, _, read = self._crossing or self._crossed()
        length = read(value, self.scratch)
        return self.text(value) if length == crossing.UNREAD else self.memory.read(self.scratch + WORDS, length)

    def on_interrupt(self) -> bool:
        self._steps += 1
        if self.limits.budget is not None and self._steps > self.limits.budget:
            self.raised = EngineTrap("timeout", f"the tick took more than {self.limits.budget} steps")
            return True
        return False

    def on_rejection(self, promise: int, reason: int, handled: bool) -> None:
        key = self._call["qjs_get_value_ptr"](promise)
        known = self._rejections.pop(key, None)
        if known is not None:
            self.free(known[0])
            self.free(known[1])
        if handled or known is not None:
            self.free(promise)
            self.free(reason)
        else:
            self._rejections[key] = (promise, reason)

    # -- crossings ----------------------------------------------------------------------------------------------

    def _checked(self, value: int) -> int:
        if value == 0 or self.memory.read_u32(value + 4) == _EXCEPTION:
            if value:
                self.free(value)
            raise GuestError(self._exception())
        return value

    def _exception(self) -> bytes:
        """What was thrown, in the engine's own words; a budget that ran out is a trap."""
        value = self._call["qjs_get_exception"]()
        texts = {name: self._description(self.property(value, name)) for name in ("name", "message", "stack")}
        if not any(texts.values()):
            texts["message"] = self._description(value)
        else:
            self.free(value)
        self.check()
        return msgspec.json.encode(texts)

    def _description(self, value: int) -> str:
        """The text of any value, which is then freed; none when it has none."""
        address = self._convert(value, self.scratch)
        self.free(value)
        if address == 0:
            self.free(self._call["qjs_get_exception"]())
            return ""
        length = self.memory.read_u32(self.scratch)
        text = self.memory.read(address, min(length, _DESCRIPTION)).decode("utf-8", "replace")
        self._call["qjs_free_cstring"](address)
        if length > _DESCRIPTION:
            return f"{text}… [cut: the first {_DESCRIPTION} of {length} bytes]"
        return "" if text == "undefined" else text

    def _put(self, data: bytes) -> int:
        address = self._call["wasm_malloc"](len(data) or 1)
        if address == 0:
            self._lose(EngineTrap("memory", "the VM has no memory left"))
        self.memory.write(address, data)
        return address

    def _free(self, *addresses: int) -> None:
        for address in addresses:
            self._call["wasm_free"](address)

    def _export(self, name: str) -> Any:
        item = crossing.export(self._context, self._instance, name)
        if item is None:
            raise EngineTrap("engine", f"the engine has no export {name}")
        self._functions.append(item)
        return item

    def _bind(self, name: str, arity: int) -> Callable[..., int]:
        return self._bound(self._export(name), arity, calls if name in RUNNING else quick)

    def _bound(self, function: Any, arity: int, library: Any) -> Callable[..., int]:
        invoke = library.wasmtime_func_call_unchecked
        raw, trap = self._raw, self._trap
        # Made once: making them of numbers costs as much as a third of a crossing.
        fixed = (
            ctypes.c_void_p(self._context_address),
            ctypes.c_void_p(ctypes.addressof(function.of.func)),
            ctypes.c_void_p(ctypes.addressof(raw)),
            ctypes.c_size_t(max(arity, 1)),
            ctypes.c_void_p(ctypes.addressof(trap)),
        )

        def call0() -> int:
            error = invoke(*fixed)
            if error or trap.value:
                self._fail(error)
            return raw[0]

        def call1(first: int) -> int:
            raw[0] = first
            error = invoke(*fixed)
            if error or trap.value:
                self._fail(error)
            return raw[0]

        def call2(first: int, second: int) -> int:
            raw[0] = first
            raw[4] = second
            error = invoke(*fixed)
            if error or trap.value:
                self._fail(error)
            return raw[0]

        def call4(first: int, second: int, third: int, fourth: int) -> int:
            raw[0] = first
            raw[4] = second
            raw[8] = third
            raw[12] = fourth
            error = invoke(*fixed)
            if error or trap.value:
                self._fail(error)
            return raw[0]

        def call5(first: int, second: int, third: int, fourth: int, fifth: int) -> int:
            raw[16] = fifth
            return call4(first, second, third, fourth)

        def call_many(*arguments: int) -> int:
            for index, argument in enumerate(arguments):
                raw[4 * index] = argument
            return call0()

        by_arity: dict[int, Callable[..., int]] = {0: call0, 1: call1, 2: call2, 4: call4, 5: call5}
        return by_arity.get(arity, call_many)

    def _fail(self, error: int | None) -> None:
        """A call did not return: say why, and never use this VM again (V2)."""
        trap, self._trap.value = self._trap.value, None
        stopped = ended(trap, error, self.limits)
        self._lose(stopped if self.raised is None else self._taken())

    def _taken(self) -> BaseException:
        raised, self.raised = self.raised, None
        assert raised is not None
        return raised

    def _lose(self, reason: BaseException) -> None:
        self.lost = reason if isinstance(reason, EngineTrap) else EngineTrap("engine", f"the host failed: {reason!r}")
        raise reason
