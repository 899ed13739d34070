"""`import.meta`, `require.resolve`, `__dirname`, `__filename`: for each file its own, without moving its characters.

An ES module gets an import appended: imports are hoisted, so nothing before it changes place. A CommonJS file cannot
have one; it gets a prefix on its first line, whose length the source map takes back.
"""

from __future__ import annotations

import json
import re

import msgspec

from forestay.extensions.compiler.virtual_modules import HERE

META = "__forestay_meta__"
RESOLVE = "__forestay_resolve__"
CACHE = "__forestay_cache__"
# A first line that does nothing: where it lies is of no interest to anybody.
_QUIET_LINE = re.compile(rb"""\s*(?:["']use strict["'];?\s*|//[^\n]*|/\*[^\n]*?(?:\*/)?\s*)?(?:\r?\n|$)""")
# Each begins with a letter of its own: that is searched for many times as fast as the edge of a word.
_MAY_USE = [re.compile(each) for each in (rb"__dirname|__filename", rb"import\s*\.\s*meta", rb"require\s*\.\s*[rc]")]
_REQUIRE = {RESOLVE: re.compile(rb"\brequire\s*\.\s*resolve\b"), CACHE: re.compile(rb"\brequire\s*\.\s*cache\b")}
_META = re.compile(rb"\bimport\s*\.\s*meta\b")
_MODULE_SYNTAX = re.compile(
    rb"^\s*(?:import\b(?!\s*\()|export\b)|[;}]\s*(?:import\s*[\w{*\"']|export\s*[\w{*])|\bimport\s*\.\s*meta\b",
    re.MULTILINE,
)


class Placed(msgspec.Struct, frozen=True):
    """A file as the bundler gets it, and how far its first line moved."""

    contents: bytes
    prefix: int = 0


def place(contents: bytes, name: str, loader: str, suffix: str) -> Placed:
    """`contents` with what it needs to know where it lies."""
    if not any(used.search(contents) for used in _MAY_USE):
        return Placed(contents)
    wanted = [word for word in ("__dirname", "__filename") if _is_free(contents, word)]
    wanted += [name for name, used in _REQUIRE.items() if used.search(contents)]
    is_module = suffix in (".mjs", ".mts") or (suffix not in (".cjs", ".cts") and _MODULE_SYNTAX.search(contents))
    if is_module:
        names = [*wanted, META] if _META.search(contents) else wanted
        if not names:
            return Placed(contents)
        return Placed(contents + f"\n;import{{{','.join(names)}}}from{json.dumps(f'{HERE}:{name}')};".encode())
    if not wanted or contents.startswith(b"#!"):
        return Placed(contents)
    prefix = f"var{{{','.join(wanted)}}}=require({json.dumps(f'{HERE}:{name}')});".encode()
    return Placed(prefix + contents, 0 if _QUIET_LINE.match(contents) else len(prefix))


def _is_free(contents: bytes, word: str) -> bool:
    name = word.encode()
    if not re.search(rb"\b" + name + rb"\b", contents):
        return False
    declared = (
        rb"\b(?:const|let|var|function|class)\s+(?:\{[^}]*)?\b"
        + name
        + rb"\b|\bimport\b[^;]*\b"
        + name
        + rb"\b[^;]*\bfrom\b"
    )
    return not re.search(declared, contents)
