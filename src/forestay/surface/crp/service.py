"""The sidecar's operations (CRP §1.14), declared at the methods that perform them."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from starlette.responses import Response

from forestay.kernel import Clock, Problem
from forestay.models import Model
from forestay.relay import (
    PROTOCOL_VERSION,
    CostEstimate,
    EnvelopePreview,
    Meters,
    Restored,
    Role,
    Session,
    SessionConfig,
    StreamEvent,
    read_header,
    told,
    variants,
    view,
)
from forestay.surface.crp import bodies as b
from forestay.surface.crp import views
from forestay.surface.crp.operations import Group
from forestay.surface.operations import Call
from forestay.surface.sse import frame

METRICS = "text/plain; version=0.0.4"
MAX_SESSIONS = 256
admin, sessions = Group("Admin"), Group("Session")
of_session, dispatching, knowledge = (
    Group(tag, "/sessions/{sessionId}") for tag in ("Session", "Dispatch", "Knowledge")
)
_DISPATCH = (
    "budget_exhausted",
    "rate_limited",
    "provider_error",
    "provider_timeout",
    "provider_rejected",
    "provider_unauthenticated",
)


class SidecarRelay(Protocol):
    """A relay as the sidecar needs it: a whole one, or a tenant's share."""

    @property
    def clock(self) -> Clock: ...
    @property
    def model(self) -> Model | None: ...
    @property
    def meters(self) -> Meters | None: ...
    async def init(
        self,
        app_id: str,
        *,
        role: Role,
        binding_secret: bytes | str | None,
        config: SessionConfig,
        session_id: str | None = None,
    ) -> Session: ...
    async def session(self, session_id: str, *, binding_secret: bytes | str | None = None) -> Session: ...
    async def sessions(self) -> list[dict[str, Any]]: ...
    async def import_state(self, data: bytes, passphrase: str, *, binding_secret: str | None) -> Session: ...


