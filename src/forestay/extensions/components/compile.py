"""Compiles components to machine code in a child process, which has limits and is killed when it takes too long.

N1  The host loads no other machine code: only what this module compiled, and only under the host's seal.
N2  A component that does not compile within its time and memory is a Problem; the host continues.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import msgspec

from forestay.extensions.components.binary import outline
from forestay.extensions.components.compile_child import DONE
from forestay.extensions.components.native import compiled_key, machine_code, native
from forestay.extensions.components.outside import Compiled, outside_of
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.kernel import Problem

COMPILE_SECONDS = 60.0
MAX_COMPILED = 1024 * 1024 * 1024
_CHILD = "forestay.extensions.components.compile_child"


def compiled(component: bytes, kept: KeptBytecode | None = None, *, seconds: float = COMPILE_SECONDS) -> Compiled:
    """Return the machine code of a component, from the cache or compiled by a child. Blocks; call it on a thread."""
    key = compiled_key(component)
    found = kept.find(key) if kept is not None else None
    if found is not None:
        return msgspec.msgpack.decode(found, type=Compiled)
    outline(component)
    made = described(component, compiled_apart(component, seconds=seconds))
    if kept is not None:
        kept.keep(key, msgspec.msgpack.encode(made))
    return made


def described(component: bytes, code: bytes) -> Compiled:
    """Return the machine code of a component together with the facts that its types give."""
    outside = outside_of(machine_code(code), native().engine)
    return Compiled(outside, max(1, outline(component).memories), code)


def compiled_apart(data: bytes, *, kind: str = "component", seconds: float = COMPILE_SECONDS) -> bytes:
    """Compile a component, or with `kind="module"` a core module, in a child process."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", _CHILD, str(int(seconds) + 1), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    ) as child:
        try:
            answer, _ = child.communicate(data, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise _too_slow(seconds) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    if answer[:1] == DONE and len(answer) <= MAX_COMPILED:
        return answer[1:]
    reason = answer[1:].decode("utf-8", "replace")[:400] or "the compiler ended without an answer"
    raise Problem("extension_invalid", f"The {kind} cannot be compiled.", reason=reason, fix="Build it again.")


def _too_slow(seconds: float) -> Problem:
    return Problem(
        "compile_timeout",
        f"The component was not compiled within {seconds:g} seconds, and the compiler was stopped.",
        seconds=seconds,
        setting="extensions.build_seconds",
        fix="Build a smaller component, or raise extensions.build_seconds.",
    )
