"""The process that builds: one extension after the other, until its parent is gone (K3, K4)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import msgspec

from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.build_order import Built, Order, Step
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem


def _answer(order: Order, answers: BinaryIO) -> Built:
    def told(words: str) -> None:
        _write(answers, Step(words))

    try:
        # The other thread of this process only waits for orders: a copy has no use for what it holds.
        return Built(*compile_source(source(Path(order.path)), told, may_copy=True))
    except Problem as problem:
        return Built(problem=problem.key, message=problem.message, details=msgspec.to_builtins(problem.details))
    except (OSError, RecursionError, MemoryError) as error:
        reason = f"{type(error).__name__}: {error}"
        return Built(problem="compile_failed", message="The extension cannot be compiled.", details={"reason": reason})


def _write(answers: BinaryIO, line: Step | Built) -> None:
    answers.write(msgspec.json.encode(line) + b"\n")
    answers.flush()


def _orders(into: SimpleQueue[Order]) -> None:
    """Read orders until the parent is gone; then nothing here is of use any more (K3)."""
    for line in sys.stdin.buffer:
        into.put(msgspec.json.decode(line, type=Order))
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    orders: SimpleQueue[Order] = SimpleQueue()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    threading.Thread(target=_orders, args=(orders,), daemon=True).start()
    while True:
        _write(answers, _answer(orders.get(), answers))


if __name__ == "__main__":
    main()