class Service:
    """The sidecar over one relay."""

    def __init__(
        self,
        relay: SidecarRelay,
        *,
        max_sessions: int = MAX_SESSIONS,
        auth_required: bool = False,
        providers: bool = True,
    ) -> None:
        self.relay = relay
        self.providers = providers
        self.max_sessions = max_sessions
        self.auth_required = auth_required
        self.requests: Counter[tuple[str, int]] = Counter()

    # The sidecar itself

    @admin.get("/health", "getHealth", b.Health, open=True)
    async def health(self) -> dict[str, Any]:
        """Health check."""
        return {
            "status": "ok",
            "active_sessions": await self._active(),
            "max_sessions": self.max_sessions,
            "auth_required": self.auth_required,
            "rate_limit": f"{SessionConfig().dispatches_per_minute}/60s",
            "version": PROTOCOL_VERSION,
        }

    @admin.get("/ready", "getReady", {200: b.Ready, 503: b.Ready}, open=True)
    async def ready(self, call: Call) -> Response:
        """Whether new sessions can be opened."""
        active = await self._active()
        ready = active < self.max_sessions
        body = {"ready": ready, "active_sessions": active, "max_sessions": self.max_sessions}
        return call.answer(body, 200 if ready else 503)

    @admin.get("/metrics", "getMetrics", str, media=METRICS)
    async def metrics(self) -> Response:
        """Metrics for Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Open(await self.relay.sessions(), self.requests))
        if self.relay.meters is not None:  # the meters of the whole relay are not for every tenant
            registry.register(self.relay.meters)
        return Response(generate_latest(registry), 200, media_type=METRICS)

    async def _active(self) -> int:
        return len(await self.relay.sessions())

    # Sessions

    @sessions.get("/sessions", "listSessions", b.SessionList)
    async def list_sessions(self) -> dict[str, Any]:
        """The open sessions."""
        model = self.relay.model.name if self.relay.model is not None else ""
        rows = [views.listed(row, model) for row in await self.relay.sessions()]
        return {"sessions": rows, "count": len(rows)}

    @sessions.post(
        "/sessions", "createSession", {201: b.Handle}, problems=("session_limit", "security_invariant"), rpc="init"
    )
    async def create(self, body: b.CreateSession, call: Call | None = None) -> dict[str, Any]:
        """Open a session."""
        active = await self._active()
        if active >= self.max_sessions:
            raise Problem("session_limit", "The sidecar is full.", count=active, limit=self.max_sessions)
        session = await self.relay.init(
            body.app_id,
            role=body.role,
            binding_secret=body.binding_secret,
            config=body.config,
            session_id=call.uuid() if call is not None else None,
        )
        return views.handle(session.handle)

    @of_session.get("/status", "getSessionStatus", b.Status, rpc="sessionStatus")
    async def status(self, session: Session) -> dict[str, Any]:
        """Status and remaining budget."""
        return views.status(await session.session_status())

    @of_session.post("/close", "closeSession", b.Closed, rpc="close")
    async def close(self, session: Session, call: Call | None = None) -> dict[str, Any]:
        """Close the session."""
        await session.close(request=call.reserved if call is not None else None)
        return {"session_id": session.id, "closed": True}

    @of_session.post("/resume", "resumeSession", b.Handle, rpc="")
    async def resume(self, session: Session, body: b.ResumeSession | None) -> dict[str, Any]:
        """Take a bound session up again after a restart."""
        secret = body.binding_secret if body is not None else None
        found = await self.relay.session(session.id, binding_secret=secret)
        await found.enter("session_status")
        if found.warm.bound and not found.key:
            raise Problem("signature_invalid", "The session was opened with a binding secret.", at="$.binding_secret")
        return views.handle(found.handle)

    @of_session.post("/configure", "configureSession", SessionConfig, problems=("security_invariant",), rpc="configure")
    async def configure(self, session: Session, body: SessionConfig, call: Call) -> SessionConfig:
        """Change the settings that the body names (ADMIN)."""
        return await session.configure(**msgspec.json.decode(call.data))

    @of_session.post("/reset", "resetSession", b.Handle)
    async def reset(self, session: Session) -> dict[str, Any]:
        """Begin anew under the same id (ADMIN)."""
        return views.handle(await session.reset_session())

    @of_session.post("/estimate", "estimateSession", CostEstimate, problems=("provider_error",))
    async def estimate(self, session: Session, body: b.EstimateRequest) -> CostEstimate:
        """What a dispatch would cost."""
        return await session.estimate_task(body.system_prompt, body.task_input)

    @of_session.post(
        "/providers",
        "registerProvider",
        b.Registered,
        problems=("model_unknown", "package_missing"),
    )
    async def register_provider(self, session: Session, body: b.ProviderRequest) -> dict[str, Any]:
        """A provider of the session's own."""
        if not self.providers:
            raise Problem("permission_denied", "Only the host's operator may name a provider.")
        try:
            return await session.register_provider(
                body.provider_type, body.model, api_key=body.api_key, base_url=body.base_url, priority=body.priority
            )
        except (
            Problem
        ) as problem:  # no provider was called yet: the request has no API key, or one that cannot be a key
            if problem.key != "provider_unauthenticated":
                raise
            raise Problem("invalid_request", problem.message, at="$.api_key", fix="Name an `api_key`.") from problem

    @of_session.post("/export", "exportState", b.Exported)
    async def export(self, session: Session, body: b.ExportRequest) -> dict[str, Any]:
        """The session, encrypted (ADMIN)."""
        data = await session.export_state(body.export_key)
        header, _ = read_header(data)
        return {"state": base64.b64encode(data).decode(), "checksum": header.checksum, "records": header.records}

    @of_session.post("/import", "importState", {201: b.Handle}, problems=("state_corrupted", "ledger_conflict"))
    async def import_state(self, session: Session, body: b.ImportRequest) -> dict[str, Any]:
        """Take in an export (ADMIN)."""
        await session.enter("import_state")
        try:
            data = base64.b64decode(body.state, validate=True)
        except binascii.Error as error:
            raise Problem("invalid_request", "The state is not base64.", at="$.state") from error
        found = await self.relay.import_state(data, body.export_key, binding_secret=body.binding_secret)
        return views.handle(found.handle)

    # Dispatching

    @dispatching.post("/dispatch", "dispatch", b.DispatchResponse, problems=_DISPATCH)
    async def dispatch(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        """Ask the model."""
        if body.resume:
            reply = await session.resume()
        else:
            reply = await session.dispatch(body.system_prompt, body.task_input, **_options(body))
        return views.dispatched(session, reply.output, reply.report)

    @dispatching.post("/dispatch/stream", "dispatchStream", StreamEvent, problems=_DISPATCH, streams=True, rpc="")
    async def dispatch_stream(self, session: Session, body: b.DispatchRequest, call: Call) -> Response:
        """Ask the model, as server-sent events."""
        return call.stream(await begun(self.events(session, body), _frame))

    def events(self, session: Session, body: b.DispatchRequest) -> AsyncGenerator[StreamEvent, None]:
        if body.resume:
            return session.resumed_events()
        return session.events(body.system_prompt, body.task_input, operation="dispatch_stream", **_options(body))

    @dispatching.post("/dispatch/tools", "dispatchTools", b.DispatchResponse, problems=_DISPATCH)
    async def dispatch_tools(self, session: Session, body: b.ToolsRequest) -> dict[str, Any]:
        """Let the model pull context with tools."""
        return self._outcome(
            session,
            await variants.tools(
                session, body.system_prompt, body.task_input, tools=views.tools(body.tools), **_options(body)
            ),
        )

    @dispatching.post("/dispatch/agentic", "dispatchAgentic", b.DispatchResponse, problems=_DISPATCH)
    async def dispatch_agentic(self, session: Session, body: b.AgenticRequest) -> dict[str, Any]:
        """The tool loop with a limit of steps."""
        outcome = await variants.agentic(
            session,
            body.system_prompt,
            body.task_input,
            tools=views.tools(body.tools),
            max_steps=body.max_steps,
            **_options(body),
        )
        return self._outcome(session, outcome)

    @dispatching.post("/dispatch/reflexive", "dispatchReflexive", b.DispatchResponse, problems=_DISPATCH)
    async def dispatch_reflexive(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        """Draft, check, refine."""
        return self._outcome(
            session, await variants.reflexive(session, body.system_prompt, body.task_input, **_options(body))
        )

    @dispatching.post("/dispatch/progressive", "dispatchProgressive", b.DispatchResponse, problems=_DISPATCH)
    async def dispatch_progressive(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        """Outline first, then detail."""
        return self._outcome(
            session, await variants.progressive(session, body.system_prompt, body.task_input, **_options(body))
        )

    @dispatching.post("/dispatch/stream-augmented", "dispatchStreamAugmented", b.DispatchResponse, problems=_DISPATCH)
    async def dispatch_stream_augmented(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        """New facts for what was just written."""
        return self._outcome(
            session, await variants.stream_augmented(session, body.system_prompt, body.task_input, **_options(body))
        )

    def _outcome(self, session: Session, outcome: variants.Dispatched) -> dict[str, Any]:
        return views.dispatched(session, outcome.output, outcome.report, outcome.tool_calls, outcome.trace)

    # Facts

    @knowledge.post("/ingest", "ingest", b.Ingested, problems=("rate_limited",))
    async def ingest(self, session: Session, body: b.IngestRequest) -> dict[str, Any]:
        """Keep what a text says."""
        return views.ingested(await session.ingest(body.text, body.source_label, supersedes=body.supersedes))

    @knowledge.post("/facts/restore", "restoreFacts", Restored, problems=("chain_verification_failed",))
    async def restore(self, session: Session, body: b.RestoreRequest) -> Restored:
        """Undo quarantine, a rejection or a correction."""
        return await session.restore_facts(body.fact_ids, source_label=body.source_label)

    @knowledge.get("/facts", "getFacts", b.FactList, rpc="facts")
    async def facts(self, session: Session, query: b.FactsQuery) -> dict[str, Any]:
        """Facts, the best for a query first; with `explain`, each with the reasons for its place."""
        if query.explain:
            return await self._explained(session, query)
        found = await session.facts(
            query.query, top_k=query.top_k, include_superseded=query.include_superseded, quarantined=query.quarantined
        )
        shown = [{**view(fact), "score": round(score, 6)} for fact, score in found]
        return {"facts": shown, "count": len(shown), "total": len(session.warm.facts)}

    async def _explained(self, session: Session, query: b.FactsQuery) -> dict[str, Any]:
        if not query.query or query.quarantined:
            raise Problem("invalid_request", "Only what a query finds can be explained.", at="$.explain")
        found = await session.explain(query.query, top_k=query.top_k, include_superseded=query.include_superseded)
        shown = [{**view(fact), "score": reason.score, "why": reason} for fact, reason in found]
        return {"facts": shown, "count": len(shown), "total": len(session.warm.facts)}

    @knowledge.post("/facts/share", "shareFacts", b.Shared)
    async def share(self, session: Session, body: b.ShareRequest) -> dict[str, Any]:
        """Copy facts to another session of the app."""
        target = await self.relay.session(body.target_session_id)
        shared = await session.share_facts(target, body.fact_ids)
        return {"facts_shared": shared, "target_session_id": target.id}

    @knowledge.post("/facts/feedback", "factFeedback", b.FactView)
    async def feedback(self, session: Session, body: b.FeedbackRequest) -> dict[str, Any]:
        """Boost, penalize or reject a fact."""
        return view(await session.fact_feedback(body.fact_id, body.action, body.delta))

    @knowledge.get("/envelope", "previewEnvelope", EnvelopePreview, problems=("provider_error",))
    async def preview(self, session: Session, query: b.EnvelopeQuery) -> EnvelopePreview:
        """What a dispatch would send."""
        return await session.preview_envelope(query.system_prompt, query.task_input)

    # The same operations in another form

    @admin.post(
        "/rpc",
        "rpc",
        {200: b.RpcAnswer | list[b.RpcAnswer], 204: None, 400: b.RpcAnswer},
        body=b.RpcRequest | b.RpcBatch,
        reads_body=False,
    )
    async def rpc(self, call: Call) -> Response:
        """The same operations as JSON-RPC 2.0."""
        from forestay.surface.crp.rpc import answer_all

        return await answer_all(self, call)


async def begun(
    events: AsyncGenerator[StreamEvent, None], frame_of: Callable[[StreamEvent], bytes]
) -> AsyncGenerator[bytes, None]:
    """Wait for the first event, then return the frames of the stream (M3)."""
    first = await anext(events)

    async def frames() -> AsyncGenerator[bytes, None]:
        yield frame_of(first)
        async for event in told(events):
            yield frame_of(event)

    return frames()


def _frame(event: StreamEvent) -> bytes:
    return frame(msgspec.json.encode(views.event(event)), event.event_type)


class _Open:
    """Prometheus metrics of a sidecar: open sessions and requests."""

    def __init__(self, sessions: Sequence[Mapping[str, Any]], requests: Mapping[tuple[str, int], int]) -> None:
        self._sessions = sessions
        self._requests = requests

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sessions = self._sessions
        facts = sum(item["facts_in_warm_state"] for item in sessions)
        windows = sum(item["windows_completed"] for item in sessions)
        yield GaugeMetricFamily("crp_sessions_active", "Open sessions.", len(sessions))
        yield GaugeMetricFamily("crp_session_facts", "Facts of open sessions.", facts)
        yield GaugeMetricFamily("crp_session_windows", "Windows completed by open sessions.", windows)
        requests = CounterMetricFamily(
            "crp_requests", "Requests by operation and status.", labels=["operation", "status"]
        )
        for (name, status), count in sorted(self._requests.items()):
            requests.add_metric([name, str(status)], count)
        yield requests


def _options(body: b.DispatchRequest) -> dict[str, Any]:
    return {
        "max_output_tokens": body.generation_reserve,
        "max_windows": body.max_windows,
        "description": body.description,
        "remember": body.remember,
    }
