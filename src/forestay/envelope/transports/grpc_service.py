"""Envelopes over gRPC (LAFS R21); needs the extra `grpc`.

Both messages are `google.protobuf.Struct`, so a client in any language needs no schema of ours. The request has the
members `operation`, `parameters`, `requestId` and `sessionId`; the answer is the envelope. A failure ends the call with
the registry's status. The trailers carry a `google.rpc.Status` with ErrorInfo, RetryInfo and BadRequest, and the
envelope itself when it fits there.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio
import msgspec
from google.protobuf import any_pb2, duration_pb2, json_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct
from google.rpc import error_details_pb2, status_pb2

from forestay.envelope.transports.operations import Operations, Said
from forestay.envelope.transports.protobuf import whole_numbers
from forestay.envelope.types import Envelope
from forestay.envelope.validate import decode
from forestay.kernel import Problem

METHOD: Final = "/forestay.lafs.v1.Operations/Call"
DETAILS_KEY: Final = "grpc-status-details-bin"
MAX_TRAILER_BYTES: Final = 6 * 1024  # clients refuse metadata beyond 8 KiB


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._call, request_deserializer=Struct.FromString, response_serializer=Struct.SerializeToString
        )

    async def _call(self, request: Struct, context: grpc.aio.ServicerContext[Any, Any]) -> Struct:
        asked = _plain(request)
        parameters = asked.get("parameters")
        said = await self._operations.call(
            str(asked.get("operation", "")),
            parameters if isinstance(parameters, dict) else {},
            transport="grpc",
            request_id=_text(asked, "requestId"),
            session_id=_text(asked, "sessionId"),
        )
        if said.problem is not None:
            status = status_of(said)
            details = ((DETAILS_KEY, status.SerializeToString()),)
            await context.abort(code_of(said.problem), status.message, trailing_metadata=details)
        return _struct(said.envelope)


def add_to(server: grpc.aio.Server, operations: Operations) -> None:
    """Serve `operations` on `server`."""
    server.add_generic_rpc_handlers((_Handler(operations),))


async def call(
    channel: grpc.aio.Channel,
    operation: str,
    parameters: dict[str, Any] | None = None,
    *,
    request_id: str | None = None,
    timeout: float | None = None,
) -> Envelope:
    """Call an operation; a failure comes back as its envelope, a broken connection as grpc's own error."""
    request = Struct()
    request.update({"operation": operation, "parameters": parameters or {}, "requestId": request_id})
    stub: Any = channel.unary_unary(
        METHOD, request_serializer=Struct.SerializeToString, response_deserializer=Struct.FromString
    )
    try:
        return _envelope(await stub(request, timeout=timeout))
    except grpc.aio.AioRpcError as error:
        envelope = envelope_in(error)
        if envelope is None:
            raise
        return envelope


def code_of(problem: Problem) -> grpc.StatusCode:
    return grpc.StatusCode[problem.row.grpc]


def status_of(said: Said) -> Any:
    """Return the google.rpc.Status of a failure: the reason, the retry delay, the invalid field, the envelope."""
    assert said.problem is not None
    told = said.problem.as_grpc()
    metadata = {**told["metadata"], "requestId": said.envelope.meta.request_id}
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=told["reason"], domain=told["domain"], metadata=metadata)
    ]
    if told["retryAfterMs"] is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(max(0, int(told["retryAfterMs"])))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    if said.problem.row.category == "VALIDATION":
        field = _text(told["details"], "at") or "$"
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=told["message"])
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    status = status_pb2.Status(code=code_of(said.problem).value[0], message=told["message"])
    for detail in details:
        status.details.add().Pack(detail)
    envelope = any_pb2.Any()
    envelope.Pack(_struct(said.envelope))
    if status.ByteSize() + envelope.ByteSize() <= MAX_TRAILER_BYTES:
        status.details.append(envelope)
    return status


def envelope_in(error: grpc.aio.AioRpcError) -> Envelope | None:
    """Return the envelope that a failed call carries in its trailers, or None."""
    try:
        found = [
            status_pb2.Status.FromString(item) for key, item in error.trailing_metadata() or () if key == DETAILS_KEY
        ]
    except DecodeError:
        return None
    message = Struct()
    return next((_envelope(message) for status in found for part in status.details if part.Unpack(message)), None)


def _struct(envelope: Envelope) -> Struct:
    return json_format.ParseDict(msgspec.to_builtins(envelope), Struct())


def _envelope(message: Struct) -> Envelope:
    """Return the envelope in a message, validated like any foreign envelope."""
    return decode(msgspec.json.encode(_plain(message)))


def _plain(message: Struct) -> dict[str, Any]:
    plain: dict[str, Any] = whole_numbers(json_format.MessageToDict(message))
    return plain


def _text(members: dict[str, Any], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) and value else None
