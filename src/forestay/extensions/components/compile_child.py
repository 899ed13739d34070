"""The compiler's process: a component on standard input, its machine code on standard output. It imports little."""

from __future__ import annotations

import resource
import sys

from wasmtime import Engine, Module, WasmtimeError
from wasmtime.component import Component

from forestay.extensions.components.native import engine, module_settings

DONE, REFUSED = b"+", b"-"
_MEMORY = 6 * 1024 * 1024 * 1024  # of addresses, most of them never touched


def confine(seconds: int) -> None:
    """Bound what compiling may use: addresses, processor time on all cores, and no files at all."""
    for kind, limit in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, 4 * seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))


def main() -> None:
    confine(int(sys.argv[1]))
    try:
        data = sys.stdin.buffer.read()
        if sys.argv[2] == "module":
            answer = DONE + Module(Engine(module_settings()), data).serialize()
        else:
            answer = DONE + Component(engine(), data).serialize()
    except (WasmtimeError, MemoryError) as error:
        answer = REFUSED + str(error).encode()[:400]
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
