"""Envelopes over gRPC: a real service, and failures as google.rpc.Status with ErrorInfo, RetryInfo, BadRequest (R21).

A success is an `Envelope` message. A failure ends the call with the registry's status; the rich status in the
trailers says the reason and the next step, and carries the envelope itself when it fits there.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2, json_format
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from forestay.envelope.transports import grpc_messages as messages
from forestay.envelope.transports.operations import Operations, Said
from forestay.envelope.types import Envelope
from forestay.kernel import Problem

DETAILS_KEY: Final = "grpc-status-details-bin"
MAX_TRAILER_BYTES: Final = 6 * 1024  # clients refuse metadata beyond 8 KiB
_METHOD: Final = f"/{messages.SERVICE}/Call"


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method != _METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._call,
            request_deserializer=messages.CallRequest.FromString,
            response_serializer=messages.EnvelopeMessage.SerializeToString,
        )

    async def _call(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        parameters = messages.whole_numbers(json_format.MessageToDict(request.parameters))
        said = await self._operations.call(
            request.operation,
            parameters,
            transport="grpc",
            request_id=request.requestId or None,
            session_id=request.sessionId or None,
        )
        if said.problem is not None:
            status = status_of(said)
            await context.abort(
                code_of(said.problem),
                status.message,
                trailing_metadata=((DETAILS_KEY, status.SerializeToString()),),
            )
        return messages.to_message(said.envelope)


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
    request = messages.CallRequest()
    json_format.ParseDict({"operation": operation, "parameters": parameters or {}}, request)
    if request_id is not None:
        json_format.ParseDict({"requestId": request_id}, request)
    stub: Any = channel.unary_unary(
        _METHOD,
        request_serializer=messages.CallRequest.SerializeToString,
        response_deserializer=messages.EnvelopeMessage.FromString,
    )
    try:
        return messages.from_message(await stub(request, timeout=timeout))
    except grpc.aio.AioRpcError as error:
        envelope = envelope_in(error)
        if envelope is None:
            raise
        return envelope


def code_of(problem: Problem) -> grpc.StatusCode:
    return grpc.StatusCode[problem.row.grpc]


def status_of(said: Said) -> Any:
    """google.rpc.Status of a failure: the reason, when to come back, which field was wrong, the envelope."""
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
    at = told["details"].get("at")
    if said.problem.row.category == "VALIDATION":
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=at if isinstance(at, str) else "$", description=told["message"]
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    status = status_pb2.Status(code=code_of(said.problem).value[0], message=told["message"])
    for detail in details:
        status.details.add().Pack(detail)
    envelope = any_pb2.Any()
    envelope.Pack(messages.to_message(said.envelope))
    if status.ByteSize() + envelope.ByteSize() <= MAX_TRAILER_BYTES:
        status.details.append(envelope)
    return status


def envelope_in(error: grpc.aio.AioRpcError) -> Envelope | None:
    """The envelope that a failed call carries in its trailers, if it does."""
    for key, value in error.trailing_metadata() or ():
        if key != DETAILS_KEY:
            continue
        try:
            status = status_pb2.Status.FromString(value)
        except DecodeError:
            return None
        for detail in status.details:
            if detail.Is(messages.EnvelopeMessage.DESCRIPTOR):
                message = messages.EnvelopeMessage()
                detail.Unpack(message)
                return messages.from_message(message)
    return None
