"""Effects that notice what was begun, over a log that only knows what was recorded.

G1  A recorded value is given back; the function is not called.
G2  What may not be repeated (`recovery.recover`) leaves a mark before it begins. A mark of an earlier life without a
    recorded value is Problem `effect_uncertain`, with everything that is known.
G3  What may be repeated leaves no mark: it costs one record, not two.
G4  A mark is for `later`: the log has it before what it marks begins, because that is an effect that is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from forestay.agents.ports import EffectClass
from forestay.agents.recovery import recover
from forestay.kernel import Clock, Problem, iso


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
                    "This was begun before the process died, and nobody knows whether it was done.",
                    effect_key=key,
                    effect_class=cls,
                    begun_at=mark["at"],
                )
            return await fn()

        return await self._once(key, body)

    async def _mark(self) -> dict[str, str]:
        return {"life": self._life, "at": iso(self._clock.now_ms())}
