"""What a host answered: the result, or the Problem that it was."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel import TABLE, Problem


def answer_of(status: int, content: bytes, retry_after: str | None = None) -> Any:
    """The result in an answer, enveloped or not; a refusal is raised."""
    try:
        body: Any = msgspec.json.decode(content) if content else None
    except msgspec.DecodeError as error:
        raise Problem("upstream_confused", f"The host answered {status} with something that is no JSON.") from error
    if status >= 400:
        raise problem_of(status, body, retry_after)
    return body["result"] if _enveloped(body) else body


def problem_of(status: int, body: Any, retry_after: str | None = None) -> Problem:
    """The Problem that a refusal tells, whichever contract's words it uses."""
    said = body if isinstance(body, dict) else {}
    if _enveloped(body):
        said = body.get("error") or {}
    details = said.get("details")
    told: dict[str, Any] = details if isinstance(details, dict) else {}
    known = {name: value for name, value in told.items() if name not in ("key", "message", "retry_after_ms")}
    key = known.pop("problem", None) or _key_of(str(said.get("error", "")), status)
    wait = said.get("retryAfterMs") or (int(retry_after) * 1000 if retry_after and retry_after.isdigit() else None)
    message = str(said.get("message") or f"The host answered {status}.")
    return Problem(key if key in TABLE else "upstream_confused", message, retry_after_ms=wait, **known)


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
    rows.sort(key=lambda key: key != code)  # the row of that very name speaks before those that share its code
    exact = [key for key in rows if TABLE[key].http == status]
    return (exact or rows or ["upstream_confused"])[0]
