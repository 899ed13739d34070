"""Hostile requests, made from an OpenAPI document and a seed: every operation, each with a few things wrong.

A request begins as one that the document describes. Then its path, query, headers or body are spoilt, most often one of
them: who refuses the first thing that is wrong must not be the only one that is tried.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

WORDS: tuple[bytes, ...] = (
    b"..", b"%2e%2e%2f", b"%00", b"%ff%fe", b"%ed%a0%80", b"%F0%9F%92%A9", b"%", b"%zz", b"%0d%0aX:%20y", b"a" * 3000,
    b"9" * 400, b"-1", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b"'%20OR%201=1--", b"%3Cscript%3E",
    b"$%7B7*7%7D", b"~", b"*", b":", b"::fork", b"run_x:fork", b"__proto__", b"%E2%80%AE", b"con", b"x%1by", b"\xff",
    b"\xc3\xa9", b"",
)  # fmt: skip
VALUES: tuple[bytes, ...] = (
    b"null", b"true", b"0", b"-0", b"-1", b"1.5", b"1e308", b"1e999", b"-1e400", b"9223372036854775808", b"9" * 5000,
    b"1." + b"3" * 5000, b'""', b'"\\u0000"', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u202e\\u0007\\u001b[2J"',
    b'"\x01"', b'"' + b"a" * 100_000 + b'"', b'"' + b"\\u00e9" * 20_000 + b'"', b"[]", b"{}", b"[" * 60 + b"]" * 60,
    b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 20_000 + b"1" + b"}" * 20_000, b'{"":1}', b'{"__proto__":{"x":1}}',
    b'{"$ref":"#/x"}', b'["x"' + b',"x"' * 5000 + b"]", b'"../../etc/passwd"', b'"\xff\xfe"',
    b'"2026-13-45T99:99:99Z"', b'"' + b"(a+)+" * 40 + b'$"', b'"{{a.b.c}} ${x} <b>"', b"NaN", b"Infinity", b"'x'",
    b"[1,]",
)  # fmt: skip
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"Idempotency-Key", b"k" * 300), (b"Idempotency-Key", b"\xff"), (b"Idempotency-Key", b"a b"),
    (b"Accept", b"text/html"), (b"Accept", b"*/*;q=2, ;;;,,"), (b"Accept", b"a/b," * 1500),
    (b"Authorization", b"Bearer "), (b"Authorization", b"Basic !!"), (b"Authorization", b"Bearer " + b"x" * 8000),
    (b"Content-Encoding", b"gzip"), (b"Content-Encoding", b"br, zstd, x"), (b"Content-Length", b"1000000000000"),
    (b"Content-Length", b"-1"), (b"Content-Length", b"1, 2"), (b"Range", b"bytes=-1"),
    (b"Transfer-Encoding", b"chunked, gzip"), (b"Expect", b"200-ok"), (b"traceparent", b"00-" + b"0" * 32 + b"-0-00"),
    (b"traceparent", b"zz" * 500), (b"Last-Event-ID", b"9" * 400), (b"Last-Event-ID", b"-1"),
    (b"If-None-Match", b'W/"' * 900), (b"X-Request-Id", b"a" * 4000), (b"Host", b"evil.example"), (b"Host", b"[::1"),
    (b"Origin", b"null"), (b"Cookie", b"=;=;a"), (b"X-Forwarded-For", b"1.2.3.4," * 400), (b"X-CRP-Signature", b"zz"),
    (b"openwop-version", b"99"), (b"Upgrade", b"h2c"), (b"X-Big", b"b" * 40_000), (b"bad name", b"x"),
    (b"X-Control", b"a\x0bb"),
)  # fmt: skip
TYPES = (
    b"text/plain", b"application/xml", b"multipart/form-data", b"application/x-www-form-urlencoded",
    b"application/json; charset=utf-16", b"application/json;" + b"a=b;" * 300, b"", b"\xff/\xff",
    b"application/vnd.lafs+json",
)  # fmt: skip
_OVERSIZE = 3 * 1024 * 1024
_DEEP = 6


class Hostile(msgspec.Struct, frozen=True):
    """One request as it goes over the wire, and the operation that it was made from."""

    operation: str
    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def wire(self, host: bytes) -> bytes:
        """The bytes to send. Headers of its own stand in place of the usual ones."""
        own = {name.lower() for name, _ in self.headers}
        usual = [(b"Host", host), (b"Content-Length", b"%d" % len(self.body))]
        lines = [*(item for item in usual if item[0].lower() not in own), *self.headers]
        head = b"".join(b"%b: %b\r\n" % item for item in lines)
        return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (self.method, self.target, head, self.body)


class Operation(msgspec.Struct, frozen=True):
    """What a document says of one operation."""

    method: str
    path: str
    parameters: list[dict[str, Any]]
    body: Any  # a schema, or None
    schemas: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def operations(document: Mapping[str, Any], prefix: str = "") -> list[Operation]:
    """The operations of a document, in its order."""
    schemas = document.get("components", {}).get("schemas", {})
    found = []
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            content = about.get("requestBody", {}).get("content", {})
            body = next((item.get("schema") for item in content.values()), None)
            found.append(Operation(method.upper(), prefix + path, about.get("parameters", []), body, schemas))
    return found


class There(msgspec.Struct, frozen=True):
    """Ids of things that are there; `spared` are for operations that would spoil the others' things."""

    ids: list[bytes]
    spared: dict[str, list[bytes]] = {}


