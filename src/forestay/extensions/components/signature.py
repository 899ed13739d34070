"""Writes the type of a component's function as text, to compare it with the expected type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wasmtime import component as wasm

MAX_PARTS = 64
_PLAIN = {
    wasm.Bool: "bool", wasm.U8: "u8", wasm.U16: "u16", wasm.U32: "u32", wasm.U64: "u64", wasm.S8: "s8",
    wasm.S16: "s16", wasm.S32: "s32", wasm.S64: "s64", wasm.F32: "f32", wasm.F64: "f64", wasm.Char: "char",
    wasm.String: "string", wasm.OwnType: "own", wasm.BorrowType: "borrow",
}  # fmt: skip


def signature(function: wasm.FuncType) -> str | None:
    """Return a text such as `(string,list<u8>)->result<u64,_>`; None for a type larger than any known one.

    A small component can declare a type with a million parts, so reading stops early.
    """
    found: list[str] = []
    for part in _function(function):
        found.append(part)
        if len(found) > 8 * MAX_PARTS:
            return None
    return "".join(found)


def _function(function: wasm.FuncType) -> Iterator[str]:
    yield "("
    yield from _series([kind for _, kind in function.params])
    yield ")"
    if function.result is not None:
        yield "->"
        yield from _type(function.result)


def _series(kinds: list[wasm.ValType | None]) -> Iterator[str]:
    for index, kind in enumerate(kinds):
        if index:
            yield ","
        yield from _type(kind)


def _type(kind: wasm.ValType | None) -> Iterator[str]:
    if kind is None:
        yield "_"
    elif type(kind) in _PLAIN:
        yield _PLAIN[type(kind)]
    elif isinstance(kind, wasm.ListType):
        yield from _wrapped("list", [kind.element])
    elif isinstance(kind, wasm.OptionType):
        yield from _wrapped("option", [kind.payload])
    elif isinstance(kind, wasm.ResultType):
        yield from _wrapped("result", [kind.ok, kind.err])
    elif isinstance(kind, wasm.TupleType):
        yield from _wrapped("tuple", list(kind.elements))
    elif isinstance(kind, wasm.RecordType):
        yield from _named("record", kind.fields)
    elif isinstance(kind, wasm.VariantType):
        yield from _named("variant", kind.cases)
    else:
        yield type(kind).__name__


def _wrapped(name: str, kinds: list[wasm.ValType | None]) -> Iterator[str]:
    yield f"{name}<"
    yield from _series(kinds)
    yield ">"


def _named(name: str, members: Sequence[tuple[str, wasm.ValType | None]]) -> Iterator[str]:
    yield f"{name}{{"
    for index, (member, kind) in enumerate(members):
        yield f"{',' if index else ''}{member}:"
        yield from _type(kind)
    yield "}"
