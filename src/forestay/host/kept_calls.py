"""Records the host calls that an extension makes for a node, so that work that begins again repeats nothing.

A life is one process of the host. When a process dies, the next life begins the work of its nodes again.

B1  A person's answer is recorded before the extension gets it. Work that begins again gets the recorded answer.
B2  An effect of a command outside its session is marked in the record before it begins, and its result is recorded
    after. Work that begins again gets the recorded result. When there is a mark and no result, a person decides.
B3  A change in the session has a place there, the same in every life. The session keeps it once.
B4  The n-th call of one kind in this life matches the n-th in another life. When the two differ, nobody knows what the
    first life did: `effect_uncertain`.
B5  Work whose node is parked waits with its records: the node's next execution keeps them.
B6  Work that has ended does not begin again. What continues after it, such as a dialog that it left open, is not
    recorded. Abandoned work gets a Problem: nothing of it continues.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from forestay.extensions import CallKind, HostCall, Perform
from forestay.kernel import Problem, canonical
from forestay.runs import Execution

Uncertain = Callable[[str, HostCall, dict[str, str]], Awaitable[bool]]
"""Asks a person whether to repeat an effect that began in another life; gets its name, its call and its mark."""


class KeptCalls:
    """The recorded calls of one piece of work. `whole` records effects outside its session too, as for a command."""

    def __init__(self, place: str, mark: Callable[[], dict[str, str]], *, whole: bool) -> None:
        self._place = place
        self._mark = mark
        self._whole = whole
        self._counts: Counter[str] = Counter()
        self._bound = asyncio.Event()
        self._ctx: Execution | None = None
        self._has_ended, self._is_given_up = False, False
        self._keeping = 0
        self._settled = asyncio.Event()
        self._settled.set()

    def bind(self, ctx: Execution | None) -> None:
        """Set the execution that records the calls from now on; None while the node is parked (B5)."""
        self._ctx = ctx
        (self._bound.clear if ctx is None else self._bound.set)()
        if ctx is None:
            self._settled.set()  # a person who answered does not wait for another's answer

    def end(self, *, is_given_up: bool = False) -> None:
        """Note that the work has ended or was abandoned (B6)."""
        self._has_ended, self._is_given_up = True, is_given_up
        self._bound.set()
        self._settled.set()

    async def settled(self) -> None:
        """Wait until every answer that was given is on record."""
        await self._settled.wait()

    async def once(
        self, extension: str, call: HostCall, kind: CallKind, perform: Perform, uncertain: Uncertain
    ) -> dict[str, Any]:
        name = self._name(extension, call)
        if kind == "change":
            return await perform(name)  # B3
        if kind != "answer" and not self._whole:
            return await perform(None)
        about = canonical.digest([call.method, _lasting(call)])
        if kind in ("deed", "last"):
            name = await self._begin(name, call, about, kind, uncertain)
        done = await self._recorded(name)
        if done is None:
            done = await self._performed(name, call, about, perform)
        elif done["about"] != about:
            raise _changed(name)  # B4
        if "failed" in done:
            raise Problem(done["failed"]["key"], done["failed"]["message"], **done["failed"]["details"])
        return dict(done["output"])

    def _name(self, extension: str, call: HostCall) -> str:
        """Return a call's name, the same in every life (B4)."""
        operation = call.params.get("op") or call.params.get("name") or ""
        base = f"{self._place}{extension}:{call.method}:{str(operation)[:80]}"
        self._counts[base] += 1
        return f"{base}:{self._counts[base]}"

    async def _begin(self, name: str, call: HostCall, about: str, kind: CallKind, uncertain: Uncertain) -> str:
        """Record the mark and return the name to continue with (B2). An effect that began in another life and has no
        result is repeated under another name when a person says so."""
        while True:
            mark = await self._keep(f"{name}#begun", lambda: {**self._mark(), "about": about})
            if mark["about"] != about:
                raise _changed(name)
            if mark["life"] == self._mark()["life"]:
                return name
            if kind == "last":
                raise Problem("effect_uncertain", _LAST, effect_key=name, begun_at=mark["at"])
            if await self._recorded(name) is not None:
                return name
            if not await uncertain(name, call, mark):
                told = "This began before the process died. A person decided not to do it again."
                raise Problem("effect_uncertain", told, effect_key=name, begun_at=mark["at"])
            name += "/again"

    async def _performed(self, name: str, call: HostCall, about: str, perform: Perform) -> dict[str, Any]:
        try:
            done: dict[str, Any] = {"about": about, "output": await perform(name)}
        except Problem as problem:
            failed = {"key": problem.key, "message": problem.message, "details": problem.details}
            done = {"about": about, "failed": failed}
        self._keeping += 1
        self._settled.clear()
        try:
            return await self._keep(name, lambda: done)
        finally:
            self._keeping -= 1
            if not self._keeping:
                self._settled.set()

    async def _recorded(self, name: str) -> dict[str, Any] | None:
        await self._bound.wait()
        if self._is_over():
            return None
        assert self._ctx is not None, "it is bound"
        found: dict[str, Any] | None = self._ctx.recorded(name)
        return found

    def _is_over(self) -> bool:
        """Whether the work has ended; raise a Problem when it was abandoned (B6)."""
        if self._is_given_up:
            raise Problem("state_conflict", "The turn of this call was ended.")
        return self._has_ended

    async def _keep(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Record what `make` returns; when the node parks meanwhile, its next execution records it (B5)."""
        while True:
            await self._bound.wait()
            if self._is_over():
                return make()
            ctx = self._ctx
            assert ctx is not None, "it is bound"
            try:
                return await ctx.effect(name, make)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if ctx.live or (task is not None and task.cancelling()):
                    raise
                if self._ctx is ctx and not self._has_ended:
                    self.bind(None)


_LAST = "This command left its session, or listened to a program, before the process died. It is not begun again."


def _lasting(call: HostCall) -> dict[str, Any]:
    """Return the parameters that are the same in every life: a component's drawn lines depend on time and width."""
    drawn = ("lines", "component") if call.method == "ui" and call.params.get("op") == "custom" else ()
    return {name: value for name, value in call.params.items() if name not in drawn}


def _changed(name: str) -> Problem:
    told = "After a crash, the extension asks or does something else at this point than the first time."
    return Problem("effect_uncertain", told, effect_key=name)