def requests(known: Sequence[Operation], there: There, key: bytes, seed: int) -> Iterator[Hostile]:
    """Requests without end; the operations take turns."""
    chance = random.Random(seed)
    while True:
        for operation in known:
            yield _Making(chance, operation, there.spared.get(operation.name, there.ids), key).made()


class _Making:
    """One request while it is made."""

    def __init__(self, chance: random.Random, operation: Operation, ids: Sequence[bytes], key: bytes) -> None:
        self.chance = chance
        self.operation = operation
        self.ids = ids
        self.headers = [(b"Authorization", b"Bearer " + key)]
        self.spoilt: set[str] = set()

    def made(self) -> Hostile:
        parts = ["path", "query", "headers", "body" if self.operation.body is not None else "path"]
        self.spoilt = {self.chance.choice(parts)}
        if self.chance.random() < 0.2:
            self.spoilt.add(self.chance.choice(parts))
        method = self.operation.method.encode()
        if self.chance.random() < 0.01:
            method = self.chance.choice([b"PATCH", b"TRACE", b"X" * 60, b"get", b"OPTIONS", b"HEAD"])
        target, body = self._target(), self._body()
        if "headers" in self.spoilt:
            self._spoil_headers()
        return Hostile(self.operation.name, method, target, self.headers, body)

    def _target(self) -> bytes:
        target = b""
        for part in self.operation.path.split("/")[1:]:
            while "{" in part:
                start, end = part.index("{"), part.index("}")
                part = part[:start] + self._segment().decode("latin-1") + part[end + 1 :]
            target += b"/" + part.encode("latin-1")
        if "path" in self.spoilt and self.chance.random() < 0.1:
            target += self.chance.choice([b"/", b"//", b"/..", b";x", b"%20", b"#x", b"\x7f", b"/" + b"a/" * 2000])
        query = self._query()
        return target + b"?" + query if query else target

    def _segment(self) -> bytes:
        if "path" not in self.spoilt or self.chance.random() < 0.2:
            return self.chance.choice(self.ids)
        return self.chance.choice(WORDS).replace(b"/", b"%2f")

    def _query(self) -> bytes:
        named = [item["name"] for item in self.operation.parameters if item.get("in") == "query"]
        if "query" not in self.spoilt:
            return b""
        names = [*named, "x", "limit", "cursor", "streamMode"]
        pairs = []
        for _ in range(self.chance.choice([1, 1, 2, 3, 300])):
            value = self.chance.choice([*WORDS, *self.ids]).replace(b"&", b"%26").replace(b"#", b"%23")
            pairs.append(quote(self.chance.choice(names)).encode() + b"=" + value[:200])
        return b"&".join(pairs)[:20_000]

    def _body(self) -> bytes:
        if self.operation.body is None:
            return b"" if self.chance.random() < 0.9 else self.chance.choice(VALUES)
        plain = json.dumps(self._example(self.operation.body, _DEEP)).encode()
        kind = b"application/json"
        body = plain
        if "body" in self.spoilt:
            body = self.chance.choice(_SPOILING)(self.chance, plain)
            kind = self.chance.choice(TYPES) if self.chance.random() < 0.05 else kind
        self.headers.append((b"Content-Type", kind))
        return body

    def _spoil_headers(self) -> None:
        for _ in range(self.chance.choice([1, 1, 2, 3, 150])):
            name, value = self.chance.choice(HEADERS)
            if name == b"Authorization":
                self.headers = [item for item in self.headers if item[0] != name]
            self.headers.append((name, value))

    def _example(self, schema: Any, depth: int) -> Any:
        """A value that the schema describes, about."""
        if not isinstance(schema, dict) or depth == 0:
            return {}
        if "$ref" in schema:
            return self._example(self.operation.schemas.get(schema["$ref"].rpartition("/")[2], {}), depth - 1)
        for several in ("anyOf", "oneOf", "allOf"):
            if several in schema:
                return self._example(self.chance.choice(schema[several]), depth - 1)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else self.chance.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                needed = set(schema.get("required", ()))
                properties = schema.get("properties", {})
                named = [name for name in properties if name in needed or self.chance.random() < 0.4]
                return {name: self._example(properties[name], depth - 1) for name in named}
            case "array":
                return [self._example(schema.get("items", {}), depth - 1) for _ in range(schema.get("minItems", 1))]
            case "integer" | "number":
                return schema.get("minimum", 1)
            case "boolean":
                return self.chance.random() < 0.5
            case "null":
                return None
            case "string":
                return self.chance.choice(
                    ["x", self.chance.choice(self.ids).decode(), "y" * schema.get("minLength", 3)]
                )
        return {}


