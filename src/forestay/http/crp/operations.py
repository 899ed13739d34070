"""Every operation of the sidecar: what is routed, checked, performed and described from the same rows (CRP §1.14)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from forestay.http.crp import bodies as b
from forestay.relay import CostEstimate, EnvelopePreview, SessionConfig, StreamEvent
from forestay.relay.types import Restored

Perform = Callable[..., Awaitable[Any]]

_SESSION = ("invalid_request", "not_found", "session_closed", "session_expired", "signature_invalid", "role_denied")
_BODY = ("invalid_json", "payload_too_large", "unsupported_media_type")
_DISPATCH = (
    *_BODY,
    "budget_exhausted",
    "rate_limited",
    "provider_error",
    "provider_timeout",
    "provider_rejected",
    "provider_unauthenticated",
)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """`perform` names the method of `Service`; `session` says that the path names one."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    perform: str
    summary: str
    tag: str
    answers: Mapping[int, Any]
    problems: tuple[str, ...] = ()
    body: Any = None
    body_optional: bool = False
    query: Any = None
    session: bool = True
    open: bool = False  # answered without a token
    text: bool = False


def _of(
    name: str, method: Literal["GET", "POST"], path: str, perform: str, summary: str, tag: str, **rest: Any
) -> Operation:
    problems = rest.pop("problems", ())
    session = path.startswith("/sessions/{")
    every = (*(_SESSION if session else ()), *(_BODY if "body" in rest else ()), *problems)
    return Operation(
        name=name,
        method=method,
        path=path,
        perform=perform,
        summary=summary,
        tag=tag,
        session=session,
        problems=tuple(dict.fromkeys((*every, "unauthenticated", "internal"))),
        **rest,
    )


_S = "/sessions/{sessionId}"

