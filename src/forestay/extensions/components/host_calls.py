"""Parses a component's `host.call` and encodes the answer (P13).

The first string names the method, the second holds its parameters. The second may also be the whole `host_call`
payload, recognized by its `call_id` and `params`. Both forms become one `HostCall` for the dispatcher.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forestay.extensions.components.values import Answer
from forestay.extensions.effects import MAX_OUTBOX
from forestay.extensions.protocol import HostCall, HostCallError, HostResult
from forestay.kernel import Problem, canonical

PAYLOAD = "host_call"
"""The name that a call with a whole payload may use, whatever its method."""
_encode = msgspec.json.Encoder().encode


class _Payload(msgspec.Struct, frozen=True):
    call_id: str
    capability: str
    method: str
    params: dict[str, Any]
    timeout_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    cancel_token: str | None = None
    context: dict[str, Any] | None = None


class Asked(msgspec.Struct, frozen=True):
    """A host call, and the id that the guest gave it when it sent the whole payload."""

    call: HostCall
    guest_id: str | None


def read_request(name: bytes, text: bytes, call_id: str) -> Asked:
    """Parse a host call; raise a Problem when it is malformed. The call gets the host's `call_id`."""
    given = canonical.decode(text, limit=MAX_OUTBOX)
    method = name.decode("utf-8", "replace")
    if not isinstance(given, dict):
        raise Problem("invalid_request", "The input of a host call must be a JSON object.", at="$")
    if "call_id" not in given or "params" not in given:
        return Asked(HostCall(call_id, "", method, given), None)
    try:
        payload = msgspec.convert(given, _Payload)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error)
        raise Problem("invalid_request", message, at=where) from error
    if method not in (PAYLOAD, payload.method):
        raise Problem(
            "invalid_request",
            f"The call is named {method[:40]!r} and its payload {payload.method[:40]!r}.",
            at="$.method",
        )
    call = HostCall(
        call_id,
        payload.capability,
        payload.method,
        payload.params,
        payload.timeout_ms,
        payload.cancel_token,
        payload.context,
    )
    return Asked(call, payload.call_id)


def answer_of(result: HostResult, guest_id: str | None) -> Answer:
    """Encode the output or the error; a whole payload gets a whole `host_result`."""
    if guest_id is not None:
        return not result.is_error, _encode(msgspec.structs.replace(result, call_id=guest_id))
    return not result.is_error, _encode(result.error if result.is_error else result.output)


def refused(problem: Problem) -> Answer:
    """Return the answer to a refused or malformed host call."""
    body = problem.as_pi()
    details = {**body["details"], "problem": problem.key}
    return False, _encode(HostCallError(body["code"], body["message"], details, body["retryable"]))
