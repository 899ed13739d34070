"""Turns a provider's refusals and broken connections into Problems that name the endpoint and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forestay.kernel import REDACTED, Clock, Problem
from forestay.models.quoting import unasked

_LONGEST_QUOTE = 300
_EXHAUSTED = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
_SAME_AGAIN = frozenset({408, 409, 425})


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a model. `own`: a server at a `base_url`. `variable` names the source of its key; `asked` are the
    texts of the request."""

    provider: str
    address: str
    own: bool = False
    key: str | None = None
    variable: str = ""
    asked: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The endpoint's name in a sentence."""
        return f"the model server at {self.address}" if self.own else f"{self.provider} ({self.address})"

    def quoted(self, text: str) -> str:
        """Return the server's text without the key and the prompt, which some servers repeat."""
        return unasked(text.replace(self.key, REDACTED) if self.key else text, self.asked)[:_LONGEST_QUOTE]


def shown(address: str) -> str:
    """Return an address that is safe to show: without a user, a password or a query."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


@contextmanager
def translated(sdk: Any, endpoint: Endpoint, clock: Clock) -> Iterator[None]:
    """Turn the exceptions of `sdk` into Problems; the official packages use the same class names and meanings."""
    import httpx2

    try:
        yield
    except sdk.APIStatusError as error:
        if error.status_code < 400:  # an `error` event inside an answer with a good status
            raise stream_problem(endpoint, error.body, error.message) from error
        headers = error.response.headers
        raise status_problem(endpoint, error.status_code, headers, error.body, error.message, clock) from error
    except sdk.APIConnectionError as error:
        raise broken(endpoint, _cause(error)) from error
    except sdk.APIError as error:
        raise stream_problem(endpoint, error.body, error.message) from error
    except (httpx2.HTTPError, OSError) as error:
        raise broken(endpoint, _cause(error)) from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise senseless(endpoint, _cause(error)) from error


def status_problem(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: Any, message: str, clock: Clock
) -> Problem:
    """Return the Problem for an HTTP error."""
    kind = _error_kind(body)
    details: dict[str, Any] = {**_named(endpoint), "status": status, "said": endpoint.quoted(message)}
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
        return _unauthenticated(endpoint, details)
    if status == 429 and kind not in _EXHAUSTED:
        return _problem("rate_limited", endpoint, "asks for fewer requests.", retry_after_ms=wait, **details)
    if status == 404:
        fix = f"Check the model's name, and that {endpoint.address} is the address of the API; many end in /v1."
        return _problem("provider_rejected", endpoint, "does not know this model or address.", fix=fix, **details)
    if status < 500 and status not in _SAME_AGAIN:
        return _problem("provider_rejected", endpoint, "refused the request.", **details)
    return _problem("provider_error", endpoint, f"failed with status {status}.", retry_after_ms=wait, **details)


def stream_problem(endpoint: Endpoint, body: Any, message: str) -> Problem:
    """Return the Problem for an error that the provider reported inside its stream, after status 200."""
    kind = _error_kind(body)
    details: dict[str, Any] = {**_named(endpoint), "kind": kind, "said": endpoint.quoted(message)}
    if kind in ("rate_limit_error", "rate_limit_exceeded"):
        return _problem("rate_limited", endpoint, "asks for fewer requests.", **details)
    if kind in ("invalid_request_error", "context_length_exceeded"):
        return _problem("provider_rejected", endpoint, "refused the request.", **details)
    return _problem("provider_error", endpoint, "failed in the middle of its answer.", **details)


def broken(endpoint: Endpoint, reason: str) -> Problem:
    """Return the Problem for a connection that could not be made, or that broke."""
    fix = (
        f"Check that the server runs, and that {endpoint.address} is its address."
        if endpoint.own
        else "Check this machine's connection to the network."
    )
    said = f"The connection to {endpoint.label} failed."
    return Problem("provider_error", said, reason=endpoint.quoted(reason), fix=fix, **_named(endpoint))


def silent(endpoint: Endpoint, seconds: float, *, began: bool) -> Problem:
    """Return the Problem for an answer that did not come, or that stopped."""
    told = f"was silent for {seconds:g} seconds."
    fix = "Try again, or raise the time limit."
    return _problem("provider_timeout", endpoint, told, seconds=seconds, began=began, fix=fix, **_named(endpoint))


def senseless(endpoint: Endpoint, reason: str) -> Problem:
    """Return the Problem for an answer that does not follow the provider's protocol."""
    reason = endpoint.quoted(reason)
    told = "gave an answer that does not follow its protocol."
    return _problem("provider_error", endpoint, told, reason=reason, **_named(endpoint))


def _unauthenticated(endpoint: Endpoint, details: dict[str, Any]) -> Problem:
    if endpoint.key is None:
        fix = "Name the variable that holds its key as `api_key_env` of this model."
    elif endpoint.variable:
        fix = f"Check the key in {endpoint.variable} and its permissions."
    else:
        fix = "Check the key that was given for this provider and its permissions."
    told = "refuses the key for this request." if endpoint.key is not None else "wants a key, and none is set."
    return _problem("provider_unauthenticated", endpoint, told, fix=fix, **details)


def _problem(key: str, endpoint: Endpoint, told: str, **details: Any) -> Problem:
    return Problem(key, f"{endpoint.label[0].upper()}{endpoint.label[1:]} {told}", **details)


def _named(endpoint: Endpoint) -> dict[str, Any]:
    return {"provider": endpoint.provider, "address": endpoint.address}


def retry_after_ms(headers: Mapping[str, str], clock: Clock) -> int | None:
    """Return the wait that `retry-after-ms` or `retry-after` (seconds or a date) asks for."""
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
    """Return `code` or `type` of `{"error": {…}}`, the form of both protocols, or of the inner object alone."""
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
