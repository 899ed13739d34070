"""What each operation of the sidecar does: from a checked request to the relay and back."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from typing import Any

import msgspec

from forestay.http.crp import bodies as b
from forestay.http.crp import metrics, views
from forestay.kernel.problems import Problem
from forestay.relay import CostEstimate, EnvelopePreview, Relay, Session, SessionConfig, variants
from forestay.relay.facts import view
from forestay.relay.state import read_header
from forestay.relay.types import PROTOCOL_VERSION, Restored

MAX_SESSIONS = 256


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

    async def health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "active_sessions": await self._active(),
            "max_sessions": self.max_sessions,
            "auth_required": self.auth_required,
            "rate_limit": f"{SessionConfig().dispatches_per_minute}/60s",
            "version": PROTOCOL_VERSION,
        }

    async def ready(self) -> tuple[int, dict[str, Any]]:
        active = await self._active()
        ready = active < self.max_sessions
        return (200 if ready else 503), {"ready": ready, "active_sessions": active, "max_sessions": self.max_sessions}

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

    async def list_sessions(self) -> dict[str, Any]:
        model = self.relay.model.name if self.relay.model is not None else ""
        rows = [views.listed(row, model) for row in await self.relay.sessions()]
        return {"sessions": rows, "count": len(rows)}

    async def create(self, body: b.CreateSession) -> tuple[int, dict[str, Any]]:
        active = await self._active()
        if active >= self.max_sessions:
            raise Problem("session_limit", "The sidecar is full.", count=active, limit=self.max_sessions)
        session = await self.relay.init(
            body.app_id, role=body.role, binding_secret=body.binding_secret, config=body.config
        )
        return 201, views.handle(session.handle)

    async def status(self, session: Session) -> dict[str, Any]:
        return views.status(await session.session_status())

    async def close(self, session: Session) -> dict[str, Any]:
        await session.close()
        return {"session_id": session.id, "closed": True}

    async def resume(self, session: Session, body: b.ResumeSession | None) -> dict[str, Any]:
        secret = body.binding_secret if body is not None else None
        found = await self.relay.session(session.id, binding_secret=secret)
        await found.enter("session_status")
        if found.warm.bound and not found.key:
            raise Problem("signature_invalid", "The session was opened with a binding secret.", at="$.binding_secret")
        return views.handle(found.handle)

    async def configure(self, session: Session, body: SessionConfig, given: dict[str, Any]) -> SessionConfig:
        return await session.configure(**given)

    async def reset(self, session: Session) -> dict[str, Any]:
        return views.handle(await session.reset_session())

    async def estimate(self, session: Session, body: b.EstimateRequest) -> CostEstimate:
        return await session.estimate_task(body.system_prompt, body.task_input)

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

    async def export(self, session: Session, body: b.ExportRequest) -> dict[str, Any]:
        data = await session.export_state(body.export_key)
        header, _ = read_header(data)
        return {"state": base64.b64encode(data).decode(), "checksum": header.checksum, "records": header.records}

    async def import_state(self, session: Session, body: b.ImportRequest) -> tuple[int, dict[str, Any]]:
        await session.enter("import_state")
        try:
            data = base64.b64decode(body.state, validate=True)
        except binascii.Error as error:
            raise Problem("invalid_request", "The state is not base64.", at="$.state") from error
        found = await self.relay.import_state(data, body.export_key, binding_secret=body.binding_secret)
        return 201, views.handle(found.handle)

    # Dispatching

    async def dispatch(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        if body.resume:
            reply = await session.resume()
        else:
            reply = await session.dispatch(body.system_prompt, body.task_input, **_options(body))
        return views.dispatched(session, reply.output, reply.report)

    def events(self, session: Session, body: b.DispatchRequest) -> Any:
        if body.resume:
            return session.resumed_events()
        return session.events(body.system_prompt, body.task_input, operation="dispatch_stream", **_options(body))

    async def dispatch_tools(self, session: Session, body: b.ToolsRequest) -> dict[str, Any]:
        return self._outcome(
            session,
            await variants.tools(
                session, body.system_prompt, body.task_input, tools=views.tools(body.tools), **_options(body)
            ),
        )

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

    async def dispatch_reflexive(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        return self._outcome(
            session, await variants.reflexive(session, body.system_prompt, body.task_input, **_options(body))
        )

    async def dispatch_progressive(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        return self._outcome(
            session, await variants.progressive(session, body.system_prompt, body.task_input, **_options(body))
        )

    async def dispatch_stream_augmented(self, session: Session, body: b.DispatchRequest) -> dict[str, Any]:
        return self._outcome(
            session, await variants.stream_augmented(session, body.system_prompt, body.task_input, **_options(body))
        )

    def _outcome(self, session: Session, outcome: variants.Outcome) -> dict[str, Any]:
        return views.dispatched(session, outcome.output, outcome.report, outcome.tool_calls, outcome.trace)

    # Facts

    async def ingest(self, session: Session, body: b.IngestRequest) -> dict[str, Any]:
        return views.ingested(await session.ingest(body.text, body.source_label, supersedes=body.supersedes))

    async def restore(self, session: Session, body: b.RestoreRequest) -> Restored:
        return await session.restore_facts(body.fact_ids, source_label=body.source_label)

    async def facts(self, session: Session, query: b.FactsQuery) -> dict[str, Any]:
        found = await session.facts(
            query.query,
            top_k=query.top_k,
            include_superseded=query.include_superseded,
            quarantined=query.quarantined,
        )
        shown = [{**view(fact), "score": round(score, 6)} for fact, score in found]
        return {"facts": shown, "count": len(shown), "total": len(session.warm.facts)}

    async def share(self, session: Session, body: b.ShareRequest) -> dict[str, Any]:
        target = await self.relay.session(body.target_session_id)
        shared = await session.share_facts(target, body.fact_ids)
        return {"facts_shared": shared, "target_session_id": target.id}

    async def feedback(self, session: Session, body: b.FeedbackRequest) -> dict[str, Any]:
        return view(await session.fact_feedback(body.fact_id, body.action, body.delta))

    async def preview(self, session: Session, query: b.EnvelopeQuery) -> EnvelopePreview:
        return await session.preview_envelope(query.system_prompt, query.task_input)


def _options(body: b.DispatchRequest) -> dict[str, Any]:
    return {
        "max_output_tokens": body.generation_reserve,
        "max_windows": body.max_windows,
        "description": body.description,
        "remember": body.remember,
    }


def given_fields(data: bytes) -> dict[str, Any]:
    """The fields that a JSON object names: a change of settings changes those and no others."""
    found = msgspec.json.decode(data)
    return found if isinstance(found, dict) else {}
