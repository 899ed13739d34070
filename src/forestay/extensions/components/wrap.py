"""Wraps a core module into a component of the world `pi:extension/pi-extension`: writes its canonical ABI as text.

The module exports `memory`, `cabi_realloc` and the world's functions under the names that wit-bindgen gives them
(`pi:extension/extension#init`) or their plain ones (`init`, `handle-tool` …). It may import `pi:extension/host` `call`.
"""

from __future__ import annotations

import wasmtime

from forestay.extensions.components.binary import MAGIC, custom_section, encoded_leb, is_core_module, sections
from forestay.extensions.components.outside import EXPORTS, EXTENSION, HOST
from forestay.extensions.manifest import SCHEMA, Manifest
from forestay.kernel import Problem

_PARAMETERS = {
    "init": ("manifest-json", "string"),
    "handle-tool": ("name", "string", "input-json", "string"),
    "handle-slash": ("command", "string", "args", "(list string)", "input-json", "string"),
    "handle-event": ("event-json", "string"),
    "shutdown": (),
}
_OPTIONS = '(memory (core memory $main "memory")) (realloc (core func $main "cabi_realloc")) string-encoding=utf8'
_CORE_MODULE = 1


def wrapped(core: bytes, manifest: Manifest | None = None) -> bytes:
    """Return a component around a core module (binary or text); `manifest` goes into it if given."""
    core = _binary(core) if core[:4] != MAGIC else core
    exports, imports = _names(core)
    needed = {"memory", "cabi_realloc"} - exports
    if needed:
        raise _unfit(f"The module does not export {', '.join(sorted(needed))}.")
    foreign = sorted(f"{module} {name}" for module, name in imports - {(HOST, "call")})
    if foreign:
        raise _unfit(f"The module imports {', '.join(foreign[:8])}; the host provides only {HOST} call.")
    component = _with_module(bytes(wasmtime.wat2wasm(_text(exports, bool(imports)))), core)
    return component if manifest is None else component + custom_section(SCHEMA, manifest.canonical_bytes())


def _binary(text: bytes) -> bytes:
    try:
        return bytes(wasmtime.wat2wasm(text))
    except wasmtime.WasmtimeError as error:
        raise _unfit(f"This is neither a core module nor the text of one: {str(error)[:400]}") from error


def _names(core: bytes) -> tuple[set[str], set[tuple[str, str]]]:
    if not is_core_module(core):
        raise _unfit("This is not a core module.")
    try:
        module = wasmtime.Module(wasmtime.Engine(), core)
    except wasmtime.WasmtimeError as error:
        raise _unfit(f"The module is damaged: {str(error)[:200]}") from error
    return {str(item.name) for item in module.exports}, {(str(item.module), str(item.name)) for item in module.imports}


def _text(exports: set[str], imports: bool) -> str:
    """Return the component's text, with an empty core module in place of the real one.

    The module imports `host.call`, and lowering `host.call` needs the module's memory. A table breaks this cycle: the
    shim calls through it, and it is filled after both exist.
    """
    functions = "\n".join(_lifted(name, exports) for name in EXPORTS)
    offered = " ".join(f'(export "{name}" (func ${name}))' for name in EXPORTS)
    given = f'(with "{HOST}" (instance $shim))' if imports else ""
    return f"""(component
      (import "{HOST}" (instance $host (export "call"
        (func (param "name" string) (param "input-json" string) (result (result string (error string)))))))
      (core module $module)
      (core module $shim-module
        (type $call (func (param i32 i32 i32 i32 i32)))
        (table (export "table") 1 1 funcref)
        (func (export "call") (type $call)
          local.get 0 local.get 1 local.get 2 local.get 3 local.get 4 i32.const 0 call_indirect (type $call)))
      (core module $fill-module
        (import "" "table" (table 1 1 funcref)) (import "" "call" (func (param i32 i32 i32 i32 i32)))
        (elem (i32.const 0) func 0))
      (core instance $shim (instantiate $shim-module))
      (core instance $main (instantiate $module {given}))
      (core func $call (canon lower (func $host "call") {_OPTIONS}))
      (core instance (instantiate $fill-module
        (with "" (instance (export "table" (table $shim "table")) (export "call" (func $call))))))
      (type $result (result string (error string)))
      {functions}
      (instance $extension {offered})
      (export "{EXTENSION}" (instance $extension)))"""


def _lifted(name: str, exports: set[str]) -> str:
    candidates = [candidate for candidate in (f"{EXTENSION}#{name}", name) if candidate in exports]
    if not candidates:
        raise _unfit(f"The module does not export {name}.")
    core = candidates[0]
    words = _PARAMETERS[name]
    parameters = " ".join(f'(param "{words[at]}" {words[at + 1]})' for at in range(0, len(words), 2))
    after = f'(post-return (core func $main "cabi_post_{core}"))' if f"cabi_post_{core}" in exports else ""
    options = f"{_OPTIONS} {after}" if words else ""
    result = "(result $result)" if words else ""
    return f'(func ${name} {parameters} {result} (canon lift (core func $main "{core}") {options}))'


def _with_module(component: bytes, core: bytes) -> bytes:
    """Put the real module in place of the empty one, which is the first core module."""
    for section, start, end in sections(component, 8, len(component)):
        if section == _CORE_MODULE:
            head = start - len(encoded_leb(end - start)) - 1
            return component[:head] + bytes([section]) + encoded_leb(len(core)) + core + component[end:]
    raise AssertionError("the component's text has a core module")


def _unfit(message: str) -> Problem:
    return Problem(
        "extension_invalid",
        message,
        fix="Build the module for the world pi:extension/pi-extension, without a standard library that needs WASI.",
    )
