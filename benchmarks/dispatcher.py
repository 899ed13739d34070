"""The cost of the dispatcher: a synchronous host call from Python, with policy, evidence and the file system.

python benchmarks/dispatcher.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.extensions.dispatcher_world import World

from benchmarks.measure import duration, percentile

CALLS = 3_000


Row = tuple[str, str, str]


def measure(world: World, name: str, method: str, **params: object) -> Row:
    call = world.dispatcher.call_sync
    took = []
    for _ in range(CALLS):
        request = world.request(method, dict(params))
        start = time.perf_counter()
        result = call(request, "ext.test")
        took.append(time.perf_counter() - start)
        assert not result.is_error, result.error
    world.evidence.flush()
    middle, most = duration(percentile(took, 0.5)), duration(percentile(took, 0.95))
    return f"dispatcher: {name}", f"p50 {middle}, p95 {most}", "decided, performed, recorded"


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), grants=["read", "write"])
        (world.project / "a.txt").write_text("x" * 1000)
        try:
            return [
                measure(world, "hash (no capability)", "crypto", op="hash", algorithm="sha256", base64=""),
                measure(world, "fs stat", "fs", op="stat", path="a.txt"),
                measure(world, "fs read 1 KB", "fs", op="read", path="a.txt", encoding="utf8"),
                measure(world, "fs write 1 KB", "fs", op="write", path="b.txt", text="x" * 1000),
            ]
        finally:
            world.close()
