"""The registry of node types, and the context that their code gets."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from forestay.kernel import Problem
from forestay.runs.authoring import being_drawn, workflow
from forestay.runs.mock_models import MockModels
from forestay.runs.node_http import NodeHttp
from forestay.runs.node_memory import NodeMemory
from forestay.runs.ports import Caller, ToolSource

if TYPE_CHECKING:
    from forestay.runs.execution import Execution

T = TypeVar("T")


class NodeContext(Protocol):
    """The interface for a node's code.

    On resume a node runs again from its start. So code that affects the outside must go through `effect`, and code that
    waits through `interrupt`, `sleep`, `child` or `signal`.
    """

    run_id: str
    node_id: str
    tenant: str
    attempt: int
    config: dict[str, Any]
    inputs: dict[str, Any]
    configurable: dict[str, Any]
    agent: dict[str, Any] | None
    credential: str | None

    @property
    def variables(self) -> dict[str, Any]: ...

    @property
    def models(self) -> MockModels: ...

    @property
    def tools(self) -> ToolSource: ...

    @property
    def http(self) -> NodeHttp: ...

    @property
    def memory(self) -> NodeMemory: ...

    def caller(self, key: str, provider: str = "node") -> Caller: ...

    async def effect(
        self,
        key: str,
        fn: Callable[[], Awaitable[T]] | Callable[[], T],
        *,
        provider: str = "node",
        later: bool = False,
    ) -> T: ...

    async def interrupt(
        self,
        kind: str,
        data: Any,
        *,
        key: str | None = None,
        resume_schema: dict[str, Any] | None = None,
        timeout_ms: int | None = None,
        default: Any = None,
    ) -> Any: ...

    async def sleep(self, ms: int, key: str | None = None) -> None: ...

    async def signal(self, name: str, correlation: dict[str, Any] | None = None) -> Any: ...

    async def child(self, workflow_id: str, inputs: dict[str, Any], *, key: str, cause: str) -> dict[str, Any]: ...

    def evaluate(self, expression: str, **names: Any) -> Any: ...

    def version(self, change_id: str, latest: int) -> int: ...

    def set_variable(self, name: str, value: Any) -> None: ...

    def write_channel(self, name: str, value: Any, **options: Any) -> None: ...

    def read_channel(self, name: str) -> Any: ...

    def emit(self, type: str, payload: dict[str, Any]) -> str: ...

    def log(self, level: str, message: str, **fields: Any) -> None: ...

    def artifact(self, artifact_type: str, data: Any, *, media_type: str = "application/json") -> str: ...


class NodeError(Exception):
    """Lets a node's code fail with its own error code; `retryable=False` ends the retries."""

    def __init__(
        self, code: str, message: str, *, retryable: bool | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details


Execute = Callable[[Any], Awaitable[Any]]
Code = Callable[..., Any]
Check = Callable[[dict[str, Any]], Iterator[tuple[str, str]]]


class NodeType(msgspec.Struct, frozen=True, kw_only=True):
    """One node type. `inline` code never waits for anything outside the log, so it needs no separate task.

    The model that its code asks must have all of `model_capabilities`, or the code does not run (RFC 0031).
    """

    type_id: str
    execute: Execute
    inline: bool = False
    requires: tuple[str, ...] = ()
    model_capabilities: tuple[str, ...] = ()
    check: Check | None = None
    expressions: tuple[str, ...] = ()
    summary: str = ""


class NodeRegistry:
    """The node types of one host."""

    def __init__(self, types: list[NodeType] | None = None) -> None:
        self._types: dict[str, NodeType] = {}
        self.get = self._types.get
        for item in types or []:
            self.add(item)

    def add(self, item: NodeType) -> None:
        if item.type_id in self._types:
            raise Problem("schema_mismatch", f"The node type {item.type_id} is registered twice.", at="$.typeId")
        self._types[item.type_id] = _gated(item) if item.model_capabilities else item

    def wrap(self, type_id: str, around: Callable[[NodeType], NodeType]) -> None:
        """Replace a registered type by the result of `around`."""
        self._types[type_id] = around(self._types[type_id])

    def __iter__(self) -> Iterator[NodeType]:
        return iter(self._types.values())

    def node(self, type_id: str, *, requires: tuple[str, ...] = (), summary: str = "") -> Callable[[Execute], Execute]:
        """Register with `@registry.node("my.type")` a coroutine that takes a NodeContext and returns its outputs."""

        def register(execute: Execute) -> Execute:
            self.add(NodeType(type_id=type_id, execute=execute, requires=requires, summary=summary))
            return execute

        return register


def _gated(item: NodeType) -> NodeType:
    """Return the type with a check of the model before its code."""

    async def execute(ctx: Any) -> Any:
        from forestay.runs.model_gate import check_model

        check_model(ctx, item.model_capabilities)
        return await item.execute(ctx)

    requires = tuple(dict.fromkeys((*item.requires, "models")))
    return msgspec.structs.replace(item, execute=execute, inline=False, requires=requires)


_declared: list[NodeType] = []


def node(type_id: str, *, requires: tuple[str, ...] = (), summary: str = "") -> Callable[[Code], Code]:
    """Declare with `@node("my.type")` a node type for every registry that is made later with `custom_types()`.

    The code takes the context; further parameters are its inputs by name. Inside `@workflow`, calling it adds a step.
    """

    def declare(code: Code) -> Code:
        _declared[:] = [item for item in _declared if item.type_id != type_id]
        _declared.append(NodeType(type_id=type_id, execute=_given_inputs(code), requires=requires, summary=summary))

        @functools.wraps(code)
        def called(*arguments: Any, **inputs: Any) -> Any:
            return workflow.step(type_id, **inputs) if being_drawn() else code(*arguments, **inputs)

        return called

    return declare


def _given_inputs(code: Code) -> Execute:
    """Wrap `code` for the engine, which passes only the context."""
    wanted = list(inspect.signature(code).parameters.values())[1:]
    if not wanted:
        return code
    required = [item.name for item in wanted if item.default is inspect.Parameter.empty]

    async def execute(ctx: NodeContext) -> Any:
        if missing := [name for name in required if name not in ctx.inputs]:
            raise NodeError("input_missing", f"The node has no input {missing[0]}.", retryable=False)
        return await code(ctx, **{item.name: ctx.inputs[item.name] for item in wanted if item.name in ctx.inputs})

    return execute


@contextmanager
def declaring() -> Iterator[list[NodeType]]:
    """Collect only the types that `@node` declares inside the block."""
    before, found = list(_declared), list[NodeType]()
    _declared.clear()
    try:
        yield found
        found += _declared
    finally:
        _declared[:] = before


def custom_types() -> list[NodeType]:
    """Return the types that `@node` has declared so far."""
    return list(_declared)


def as_context(execution: Execution) -> NodeContext:
    """An execution is what node code is promised."""
    return execution
