"""The event loop's invariants (Pi §1A.4.5), over random sequences of everything that can happen to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.extensions.isolate import Loop, Macrotask

_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 5)),
        st.tuples(st.just("arm"), st.integers(1, 6), st.integers(-2, 8)),
        st.tuples(st.just("clear"), st.integers(1, 6)),
        st.tuples(st.just("step"), st.integers(0, 5)),
    ),
    max_size=60,
)


class Model:
    """The specification's algorithm, written down a second time as slowly and plainly as possible."""

    def __init__(self) -> None:
        self.queue: list[tuple[str, int, int]] = []  # what, id, order of arming
        self.timers: list[tuple[int, int, int]] = []  # deadline, order, id
        self.order = 0

    def arrive(self, number: int) -> None:
        self.queue.append(("inbound", number, 0))

    def arm(self, timer: int, delay: int, now: int) -> None:
        self.clear(timer)
        self.order += 1
        self.timers.append((now + max(0, delay), self.order, timer))

    def clear(self, timer: int) -> None:
        self.timers = [entry for entry in self.timers if entry[2] != timer]
        self.queue = [entry for entry in self.queue if entry[:2] != ("timer", timer)]

    def step(self, now: int) -> tuple[str, int] | None:
        due = sorted(entry for entry in self.timers if entry[0] <= now)
        self.timers = [entry for entry in self.timers if entry[0] > now]
        self.queue += [("timer", timer, order) for _, order, timer in due]
        return self.queue.pop(0)[:2] if self.queue else None


def _play(operations: list[tuple[str, int] | tuple[str, int, int]]) -> list[Macrotask | None]:
    loop, now, out = Loop(), 0, []
    for operation in operations:
        if operation[0] == "arrive":
            loop.arrive("inbound", operation[1])
        elif operation[0] == "arm":
            loop.arm(operation[1], operation[2], now)
        elif operation[0] == "clear":
            loop.clear(operation[1])
        else:
            now += operation[1]
            out.append(loop.step(now))
    return out


@given(_OPERATIONS)
def test_i1_i3_i5_each_step_runs_what_the_specification_says(operations: list[tuple[str, int]]) -> None:
    loop, model, now = Loop(), Model(), 0
    for operation in operations:
        if operation[0] == "arrive":
            loop.arrive("inbound", operation[1])
            model.arrive(operation[1])
        elif operation[0] == "arm":
            loop.arm(operation[1], operation[2], now)
            model.arm(operation[1], operation[2], now)
        elif operation[0] == "clear":
            loop.clear(operation[1])
            model.clear(operation[1])
        else:
            now += operation[1]
            task = loop.step(now)
            assert (None if task is None else (task.kind, task.number)) == model.step(now)


@given(_OPERATIONS)
def test_i5_macrotasks_run_in_the_order_of_their_seq(operations: list[tuple[str, int]]) -> None:
    seqs = [task.seq for task in _play(operations) if task is not None]
    assert seqs == sorted(set(seqs))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_i3_equal_deadlines_fire_in_the_order_of_arming(delays: list[int]) -> None:
    loop = Loop()
    for timer, delay in enumerate(delays):
        loop.arm(timer, delay, 0)
    fired = []
    while (task := loop.step(10)) is not None:
        fired.append(task.number)
    assert fired == [timer for _, timer in sorted((delay, timer) for timer, delay in enumerate(delays))]


def test_i4_what_arrives_waits_for_the_next_step() -> None:
    loop = Loop()
    loop.arrive("inbound", 1)
    first = loop.step(0)
    loop.arrive("result", 7)
    assert first is not None
    assert first.number == 1
    assert loop.queued == 1


@given(_OPERATIONS)
def test_determinism_equal_histories_give_equal_tasks(operations: list[tuple[str, int]]) -> None:
    assert _play(operations) == _play(operations)


@given(_OPERATIONS, st.integers(0, 10_000))
def test_a_loop_goes_on_from_its_state_as_if_nothing_had_been(operations: list[tuple[str, int]], later: int) -> None:
    loop, now = Loop(), 0
    for operation in operations:
        if operation[0] == "arrive":
            loop.arrive("inbound", operation[1])
        elif operation[0] == "arm":
            loop.arm(operation[1], operation[2], now)
        elif operation[0] == "clear":
            loop.clear(operation[1])
        else:
            now += operation[1]
            loop.step(now)
    again = Loop.from_state(loop.state(now), now + later)
    assert [loop.step(now + 50) for _ in range(80)] == [again.step(now + later + 50) for _ in range(80)]


def test_a_cleared_timer_does_not_fire_even_when_it_was_due() -> None:
    loop = Loop()
    loop.arm(1, 0, 0)
    loop.arm(2, 0, 0)
    assert loop.step(5) == Macrotask(3, "timer", 1, body=b"1")
    loop.clear(2)
    assert loop.step(5) is None
    assert loop.deadline() is None
