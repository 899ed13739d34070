"""What the agent loop needs from others, as small protocols; a run, the relay and the extensions stand behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from forestay.kernel import Problem, fitted
from forestay.models import Completion, Message, Params, ToolSpec

EffectClass = Literal["pure", "read", "write", "unsafe"]
Transport = Literal["native", "mcp", "http"]


class Tool(msgspec.Struct, frozen=True):
    """A tool as its source offers it.

    `id` is what an allowlist names (`mcp:github/search`), `name` what the model sees. `takes_key` says that the tool
    does a thing once for one idempotency key, however often it is called. `prepares` says that the tool changes its
    arguments before they are validated (Pi P15), `typebox` that its schema converts as TypeBox's do.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    effect: EffectClass = "unsafe"
    id: str = ""
    takes_key: bool = False
    transport: Transport = "native"
    prepares: bool = False
    typebox: bool = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)

    def fit(self, arguments: Any) -> dict[str, Any]:
        """The arguments as the schema wants them, or a Problem that tells the model what is wrong."""
        value = fitted(self.name, self.parameters, arguments, typebox=self.typebox)
        if not isinstance(value, dict):
            raise Problem("schema_mismatch", f"The arguments of {self.name} are no object.", at="$", tool=self.name)
        return value


class ToolOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool gave back; an error is an answer too."""

    content: str
    is_error: bool = False
    details: Any = None


Update = Callable[[Any], Awaitable[None]]


class ToolSource(Protocol):
    """Extensions, built-in tools and workflows, in one list."""

    async def tools(self) -> Sequence[Tool]: ...

    async def prepare(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        """What a tool that `prepares` makes of its arguments, before they are validated."""

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        """Do it. A Problem that it raises becomes an error the model sees."""


Heard = Callable[[str], Awaitable[None]]
"""Is told each new piece of an answer."""


class AgentModel(Protocol):
    """The model that an agent talks to, and the memory of what it said."""

    @property
    def name(self) -> str: ...

    async def once(self, key: str, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        """The answer on record under `key`; when there is none, that of `ask()`, which is then on record."""

    async def turn(
        self, key: str, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params, heard: Heard
    ) -> Completion:
        """The model's answer to `messages`."""


class Effects(Protocol):
    """The durable invocation log of a run's node (OpenWOP §1.5, layer 2)."""

    async def perform(
        self,
        key: str,
        fn: Callable[[], Awaitable[Any]],
        cls: EffectClass = "unsafe",
        idempotency_key: str | None = None,
        later: bool = False,
    ) -> Any:
        """The recorded value of `key`; when there is none, that of `fn()`, recorded before it is returned.

        With `later` (for what may run again) it is recorded before the next effect begins that is not for later.

        A `key` that was begun and not recorded is decided by `recovery.recover`: run again, or Problem
        `effect_uncertain`. Values are JSON.
        """


class Hooks(Protocol):
    """Extensions listening to the agent's life. `emit` gives their merged answer, or None (Pi, lifecycle events)."""

    def listens(self, event: str) -> bool:
        """Whether anybody wants `event`; what nobody wants is not even put together."""

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None: ...


class Verdict(msgspec.Struct, frozen=True):
    """What policy says of one tool call."""

    effect: Literal["allow", "deny", "prompt"]
    reason: str = ""


class Gate(Protocol):
    """Policy, asked before every tool call."""

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Verdict: ...


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A question for a person. `actions` are the answers that mean something here."""

    kind: Literal["approval", "uncertain-effect", "low-confidence"]
    title: str
    reason: str
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    known: dict[str, Any] = {}
    actions: tuple[str, ...] = ("accept", "reject")


class ApprovalAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the person said; `edit-accept` carries other arguments."""

    action: Literal["accept", "reject", "edit-accept"]
    arguments: dict[str, Any] | None = None
    note: str = ""


class Approvals(Protocol):
    """Interrupts of a run. A key is asked at most once in the life of the run (OpenWOP §1.8)."""

    async def ask(self, key: str, request: ApprovalRequest) -> ApprovalAnswer:
        """The answer; while there is none this waits, or leaves by an exception that suspends the node."""


class Memory(Protocol):
    """What an agent keeps between runs, already bound to its tenant."""

    async def recall(self, agent_id: str, task: str) -> Sequence[str]: ...

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> None: ...


class Quiet:
    """Hooks when nobody listens."""

    def listens(self, event: str) -> bool:
        return False

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        return None
