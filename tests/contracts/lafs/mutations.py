"""Envelopes, and envelopes with something changed: the same generators feed every comparison."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import strategies as st

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
VALUES = st.one_of(
    scalars,
    trees(5),
    st.sampled_from([0, 1, -1, 1.0, 0.5, 1000, 1001, 1e3, -0.0, True, False, None, "", "x" * 129, "x" * 1025]),
    st.sampled_from(["x" * 257, "x" * 513, "x" * 2049, "1.2.3", "1.2", "v1.2.3", "1.2.3.4", "01.002.3"]),
    st.sampled_from(["E_A_B", "E_a_b", "E_A", "E__A_B", "E_A_", "E_1_2", "XE_A_B", "E_A_B_C9"]),
    st.sampled_from(TIMES + URIS),
    st.sampled_from(["cursor", "offset", "none", "minimal", "custom", "cli", "AUTH", "stop", "retry"]),
    st.just({}),
    st.just([]),
)
NAMES = [
    *("$schema", "_meta", "success", "result", "error", "page", "_extensions", "extra", "__proto__"),
    *("specVersion", "schemaVersion", "timestamp", "operation", "requestId", "transport", "strict", "mvi"),
    *("contextVersion", "sessionId", "warnings", "code", "message", "category", "retryable", "retryAfterMs"),
    *("details", "agentAction", "escalationRequired", "suggestedAction", "docUrl", "mode", "limit", "offset"),
    *("nextCursor", "hasMore", "total", "deprecated", "removeBy"),
]


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
