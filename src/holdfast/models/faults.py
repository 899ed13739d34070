"""What a provider's refusals and broken connections mean, as Problems with the provider's own hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

from holdfast.kernel.clock import Clock
from holdfast.kernel.problems import Problem

_LONGEST_QUOTE = 300
_EXHAUSTED = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
_SAME_AGAIN = frozenset({408, 409, 425})


@contextmanager
def translated(sdk: Any, provider: str, clock: Clock) -> Iterator[None]:
    """Turn what `sdk` raises into Problems; the official packages share their classes' names and meaning."""
    import httpx2

    try:
        yield
    except sdk.APIStatusError as error:
        if error.status_code < 400:  # an `error` event inside an answer that began well
            raise stream_problem(provider, error.body, error.message) from error
        headers = error.response.headers
        raise status_problem(provider, error.status_code, headers, error.body, error.message, clock) from error
    except sdk.APIConnectionError as error:
        raise broken(provider, _cause(error)) from error
    except sdk.APIError as error:
        raise stream_problem(provider, error.body, error.message) from error
    except httpx2.HTTPError as error:
        raise broken(provider, _cause(error)) from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise senseless(provider, _cause(error)) from error


def status_problem(
    provider: str, status: int, headers: Mapping[str, str], body: Any, message: str, clock: Clock
) -> Problem:
    """The Problem of an HTTP answer that is an error."""
    kind = _error_kind(body)
    details: dict[str, Any] = {"provider": provider, "status": status, "said": message[:_LONGEST_QUOTE]}
    if kind:
        details["kind"] = kind
    request_id = headers.get("x-request-id") or headers.get("request-id")
    if request_id:
        details["request_id"] = request_id
    advice = headers.get("x-should-retry")
    if advice in ("true", "false"):
        details["should_retry"] = advice == "true"
    wait = retry_after_ms(headers, clock)
    if status == 401 or status == 403:
        return Problem("provider_unauthenticated", f"{provider} does not accept the key or what it may do.", **details)
    if status == 429 and kind not in _EXHAUSTED:
        return Problem("rate_limited", f"{provider} asks to go more slowly.", retry_after_ms=wait, **details)
    if status < 500 and status not in _SAME_AGAIN:
        return Problem("provider_rejected", f"{provider} refused the request.", **details)
    return Problem("provider_error", f"{provider} failed with status {status}.", retry_after_ms=wait, **details)


def stream_problem(provider: str, body: Any, message: str) -> Problem:
    """An error that the provider reported inside its stream, after it had answered 200."""
    details: dict[str, Any] = {"provider": provider, "kind": _error_kind(body), "said": message[:_LONGEST_QUOTE]}
    if details["kind"] in ("rate_limit_error", "rate_limit_exceeded"):
        return Problem("rate_limited", f"{provider} asks to go more slowly.", **details)
    if details["kind"] in ("invalid_request_error", "context_length_exceeded"):
        return Problem("provider_rejected", f"{provider} refused the request.", **details)
    return Problem("provider_error", f"{provider} failed in the middle of its answer.", **details)


def broken(provider: str, reason: str) -> Problem:
    """A connection that could not be made, or broke."""
    return Problem("provider_error", f"The connection to {provider} failed.", provider=provider, reason=reason)


def senseless(provider: str, reason: str) -> Problem:
    """An answer that does not follow the provider's own protocol."""
    return Problem(
        "provider_error", f"{provider} answered with something that is not its protocol.", provider=provider,
        reason=reason[:_LONGEST_QUOTE],
    )  # fmt: skip


def retry_after_ms(headers: Mapping[str, str], clock: Clock) -> int | None:
    """The wait that `retry-after-ms` or `retry-after` (seconds or a date) asks for."""
    try:
        if "retry-after-ms" in headers:
            return max(0, round(float(headers["retry-after-ms"])))
        text = headers.get("retry-after")
        if text is None:
            return None
        try:
            return max(0, round(float(text) * 1000))
        except ValueError:
            return max(0, round(parsedate_to_datetime(text).timestamp() * 1000) - clock.now_ms())
    except (ValueError, OverflowError):
        return None


def _error_kind(body: Any) -> str | None:
    """`type` or `code` of `{"error": {…}}`, as both protocols spell it, or of the inner object alone."""
    if not isinstance(body, dict):
        return None
    error = body.get("error", body)
    if not isinstance(error, dict):
        return None
    kind = error.get("code") or error.get("type")
    return str(kind)[:64] if kind else None


def _cause(error: BaseException) -> str:
    inner = error.__cause__ or error
    return f"{type(inner).__name__}: {inner}"
