# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""The loop with a real engine: random programs do what the specification says, and recorded ones repeat byte for byte."""

from __future__ import annotations

import msgspec
import pytest
from tests.extensions.loop_programs import Steps, drive, expected, make, to_js
from tests.extensions.runtime_world import StillWorld, artifact

from forestay.extensions.engine.image import image_digest
from forestay.extensions.engine.limits import Limits
from forestay.extensions.trace import FORMAT, Header, Recorder, replay
from forestay.kernel import Problem


def _plain(said: list[str]) -> list[str]:
    return [entry.partition(":")[0] for entry in said]


def _check(seed: int) -> None:
    program, world = make(seed), StillWorld(seed)
    steps = Steps(world)
    said = drive(program, world, steps)
    assert _plain(said) == expected(program), seed
    assert steps.seqs == sorted(set(steps.seqs)), "I5"


def _record(seed: int) -> tuple[str, list[bytes]]:
    program, still, lines = make(seed), StillWorld(seed), []
    recorder = Recorder(still, lines.append)
    source = to_js(program)
    recorder.header(Header(FORMAT, image_digest(), artifact(source).digest, "test", Limits(memory_mb=32)))
    drive(program, recorder, recorder, still)
    return source, lines


@pytest.mark.parametrize("seed", range(40))
def test_i1_to_i5_random_programs_do_what_the_specification_says(seed: int) -> None:
    _check(seed)


@pytest.mark.parametrize("seed", range(100, 130))
def test_recorded_programs_replay_byte_for_byte(seed: int) -> None:
    source, lines = _record(seed)
    assert len(lines) > 6
    assert replay(lines, artifact(source)) == lines


@pytest.mark.sweep
def test_sweep_a_thousand_programs_keep_the_invariants_and_replay() -> None:
    for seed in range(1_000, 2_000):
        _check(seed)
        source, lines = _record(seed)
        assert replay(lines, artifact(source)) == lines, seed


def test_a_replay_that_differs_says_where() -> None:
    source, lines = _record(103)
    at = next(index for index, line in enumerate(lines) if line.startswith(b'["out"'))
    changed = [*lines]
    changed[at] = lines[at].replace(b"register", b"Register", 1)
    with pytest.raises(Problem) as caught:
        replay(changed, artifact(source))
    assert caught.value.key == "replay_diverged"
    assert caught.value.details["line"] == at + 1


def test_a_replay_with_other_chance_differs() -> None:
    seed = next(n for n in range(200, 400) if "random" in str(make(n)))
    source, lines = _record(seed)
    at = next(index for index, line in enumerate(lines) if line.startswith(b'["random"'))
    changed = [*lines]
    changed[at] = msgspec.json.encode(["random", "00" * 16])
    with pytest.raises(Problem, match="differs from the trace"):
        replay(changed, artifact(source))


def test_a_replay_needs_the_artifact_that_was_recorded() -> None:
    source, lines = _record(101)
    with pytest.raises(Problem, match="another artifact"):
        replay(lines, artifact(source + "\n"))


def test_a_cut_trace_ends_where_it_was_cut() -> None:
    source, lines = _record(102)
    at = next(index for index, line in enumerate(lines) if line.startswith(b'["out"')) + 1
    assert replay(lines[:at], artifact(source)) == lines[:at]


@pytest.mark.parametrize("junk", [b"", b"nonsense", b'["trace",{}]', b'["arrive",1]'])
def test_what_is_no_trace_is_refused(junk: bytes) -> None:
    with pytest.raises(Problem) as caught:
        replay([junk], artifact("export default () => {}"))
    assert caught.value.key == "schema_mismatch"
