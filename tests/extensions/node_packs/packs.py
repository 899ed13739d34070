"""Node packs for the tests, made here from text: small core modules with the ABI of OpenWOP's RFC 0008."""

from __future__ import annotations

import json
from pathlib import Path

import wasmtime

HELLO = "vendor.openwop.rust-hello"
GREET = """
  (local $at i32) (local $end i32) (local $out i32)
  ;; the text behind "name":" in the request, or `world`
  (local.set $at (call $find (local.get 1) (local.get 2)))
  (if (i32.eqz (local.get $at)) (then
    (local.set $at (i32.const 96)) (local.set $end (i32.const 101)))
  (else
    (local.set $end (local.get $at))
    (block $done (loop $next
      (br_if $done (i32.eq (i32.load8_u (local.get $end)) (i32.const 34)))
      (local.set $end (i32.add (local.get $end) (i32.const 1))) (br $next)))))
  (call $log (i32.const 2) (i32.const 96) (i32.const 5))
  (local.set $out (call $alloc (i32.const 512)))
  (memory.copy (local.get $out) (i32.const 112) (i32.const 52))
  (memory.copy (i32.add (local.get $out) (i32.const 52)) (local.get $at) (i32.sub (local.get $end) (local.get $at)))
  (memory.copy (i32.add (i32.add (local.get $out) (i32.const 52)) (i32.sub (local.get $end) (local.get $at)))
    (i32.const 176) (i32.const 4))
  (call $pair (local.get $out) (i32.add (i32.const 56) (i32.sub (local.get $end) (local.get $at))))"""
BOMB = "(drop (memory.grow (i32.const 16384))) (i32.store (i32.const 1073741824) (i32.const 1)) (unreachable)"
LOOP = "(loop $on (br $on)) (unreachable)"


def quoted(text: str) -> str:
    return "".join(f"\\{byte:02x}" for byte in text.encode())


def saying(number: int, text: str, pair: str) -> str:
    """A function `$say0`, `$say1`, … that answers with a text."""
    size = len(text.encode())
    return f"""(data $text{number} "{quoted(text)}")
      (func $say{number} (result {pair}) (local $at i32)
        (local.set $at (call $alloc (i32.const {size})))
        (memory.init $text{number} (local.get $at) (i32.const 0) (i32.const {size}))
        (call $pair (local.get $at) (i32.const {size})))"""


def module(
    name: str,
    *nodes: str,
    body: str,
    texts: tuple[str, ...] = (),
    imports: str = "",
    abi: int = 1,
    packed: bool = True,
) -> bytes:
    """A pack whose nodes all have this body; pairs are packed into one number, or two words."""
    pair = "i64" if packed else "i32 i32"
    both = (
        "(i64.or (i64.shl (i64.extend_i32_u (local.get 1)) (i64.const 32)) (i64.extend_i32_u (local.get 0)))"
        if packed
        else "(local.get 0) (local.get 1)"
    )
    ids = "".join(
        f"(if (i32.eq (local.get 0) (i32.const {index})) (then (return (call $text (i32.const {1024 + 128 * index}) "
        f"(i32.const {len(node)})))))"
        for index, node in enumerate(nodes)
    )
    data = "".join(f'(data (i32.const {1024 + 128 * i}) "{quoted(node)}")' for i, node in enumerate(nodes))
    says = "".join(saying(number, text, pair) for number, text in enumerate(texts))
    return bytes(
        wasmtime.wat2wasm(f"""(module
      (import "openwop" "openwop_log" (func $log (param i32 i32 i32)))
      {imports}
      (memory (export "memory") 2)
      (global $free (mut i32) (i32.const 65536))
      (data (i32.const 64) "\\22name\\22:\\22")
      (data (i32.const 96) "world")
      (data (i32.const 112) "{quoted('{"outcome":"completed","output":{"greeting":"Hello, ')}")
      (data (i32.const 176) "!\\22}}}}")
      (data (i32.const 512) "{quoted(name)}")
      {data}
      (func $alloc (export "openwop_alloc") (param i32) (result i32)
        (local $at i32)
        (local.set $at (global.get $free))
        (global.set $free (i32.and (i32.add (i32.add (global.get $free) (local.get 0)) (i32.const 15)) (i32.const -16)))
        (local.get $at))
      (func (export "openwop_free") (param i32 i32))
      {says}
      (func $pair (param i32 i32) (result {pair}) {both})
      (func $text (param i32 i32) (result {pair}) (local $at i32)
        (local.set $at (call $alloc (local.get 1)))
        (memory.copy (local.get $at) (local.get 0) (local.get 1))
        (call $pair (local.get $at) (local.get 1)))
      (func $find (param $from i32) (param $size i32) (result i32)
        (local $last i32)
        (local.set $last (i32.add (local.get $from) (i32.sub (local.get $size) (i32.const 8))))
        (block $none (loop $next
          (br_if $none (i32.gt_u (local.get $from) (local.get $last)))
          (if (i64.eq (i64.load (local.get $from)) (i64.load (i32.const 64)))
            (then (return (i32.add (local.get $from) (i32.const 8)))))
          (local.set $from (i32.add (local.get $from) (i32.const 1))) (br $next)))
        (i32.const 0))
      (func (export "openwop_abi_version") (result i32) (i32.const {abi}))
      (func (export "openwop_pack_name") (result {pair}) (call $text (i32.const 512) (i32.const {len(name)})))
      (func (export "openwop_node_count") (result i32) (i32.const {len(nodes)}))
      (func (export "openwop_node_id_at") (param i32) (result {pair}) {ids} (call $pair (i32.const 0) (i32.const 0)))
      (func (export "openwop_node_invoke") (param i32 i32 i32) (result {pair}) {body}))""")
    )


def written(folder: Path, name: str, *nodes: str, data: bytes, pages: int | None = None) -> Path:
    """A pack in a folder, with its manifest."""
    (folder / "dist").mkdir(parents=True)
    wasm = {"abiVersion": 1, **({"memoryPagesMax": pages} if pages else {})}
    manifest = {
        "name": name,
        "version": "1.0.0",
        "engines": {"openwop": ">=1.0 <2.0.0"},
        "nodes": [{"typeId": node, "version": "1.0.0", "category": "data", "role": "pure"} for node in nodes],
        "runtime": {"language": "wasm", "entry": "dist/pack.wasm", "format": "wasm", "wasm": wasm},
    }
    (folder / "pack.json").write_text(json.dumps(manifest))
    (folder / "dist/pack.wasm").write_bytes(data)
    return folder
