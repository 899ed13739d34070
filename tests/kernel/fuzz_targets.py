"""Targets of the kernel: JSON, settings, grants, addresses, schemas, lines of a ledger, texts with secrets."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from forestay.kernel import Problem, canonical, place_of
from forestay.kernel.config import load
from forestay.kernel.http_url import plain_host
from forestay.kernel.json_schema import mistakes, schema_mistake
from forestay.kernel.ledger.records import GENESIS, Record, hash_of
from forestay.kernel.ledger.sqlite_file import _migrate
from forestay.kernel.ledger.transfer import take_in
from forestay.kernel.policy import Grant, Request
from forestay.kernel.redaction import redact_text
from tests.fuzz.target import lines_of, target, text_of

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"false", b"1.0", b"\\u0000", b"\\ud800", b"\\n")


@target(["kernel.canonical"], [b'{"a":[1,2.5,"x",null,true]}', b"[" * 130, b'"\\u0000"', b"1e400"], _JSON)
def canonical_json(data: bytes) -> None:
    """What is read can be written, and is read again as the same value; Python's own reader agrees."""
    value = canonical.decode(data)
    written = canonical.encode(value)
    assert canonical.encode(canonical.decode(written)) == written
    json.loads(data)  # what we take, others take
    canonical.encode_strict(value)


_FOLDER = Path(tempfile.mkdtemp(prefix="forestay-fuzz-"))
_SETTINGS = (
    b"[extensions.policy]",
    b"[models.entries.a]",
    b"[http]",
    b"mode = ",
    b'"strict"',
    b"port = ",
    b"[[",
    b"]]",
)


@target(
    ["kernel.config", "kernel.former"],
    [
        b'[extensions.policy]\nmode = "strict"\n',
        b'[models]\ndefault = "a"\n[models.entries.a]\nprovider = "openai"\nmodel = "m"\napi_key_env = "K"\n',
        b"[http]\nport = 70000\n",
        b'[http.rates]\nkey = {per_second = 1, burst = 2}\n[[budgets.ceilings]]\nscope = "run"\n',
        b"a" + b".a" * 1200 + b" = 1\n",
    ],
    _SETTINGS,
)
def settings_file(data: bytes) -> None:
    """The settings of a project, with the policy of extensions in them."""
    (_FOLDER / "forestay.toml").write_bytes(data)
    load(_FOLDER, environ={}, user_file=_FOLDER / "none.toml")


@target(
    ["kernel.policy"],
    [b"read:src/**,*.md\nread\nsrc/a.py", b"http:*.example.com\nhttp\na.example.com", b"env:A_*\nenv\nA_B", b"exec"],
    (b"read:", b"write:", b"http:", b"env:", b"tool:", b"**", b"*", b"..", b"/", b"xn--"),
)
def grant(data: bytes) -> None:
    """A grant, and a question about it; a denial covers whatever the grant covers."""
    text, capability, resource = lines_of(data, 3)
    found = Grant.parse(text)
    asked = Request("someone", capability, "", resource)
    assert found.denies(asked, 0) or not found.covers(asked, 0)


@target(
    ["kernel.http_url"],
    [b"https://example.com/a?b#c", b"http://[::1]:8080/", b"http://0x7f.1/", b"https://a.b.:443", b"http://127.1\n"],
    (b"http://", b"https://", b"@", b"[", b"]", b":", b"%00", b"0x", b"\\", b"::ffff:", b"?", b"#"),
)
def address(data: bytes) -> None:
    """Whoever sends to an address that was accepted goes where it was said to lead."""
    import httpx

    url = text_of(data)
    place = place_of(url)
    sent = httpx.URL(url)
    assert plain_host(sent.host) == place.host and (sent.port or place.port) == place.port and not sent.userinfo


@target(
    ["kernel.json_schema", "kernel.schema_cost"],
    [
        b'{"type":"object","properties":{"a":{"type":"string","pattern":"^a+$"}},"required":["a"]}\n{"a":"b"}',
        b'{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}\n1',
        b'{"allOf":[{"anyOf":[{"const":1},{"enum":[1,2]}]}],"unevaluatedProperties":false}\n{}',
    ],
    (*_JSON, b'"$ref"', b'"#/$defs/a"', b'"pattern"', b'"items"', b'"allOf"', b'"type"', b'"(a+)+$"', b'"$dynamicRef"'),
)
def schema(data: bytes) -> None:
    """A schema that a stranger wrote, and a value for it."""
    first, second = data.partition(b"\n")[::2]
    found, value = canonical.decode(first), canonical.decode(second or b"{}")
    if schema_mistake(found) is None and isinstance(found, dict):
        mistakes(found, value)


_RECORD = b'{"stream":"run/a","seq":0,"id":"i","type":"a.b","ts":1,"payload":{"a":1},"attrs":{}}'


@target(
    ["kernel.ledger.transfer", "kernel.ledger.records"],
    [
        _RECORD,
        _RECORD + b"\n" + _RECORD.replace(b'"seq":0', b'"seq":1'),
        _RECORD.replace(b'"ts":1', b'"ts":99999999999999999999'),
    ],
    (*_JSON, b'"seq":', b'"ts":', b'"prev":', b"9223372036854775808", b'"attrs":{"a":1}', b'"hash":'),
)
def ledger_lines(data: bytes) -> None:
    """Lines of an export that somebody made up; each record that can be read gets the hash that it needs."""
    _DATABASE.execute("BEGIN")
    try:
        take_in(_DATABASE, _chained(data.split(b"\n")[:8]), ())
    finally:
        _DATABASE.execute("ROLLBACK")


_DATABASE = sqlite3.connect(":memory:", isolation_level=None)
_migrate(_DATABASE)


def _chained(lines: list[bytes]) -> list[bytes]:
    heads: dict[str, str] = {}
    chained = []
    for line in lines:
        try:
            fields = canonical.decode(line, dict[str, Any])
            fields = {"prev": heads.get(str(fields.get("stream")), GENESIS.hex()), "hash": "", **fields}
            record = msgspec.convert(fields, Record)
            fields["hash"] = fields["hash"] or hash_of(record).hex()
            heads[record.stream] = fields["hash"]
            chained.append(canonical.encode(fields))
        except (Problem, msgspec.ValidationError, ValueError):
            chained.append(line)
    return chained


@target(
    ["kernel.redaction"],
    [
        b"Authorization: Bearer abcdefghijklmnop",
        b"sk-abcdefghijklmnopqrstuvwx and password=hunter22",
        b"-----BEGIN KEY-----",
    ],
    (b"Bearer ", b"sk-", b"password=", b"://a:b@", b"AKIA", b"eyJ", b"-----BEGIN ", b"token: "),
)
def secrets(data: bytes) -> None:
    """What was redacted once has nothing left to redact that is not a mark of ours."""
    redact_text(text_of(data))
