"""Reads the answer of a host: its result, or the Problem that it reports."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel import TABLE, Problem


def answer_of(status: int, content: bytes, retry_after: str | None = None) -> Any:
    """Return the result of an answer, with or without an envelope; raise a refusal as its Problem."""
    body: Any = read_json(content, f"The host answered {status} with something that is no JSON.") if content else None
    if status >= 400:
        raise problem_of(status, body, retry_after)
    if not _enveloped(body):
        return body
    if "result" not in body:
        raise Problem("upstream_confused", f"The host answered {status} with an envelope that has no result.")
    return body["result"]


def read_json(content: bytes, otherwise: str, type: Any = Any) -> Any:
    """Decode `content` as `type`; raise a Problem with the message `otherwise` when that fails."""
    try:
        return msgspec.json.decode(content, type=type)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem("upstream_confused", otherwise, reason=str(error)[:200]) from error


def problem_of(status: int, body: Any, retry_after: str | None = None) -> Problem:
    """Return the Problem that a refusal reports, with or without an envelope."""
    said = _object(body)
    if _enveloped(body):
        said = _object(said.get("error"))
    details = _object(said.get("details"))
    known = {name: value for name, value in details.items() if name not in _TAKEN}
    named = details.get("problem")
    key = named if isinstance(named, str) and named else _key_of(str(said.get("error", "")), status)
    message = str(said.get("message") or f"The host answered {status}.")
    wait = _wait(said.get("retryAfterMs"), retry_after or "")
    return Problem(key if key in TABLE else "upstream_confused", message, retry_after_ms=wait, **known)


# Arguments of `Problem` itself: a detail may not repeat their names.
_TAKEN = ("self", "key", "message", "retry_after_ms", "problem")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _wait(told: Any, header: str) -> int | None:
    """Return the milliseconds to wait: the body's figure, else the header's."""
    if isinstance(told, int) and told > 0:
        return int(told)
    return int(header) * 1000 if header.isascii() and header.isdigit() and len(header) < 10 else None


def unreachable(address: str, error: Exception) -> Problem:
    return Problem(
        "unavailable",
        f"The host at {address} does not answer.",
        reason=type(error).__name__,
        fix="Start it with `forestay up`, or give another address.",
    )


def _enveloped(body: Any) -> bool:
    return isinstance(body, dict) and "_meta" in body


def _key_of(code: str, status: int) -> str:
    rows = [row.key for row in TABLE.values() if row.openwop == code]
    rows.sort(key=lambda key: key != code)  # the row whose key is the code comes before others with that code
    exact = [key for key in rows if TABLE[key].http == status]
    return (exact or rows or ["upstream_confused"])[0]
