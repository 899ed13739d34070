"""Nothing of WASI is real: answered from the injected clock and randomness, or refused by its name (P13)."""

from __future__ import annotations

import pytest
from tests.extensions.components.conftest import Run, machine_code
from tests.extensions.components.guests import component, importing

from forestay.extensions.components import wasi
from forestay.extensions.components.linked import Imports, LinkedComponent
from forestay.kernel import ManualClock, Problem, SeededRandomness

STREAMS = """
  (import "wasi:io/error@0.2.3" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error-type))
  (import "wasi:io/streams@0.2.3" (instance $streams
    (export "output-stream" (type $out (sub resource)))
    (alias outer 1 $error-type (type $e)) (export "error" (type $err (eq $e)))
    (type $own-error (own $err))
    (type $failure' (variant (case "last-operation-failed" $own-error) (case "closed")))
    (export "stream-error" (type $failure (eq $failure')))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $failure)))))))
  (alias export $streams "output-stream" (type $out))"""
STDOUT = """
  (import "wasi:cli/{name}@0.2.3" (instance ${name}
    (alias outer 1 $out (type $o)) (export "output-stream" (type $stream (eq $o)))
    (export "get-{name}" (func (result (own $stream))))))"""


async def test_time_and_chance_are_the_hosts(running: Run) -> None:
    imports = """
      (import "wasi:clocks/monotonic-clock@0.2.3" (instance $mono (export "now" (func (result u64)))))
      (import "wasi:clocks/wall-clock@0.2.3" (instance $wall
        (type $moment' (record (field "seconds" u64) (field "nanoseconds" u32)))
        (export "datetime" (type $moment (eq $moment'))) (export "now" (func (result $moment)))))
      (import "wasi:random/random@0.2.3" (instance $random (export "get-random-u64" (func (result u64)))
        (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
      (import "wasi:random/insecure-seed@0.2.3" (instance $seed
        (export "insecure-seed" (func (result (tuple u64 u64))))))"""
    lowered = """
      (core func $mono-now (canon lower (func $mono "now")))
      (core func $wall-now (canon lower (func $wall "now") OPTIONS))
      (core func $number (canon lower (func $random "get-random-u64")))
      (core func $bytes (canon lower (func $random "get-random-bytes") OPTIONS))
      (core func $seeds (canon lower (func $seed "insecure-seed") OPTIONS))"""
    extra = """
      (import "" "mono-now" (func $mono-now (result i64)))
      (import "" "wall-now" (func $wall-now (param i32)))
      (import "" "number" (func $number (result i64)))
      (import "" "bytes" (func $bytes (param i64 i32)))
      (import "" "seeds" (func $seeds (param i32)))
      (func $hex (param $at i32) (param $value i64) (local $i i32)
        (loop $l
          (i32.store8 (i32.add (local.get $at) (local.get $i))
            (i32.add (i32.const 0x61) (i32.wrap_i64 (i64.and (local.get $value) (i64.const 15)))))
          (local.set $value (i64.shr_u (local.get $value) (i64.const 4)))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $l (i32.lt_u (local.get $i) (i32.const 16)))))"""
    body = """
      (i32.store8 (i32.const 4096) (i32.const 0x22)) (i32.store8 (i32.const 4177) (i32.const 0x22))
      (call $hex (i32.const 4097) (call $mono-now))
      (call $wall-now (i32.const 200)) (call $hex (i32.const 4113) (i64.load (i32.const 200)))
      (call $hex (i32.const 4129) (call $number))
      (call $bytes (i64.const 8) (i32.const 300)) (call $hex (i32.const 4145) (i64.load (i32.load (i32.const 300))))
      (call $seeds (i32.const 400)) (call $hex (i32.const 4161) (i64.load (i32.const 400)))
      (call $answer (i32.const 4096) (i32.const 82))"""
    data = importing(imports, lowered, "mono-now wall-now number bytes seeds", body, extra=extra)
    answers = []
    for seed in (7, 7, 8):
        options = {"clock": ManualClock(), "randomness": SeededRandomness(seed)}
        async with running(data, options=options) as it:
            assert it.reports == []
            outcome = await it.guest.call_tool("echo", {})
            answers.append(outcome.content[0]["text"])
    assert answers[0] == answers[1] != answers[2]
    assert answers[0][:32] == answers[2][:32]  # the clock is the same, the seed is not


async def test_what_it_writes_goes_to_its_log(running: Run) -> None:
    imports = STREAMS + STDOUT.format(name="stdout") + STDOUT.format(name="stderr")
    lowered = """
      (core func $out (canon lower (func $stdout "get-stdout")))
      (core func $err (canon lower (func $stderr "get-stderr")))
      (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") OPTIONS))"""
    extra = """
      (import "" "out" (func $out (result i32))) (import "" "err" (func $err (result i32)))
      (import "" "write" (func $write (param i32 i32 i32 i32)))
      (data (i32.const 64) "hello out") (data (i32.const 96) "hello err")"""
    body = """(call $write (call $out) (i32.const 64) (i32.const 9) (i32.const 128))
      (call $write (call $err) (i32.const 96) (i32.const 9) (i32.const 128))
      (call $answer (local.get 2) (local.get 3))"""
    data = importing(imports, lowered, "out err write", body, extra=extra)
    async with running(data, world={"grants": ["log"]}) as it:
        assert (await it.guest.call_tool("echo", {"a": 1})).details == {"a": 1}
        assert [(entry[1], entry[2], entry[3]) for entry in it.world.logged] == [
            ("info", "stdout", "hello out"),
            ("warn", "stderr", "hello err"),
        ]


