"""What the engine needs from others, as small protocols that the host wires: models, tools, HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

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

    async def facts(self, request: CreateRun, tenant: str, agents: Sequence[str]) -> list[Fact]:
        """The facts, in their order; a Problem refuses the run. `agents` are those that the workflow's nodes name."""

    def metered(self, model: Model, node: Any, agent_id: str | None = None) -> Model:
        """A model that counts what a node's execution asks of it, for an agent or for itself."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes | None = None
    timeout_ms: int = 30_000
    max_response_bytes: int = 10 * 1024 * 1024


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: dict[str, str]
    body: bytes


class HttpConnector(Protocol):
    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        """Send through the SSRF-safe connector; a Problem when the address is blocked or the call fails."""


class Ports(msgspec.Struct, frozen=True):
    """What is wired; a node type that needs what is not is refused (W6)."""

    models: MockModels | None = None
    tools: ToolSource | None = None
    http: HttpConnector | None = None
    governor: Governor | None = None

    def has(self, name: str) -> bool:
        return {"models": self.models, "tools": self.tools, "http": self.http}.get(name) is not None
