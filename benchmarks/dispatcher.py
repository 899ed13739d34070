"""What the door costs: a synchronous host call from Python, with policy, evidence and the file system behind it.

python benchmarks/dispatcher.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.extensions.dispatcher_world import World

CALLS = 3_000


def measure(world: World, name: str, method: str, **params: object) -> None:
    call = world.dispatcher.call_sync
    took = []
    for _ in range(CALLS):
        request = world.request(method, dict(params))
        start = time.perf_counter()
        result = call(request, "ext.test")
        took.append((time.perf_counter() - start) * 1e6)
        assert not result.is_error, result.error
    world.evidence.flush()
    took.sort()
    print(f"{name:28} p50 {statistics.median(took):7.1f} us   p95 {took[int(CALLS * 0.95)]:7.1f} us")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), grants=["read", "write"])
        (world.project / "a.txt").write_text("x" * 1000)
        try:
            measure(world, "crypto hash (no capability)", "crypto", op="hash", algorithm="sha256", base64="")
            measure(world, "fs stat", "fs", op="stat", path="a.txt")
            measure(world, "fs read 1 KB", "fs", op="read", path="a.txt", encoding="utf8")
            measure(world, "fs write 1 KB", "fs", op="write", path="b.txt", text="x" * 1000)
        finally:
            world.close()


if __name__ == "__main__":
    main()
