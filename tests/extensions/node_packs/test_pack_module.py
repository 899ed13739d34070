"""The module of a node pack: the ABI of RFC 0008 in both encodings, its caps, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.extensions.node_packs.packs import BOMB, GREET, HELLO, LOOP, module

from forestay.extensions.node_packs.module import Breach, Broken, PackModule, Unanswered
from forestay.kernel import Problem

NODE = f"{HELLO}.greet"
CAP = 128 * 1024 * 1024


class Told:
    """A host with one variable, one channel, an answer to one question, and a memory of what it heard."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heard: list[Any] = []

    def read(self, channel: bool, name: str) -> bytes | None:
        self.heard.append(("read", channel, name))
        return b'{"outcome":"completed","output":7}' if name == "world" else None

    def write(self, channel: bool, name: str, value: bytes) -> int:
        self.heard.append(("write", channel, name, value))
        return 0

    def interrupt(self, payload: bytes) -> bytes:
        if not self.answers:
            raise Unanswered(payload)
        return self.answers.pop(0)

    def log(self, level: int, text: str) -> None:
        self.heard.append(("log", level, text))

    def now_ms(self) -> int:
        return 1_767_225_600_000

    def random(self, count: int) -> bytes:
        return bytes(range(count))


def loaded(body: str, *, seconds: float = 20.0, **parts: Any) -> PackModule:
    return PackModule(module(HELLO, NODE, body=body, **parts), memory=CAP, seconds=seconds)


@pytest.mark.parametrize("packed", [True, False])
def test_a_request_goes_in_and_a_response_comes_out_in_both_encodings(packed: bool) -> None:
    pack = loaded(GREET, packed=packed)
    assert pack.offered().pack == HELLO and pack.offered().nodes == (NODE,)
    host = Told()
    answers = [
        pack.invoke(0, json.dumps({"inputs": given}, separators=(",", ":")).encode(), host)
        for given in ({"name": "Ada"}, {})
    ]
    assert [json.loads(item)["output"]["greeting"] for item in answers] == ["Hello, Ada!", "Hello, world!"]
    assert host.heard[0] == ("log", 2, "world")


CALLS = {
    "variable_get": ("(func $f (param i32 i32) (result i64))", "(call $f (i32.const 96) (i32.const 5))"),
    "channel_read": ("(func $f (param i32 i32) (result i64))", "(call $f (i32.const 96) (i32.const 5))"),
    "interrupt": ("(func $f (param i32 i32) (result i64))", "(call $f (i32.const 96) (i32.const 5))"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_the_host_answers_is_memory_of_the_module(name: str) -> None:
    kind, body = CALLS[name]
    pack = loaded(body, imports=f'(import "openwop" "openwop_{name}" {kind})')
    host = Told(b'{"outcome":"completed","output":7}')
    assert pack.invoke(0, b"{}", host) == b'{"outcome":"completed","output":7}'


def test_a_write_a_moment_and_chance_reach_the_host() -> None:
    imports = """(import "openwop" "openwop_variable_set" (func $set (param i32 i32 i32 i32) (result i32)))
      (import "openwop" "openwop_now_ms" (func $now (result i64)))
      (import "openwop" "openwop_random" (func $random (param i32 i32)))"""
    body = """(drop (call $set (i32.const 96) (i32.const 5) (i32.const 64) (i32.const 1)))
      (i64.store (i32.const 200) (call $now)) (call $random (i32.const 208) (i32.const 8))
      (call $pair (i32.const 200) (i32.const 16))"""
    host = Told()
    found = loaded(body, imports=imports).invoke(0, b"{}", host)
    assert int.from_bytes(found[:8], "little") == 1_767_225_600_000 and found[8:] == bytes(range(8))
    assert host.heard == [("write", False, "world", b'"')]


def test_a_question_without_an_answer_ends_the_invocation() -> None:
    kind, body = CALLS["interrupt"]
    pack = loaded(body, imports=f'(import "openwop" "openwop_interrupt" {kind})')
    with pytest.raises(Unanswered):
        pack.invoke(0, b"{}", Told())


@pytest.mark.parametrize(("body", "kind"), [(BOMB, "wasm-memory"), (LOOP, "wasm-execution-time")])
def test_a_cap_that_is_passed_is_named(body: str, kind: str) -> None:
    with pytest.raises(Breach) as breach:
        loaded(body, seconds=0.2).invoke(0, b"{}", Told())
    assert breach.value.kind == kind and breach.value.observed > breach.value.limit


def test_memory_within_the_cap_is_given() -> None:
    body = "(drop (memory.grow (i32.const 1024))) (i32.store (i32.const 67108000) (i32.const 7)) (call $say0)"
    assert loaded(body, texts=("enough",)).invoke(0, b"{}", Told()) == b"enough"


HOSTILE = {
    "trap": "(unreachable)",
    "outside": "(call $pair (i32.const 16) (i32.const 999999999))",
    "stack": "(call $deep) (unreachable)) (func $deep (call $deep)",
    "far away": "(i32.store (i32.const -4) (i32.const 1)) (unreachable)",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_a_module_does_wrong_is_named_and_the_next_invocation_is_a_new_one(case: str) -> None:
    pack = loaded(HOSTILE[case])
    for _ in range(2):
        with pytest.raises(Broken):
            pack.invoke(0, b"{}", Told())


@pytest.mark.parametrize(
    "imports",
    [
        '(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))',
        '(import "openwop" "openwop_exec" (func))',
    ],
)
def test_other_imports_refuse_the_pack(imports: str) -> None:
    with pytest.raises(Broken, match="not part of the ABI"):
        loaded(GREET, imports=imports)


def test_another_abi_is_refused_by_its_version() -> None:
    with pytest.raises(Problem) as problem:
        loaded(GREET, abi=999).offered()
    assert problem.value.details["reason"] == "unsupported_abi_version"


@pytest.mark.parametrize("data", [b"", b"\0asm\x01\0\0\0", b"\x7fELF" + bytes(60)])
def test_what_is_no_pack_does_not_load(data: bytes) -> None:
    with pytest.raises((Broken, Problem)):
        PackModule(data, memory=CAP, seconds=1.0)