def _with_value(chance: random.Random, plain: bytes) -> bytes:
    """One value is another: the members stay as they are, so that what reads them is reached."""
    marks: list[str] = []

    def marked(value: Any) -> Any:
        marks.append(f"\ue000{len(marks)}\ue000")
        if isinstance(value, dict):
            return {name: marked(item) for name, item in value.items()} or marks[-1]
        return [marked(item) for item in value] or marks[-1] if isinstance(value, list) else (marks[-1], value)

    def text(value: Any, chosen: str) -> bytes:
        if isinstance(value, dict):
            return b"{" + b",".join(json.dumps(n).encode() + b":" + text(v, chosen) for n, v in value.items()) + b"}"
        if isinstance(value, list):
            return b"[" + b",".join(text(item, chosen) for item in value) + b"]"
        mark, kept = value if isinstance(value, tuple) else (value, {})
        return chance.choice(VALUES) if mark == chosen else json.dumps(kept).encode()

    value = marked(json.loads(plain))
    leaves = [mark for mark in marks if _holds(value, mark)]
    return text(value, chance.choice(leaves)) if leaves else chance.choice(VALUES)


def _holds(value: Any, mark: str) -> bool:
    if isinstance(value, dict):
        return any(_holds(item, mark) for item in value.values())
    if isinstance(value, list):
        return any(_holds(item, mark) for item in value)
    return mark in value if isinstance(value, tuple) else value == mark


def _with_member(chance: random.Random, plain: bytes) -> bytes:
    """A member that nobody asked for, or one that stands twice."""
    try:
        names = list(json.loads(plain))
    except (TypeError, ValueError):
        names = []
    name = json.dumps(chance.choice([*map(str, names), "x", "__proto__", "\x00", "y" * 5000])).encode()
    return b"{" + name + b":" + chance.choice(VALUES) + (b"," + plain[1:] if len(plain) > 2 else b"}")


def _many_members(chance: random.Random, plain: bytes) -> bytes:
    return b"{" + b",".join(b'"m%d":%d' % (n, n) for n in range(chance.choice([100, 5000]))) + b"}"


def _cut(chance: random.Random, plain: bytes) -> bytes:
    return plain[: chance.randrange(len(plain) + 1)]


def _flipped(chance: random.Random, plain: bytes) -> bytes:
    at = chance.randrange(len(plain))
    return plain[:at] + bytes([chance.randrange(256)]) + plain[at + 1 :]


def _whole(chance: random.Random, plain: bytes) -> bytes:
    return chance.choice(VALUES)


def _longer(chance: random.Random, plain: bytes) -> bytes:
    return plain + chance.choice([b"}", b"\x00", b"x", b"\n" * 9000, plain, b"\xef\xbb\xbf"])


def _oversize(chance: random.Random, plain: bytes) -> bytes:
    return plain[:-1] + b" " * (_OVERSIZE if chance.random() < 0.05 else 50_000) + plain[-1:]


_SPOILING: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(_with_value,) * 6,
    _with_member,
    _with_member,
    _many_members,
    _cut,
    _flipped,
    _whole,
    _longer,
    _oversize,
)
