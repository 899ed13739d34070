"""The pulse of the engine's deadlines (B1 to B3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from forestay.extensions.engine.native import Pulse

PATIENCE = 30.0


class Beats:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def beats() -> Beats:
    return Beats()


@pytest.fixture
def pulse(beats: Beats) -> Iterator[Pulse]:
    made = Pulse(beats, tick=0.0001, quiet=3)
    made.hold()
    yield made
    made.release()
    thread = made.thread
    if thread is not None:
        thread.join(PATIENCE)
    assert made.thread is None


def test_b1_it_beats_while_somebody_runs(pulse: Pulse, beats: Beats) -> None:
    for who in ("first", "second", "third"):
        _until(lambda: pulse.resting)
        before = beats.count
        pulse.begin(who)
        _until(lambda before=before: beats.count > before + 20)  # type: ignore[misc]
        assert not pulse.resting
        pulse.end(who)


def test_b2_it_rests_when_nobody_has_run_for_a_while(pulse: Pulse, beats: Beats) -> None:
    _until(lambda: pulse.resting)
    before = beats.count
    pulse.begin("somebody")
    pulse.end("somebody")
    _until(lambda: beats.count >= before + 3)
    _until(lambda: pulse.resting)


def test_b1_it_beats_for_who_is_left(pulse: Pulse, beats: Beats) -> None:
    pulse.begin("long")
    pulse.begin("short")
    pulse.end("short")
    before = beats.count
    _until(lambda: beats.count > before + 20)
    pulse.end("long")
    _until(lambda: pulse.resting)


def test_b3_it_ends_with_the_last_and_begins_with_the_next(pulse: Pulse, beats: Beats) -> None:
    _until(lambda: pulse.resting)
    thread = pulse.thread
    assert isinstance(thread, threading.Thread)
    pulse.release()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert pulse.thread is None
    pulse.hold()
    before = beats.count
    pulse.begin("next")
    _until(lambda: beats.count > before)
    pulse.end("next")


def _until(condition: Callable[[], bool]) -> None:
    """Wait for another thread; a test that would wait for ever fails instead."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the other thread did not get there"
