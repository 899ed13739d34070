"""The sidecar's operations: what each one is called, takes and answers, declared at the method that performs it."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from forestay.kernel import Problem
from forestay.relay import (
    PROTOCOL_VERSION,
    CostEstimate,
    EnvelopePreview,
    Relay,
    Restored,
    Session,
    SessionConfig,
    StreamEvent,
    read_header,
    told,
    variants,
    view,
)
from forestay.surface.crp import bodies as b
from forestay.surface.crp import metrics, views
from forestay.surface.negotiation import EVENTS
from forestay.surface.operations import Call

MAX_SESSIONS = 256
_S = "/sessions/{sessionId}"
_DISPATCH = (
    "budget_exhausted",
    "rate_limited",
    "provider_error",
    "provider_timeout",
    "provider_rejected",
    "provider_unauthenticated",
)
F = TypeVar("F", bound=Callable[..., Any])


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. Its method is given the session of the path, the body and the query, as far as there are any, and
    with `whole` the call itself."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    summary: str
    tag: str
    function: str
    answers: Mapping[int, Any]
    problems: tuple[str, ...] = ()
    body: Any = None
    body_optional: bool = False
    query: type[msgspec.Struct] | None = None
    open: bool = False  # answered without a key
    text: bool = False
    streams: bool = False
    whole: bool = False
    reads_body: bool = True

    @property
    def session(self) -> bool:
        return self.path.startswith(_S)


def operation(
    name: str, method: Literal["GET", "POST"], path: str, summary: str, tag: str, **more: Any
) -> Callable[[F], F]:
    """Declare the operation that the decorated method performs."""

    def declare(function: F) -> F:
        setattr(
            function,
            _MARK,
            Declared(name=name, method=method, path=path, summary=summary, tag=tag, function=function.__name__, **more),
        )
        return function

    return declare


_MARK = "declared_operation"


def _variant(name: str, path: str, summary: str, body: Any = b.DispatchRequest) -> Callable[[F], F]:
    return operation(
        name,
        "POST",
        f"{_S}/dispatch/{path}",
        summary,
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=body,
        problems=_DISPATCH,
    )


class Service:
    """The sidecar over one relay."""

    def __init__(
        self, relay: Relay, *, max_sessions: int = MAX_SESSIONS, auth_required: bool = False, providers: bool = True
    ) -> None:
        self.relay = relay
        self.providers = providers
        self.max_sessions = max_sessions
        self.auth_required = auth_required
        self.requests: Counter[tuple[str, int]] = Counter()

    # The sidecar itself

    @operation("getHealth", "GET", "/health", "Health check", "Admin", answers={200: b.Health}, open=True)
    async def health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "active_sessions": await self._active(),
            "max_sessions": self.max_sessions,
            "auth_required": self.auth_required,
            "rate_limit": f"{SessionConfig().dispatches_per_minute}/60s",
            "version": PROTOCOL_VERSION,
        }

    @operation(
        "getReady",
        "GET",
        "/ready",
        "Whether new sessions can be opened",
        "Admin",
        answers={200: b.Ready, 503: b.Ready},
        open=True,
    )
    async def ready(self) -> tuple[int, dict[str, Any]]:
        active = await self._active()
        ready = active < self.max_sessions
        return (200 if ready else 503), {"ready": ready, "active_sessions": active, "max_sessions": self.max_sessions}

    @operation("getMetrics", "GET", "/metrics", "Metrics for Prometheus", "Admin", answers={200: str}, text=True)
    async def metrics(self) -> str:
        """What is open, what was asked and, for who may see all of the relay, what it did (`relay/meters.py`)."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(metrics.Sidecar(await self.relay.sessions(), self.requests))
        meters = getattr(self.relay, "meters", None)
        if meters is not None:
            registry.register(meters)
        return generate_latest(registry).decode()

    async def _active(self) -> int:
        return len(await self.relay.sessions())

    # Sessions

    @operation("listSessions", "GET", "/sessions", "The open sessions", "Session", answers={200: b.SessionList})
    async def list_sessions(self) -> dict[str, Any]:
        model = self.relay.model.name if self.relay.model is not None else ""
        rows = [views.listed(row, model) for row in await self.relay.sessions()]
        return {"sessions": rows, "count": len(rows)}

    @operation(
        "createSession",
        "POST",
        "/sessions",
        "Open a session",
        "Session",
        answers={201: b.Handle},
        body=b.CreateSession,
        problems=("session_limit", "security_invariant"),
    )
    async def create(self, body: b.CreateSession) -> tuple[int, dict[str, Any]]:
        active = await self._active()
        if active >= self.max_sessions:
            raise Problem("session_limit", "The sidecar is full.", count=active, limit=self.max_sessions)
        session = await self.relay.init(
            body.app_id, role=body.role, binding_secret=body.binding_secret, config=body.config
        )
        return 201, views.handle(session.handle)

    @operation(
        "getSessionStatus", "GET", f"{_S}/status", "Status and remaining budget", "Session", answers={200: b.Status}
    )
    async def status(self, session: Session) -> dict[str, Any]:
        return views.status(await session.session_status())

    @operation("closeSession", "POST", f"{_S}/close", "Close the session", "Session", answers={200: b.Closed})
    async def close(self, session: Session) -> dict[str, Any]:
        await session.close()
        return {"session_id": session.id, "closed": True}

    @operation(
        "resumeSession",
        "POST",
        f"{_S}/resume",
        "Take a bound session up again after a restart",
        "Session",
        answers={200: b.Handle},
        body=b.ResumeSession,
        body_optional=True,
    )
    async def resume(self, session: Session, body: b.ResumeSession | None) -> dict[str, Any]:
        secret = body.binding_secret if body is not None else None
        found = await self.relay.session(session.id, binding_secret=secret)
        await found.enter("session_status")
        if found.warm.bound and not found.key:
            raise Problem("signature_invalid", "The session was opened with a binding secret.", at="$.binding_secret")
        return views.handle(found.handle)

    @operation(
        "configureSession",
        "POST",
        f"{_S}/configure",
        "Change settings (ADMIN)",
        "Session",
        answers={200: SessionConfig},
        body=SessionConfig,
        problems=("security_invariant",),
        whole=True,
    )
    async def configure(self, session: Session, body: SessionConfig, call: Call) -> SessionConfig:
        """Change the fields that the body names, and no others."""
        return await session.configure(**msgspec.json.decode(call.data))

    @operation(
        "resetSession",
        "POST",
        f"{_S}/reset",
        "Begin anew under the same id (ADMIN)",
        "Session",
        answers={200: b.Handle},
    )
    async def reset(self, session: Session) -> dict[str, Any]:
        return views.handle(await session.reset_session())

    @operation(
        "estimateSession",
        "POST",
        f"{_S}/estimate",
        "What a dispatch would cost",
        "Session",
        answers={200: CostEstimate},
        body=b.EstimateRequest,
        problems=("provider_error",),
    )
    async def estimate(self, session: Session, body: b.EstimateRequest) -> CostEstimate:
        return await session.estimate_task(body.system_prompt, body.task_input)

    @operation(
        "registerProvider",
        "POST",
        f"{_S}/providers",
        "A provider of the session's own",
        "Session",
        answers={200: b.Registered},
        body=b.ProviderRequest,
        problems=("model_unknown", "package_missing", "provider_unauthenticated"),
    )
    async def register_provider(self, session: Session, body: b.ProviderRequest) -> dict[str, Any]:
        if not self.providers:
            raise Problem("permission_denied", "Only the host's operator may name a provider.")
        return await session.register_provider(
            body.provider_type,
            body.model,
            api_key=body.api_key,
            base_url=body.base_url,
            priority=body.priority,
        )

    @operation(
        "exportState",
        "POST",
        f"{_S}/export",
        "The session, encrypted (ADMIN)",
        "Session",
        answers={200: b.Exported},
        body=b.ExportRequest,
    )
    async def export(self, session: Session, body: b.ExportRequest) -> dict[str, Any]:
        data = await session.export_state(body.export_key)
        header, _ = read_header(data)
        return {"state": base64.b64encode(data).decode(), "checksum": header.checksum, "records": header.records}

    @operation(
        "importState",
        "POST",
        f"{_S}/import",
        "Take in an export (ADMIN)",
        "Session",
        answers={201: b.Handle},
        body=b.ImportRequest,
        problems=("state_corrupted", "ledger_conflict"),
    )
    async def import_state(self, session: Session, body: b.ImportRequest) -> tuple[int, dict[str, Any]]:
        await session.enter("import_state")
        try:
            data = base64.b64decode(body.state, validate=True)
        except binascii.Error as error:
            raise Problem("invalid_request", "The state is not base64.", at="$.state") from error
        found = await self.relay.import_state(data, body.export_key, binding_secret=body.binding_secret)
        return 201, views.handle(found.handle)

    # Dispatching

    @operation(
        "dispatch",
        "POST",
        f"{_S}/dispatch",
        "Ask the model",
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=b.DispatchRequest,
        problems=_DISPATCH,
    )
    async def dispatch(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        if body.resume:
            reply = await session.resume()
        else:
            reply = await session.dispatch(body.system_prompt, body.task_input, **_options(body))
        return views.dispatched(session, reply.output, reply.report)

    @operation(
        "dispatchStream",
        "POST",
        f"{_S}/dispatch/stream",
        "Ask the model, as server-sent events",
        "Dispatch",
        answers={200: StreamEvent},
        body=b.DispatchRequest,
        problems=_DISPATCH,
        streams=True,
    )
    async def dispatch_stream(self, session: Session, body: b.DispatchRequest) -> Response:
        return await stream(self.events(session, body), _frame)

    def events(self, session: Session, body: b.DispatchRequest) -> AsyncGenerator[StreamEvent, None]:
        if body.resume:
            return session.resumed_events()
        return session.events(body.system_prompt, body.task_input, operation="dispatch_stream", **_options(body))

    @_variant("dispatchTools", "tools", "Let the model pull context with tools", b.ToolsRequest)
    async def dispatch_tools(self, session: Session, body: b.ToolsRequest) -> dict[str, Any]:
        return self._outcome(
            session,
            await variants.tools(
                session, body.system_prompt, body.task_input, tools=views.tools(body.tools), **_options(body)
            ),
        )

    @_variant("dispatchAgentic", "agentic", "The tool loop with a limit of steps", b.AgenticRequest)
    async def dispatch_agentic(self, session: Session, body: b.AgenticRequest) -> dict[str, Any]:
        outcome = await variants.agentic(
            session,
            body.system_prompt,
            body.task_input,
            tools=views.tools(body.tools),
            max_steps=body.max_steps,
            **_options(body),
        )
        return self._outcome(session, outcome)

    @_variant("dispatchReflexive", "reflexive", "Draft, check, refine")
    async def dispatch_reflexive(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        return self._outcome(
            session, await variants.reflexive(session, body.system_prompt, body.task_input, **_options(body))
        )

    @_variant("dispatchProgressive", "progressive", "Outline first, then detail")
    async def dispatch_progressive(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        return self._outcome(
            session, await variants.progressive(session, body.system_prompt, body.task_input, **_options(body))
        )

    @_variant("dispatchStreamAugmented", "stream-augmented", "New facts for what was just written")
    async def dispatch_stream_augmented(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        return self._outcome(
            session, await variants.stream_augmented(session, body.system_prompt, body.task_input, **_options(body))
        )

    def _outcome(self, session: Session, outcome: variants.Dispatched) -> dict[str, Any]:
        return views.dispatched(session, outcome.output, outcome.report, outcome.tool_calls, outcome.trace)

    # Facts

    @operation(
        "ingest",
        "POST",
        f"{_S}/ingest",
        "Keep what a text says",
        "Knowledge",
        answers={200: b.Ingested},
        body=b.IngestRequest,
        problems=("rate_limited",),
    )
    async def ingest(self, session: Session, body: b.IngestRequest) -> dict[str, Any]:
        return views.ingested(await session.ingest(body.text, body.source_label, supersedes=body.supersedes))

    @operation(
        "restoreFacts",
        "POST",
        f"{_S}/facts/restore",
        "Undo quarantine, a rejection or a correction",
        "Knowledge",
        answers={200: Restored},
        body=b.RestoreRequest,
        problems=("chain_verification_failed",),
    )
    async def restore(self, session: Session, body: b.RestoreRequest) -> Restored:
        return await session.restore_facts(body.fact_ids, source_label=body.source_label)

    @operation(
        "getFacts",
        "GET",
        f"{_S}/facts",
        "Facts, the best for a query first",
        "Knowledge",
        answers={200: b.FactList},
        query=b.FactsQuery,
    )
    async def facts(self, session: Session, query: b.FactsQuery) -> dict[str, Any]:
        found = await session.facts(
            query.query,
            top_k=query.top_k,
            include_superseded=query.include_superseded,
            quarantined=query.quarantined,
        )
        shown = [{**view(fact), "score": round(score, 6)} for fact, score in found]
        return {"facts": shown, "count": len(shown), "total": len(session.warm.facts)}

    @operation(
        "shareFacts",
        "POST",
        f"{_S}/facts/share",
        "Copy facts to another session of the app",
        "Knowledge",
        answers={200: b.Shared},
        body=b.ShareRequest,
    )
    async def share(self, session: Session, body: b.ShareRequest) -> dict[str, Any]:
        target = await self.relay.session(body.target_session_id)
        shared = await session.share_facts(target, body.fact_ids)
        return {"facts_shared": shared, "target_session_id": target.id}

    @operation(
        "factFeedback",
        "POST",
        f"{_S}/facts/feedback",
        "Boost, penalize or reject a fact",
        "Knowledge",
        answers={200: b.FactView},
        body=b.FeedbackRequest,
    )
    async def feedback(self, session: Session, body: b.FeedbackRequest) -> dict[str, Any]:
        return view(await session.fact_feedback(body.fact_id, body.action, body.delta))

    @operation(
        "previewEnvelope",
        "GET",
        f"{_S}/envelope",
        "What a dispatch would send",
        "Knowledge",
        answers={200: EnvelopePreview},
        query=b.EnvelopeQuery,
        problems=("provider_error",),
    )
    async def preview(self, session: Session, query: b.EnvelopeQuery) -> EnvelopePreview:
        return await session.preview_envelope(query.system_prompt, query.task_input)

    # The same operations in another form

    @operation(
        "rpc",
        "POST",
        "/rpc",
        "The same operations as JSON-RPC 2.0",
        "Admin",
        answers={200: b.RpcAnswer | list[b.RpcAnswer], 204: None, 400: b.RpcAnswer},
        body=b.RpcRequest | b.RpcBatch,
        reads_body=False,
        whole=True,
    )
    async def rpc(self, call: Call) -> Response:
        from forestay.surface.crp.rpc import answer_all

        return await answer_all(self, call)

    @operation(
        "getOpenapi", "GET", "/openapi.json", "This description", "Admin", answers={200: dict[str, Any]}, open=True
    )
    async def openapi(self) -> None:
        """Answered where all operations are known (`operations.py`)."""


DECLARED: tuple[Declared, ...] = tuple(
    getattr(member, _MARK) for member in vars(Service).values() if hasattr(member, _MARK)
)


async def stream(events: AsyncGenerator[StreamEvent, None], frame: Callable[[StreamEvent], bytes]) -> Response:
    """Server-sent events, begun only when the first event is there (M3)."""
    first = await anext(events)

    async def frames() -> AsyncIterator[bytes]:
        yield frame(first)
        async for event in told(events):
            yield frame(event)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames(), 200, headers, media_type=EVENTS)


def _frame(event: StreamEvent) -> bytes:
    return b"event: " + event.event_type.encode() + b"\ndata: " + msgspec.json.encode(views.event(event)) + b"\n\n"


def _options(body: b.DispatchRequest) -> dict[str, Any]:
    return {
        "max_output_tokens": body.generation_reserve,
        "max_windows": body.max_windows,
        "description": body.description,
        "remember": body.remember,
    }
