"""A tick in one crossing gives what the same calls of the engine give one by one (C1 to C3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.extensions.runtime_world import StillWorld

from forestay.extensions.engine import snapshot
from forestay.extensions.engine.crossing import BUFFER, MAX_JOBS
from forestay.extensions.engine.image import base_image
from forestay.extensions.engine.limits import EngineTrap, GuestError, Limits

# `take` gives what was said since the last time, and nothing while `later` has something to run.
_GUEST = """
let said = [], later = [];
globalThis.take = () => {
  const run = later;
  later = [];
  for (const each of run) each();
  if (run.length) return "";
  const text = JSON.stringify(said);
  said = [];
  return text;
};
const say = (text) => void said.push(text);
globalThis.give = (text) => (%s);
"""
_BUSY = f"{{ let p = Promise.resolve(); for (let i = 0; i < {3 * MAX_JOBS}; i++) p = p.then(() => say(i)); }}"
CASES = {
    "it says it again": "say(text)",
    "a promise": "Promise.resolve(text).then(say)",
    "more microtasks than one crossing runs": f"(() => {_BUSY})()",
    "exactly as many": f"(() => {{ for (let i = 0; i < {MAX_JOBS}; i++) Promise.resolve(i).then(say); }})()",
    "a microtask that fails": "Promise.resolve().then(() => { throw Error(text) }).then(say, (e) => say(e.message))",
    "nobody handles a rejection": "void Promise.reject(new Error(text))",
    "it throws": "(() => { say('before'); Promise.resolve('after').then(say); throw new TypeError(text) })()",
    "it throws no error": "(() => { throw 7 })()",
    "put off": "later.push(() => { say('first'); Promise.resolve('then').then(say); later.push(() => say('last')) })",
    "a long answer": f"say('y'.repeat({BUFFER}))",
    "an answer that just fits": f"say('y'.repeat({BUFFER - 4}))",
    "a garbage collector's work": "(() => { for (let i = 0; i < 5000; i++) { const a = {}; a.a = a } say(text) })()",
}


class Guest:
    """A VM with `give` and `take`, ticked in one crossing or call by call."""

    def __init__(self, body: str, limits: Limits) -> None:
        self.vm = snapshot.restore(base_image(), StillWorld(), limits)
        with self.vm.running():
            self.vm.free(self.vm.evaluate(_GUEST % body, "guest.js"))
            everything = self.vm.global_object()
            self.give, self.take = (self.vm.property(everything, name) for name in ("give", "take"))
            self.vm.free(everything)

    def crossed(self, text: bytes) -> tuple[int, bytes, bytes | None, int]:
        with self.vm.running():
            jobs, said, thrown = self.vm.tick(self.give, self.take, text)
        return jobs, said, None if thrown is None else thrown.description, len(self.vm._rejections)

    def call_by_call(self, text: bytes) -> tuple[int, bytes, bytes | None, int]:
        vm, thrown = self.vm, None
        with vm.running():
            try:
                vm.call_text(self.give, text)
            except GuestError as error:
                thrown = error.description
            jobs = vm.run_jobs()
            while not (said := vm.call_for_text(self.take)):
                jobs += vm.run_jobs()
        return jobs, said, thrown, len(vm._rejections)


@pytest.fixture
def guests(request: pytest.FixtureRequest) -> Iterator[tuple[Guest, Guest]]:
    limits = Limits(memory_mb=32, slice_ms=60_000)
    made = Guest(request.param, limits), Guest(request.param, limits)
    yield made
    for guest in made:
        guest.vm.close()


@pytest.mark.parametrize("guests", CASES.values(), ids=CASES, indirect=True)
def test_one_crossing_gives_what_the_calls_give_one_by_one(guests: tuple[Guest, Guest]) -> None:
    one, other = guests
    for text in (b"first", b"second", b"x" * (BUFFER + 1), "Å𝄞".encode()):
        assert one.crossed(text) == other.call_by_call(text)


def test_a_budget_that_runs_out_in_a_microtask_ends_the_vm() -> None:
    """With a budget the calls are made one by one: nothing runs after the microtask in which it ran out."""
    guest = Guest("Promise.resolve().then(() => { for (;;); })", Limits(memory_mb=32, budget=2))
    with pytest.raises(EngineTrap, match="2 steps"):
        guest.crossed(b"")
    with pytest.raises(EngineTrap, match="2 steps"):
        guest.crossed(b"")
    guest.vm.close()


def test_microtasks_without_end_pass_their_deadline() -> None:
    guest = Guest("(function again() { Promise.resolve().then(again) })()", Limits(memory_mb=32, slice_ms=30))
    with pytest.raises(EngineTrap, match="30 ms") as caught:
        guest.crossed(b"")
    assert caught.value.kind == "timeout"
    guest.vm.close()


def test_what_the_host_raises_within_a_crossing_comes_out() -> None:
    class Broken(StillWorld):
        def clock_ns(self, monotonic: bool) -> int:
            raise OSError("no clock")

    guest = Guest("say(Date.now())", Limits(memory_mb=32))
    guest.vm.host = Broken()
    with pytest.raises(OSError, match="no clock"):
        guest.crossed(b"")
    with pytest.raises(EngineTrap):
        guest.crossed(b"")
    guest.vm.close()


def test_what_gives_the_text_may_throw() -> None:
    guest = Guest("(globalThis.broken = true)", Limits(memory_mb=32))
    with guest.vm.running():
        guest.vm.free(guest.vm.evaluate("take = () => { throw new RangeError('no text') }", "guest.js"))
        everything = guest.vm.global_object()
        guest.take = guest.vm.property(everything, "take")
    with pytest.raises(GuestError, match="no text"):
        guest.crossed(b"")
    assert guest.vm.lost is None
    guest.vm.close()
