"""Operations that any transport can call: parameters in, one envelope out, never an exception (R1, R12).

- O1  Whatever an operation does, its caller gets a valid envelope; an unforeseen exception becomes an internal error
      whose text is not disclosed (R45).
- O2  The underscore parameters (`_mvi`, `_fields`, `_expand`, `_budget`) belong to the envelope and are not handed on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from forestay.envelope.ask import read_ask, shape, show
from forestay.envelope.budget import Budget
from forestay.envelope.build import failure, success
from forestay.envelope.expand import Expanders
from forestay.envelope.types import Envelope, Page, Transport, Warning
from forestay.kernel import Clock, Ids, Problem

_ASKS = ("_mvi", "_fields", "_expand", "_budget")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A result with its page, warnings or problem; an operation that has none of them returns the plain result."""

    result: Any = None
    page: Page | None = None
    warnings: Sequence[Warning] = ()
    context_version: int = 0
    problem: Problem | None = None
    cursor_at: Callable[[int], str] | None = None


Function = Callable[[dict[str, Any]], Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation, and what a client should know before it calls it."""

    name: str
    function: Function
    description: str
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    tags: tuple[str, ...] = ()


class Said(msgspec.Struct, frozen=True):
    """An answer: the envelope, the form in which it is sent, and the Problem if the operation failed."""

    envelope: Envelope
    shown: dict[str, Any]
    problem: Problem | None = None


class Operations:
    """A set of operations by name."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        expanders: Expanders | None = None,
        ceiling: Budget | None = None,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._expanders = expanders or Expanders()
        self._ceiling = ceiling
        self._operations: dict[str, Operation] = {}

    def add(self, operation: Operation) -> None:
        if operation.name in self._operations:
            raise Problem("already_exists", f"The operation {operation.name} exists.", at=operation.name)
        self._operations[operation.name] = operation

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations.values())

    async def call(
        self,
        name: str,
        parameters: Mapping[str, Any],
        *,
        transport: Transport,
        request_id: str | None = None,
        session_id: str | None = None,
    ) -> Said:
        """Perform an operation and return its answer (O1)."""
        said = self._common(transport, request_id, session_id)
        title = name[:128] or "unknown"
        try:
            ask = read_ask(parameters, self._ceiling)
            reply = await self._perform(name, parameters)
            beside: dict[str, Any] = {
                "page": reply.page,
                "warnings": reply.warnings,
                "context_version": reply.context_version,
            }
            if reply.problem is not None:
                envelope = failure(reply.problem, title, result=reply.result, **said, **beside)
                return Said(envelope, show(envelope, ask), reply.problem)
            envelope = success(title, reply.result, **said, **beside)
            envelope = await shape(envelope, ask, self._expanders, reply.cursor_at)
            return Said(envelope, show(envelope, ask))
        except Problem as problem:
            return _refused(title, problem, said)
        except Exception as error:  # noqa: BLE001 - the outermost boundary of an operation (O1)
            return _refused(title, Problem.unexpected(error), said)

    def refuse(self, name: str, problem: Problem, *, transport: Transport, request_id: str | None = None) -> Said:
        """Return the answer to a call that is refused before it is tried."""
        return _refused(name[:128] or "unknown", problem, self._common(transport, request_id, None))

    def _common(self, transport: Transport, request_id: str | None, session_id: str | None) -> dict[str, Any]:
        said: dict[str, Any] = {"transport": transport, "clock": self._clock, "ids": self._ids}
        if request_id is not None and 3 <= len(request_id) <= 128:
            said["request_id"] = request_id
        if session_id is not None and 1 <= len(session_id) <= 256:
            said["session_id"] = session_id
        return said

    async def _perform(self, name: str, parameters: Mapping[str, Any]) -> Reply:
        operation = self._operations.get(name)
        if operation is None:
            raise Problem(
                "method_not_found",
                f"There is no operation {name[:80]!r}.",
                operation=name[:80],
                known=sorted(self._operations)[:50],
            )
        value = await operation.function({key: item for key, item in parameters.items() if key not in _ASKS})
        return value if isinstance(value, Reply) else Reply(result=value)


def _refused(title: str, problem: Problem, said: dict[str, Any]) -> Said:
    envelope = failure(problem, title, **said)
    return Said(envelope, msgspec.to_builtins(envelope), problem)
