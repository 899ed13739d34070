"""The compiler process: reads a component from standard input, writes machine code to standard output.

It imports little, so that it starts fast.
"""

from __future__ import annotations

import resource
import sys

from wasmtime import Engine, Module, WasmtimeError
from wasmtime.component import Component

from forestay.extensions.components.native import engine, module_settings

DONE, REFUSED = b"+", b"-"
_MEMORY = 6 * 1024 * 1024 * 1024  # of address space, most of it never touched


def confine(seconds: int) -> None:
    """Limit the compilation: address space, processor time over all cores, and no files at all."""
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
