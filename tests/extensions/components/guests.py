"""Components for the tests, made here from text: small core modules around which `wrapped` puts the canonical ABI."""

from __future__ import annotations

import json
from typing import Any

import wasmtime

from forestay.extensions.components.wrap import wrapped
from forestay.extensions.manifest import Manifest

REGISTRATION: dict[str, Any] = {
    "name": "probe",
    "version": "1.0.0",
    "api_version": "1.0",
    "tools": [
        {"name": name, "description": f"Does {name}", "parameters": {"type": "object"}}
        for name in ("echo", "fs", "env", "exec", "http", "log", "session", "ui", "host_call", "tool", "events")
    ],
    "slash_commands": [{"name": "greet", "description": "Greets"}],
    "event_hooks": ["tool_call", "session_start"],
}
ECHO = "(call $answer (i32.const 0) (local.get 2) (local.get 3))"
RELAY = """
  (if (result i32) (i32.and (i32.eq (local.get 1) (i32.const 4))
                            (i32.eq (i32.load (local.get 0)) (i32.const 0x6f686365)))
    (then (call $answer (i32.const 0) (local.get 2) (local.get 3)))
    (else
      (call $host (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 16))
      (i32.const 16)))"""
"""A tool `echo` that gives its input back; a tool of any other name is a host call of that name."""
SLASH = "(call $answer (i32.const 0) (local.get 4) (local.get 5))"
EVENT = "(call $answer (i32.const 0) (i32.const 48) (i32.const 2))"


def core(
    *,
    registration: Any = None,
    init: str | None = None,
    tool: str = RELAY,
    slash: str = SLASH,
    event: str = EVENT,
    shutdown: str = "",
    extra: str = "",
    memory: str = '(memory (export "memory") 2)',
) -> bytes:
    """A core module with these bodies; `$answer kind pointer length` makes a `result<string, string>`."""
    text = json.dumps(REGISTRATION if registration is None else registration)
    quoted = "".join(f"\\{byte:02x}" for byte in text.encode())
    body = init or f"(call $answer (i32.const 0) (i32.const 1024) (i32.const {len(text.encode())}))"
    return bytes(
        wasmtime.wat2wasm(f"""(module
      (import "pi:extension/host" "call" (func $host (param i32 i32 i32 i32 i32)))
      {memory}
      (global $free (mut i32) (i32.const 65536))
      (data (i32.const 48) "{{}}")
      (data (i32.const 1024) "{quoted}")
      (func $answer (param $kind i32) (param $at i32) (param $size i32) (result i32)
        (i32.store (i32.const 32) (local.get $kind))
        (i32.store (i32.const 36) (local.get $at))
        (i32.store (i32.const 40) (local.get $size))
        (i32.const 32))
      (func (export "cabi_realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $free) (i32.const 15)) (i32.const -16)))
        (global.set $free (i32.add (local.get $at) (local.get $new)))
        (block $fits
          (br_if $fits (i32.le_u (global.get $free) (i32.shl (memory.size) (i32.const 16))))
          (br_if $fits (i32.ne (i32.const -1)
            (memory.grow (i32.add (i32.const 1) (i32.shr_u (local.get $new) (i32.const 16))))))
          (unreachable))
        (local.get $at))
      (func $reset (global.set $free (i32.const 65536)))
      (func (export "init") (param i32 i32) (result i32) {body})
      (func (export "handle-tool") (param i32 i32 i32 i32) (result i32) {tool})
      (func (export "handle-slash") (param i32 i32 i32 i32 i32 i32) (result i32) {slash})
      (func (export "handle-event") (param i32 i32) (result i32) {event})
      (func (export "shutdown") {shutdown})
      (func (export "cabi_post_init") (param i32) (call $reset))
      (func (export "cabi_post_handle-tool") (param i32) (call $reset))
      (func (export "cabi_post_handle-slash") (param i32) (call $reset))
      (func (export "cabi_post_handle-event") (param i32) (call $reset))
      {extra})""")
    )


def component(manifest: Manifest | None = None, **parts: Any) -> bytes:
    return wrapped(core(**parts), manifest)


def importing(imports: str, lowered: str, uses: str, body: str, *, extra: str = "") -> bytes:
    """A component with imports of its own, written out: `lowered` defines core functions `$f…` from them, `uses` lists
    what the core module imports from `""`, and `body` is `handle-tool`. The memory belongs to a module of its own."""
    given = " ".join(f'(export "{name}" (func ${name}))' for name in uses.split())
    declared = "\n".join(line for line in extra.splitlines())
    registration = json.dumps(REGISTRATION)
    quoted = "".join(f"\\{byte:02x}" for byte in registration.encode())
    size = len(registration.encode())
    options = '(memory (core memory $libc "memory")) (realloc (core func $libc "cabi_realloc")) string-encoding=utf8'
    functions = {
        "init": '(param "manifest-json" string) (result $result)',
        "handle-tool": '(param "name" string) (param "input-json" string) (result $result)',
        "handle-slash": """(param "command" string) (param "args" (list string)) (param "input-json" string)
          (result $result)""",
        "handle-event": '(param "event-json" string) (result $result)',
        "shutdown": "",
    }
    lifted = "\n".join(
        f'(func ${name} {kind} (canon lift (core func $main "{name}") {options if kind else ""}))'
        for name, kind in functions.items()
    )
    offered = " ".join(f'(export "{name}" (func ${name}))' for name in functions)
    return bytes(
        wasmtime.wat2wasm(f"""(component
      {imports}
      (core module $libc-module
        (memory (export "memory") 4)
        (global $free (mut i32) (i32.const 131072))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
          (global.set $free (i32.and (i32.add (global.get $free) (i32.const 15)) (i32.const -16)))
          (global.get $free)
          (global.set $free (i32.add (global.get $free) (local.get 3)))))
      (core instance $libc (instantiate $libc-module))
      {lowered.replace("OPTIONS", options)}
      (core module $main-module
        (import "libc" "memory" (memory 1))
        {declared}
        (data (i32.const 1024) "{quoted}")
        (func $answer (param $at i32) (param $size i32) (result i32)
          (i32.store (i32.const 32) (i32.const 0))
          (i32.store (i32.const 36) (local.get $at))
          (i32.store (i32.const 40) (local.get $size))
          (i32.const 32))
        (func (export "init") (param i32 i32) (result i32) (call $answer (i32.const 1024) (i32.const {size})))
        (func (export "handle-tool") (param i32 i32 i32 i32) (result i32) {body})
        (func (export "handle-slash") (param i32 i32 i32 i32 i32 i32) (result i32) (unreachable))
        (func (export "handle-event") (param i32 i32) (result i32) (unreachable))
        (func (export "shutdown")))
      (core instance $main (instantiate $main-module
        (with "libc" (instance $libc)) (with "" (instance {given}))))
      (type $result (result string (error string)))
      {lifted}
      (instance $extension {offered})
      (export "pi:extension/extension" (instance $extension)))""")
    )