async def test_what_it_says_before_it_traps_stands_in_the_problem(running: Run) -> None:
    imports = STREAMS + STDOUT.format(name="stderr")
    lowered = """
      (core func $err (canon lower (func $stderr "get-stderr")))
      (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") OPTIONS))"""
    extra = """
      (import "" "err" (func $err (result i32))) (import "" "write" (func $write (param i32 i32 i32 i32)))
      (data (i32.const 64) "panicked at line 3")"""
    body = "(call $write (call $err) (i32.const 64) (i32.const 18) (i32.const 128)) (unreachable)"
    async with running(importing(imports, lowered, "err write", body, extra=extra)) as it:
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("echo", {})
        assert caught.value.details["stderr"] == "panicked at line 3"


async def test_handles_without_end_end_the_instance(running: Run) -> None:
    imports = STREAMS + STDOUT.format(name="stdout")
    lowered = '(core func $out (canon lower (func $stdout "get-stdout")))'
    extra = '(import "" "out" (func $out (result i32)))'
    data = importing(imports, lowered, "out", "(loop $l (drop (call $out)) (br $l)) (unreachable)", extra=extra)
    async with running(data, options={}) as it:
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("echo", {})
        assert caught.value.key in ("extension_trapped", "extension_timeout")


INTERFACES = (
    "wasi:cli/exit#exit", "wasi:cli/run#run", "wasi:cli/terminal-input#f", "wasi:clocks/timezone#display",
    "wasi:filesystem/types#[static]descriptor.open", "wasi:filesystem/types#filesystem-error-code",
    "wasi:http/outgoing-handler#handle", "wasi:http/incoming-handler#handle", "wasi:http/types#http-error-code",
    "wasi:sockets/instance-network#instance-network", "wasi:sockets/network#network-error-code",
    "wasi:sockets/ip-name-lookup#resolve-addresses", "wasi:sockets/tcp-create-socket#create-tcp-socket",
    "wasi:sockets/tcp#f", "wasi:sockets/udp-create-socket#create-udp-socket", "wasi:sockets/udp#f",
    "wasi:io/streams#splice", "wasi:keyvalue/store#open", "wasi:config/store#get", "wasi:logging/logging#log",
    "wasi:nn/inference#compute", "wasi:messaging/producer#send", "wasi:blobstore/blobstore#get-container",
    "wasi:threads/spawn#spawn", "evil:anything/at-all#f", "pi:extension/host#other",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [*INTERFACES, *(f"{i}#{f}" for i, fs in wasi.FUNCTIONS.items() for f in fs if "[" not in f)]
)
async def test_an_import_that_is_not_ours_or_has_another_type_is_refused_by_name(running: Run, name: str) -> None:
    """The functions that we do answer stand here too, with a type that is not WASI's."""
    interface, _, function = name.partition("#")
    function = "open" if "[" in function else function
    full = interface if interface == "pi:extension/host" else f"{interface}@0.2.0"
    imports = (
        f'(import "{full}" (instance $x (export "{function}" (func (param "a" (list (list string))) (result char)))))'
    )
    lowered = f'(core func $f (canon lower (func $x "{function}") OPTIONS))'
    data = importing(
        imports, lowered, "f", "(call $f (i32.const 0) (i32.const 0)) (drop) (unreachable)",
        extra='(import "" "f" (func $f (param i32 i32) (result i32)))',
    )  # fmt: skip
    async with running(data) as it:
        assert it.reports == [("imports_refused", {"imports": [f"{full}#{function}"]})]
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("echo", {})
        assert caught.value.key == "extension_trapped" and f"refused: {full}#{function}" in caught.value.message
        assert ("import_refused", {"import": f"{full}#{function}"}) in it.reports


async def test_a_forged_host_call_type_is_refused(running: Run) -> None:
    imports = '(import "pi:extension/host" (instance $x (export "call" (func (param "name" string) (result string)))))'
    lowered = '(core func $f (canon lower (func $x "call") OPTIONS))'
    data = importing(
        imports, lowered, "f", "(call $f (i32.const 0) (i32.const 0) (i32.const 64)) (unreachable)",
        extra='(import "" "f" (func $f (param i32 i32 i32)))',
    )  # fmt: skip
    async with running(data) as it:
        with pytest.raises(Problem) as caught:
            await it.guest.call_tool("echo", {})
        assert "refused: pi:extension/host#call" in caught.value.message


def test_components_that_import_the_same_share_their_answers() -> None:
    def imports(data: bytes) -> Imports:
        return LinkedComponent(machine_code(data)).imports

    odd = importing(
        '(import "evil:anything/at-all" (instance $x (export "f" (func))))',
        '(core func $f (canon lower (func $x "f")))', "f", "(unreachable)", extra='(import "" "f" (func $f))',
    )  # fmt: skip
    plain, other = imports(component()), imports(odd)
    assert imports(component(tool="(unreachable)")) is plain and imports(odd) is other
    assert other is not plain and (plain.refused, other.refused) == ([], ["evil:anything/at-all#f"])
