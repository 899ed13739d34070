"""The envelope: validation beside two JSON Schema validators, building, projecting, estimating, conforming, hostility.

`python -m benchmarks.envelope` prints the table; every figure is measured in the run that prints it.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import fastjsonschema
import jsonschema
import jsonschema_rs
import msgspec
from tests.contracts.lafs.schema import envelope_schemas as contract_schemas

from forestay.envelope import (
    Budget,
    Envelope,
    conform,
    decode,
    encode,
    estimate,
    failure,
    fit,
    offset_page,
    project,
    success,
)
from forestay.kernel import Ids, Problem, SystemClock

Row = tuple[str, str, str]


def run() -> list[Row]:
    clock = SystemClock()
    ids = Ids(clock)
    items = [{"id": f"item-{n}", "name": f"Name {n}"} for n in range(10)]
    page = offset_page(limit=10, offset=0, has_more=True, total=40)
    samples = {
        "a small success": success("book.get", {"id": "b1", "title": "Walden"}, clock=clock, ids=ids),
        "a failure": failure(Problem("not_found", "No such book.", at="$.id"), "book.get", clock=clock, ids=ids),
        "a page of 10 items": success("book.list", items, page=page, clock=clock, ids=ids),
    }
    rows = [_validation(name, sample) for name, sample in samples.items()]
    rows += _building(clock, ids, samples["a page of 10 items"])
    rows += _estimating()
    rows += _fitting(clock, ids)
    rows += _hostile()
    return rows


def _validation(name: str, sample: Envelope) -> Row:
    """Validate from bytes, each validator with the parser that it needs; only ours also finds repeated members.

    The others do not look into `result`: the larger it is, the more this compares parsers.
    """
    data = encode(sample)
    schema = contract_schemas()[-1]
    compiled = fastjsonschema.compile(schema)
    slow = jsonschema.Draft7Validator(schema)
    rust = jsonschema_rs.validator_for(schema)
    ours, fast = _beside(lambda: decode(data), lambda: compiled(json.loads(data)))
    python = _per_call(lambda: slow.validate(json.loads(data)), seconds=0.2)
    native = _per_call(lambda: rust.is_valid(json.loads(data)), seconds=0.2)
    careful, _ = _beside(lambda: compiled(json.loads(data, object_pairs_hook=_no_repeats)), lambda: decode(data))
    figure = f"{_us(ours)}, {fast / ours:.1f} times fastjsonschema"
    others = f"jsonschema-rs {_us(native)}, jsonschema {_us(python)}"
    beside = f"fastjsonschema {_us(fast)} ({_us(careful)} finding repeated members too), {others}"
    return f"validate {name} from bytes ({len(data)} bytes)", figure, beside


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is repeated")
    return members


def _building(clock: SystemClock, ids: Ids, sample: Envelope) -> list[Row]:
    data = encode(sample)
    problem = Problem("not_found", "No such book.", at="$.id")
    return [
        ("build a success", _us(_per_call(lambda: success("op", {"id": 1}, clock=clock, ids=ids))), ""),
        ("build a failure", _us(_per_call(lambda: failure(problem, "op", clock=clock, ids=ids))), ""),
        ("encode a page of 10 items", _us(_per_call(lambda: encode(sample))), ""),
        ("project a page of 10 items to minimal", _us(_per_call(lambda: project(sample, "minimal"))), ""),
        ("conform, 13 checks, from bytes", _us(_per_call(lambda: conform(data))), ""),
    ]


def _estimating() -> list[Row]:
    objects = [
        {"id": f"item-{n:05d}", "name": "naïve café" if n % 3 else "plain", "n": n * 1.5, "tags": ["a", "b"]}
        for n in range(1200)
    ]
    rows = []
    for name, value in (
        ("objects", objects),
        ("numbers", list(range(18_000))),
        ("one ASCII string", "x" * 100_000),
        ("emoji", ["👩\u200d👩\u200d👧 e\u0301"] * 3900),
    ):
        size = len(msgspec.json.encode(value))
        seconds = min(_cpu(lambda value=value: estimate(value)) for _ in range(5))  # type: ignore[misc]
        figure = f"{seconds * 1e3:.1f} ms of CPU, {seconds * 1e8 / size:.1f} ms per 100 KB"
        rows.append((f"estimate {size // 1000} KB of {name}", figure, "the rule allows 10 ms per 100 KB"))
    return rows


def _fitting(clock: SystemClock, ids: Ids) -> list[Row]:
    tree = {f"k{i}": [{"id": j, "body": "x" * 200} for j in range(45)] for i in range(100)}
    big = success("big", tree, clock=clock, ids=ids)
    rows = []
    for budget in (Budget(max_tokens=2000), Budget(max_bytes=100_000)):
        seconds = min(_cpu(lambda budget=budget: fit(big, budget)) for _ in range(3))  # type: ignore[misc]
        rows.append((f"fit 1 MB to {budget.as_json()}", f"{seconds * 1e3:.0f} ms of CPU", ""))
    return rows


def _hostile() -> list[Row]:
    from tests.contracts.lafs.test_hostile import HOSTILE

    worst, most = 0.0, 0
    for make, _ in HOSTILE.values():
        data = make()
        worst = max(worst, _cpu(lambda data=data: _refused(data)))  # type: ignore[misc]
        tracemalloc.start()
        _refused(data)
        most = max(most, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    figure = f"{worst * 1e3:.0f} ms of CPU, {most / 1e6:.1f} MB"
    return [(f"the worst of {len(HOSTILE)} hostile envelopes", figure, "the limit is 50 ms, 50 MB")]


def _refused(data: bytes) -> None:
    try:
        decode(data)
    except Problem:
        return
    raise AssertionError("a hostile envelope was accepted")


def _beside(one: Callable[[], Any], other: Callable[[], Any], rounds: int = 9) -> tuple[float, float]:
    """Measure two functions in turns, so that a busy machine disturbs both; return the best of each."""
    pairs = [(_per_call(one, 0.04), _per_call(other, 0.04)) for _ in range(rounds)]
    return min(first for first, _ in pairs), min(second for _, second in pairs)


def _per_call(function: Callable[[], Any], seconds: float = 0.15) -> float:
    """Return the processor seconds of one call: the best of five rounds that take `seconds` together."""
    function()
    start = time.process_time()
    function()
    count = max(1, int(seconds / 5 / max(time.process_time() - start, 1e-7)))
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(count):
            function()
        best = min(best, (time.process_time() - start) / count)
    return best


def _cpu(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


if __name__ == "__main__":
    for what, figure, beside in run():
        print(f"{what:55} {figure:45} {beside}")
