"""WASI for components, without access to the real machine (P13).

W1  Clock and randomness are injected by the host. Everything else is the same everywhere: no arguments, no variables,
    no folders, no terminal, an empty standard input.
W2  Standard output and error go to the extension's log.
W3  A wait ends at once: a component cannot use the machine's time.
W4  A function that is missing here, or is declared with another type than WASI's, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from wasmtime import component as wasm

MAX_RANDOM = 65_536
_ROOM = 4096  # bytes that one write may have, as for WASI's own blocking writes
_RESOLUTION = 1_000_000
INPUT, OUTPUT, ERROR, POLLABLE = 1, 2, 3, 4
"""The meanings of a handle's number."""


class Confined(Protocol):
    """A running instance, as the WASI functions see it."""

    def clock_ns(self, monotonic: bool) -> int: ...
    def random(self, count: int) -> bytes: ...
    def written(self, error: bool, data: bytes) -> None:
        """Take bytes that were written to standard output or error."""

    def handle(self, stands_for: int, resource: str) -> wasm.ResourceHost:
        """Make a new handle; raise ValueError when the instance has too many."""


Function = Callable[..., Any]


def _moment(nanoseconds: int) -> wasm.Record:
    record = wasm.Record()
    record.seconds, record.nanoseconds = divmod(nanoseconds, 1_000_000_000)  # type: ignore[attr-defined]
    return record


def _bytes(host: Confined, count: int) -> bytes:
    if count > MAX_RANDOM:
        raise ValueError(f"{count} random bytes were requested; the limit is {MAX_RANDOM} at once")
    return host.random(count)


def _number(host: Confined) -> int:
    return int.from_bytes(host.random(8), "little")


def _write(host: Confined, stream: int, data: bytes) -> wasm.Variant:
    host.written(stream == ERROR, data)
    return wasm.Variant("ok")


def _zeroes(host: Confined, stream: int, count: int) -> wasm.Variant:
    return _write(host, stream, bytes(min(count, _ROOM)))


def _pollable(host: Confined, *_: object) -> wasm.ResourceHost:
    return host.handle(POLLABLE, "pollable")


def _closed(*_: object) -> None:
    """Return `err(closed)`: the package writes None for it."""


_FAILS = "variant{last-operation-failed:own,closed:_}"
_DONE, _DATA, _COUNT = f"->result<_,{_FAILS}>", f"->result<list<u8>,{_FAILS}>", f"->result<u64,{_FAILS}>"
_MOMENT = "()->record{seconds:u64,nanoseconds:u32}"

FUNCTIONS: dict[str, dict[str, tuple[str, Function]]] = {
    "wasi:clocks/wall-clock": {
        "now": (_MOMENT, lambda host: _moment(host.clock_ns(False))),
        "resolution": (_MOMENT, lambda _host: _moment(_RESOLUTION)),
    },
    "wasi:clocks/monotonic-clock": {
        "now": ("()->u64", lambda host: host.clock_ns(True)),
        "resolution": ("()->u64", lambda _host: _RESOLUTION),
        "subscribe-instant": ("(u64)->own", _pollable),
        "subscribe-duration": ("(u64)->own", _pollable),
    },
    "wasi:random/random": {
        "get-random-bytes": ("(u64)->list<u8>", lambda host, count: _bytes(host, count)),
        "get-random-u64": ("()->u64", lambda host: _number(host)),
    },
    "wasi:random/insecure": {
        "get-insecure-random-bytes": ("(u64)->list<u8>", lambda host, count: _bytes(host, count)),
        "get-insecure-random-u64": ("()->u64", lambda host: _number(host)),
    },
    "wasi:random/insecure-seed": {
        "insecure-seed": ("()->tuple<u64,u64>", lambda host: (_number(host), _number(host))),
        "get-insecure-seed": ("()->tuple<u64,u64>", lambda host: (_number(host), _number(host))),
    },
    "wasi:cli/environment": {
        "get-environment": ("()->list<tuple<string,string>>", lambda _host: []),
        "get-arguments": ("()->list<string>", lambda _host: []),
        "initial-cwd": ("()->option<string>", lambda _host: None),
    },
    "wasi:cli/stdin": {"get-stdin": ("()->own", lambda host: host.handle(INPUT, "input-stream"))},
    "wasi:cli/stdout": {"get-stdout": ("()->own", lambda host: host.handle(OUTPUT, "output-stream"))},
    "wasi:cli/stderr": {"get-stderr": ("()->own", lambda host: host.handle(ERROR, "output-stream"))},
    "wasi:cli/terminal-stdin": {"get-terminal-stdin": ("()->option<own>", lambda _host: None)},
    "wasi:cli/terminal-stdout": {"get-terminal-stdout": ("()->option<own>", lambda _host: None)},
    "wasi:cli/terminal-stderr": {"get-terminal-stderr": ("()->option<own>", lambda _host: None)},
    "wasi:filesystem/preopens": {"get-directories": ("()->list<tuple<own,string>>", lambda _host: [])},
    "wasi:io/poll": {
        "poll": ("(list<borrow>)->list<u32>", lambda _host, waiting: list(range(len(waiting)))),
        "[method]pollable.ready": ("(borrow)->bool", lambda _host, _pollable: True),
        "[method]pollable.block": ("(borrow)", lambda _host, _pollable: None),
    },
    "wasi:io/streams": {
        "[method]output-stream.check-write": (f"(borrow){_COUNT}", lambda _host, _stream: _ROOM),
        "[method]output-stream.write": (f"(borrow,list<u8>){_DONE}", _write),
        "[method]output-stream.blocking-write-and-flush": (f"(borrow,list<u8>){_DONE}", _write),
        "[method]output-stream.write-zeroes": (f"(borrow,u64){_DONE}", _zeroes),
        "[method]output-stream.blocking-write-zeroes-and-flush": (f"(borrow,u64){_DONE}", _zeroes),
        "[method]output-stream.flush": (f"(borrow){_DONE}", lambda _host, _stream: wasm.Variant("ok")),
        "[method]output-stream.blocking-flush": (f"(borrow){_DONE}", lambda _host, _stream: wasm.Variant("ok")),
        "[method]output-stream.subscribe": ("(borrow)->own", _pollable),
        "[method]input-stream.subscribe": ("(borrow)->own", _pollable),
        "[method]input-stream.read": (f"(borrow,u64){_DATA}", _closed),
        "[method]input-stream.blocking-read": (f"(borrow,u64){_DATA}", _closed),
        "[method]input-stream.skip": (f"(borrow,u64){_COUNT}", _closed),
        "[method]input-stream.blocking-skip": (f"(borrow,u64){_COUNT}", _closed),
    },
}
"""By interface and name: WASI's type, and our answer `(host, *arguments)`; handles come as their numbers."""


def answer(interface: str, name: str) -> tuple[str, Function] | None:
    """Return the answer to a function of an interface of any 0.2 version, or None."""
    plain, _, version = interface.partition("@")
    return FUNCTIONS.get(plain, {}).get(name) if version.startswith("0.2.") or not version else None
