"""The same operations as JSON-RPC 2.0 (CRP §1.2): one call, a batch, or a stream of `$/crp/streamEvent`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forestay.kernel import Problem, canonical
from forestay.models import whole
from forestay.relay import Session, SessionConfig, StreamEvent
from forestay.surface.answers import as_problem
from forestay.surface.crp import bodies as b
from forestay.surface.crp import views
from forestay.surface.crp.operations import RPC
from forestay.surface.crp.service import Service, begun
from forestay.surface.exchange import request_id
from forestay.surface.operations import Call
from forestay.surface.reading import parse_json
from forestay.surface.sse import frame

STREAM = "crp.dispatchStream"
_PARAMETERS = frozenset({"schema_mismatch", "invalid_request", "invalid_text"})


async def answer_all(service: Service, asked: Call) -> Response:
    """Answer the calls of one request, or stream the events of one."""
    request, data = asked.request, asked.data
    try:
        calls = parse_json(request, data, b.RpcRequest | b.RpcBatch, asked.operation.body_limit)
    except Problem as problem:
        if problem.row.http != 400:
            raise
        return _refused(asked, problem)
    if not isinstance(calls, list):
        if calls.method == STREAM:
            try:
                return await _stream(service, asked, calls)
            except Exception as error:  # noqa: BLE001 - as in `_answer`: nothing of the stream was sent yet
                failed = _error(as_problem(error, request_id(request)))
                return asked.answer({"jsonrpc": "2.0", "id": _id(calls), "error": failed})
        found = await _answer(service, request, data, calls)
        return asked.answer(found) if found is not None else Response(status_code=204)
    answers = [found for call in calls if (found := await _answer(service, request, data, call)) is not None]
    return asked.answer(answers) if answers else Response(status_code=204)


async def _answer(service: Service, request: Request, data: bytes, call: b.RpcRequest) -> dict[str, Any] | None:
    """Return the answer to one call; a call without an id gets none."""
    try:
        result = await _perform(service, request, data, call)
        told_: dict[str, Any] = {"result": result}
    except Exception as error:  # noqa: BLE001 - the boundary of one call: any failure becomes its answer
        told_ = {"error": _error(as_problem(error, request_id(request)))}
    return None if call.id is msgspec.UNSET else {"jsonrpc": "2.0", "id": call.id, **told_}


async def _perform(service: Service, request: Request, data: bytes, call: b.RpcRequest) -> Any:
    entry = RPC.get(call.method)
    if entry is None:
        raise Problem("method_not_found", f"There is no method {call.method[:80]!r}.", known=sorted([*RPC, STREAM]))
    arguments: list[Any] = []
    params = dict(call.params)
    if entry.session:
        arguments.append(await _session(service, request, data, params))
    if entry.parameters is not None:
        arguments.append(_convert(params, entry.parameters))
    elif params:
        raise Problem("invalid_request", "This method takes a session_id only.", at="$.params")
    if entry.parameters is SessionConfig:  # only the fields that the call names
        return await arguments[0].configure(**params)
    return await entry.perform(service, *arguments)


async def _session(service: Service, request: Request, data: bytes, params: dict[str, Any]) -> Session:
    session_id = params.pop("session_id", None)
    if not isinstance(session_id, str):
        raise Problem("invalid_request", "The parameter session_id is missing.", at="$.params.session_id")
    session = await service.relay.session(session_id)
    await session.authenticate("POST", request.scope["path"], data, request.headers.get("x-crp-signature"))
    return session


async def _stream(service: Service, asked: Call, call: b.RpcRequest) -> Response:
    """Stream each event as a notification, then the answer to the call."""
    params = dict(call.params)
    session = await _session(service, asked.request, asked.data, params)
    last: dict[str, Any] = {}

    def notification(event: StreamEvent) -> bytes:
        last.update(views.event(event))
        return _frame({"jsonrpc": "2.0", "method": "$/crp/streamEvent", "params": last})

    events = await begun(service.events(session, _convert(params, b.DispatchRequest)), notification)

    async def frames() -> AsyncGenerator[bytes, None]:
        async for item in events:
            yield item
        if call.id is msgspec.UNSET:
            return
        data = last["data"]
        if last["event_type"] == "error":
            error = {"code": -32000, "message": data["message"], "data": {"crp_code": data["code"]}}
            yield _frame({"jsonrpc": "2.0", "id": call.id, "error": error})
        else:
            yield _frame({"jsonrpc": "2.0", "id": call.id, "result": data})

    return asked.stream(frames())


def _refused(asked: Call, problem: Problem) -> Response:
    """Answer a request that is no call, and so has no id."""
    error = problem.as_jsonrpc()
    error["code"] = -32700 if problem.key == "invalid_json" else -32600
    return asked.answer({"jsonrpc": "2.0", "id": None, "error": error}, 400)


def _id(call: b.RpcRequest) -> str | int | None:
    return None if call.id is msgspec.UNSET else call.id


def _frame(message: dict[str, Any]) -> bytes:
    return frame(msgspec.json.encode(message))


def _convert(params: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$.params")
        raise Problem("schema_mismatch", message, at=where) from error


def _error(problem: Problem) -> dict[str, Any]:
    """Return the error: JSON-RPC's code for a bad method or parameters, else -32000 to -32099; with the CRP number."""
    error = problem.as_jsonrpc()
    if problem.key in _PARAMETERS:
        error["code"] = -32602
    elif problem.key != "method_not_found" and not -32099 <= error["code"] <= -32000:
        error["code"] = -32000
    if "partial_output" in problem.details:
        error["data"]["partial_output"] = whole(problem.details["partial_output"])
    return error