OPERATIONS: tuple[Operation, ...] = (
    _of("getHealth", "GET", "/health", "health", "Health check", "Admin", answers={200: b.Health}, open=True),
    _of(
        "getReady",
        "GET",
        "/ready",
        "ready",
        "Whether new sessions can be opened",
        "Admin",
        answers={200: b.Ready, 503: b.Ready},
        open=True,
    ),
    _of("getMetrics", "GET", "/metrics", "metrics", "Metrics for Prometheus", "Admin", answers={200: str}, text=True),
    _of(
        "listSessions",
        "GET",
        "/sessions",
        "list_sessions",
        "The open sessions",
        "Session",
        answers={200: b.SessionList},
    ),
    _of(
        "createSession",
        "POST",
        "/sessions",
        "create",
        "Open a session",
        "Session",
        answers={201: b.Handle},
        body=b.CreateSession,
        problems=("session_limit", "security_invariant"),
    ),
    _of(
        "getSessionStatus",
        "GET",
        _S + "/status",
        "status",
        "Status and remaining budget",
        "Session",
        answers={200: b.Status},
    ),
    _of("closeSession", "POST", _S + "/close", "close", "Close the session", "Session", answers={200: b.Closed}),
    _of(
        "resumeSession",
        "POST",
        _S + "/resume",
        "resume",
        "Take a bound session up again after a restart",
        "Session",
        answers={200: b.Handle},
        body=b.ResumeSession,
        body_optional=True,
    ),
    _of(
        "configureSession",
        "POST",
        _S + "/configure",
        "configure",
        "Change settings (ADMIN)",
        "Session",
        answers={200: SessionConfig},
        body=SessionConfig,
        problems=("security_invariant",),
    ),
    _of(
        "resetSession",
        "POST",
        _S + "/reset",
        "reset",
        "Begin anew under the same id (ADMIN)",
        "Session",
        answers={200: b.Handle},
    ),
    _of(
        "dispatch",
        "POST",
        _S + "/dispatch",
        "dispatch",
        "Ask the model",
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=b.DispatchRequest,
        problems=_DISPATCH,
    ),
    _of(
        "dispatchStream",
        "POST",
        _S + "/dispatch/stream",
        "dispatch_stream",
        "Ask the model, as server-sent events",
        "Dispatch",
        answers={200: StreamEvent},
        body=b.DispatchRequest,
        problems=_DISPATCH,
    ),
    _of(
        "dispatchTools",
        "POST",
        _S + "/dispatch/tools",
        "dispatch_tools",
        "Let the model pull context with tools",
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=b.ToolsRequest,
        problems=_DISPATCH,
    ),
    _of(
        "dispatchReflexive",
        "POST",
        _S + "/dispatch/reflexive",
        "dispatch_reflexive",
        "Draft, check, refine",
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=b.DispatchRequest,
        problems=_DISPATCH,
    ),
    _of(
        "dispatchProgressive",
        "POST",
        _S + "/dispatch/progressive",
        "dispatch_progressive",
        "Outline first, then detail",
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=b.DispatchRequest,
        problems=_DISPATCH,
    ),
    _of(
        "dispatchStreamAugmented",
        "POST",
        _S + "/dispatch/stream-augmented",
        "dispatch_stream_augmented",
        "New facts for what was just written",
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=b.DispatchRequest,
        problems=_DISPATCH,
    ),
    _of(
        "dispatchAgentic",
        "POST",
        _S + "/dispatch/agentic",
        "dispatch_agentic",
        "The tool loop with a limit of steps",
        "Dispatch",
        answers={200: b.DispatchResponse},
        body=b.AgenticRequest,
        problems=_DISPATCH,
    ),
    _of(
        "ingest",
        "POST",
        _S + "/ingest",
        "ingest",
        "Keep what a text says",
        "Knowledge",
        answers={200: b.Ingested},
        body=b.IngestRequest,
        problems=("rate_limited",),
    ),
    _of(
        "getFacts",
        "GET",
        _S + "/facts",
        "facts",
        "Facts, the best for a query first",
        "Knowledge",
        answers={200: b.FactList},
        query=b.FactsQuery,
    ),
    _of(
        "shareFacts",
        "POST",
        _S + "/facts/share",
        "share",
        "Copy facts to another session of the app",
        "Knowledge",
        answers={200: b.Shared},
        body=b.ShareRequest,
    ),
    _of(
        "factFeedback",
        "POST",
        _S + "/facts/feedback",
        "feedback",
        "Boost, penalize or reject a fact",
        "Knowledge",
        answers={200: b.FactView},
        body=b.FeedbackRequest,
    ),
    _of(
        "restoreFacts",
        "POST",
        _S + "/facts/restore",
        "restore",
        "Undo quarantine, a rejection or a correction",
        "Knowledge",
        answers={200: Restored},
        body=b.RestoreRequest,
        problems=("chain_verification_failed",),
    ),
    _of(
        "previewEnvelope",
        "GET",
        _S + "/envelope",
        "preview",
        "What a dispatch would send",
        "Knowledge",
        answers={200: EnvelopePreview},
        query=b.EnvelopeQuery,
        problems=("provider_error",),
    ),
    _of(
        "estimateSession",
        "POST",
        _S + "/estimate",
        "estimate",
        "What a dispatch would cost",
        "Session",
        answers={200: CostEstimate},
        body=b.EstimateRequest,
        problems=("provider_error",),
    ),
    _of(
        "registerProvider",
        "POST",
        _S + "/providers",
        "register_provider",
        "A provider of the session's own",
        "Session",
        answers={200: b.Registered},
        body=b.ProviderRequest,
        problems=("model_unknown", "package_missing", "provider_unauthenticated"),
    ),
    _of(
        "exportState",
        "POST",
        _S + "/export",
        "export",
        "The session, encrypted (ADMIN)",
        "Session",
        answers={200: b.Exported},
        body=b.ExportRequest,
    ),
    _of(
        "importState",
        "POST",
        _S + "/import",
        "import_state",
        "Take in an export (ADMIN)",
        "Session",
        answers={201: b.Handle},
        body=b.ImportRequest,
        problems=("state_corrupted", "ledger_conflict"),
    ),
    _of(
        "rpc",
        "POST",
        "/rpc",
        "rpc",
        "The same operations as JSON-RPC 2.0",
        "Admin",
        answers={200: b.RpcAnswer | list[b.RpcAnswer], 204: None, 400: b.RpcAnswer},
        body=b.RpcRequest | b.RpcBatch,
    ),
    _of(
        "getOpenapi",
        "GET",
        "/openapi.json",
        "openapi",
        "This description",
        "Admin",
        answers={200: dict[str, Any]},
        open=True,
    ),
)
