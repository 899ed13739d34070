"""A tool's effect happens once: what began is marked, and what nobody knows about is put to a person.

G1  A recorded value is given back; the function is not called.
G2  What may not be repeated (`recover`) leaves a mark before it begins. A mark of an earlier life without a recorded
    value is Problem `effect_uncertain`, with everything that is known.
G3  What may be repeated leaves no mark: it costs one record, not two.
G4  A mark is for `later`: it is in the log before the effect begins, because an effect is not for later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeVar

from forestay.kernel import Clock, Problem, iso
from forestay.tools.approval import ApprovalAnswer, ApprovalRequest, Approvals
from forestay.tools.tool import EffectClass, Tool

T = TypeVar("T")


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

        A `key` that began and was not recorded is decided by `recover`: run again, or Problem `effect_uncertain`.
        Values are JSON.
        """


class Once(Protocol):
    """A log's promise: the value recorded under `key`, else that of `fn()`, on disk before it is returned; with `later`
    on disk before the next `fn` is called that is not for later."""

    async def __call__(self, key: str, fn: Callable[[], Awaitable[Any]], /, *, later: bool = False) -> Any: ...


class Guarded:
    """`Effects` over `once`; `life` names this execution and no other."""

    def __init__(self, once: Once, life: str, clock: Clock) -> None:
        self._once = once
        self._life = life
        self._clock = clock

    async def perform(
        self,
        key: str,
        fn: Callable[[], Awaitable[Any]],
        cls: EffectClass = "unsafe",
        idempotency_key: str | None = None,
        later: bool = False,
    ) -> Any:
        if recover(cls, idempotency_key) == "again":
            return await self._once(key, fn, later=later)
        mark = await self._once(f"{key}#begun", self._mark, later=True)

        async def body() -> Any:
            if mark["life"] != self._life:
                raise Problem(
                    "effect_uncertain",
                    "This began before the process died, and nobody knows whether it was done.",
                    effect_key=key,
                    effect_class=cls,
                    begun_at=mark["at"],
                )
            return await fn()

        return await self._once(key, body)

    async def _mark(self) -> dict[str, str]:
        return {"life": self._life, "at": iso(self._clock.now_ms())}


def recover(cls: EffectClass, idempotency_key: str | None) -> Literal["again", "ask"]:
    """What to do with an effect that began and was not recorded when the process died: its class decides.

    `pure` and `read` run again, `write` with a key runs again under that key, everything else asks a person.
    """
    if cls in ("pure", "read"):
        return "again"
    return "again" if cls == "write" and idempotency_key is not None else "ask"


async def once_or_ask(
    key: str,
    perform: Callable[[str], Awaitable[T]],
    approvals: Approvals,
    tool: Tool,
    arguments: dict[str, Any],
    *,
    otherwise: str,
    rejected: Callable[[ApprovalAnswer, Problem], T],
    **known: Any,
) -> T:
    """`perform(key)`. Where nobody knows whether it was done, a person is asked: it runs again under another key, or
    `rejected` gives the value to go on with. `otherwise` tells the person what a rejection does."""
    while True:
        try:
            return await perform(key)
        except Problem as problem:
            if problem.key != "effect_uncertain":
                raise
            request = ApprovalRequest(
                "uncertain-effect",
                f"Was {tool.name} done? The process died while it ran.",
                f"Accept to run it again; reject to {otherwise}",
                tool=tool.name,
                arguments=arguments,
                known={**known, "effect": tool.effect, **problem.details},
            )
            answer = await approvals.ask(f"{key}/uncertain", request)
            if answer.action == "reject":
                return rejected(answer, problem)
            key += "/again"
