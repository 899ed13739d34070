"""The same operations as JSON-RPC 2.0 (CRP §1.2): one call, a batch, or a stream of `$/crp/streamEvent`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from forestay.kernel import Problem, canonical
from forestay.models import whole
from forestay.relay import Session, SessionConfig, told
from forestay.surface.answers import as_problem, parse_json, request_id
from forestay.surface.crp import bodies as b
from forestay.surface.crp import views
from forestay.surface.crp.service import Service
from forestay.surface.operations import Call

# Method: the service's method, the type of its parameters, whether they come as a query type.
METHODS: dict[str, tuple[str, Any]] = {
    "crp.init": ("create", b.CreateSession),
    "crp.dispatch": ("dispatch", b.DispatchRequest),
    "crp.dispatchTools": ("dispatch_tools", b.ToolsRequest),
    "crp.dispatchReflexive": ("dispatch_reflexive", b.DispatchRequest),
    "crp.dispatchProgressive": ("dispatch_progressive", b.DispatchRequest),
    "crp.dispatchStreamAugmented": ("dispatch_stream_augmented", b.DispatchRequest),
    "crp.dispatchAgentic": ("dispatch_agentic", b.AgenticRequest),
    "crp.ingest": ("ingest", b.IngestRequest),
    "crp.facts": ("facts", b.FactsQuery),
    "crp.shareFacts": ("share", b.ShareRequest),
    "crp.factFeedback": ("feedback", b.FeedbackRequest),
    "crp.restoreFacts": ("restore", b.RestoreRequest),
    "crp.sessionStatus": ("status", None),
    "crp.estimateSession": ("estimate", b.EstimateRequest),
    "crp.previewEnvelope": ("preview", b.EnvelopeQuery),
    "crp.configure": ("configure", SessionConfig),
    "crp.resetSession": ("reset", None),
    "crp.registerProvider": ("register_provider", b.ProviderRequest),
    "crp.exportState": ("export", b.ExportRequest),
    "crp.importState": ("import_state", b.ImportRequest),
    "crp.close": ("close", None),
}
STREAM = "crp.dispatchStream"
_PARAMETERS = frozenset({"schema_mismatch", "invalid_request", "invalid_text"})


async def answer_all(service: Service, asked: Call) -> Response:
    """The answer to the calls of one request, or a stream of events."""
    request, data = asked.request, asked.data
    try:
        if not data:
            raise Problem("invalid_json", "The request has no body.", at="$", fix="Send one JSON document.")
        calls = parse_json(request, data, b.RpcRequest | b.RpcBatch, asked.operation.body_limit)
    except Problem as problem:
        if problem.row.http != 400:
            raise
        return _refused(asked, problem)
    if not isinstance(calls, list):
        if calls.method == STREAM:
            try:
                return await _stream(service, request, data, calls)
            except Exception as error:  # noqa: BLE001 - as in `_answer`: nothing of the stream was sent yet
                failed = _error(as_problem(error, request_id(request)))
                return asked.answer({"jsonrpc": "2.0", "id": _id(calls), "error": failed})
        found = await _answer(service, request, data, calls)
        return asked.answer(found) if found is not None else Response(status_code=204)
    answers = [found for call in calls if (found := await _answer(service, request, data, call)) is not None]
    return asked.answer(answers) if answers else Response(status_code=204)


async def _answer(service: Service, request: Request, data: bytes, call: b.RpcRequest) -> dict[str, Any] | None:
    """The answer to one call; a call without an id gets none."""
    try:
        result = await _perform(service, request, data, call)
        told_: dict[str, Any] = {"result": result}
    except Exception as error:  # noqa: BLE001 - the boundary of one call: whatever it is becomes its answer
        told_ = {"error": _error(as_problem(error, request_id(request)))}
    return None if call.id is msgspec.UNSET else {"jsonrpc": "2.0", "id": call.id, **told_}


async def _perform(service: Service, request: Request, data: bytes, call: b.RpcRequest) -> Any:
    entry = METHODS.get(call.method)
    if entry is None:
        raise Problem("method_not_found", f"There is no method {call.method[:80]!r}.", known=sorted([*METHODS, STREAM]))
    name, kind = entry
    arguments: list[Any] = []
    params = dict(call.params)
    if name != "create":
        arguments.append(await _session(service, request, data, params))
    if kind is not None:
        arguments.append(_convert(params, kind))
    elif params:
        raise Problem("invalid_request", "This method takes a session_id only.", at="$.params")
    if kind is SessionConfig:
        return await arguments[0].configure(**params)
    result = await getattr(service, name)(*arguments)
    return result[1] if isinstance(result, tuple) else result


async def _session(service: Service, request: Request, data: bytes, params: dict[str, Any]) -> Session:
    session_id = params.pop("session_id", None)
    if not isinstance(session_id, str):
        raise Problem("invalid_request", "The parameter session_id is missing.", at="$.params.session_id")
    session = await service.relay.session(session_id)
    await session.authenticate("POST", request.scope["path"], data, request.headers.get("x-crp-signature"))
    return session


async def _stream(service: Service, request: Request, data: bytes, call: b.RpcRequest) -> Response:
    """Each event as a notification, then the answer to the call."""
    params = dict(call.params)
    session = await _session(service, request, data, params)
    events = service.events(session, _convert(params, b.DispatchRequest))
    first = await anext(events)

    async def frames() -> AsyncIterator[bytes]:
        last: Any = None
        yield _frame({"jsonrpc": "2.0", "method": "$/crp/streamEvent", "params": views.event(first)})
        async for event in told(events):
            last = views.event(event)
            yield _frame({"jsonrpc": "2.0", "method": "$/crp/streamEvent", "params": last})
        if call.id is not msgspec.UNSET:
            failed = last is not None and last["event_type"] == "error"
            error = (
                {"code": -32000, "message": last["data"]["message"], "data": {"crp_code": last["data"]["code"]}}
                if failed
                else None
            )
            yield _frame(
                {
                    "jsonrpc": "2.0",
                    "id": call.id,
                    **({"error": error} if error else {"result": last["data"] if last else None}),
                }
            )

    return StreamingResponse(frames(), 200, {"Cache-Control": "no-store"}, media_type="text/event-stream")


def _refused(asked: Call, problem: Problem) -> Response:
    """The answer to what is no call: it has no id that could be answered."""
    error = problem.as_jsonrpc()
    error["code"] = -32700 if problem.key == "invalid_json" else -32600
    return asked.answer({"jsonrpc": "2.0", "id": None, "error": error}, 400)


def _id(call: b.RpcRequest) -> str | int | None:
    return None if call.id is msgspec.UNSET else call.id


def _frame(message: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(message) + b"\n\n"


def _convert(params: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$.params")
        raise Problem("schema_mismatch", message, at=where) from error


def _error(problem: Problem) -> dict[str, Any]:
    """JSON-RPC's own numbers for the method and its parameters, else -32000 to -32099; with the CRP number."""
    error = problem.as_jsonrpc()
    if problem.key in _PARAMETERS:
        error["code"] = -32602
    elif problem.key != "method_not_found" and not -32099 <= error["code"] <= -32000:
        error["code"] = -32000
    if "partial_output" in problem.details:
        error["data"]["partial_output"] = whole(problem.details["partial_output"])
    return error
