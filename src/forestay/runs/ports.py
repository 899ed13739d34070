"""The ports of the engine: small protocols that the host wires, such as models, tools and HTTP."""

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
    """The tenant, run and node of a call, and the key under which it may be repeated.

    `node` is the calling execution, for a source that must ask a person before it can answer.
    """

    tenant: str
    run_id: str
    node_id: str
    idempotency_key: str
    principal: str | None = None
    node: Any = None
    workflow_id: str = ""


class ModelSource(Protocol):
    """The models that nodes may call."""

    def chosen(self, provider: str | None, name: str | None) -> Model:
        """Return the model that a node names by provider, name or both; the default model if it names none."""


class ToolSource(Protocol):
    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        """Call a tool and return its result; a Problem when the tool is unknown, denied or fails."""

    def names(self) -> list[str]: ...


class Fact(msgspec.Struct, frozen=True):
    """A decision about a run before it starts, recorded as an event right after `run.started`."""

    type: str
    payload: dict[str, Any]
    private: dict[str, Any] | None = None
    id: str = ""  # the event's id, if a caller must know it before


class Governor(Protocol):
    """Decides about a run when it is created, and meters its nodes' model calls."""

    limits_runs: bool
    """Whether it also decides about a run that has no agents and asks for no budget."""

    async def facts(self, request: CreateRun, tenant: str, agents: Sequence[Mapping[str, Any]]) -> list[Fact]:
        """Return the facts, in order; a Problem refuses the run. `agents` are the AgentRefs of the workflow's nodes."""

    def metered(self, model: Model, node: Any, agent_id: str | None = None) -> Model:
        """Return a model that meters the calls of a node's execution, for an agent or for the node."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An outgoing request. `credential` names the credential that the host attaches; its value is not here.

    With `approved` a person agreed to send it. With `redirected` a server's answer led here, so a credential that may
    not be sent is left out.
    """

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
    """The decision about a request with a credential, without content; `egress.decided` has it (RFC 0079)."""

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
    """The final decision about the request's credential."""


class HttpSender(Protocol):
    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        """Send through the SSRF-safe connector; a Problem when the address is blocked or the call fails."""


class HttpConnector(HttpSender, Protocol):
    """A sender with credentials: `send` attaches the one that a request names, if it may be sent there."""

    async def decide(self, request: HttpRequest, caller: Caller) -> EgressDecision:
        """Return policy's decision about the request's credential; sends nothing."""


class MemorySource(Protocol):
    """The memory of nodes across runs; it belongs to the caller's tenant (OpenWOP RFC 0004)."""

    async def put(
        self, caller: Caller, memory_ref: str, content: str, tags: Sequence[str], expires_at: str | None
    ) -> str:
        """Store an entry, once for each idempotency key of the caller; return its id."""

    async def list(self, caller: Caller, memory_ref: str, tag: str | None, limit: int) -> Sequence[str]:
        """Return the ids of the entries, newest first."""

    async def read(self, caller: Caller, memory_ref: str | None, ids: Sequence[str]) -> Sequence[dict[str, Any]]:
        """Return the existing entries of `ids`, of one memory or of any, in the contract's shape."""

    async def delete(self, caller: Caller, memory_ref: str, memory_id: str) -> bool:
        """Forget an entry for good; return whether it existed."""


class PromptSource(Protocol):
    """The prompt templates that nodes may name (OpenWOP RFC 0027)."""

    observability: Observability

    @property
    def defaults(self) -> Mapping[PromptKind, PromptRef]:
        """The host's own choice, used when nothing else names a template."""

    async def template(self, tenant: str, ref: PromptRef, kind: PromptKind | None = None) -> PromptTemplate:
        """Return the template of this kind that a tenant's reference names; `not_found`."""


class Ports(msgspec.Struct, frozen=True):
    """The wired ports; a node type that needs a missing one is refused (W6)."""

    models: MockModels | None = None
    tools: ToolSource | None = None
    http: HttpConnector | None = None
    governor: Governor | None = None
    memory: MemorySource | None = None
    prompts: PromptSource | None = None
    capabilities_of: Callable[[Model], frozenset[str]] | None = None
    """Returns the known capabilities of a model."""
    secrets: Callable[[str, str], Awaitable[str | None]] | None = None
    """Returns the value of a tenant's credential; only the contract's own node types may call it."""

    def has(self, name: str) -> bool:
        known: dict[str, Any] = {"models": self.models, "tools": self.tools, "http": self.http, "memory": self.memory}
        known["secrets"] = self.secrets
        return known.get(name) is not None
