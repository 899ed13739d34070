"""What the engine needs from others, as small protocols that the host wires: models, tools, HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from forestay.agents import Observability, PromptKind, PromptRef, PromptTemplate
from forestay.models import Model
from forestay.runs.types import CreateRun

if TYPE_CHECKING:
    from forestay.runs.mock_models import MockModels


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a call is made, and the identity under which it may be repeated.

    `node` is the execution that calls, for a source that has to ask a person before it can answer.
    """

    tenant: str
    run_id: str
    node_id: str
    idempotency_key: str
    principal: str | None = None
    node: Any = None
    workflow_id: str = ""


class ModelSource(Protocol):
    """The models that nodes may ask."""

    def chosen(self, provider: str | None, name: str | None) -> Model:
        """The model that a node names by its provider, its name or both; the default for none."""


class ToolSource(Protocol):
    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        """The tool's result; a Problem when there is no such tool, it is denied or it fails."""

    def names(self) -> list[str]: ...


class Fact(msgspec.Struct, frozen=True):
    """Something decided about a run before it starts, recorded as an event right behind `run.started`."""

    type: str
    payload: dict[str, Any]
    private: dict[str, Any] | None = None
    id: str = ""  # the event's id, where somebody must know it before


class Governor(Protocol):
    """What is decided about a run when it is made, and who counts what its nodes ask of models."""

    limits_runs: bool
    """Whether it also decides about a run that has no agents and asks for no budget."""

    async def facts(self, request: CreateRun, tenant: str, agents: Sequence[Mapping[str, Any]]) -> list[Fact]:
        """The facts, in their order; a Problem refuses the run. `agents` are the AgentRefs of the workflow's nodes."""

    def metered(self, model: Model, node: Any, agent_id: str | None = None) -> Model:
        """A model that counts what a node's execution asks of it, for an agent or for itself."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request out. `credential` names one that the host attaches; its value is nowhere in here. `approved`: a person
    said yes to that. `redirected`: a server's answer led here, so a credential that may not go along is left out."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes | None = None
    timeout_ms: int = 30_000
    max_response_bytes: int = 10 * 1024 * 1024
    credential: str | None = None
    approved: bool = False
    redirected: bool = False


class EgressDecision(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is decided about a request with a credential, without content: what `egress.decided` says (RFC 0079)."""

    decision: Literal["allowed", "denied", "downgraded", "approval-required"]
    destination: str
    credential_id: str | None = None
    reason: (
        Literal[
            "ok",
            "out-of-audience",
            "expired",
            "ssrf-blocked",
            "provenance-unevaluable",
            "scope-denied",
            "policy-denied",
        ]
        | None
    ) = None


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: dict[str, str]
    body: bytes
    decided: EgressDecision | None = None
    """What became of the request's credential in the end."""


class HttpSender(Protocol):
    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        """Send through the SSRF-safe connector; a Problem when the address is blocked or the call fails."""


class HttpConnector(HttpSender, Protocol):
    """What also knows credentials: `send` attaches the one that a request names, if it may go there."""

    async def decide(self, request: HttpRequest, caller: Caller) -> EgressDecision:
        """What policy says of the request's credential; nothing is sent."""


class MemorySource(Protocol):
    """What nodes keep between runs: entries of a memory, which belongs to the caller's tenant (OpenWOP RFC 0004)."""

    async def put(
        self, caller: Caller, memory_ref: str, content: str, tags: Sequence[str], expires_at: str | None
    ) -> str:
        """Keep an entry, once for the caller's identity; its id."""

    async def list(self, caller: Caller, memory_ref: str, tag: str | None, limit: int) -> Sequence[str]:
        """The ids of the entries, the newest first."""

    async def read(self, caller: Caller, memory_ref: str | None, ids: Sequence[str]) -> Sequence[dict[str, Any]]:
        """The entries of `ids` that are there, of one memory or of any, in the contract's shape."""

    async def delete(self, caller: Caller, memory_ref: str, memory_id: str) -> bool:
        """Forget an entry for good; whether it was there."""


class PromptSource(Protocol):
    """The prompt templates that nodes may name (OpenWOP RFC 0027)."""

    observability: Observability

    @property
    def defaults(self) -> Mapping[PromptKind, PromptRef]:
        """What the host itself names, where nobody else does."""

    async def template(self, tenant: str, ref: PromptRef, kind: PromptKind | None = None) -> PromptTemplate:
        """The template that a reference of the tenant means, of this kind; `not_found`."""


class Ports(msgspec.Struct, frozen=True):
    """What is wired; a node type that needs what is not is refused (W6)."""

    models: MockModels | None = None
    tools: ToolSource | None = None
    http: HttpConnector | None = None
    governor: Governor | None = None
    memory: MemorySource | None = None
    prompts: PromptSource | None = None
    capabilities_of: Callable[[Model], frozenset[str]] | None = None
    """What a model is known to be capable of."""
    secrets: Callable[[str, str], Awaitable[str | None]] | None = None
    """The value of a tenant's credential; for the contract's own node types alone."""

    def has(self, name: str) -> bool:
        known: dict[str, Any] = {"models": self.models, "tools": self.tools, "http": self.http, "memory": self.memory}
        known["secrets"] = self.secrets
        return known.get(name) is not None
