"""The host calls of one piece of work that an extension does for a node, so that another life of it repeats nothing.

B1  What a person answers is on record before the extension hears it. Work that is begun again hears the record.
B2  What a command does outside of its session leaves a mark before it begins, and what came of it after. Work that is
    begun again is told what came of it; a mark without that is a question for a person.
B3  What it changes in its session has a place there, the same in every life. The session keeps it once.
B4  The n-th call of one kind in this life is the n-th in another one. Where it asks or does something else then, nobody
    knows what the first life was about: `effect_uncertain`.
B5  A node that is parked keeps its work waiting: what there is to keep is kept by its next execution.
B6  Work that has ended is not begun again. What goes on of it, as a dialog that it left open, is kept no more. What
    was given up hears that it was: nothing goes on of it.
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
"""Asks a person about something that began in another life, by its name and its mark; whether to do it again."""


class KeptCalls:
    """What one piece of work heard and did. `whole` keeps what it does outside of its session too, as for a command."""

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
        """The execution that keeps from now on; None while its node is parked (B5)."""
        self._ctx = ctx
        (self._bound.clear if ctx is None else self._bound.set)()
        if ctx is None:
            self._settled.set()  # who answered does not wait for another's answer

    def end(self, *, is_given_up: bool = False) -> None:
        """The work has ended, or nobody waits for it any more (B6)."""
        self._has_ended, self._is_given_up = True, is_given_up
        self._bound.set()
        self._settled.set()

    async def settled(self) -> None:
        """Until every answer that was given is on record."""
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
        """What a call is known by in every life (B4)."""
        operation = call.params.get("op") or call.params.get("name") or ""
        base = f"{self._place}{extension}:{call.method}:{str(operation)[:80]}"
        self._counts[base] += 1
        return f"{base}:{self._counts[base]}"

    async def _begin(self, name: str, call: HostCall, about: str, kind: CallKind, uncertain: Uncertain) -> str:
        """Leave the mark (B2). What began in another life and has no end is done again under another name, when a
        person says so; the name to go on with."""
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
                told = "This began before the process died. A person says that it is not to be done again."
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
        """Whether the work has ended; a Problem where it was given up (B6)."""
        if self._is_given_up:
            raise Problem("state_conflict", "The turn that this belongs to was ended.")
        return self._has_ended

    async def _keep(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Put it on record; where the node parks meanwhile, its next execution does (B5)."""
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
    """What is the same of a call in every life: a component is drawn anew, at another time and another width."""
    drawn = ("lines", "component") if call.method == "ui" and call.params.get("op") == "custom" else ()
    return {name: value for name, value in call.params.items() if name not in drawn}


def _changed(name: str) -> Problem:
    told = "Begun again after a crash, the extension asks or does something else at this point than the first time."
    return Problem("effect_uncertain", told, effect_key=name)
