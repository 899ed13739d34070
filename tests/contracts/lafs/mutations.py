"""Envelopes, and envelopes with something changed: the same generators feed every comparison."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from forestay.envelope import Warning, cursor_page, failure, no_page, offset_page, success
from forestay.kernel import Ids, ManualClock, Problem, SeededRandomness
from tests.envelope.strategies import envelopes, scalars, trees

TIMES = [
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.123456789Z",
    "2024-02-29T23:59:59+05:30",
    "2023-02-29T00:00:00Z",
    "2000-02-29T00:00:00Z",
    "1900-02-29T00:00:00Z",
    "2026-04-31T00:00:00Z",
    "2026-01-01T24:00:00Z",
    "2016-12-31T23:59:60Z",
    "2016-12-31T22:59:60Z",
    "2026-01-01T00:00:00",
    "2026-01-01",
    "2026-W01-1T00:00:00Z",
    "20260101T000000Z",
    "2026-01-01T00:00:00,5Z",
    "2026-01-01T00:00:00.Z",
    "2026-01-01T00:00:00+24:00",
    "2026-01-01T00:60:00Z",
    "2026-13-01T00:00:00Z",
    "2026-1-1T0:0:0Z",
    "",
    "now",
    "٢٠٢٦-01-01T00:00:00Z",
]
URIS = [
    "https://lafs.dev/docs/errors/x",
    "https://a.b/c?d=e#f",
    "urn:isbn:0451450523",
    "mailto:a@b.example",
    "http://[::1]:80/x",
    "http://user@host/%20a",
    "/relative",
    "no scheme",
    "http://a b/",
    "http://host/%zz",
    "http://host/<x>",
    "1http://x",
    "",
    ":x",
]
TELLING: list[Any] = [
    *(0, 1, -1, 1.0, 0.5, 1000, 1001, 1e3, -0.0, 2**70, True, False, None, "", {}, [], {"a": 1}, [1], [{}]),
    *("ab", "abc", "x" * 128, "x" * 129, "x" * 256, "x" * 257, "x" * 512, "x" * 513, "x" * 1024, "x" * 1025),
    *("x" * 2048, "x" * 2049, "é" * 128, "😀" * 129, "1.2.3", "1.2", "v1.2.3", "1.2.3.4", "01.002.3"),
    *("E_A_B", "E_a_b", "E_A", "E__A_B", "E_A_", "E_1_2", "XE_A_B", "E_A_B_C9"),
    *("cursor", "offset", "none", "minimal", "standard", "full", "custom", "cli", "http", "AUTH", "stop", "retry"),
    *({"mode": "none"}, {"mode": "cursor", "nextCursor": None, "hasMore": False}, {"code": "c", "message": "m"}),
    *([{"code": "c", "message": "m", "more": 1}], [{"code": "c"}], [{"code": 1, "message": "m"}]),
    *TIMES,
    *URIS,
]
VALUES = st.one_of(scalars, trees(5), st.sampled_from(TELLING))
NAMES = [
    *("$schema", "_meta", "success", "result", "error", "page", "_extensions", "extra", "__proto__"),
    *("specVersion", "schemaVersion", "timestamp", "operation", "requestId", "transport", "strict", "mvi"),
    *("contextVersion", "sessionId", "warnings", "code", "message", "category", "retryable", "retryAfterMs"),
    *("details", "agentAction", "escalationRequired", "suggestedAction", "docUrl", "mode", "limit", "offset"),
    *("nextCursor", "hasMore", "total", "deprecated", "removeBy"),
]


def bases() -> list[dict[str, Any]]:
    """A few envelopes of every shape."""
    clock = ManualClock()
    common: dict[str, Any] = {"clock": clock, "ids": Ids(clock, SeededRandomness(1))}
    warned = [Warning(code="W", message="m", deprecated="d", replacement="r", remove_by="2.0.0")]
    busy = Problem("rate_limited", "Busy.", retry_after_ms=5, at="$.x")
    made = [
        success("op", {"a": 1}, **common),
        success("op", [1], strict=False, session_id="s", warnings=warned, **common),
        success("op", None, page=offset_page(limit=5, offset=0, has_more=True, total=9), **common),
        success("op", None, page=cursor_page(next_cursor="c"), extensions={"x-a": 1}, **common),
        success("op", None, page=no_page(), strict=False, **common),
        failure(busy, "op", **common),
        failure(busy, "op", result={"done": 1}, strict=False, warnings=warned, **common),
    ]
    return [msgspec.to_builtins(envelope) for envelope in made]


def mutated(seed: int) -> dict[str, Any]:
    """The envelope of a seed, with none to four changes: fast, for thousands."""
    random = Random(seed)
    plain = copy.deepcopy(random.choice(BASES))
    for _ in range(random.randint(0, 4)):
        holder = random.choice(holders(plain))
        if not holder or random.random() < 0.2:
            holder[random.choice(NAMES)] = copy.deepcopy(random.choice(TELLING))
        elif random.random() < 0.3:
            holder.pop(random.choice(sorted(holder)))
        else:
            holder[random.choice(sorted(holder))] = copy.deepcopy(random.choice(TELLING))
    return plain


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """An envelope, with up to four changes."""
    plain: dict[str, Any] = msgspec.to_builtins(draw(envelopes(result=st.one_of(st.none(), st.just({"a": 1})))))
    for _ in range(draw(st.integers(0, 4))):
        holder = draw(st.sampled_from(holders(plain)))
        change = draw(st.sampled_from(["set", "set", "drop", "add"]))
        if change == "add" or not holder:
            holder[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(VALUES))
        elif change == "drop":
            holder.pop(draw(st.sampled_from(sorted(holder))))
        else:
            holder[draw(st.sampled_from(sorted(holder)))] = copy.deepcopy(draw(VALUES))
    return plain


def holders(plain: dict[str, Any]) -> list[dict[str, Any]]:
    found = [plain]
    for name in ("_meta", "error", "page"):
        if isinstance(plain.get(name), dict):
            found += [plain[name], plain[name]]
    warnings = plain["_meta"].get("warnings") if isinstance(plain.get("_meta"), dict) else None
    if isinstance(warnings, list):
        found += [item for item in warnings if isinstance(item, dict)]
    return found


BASES = bases()
