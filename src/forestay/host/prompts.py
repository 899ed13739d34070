"""Questions of extensions as interrupts of a run: an extension asks, the run waits, the answer wakes both.

A life is one process of the host, from its start to its end. Work is what extensions do for one execution of a node.

W1  The work of an extension for a node continues while the node is parked: its host call waits in this process. When
    the node executes again with the answer, it finds the work where it stood. Nothing is done twice.
W2  A question is an interrupt of kind `approval` with its own key. The run asks it once, even when the process dies
    while it waits. The next life begins the work again, and the work gets the recorded answer.
W3  A grant that lets an extension change something is recorded before the extension gets it. Work that had such a grant
    in another life is not begun again: nobody knows how far it came (`effect_uncertain`).
W4  When a run ends, its waiting work is abandoned; another run that waits for the same extension asks then.
W5  An extension that asks while no run waits for it gets no answer, and its call is refused.
W6  Work that a new life begins again repeats nothing that is on record (`kept_calls`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from forestay.extensions import Answer, CallKind, HostCall, Perform, Question
from forestay.host.dialog_form import DialogInquiry, UncertainInquiry, is_plain
from forestay.host.inquiry import Inquiry
from forestay.host.kept_calls import KeptCalls
from forestay.host.prompt_form import CapabilityInquiry
from forestay.kernel import Clock, Problem, iso
from forestay.runs import Execution, Parked, Runs

T = TypeVar("T")


class _Asked:
    """An inquiry that waits for its answer; `number` tells apart the inquiries of one name in one piece of work."""

    def __init__(self, inquiry: Inquiry[Any], number: int) -> None:
        self.inquiry = inquiry
        self.number = number
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class _Work:
    """What extensions do for one node of one run."""

    def __init__(self, ctx: Execution, extension: str | None, task: asyncio.Future[Any], calls: KeptCalls) -> None:
        self.run_id, self.tenant = ctx.run_id, ctx.tenant
        self.extension = extension  # None: any extension, as for an event that goes to all
        self.calls = calls
        self.task = task
        self.asked: deque[_Asked] = deque()
        self.counts: Counter[str] = Counter()
        self.stir = asyncio.Event()
        task.add_done_callback(lambda _: self.stir.set())

    def abandon(self) -> None:
        self.calls.end(is_given_up=True)
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # take its exception
        self.task.cancel()
        for asked in self.asked:
            if not asked.answer.done():
                asked.answer.set_result(None)


class Prompts:
    """`extensions.Consent` for a host without a person at a terminal."""

    def __init__(self, clock: Clock, life: str, *, runs: Callable[[], Runs]) -> None:
        self._clock = clock
        self.life = life
        self._runs = runs
        self.recorded: Callable[[], Awaitable[None]] | None = None  # waits until the evidence is on disk
        self.callers: Callable[[str], list[str]] = lambda _: []  # the extensions that wait for an extension
        self.absent: Callable[[], bool] = lambda: False  # whether a person is expected and not yet present
        self._works: dict[str, _Work] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer about a capability; None when no run can ask."""
        return await self.inquire(CapabilityInquiry(question))

    async def inquire(self, inquiry: Inquiry[T]) -> T | None:
        """Return the answer that a run gets which waits for this extension; None without such a run (W4, W5)."""
        while (work := self._asker(inquiry.extension)) is not None:
            work.counts[inquiry.name] += 1
            asked = _Asked(inquiry, work.counts[inquiry.name])
            work.asked.append(asked)
            work.stir.set()
            answer: T | None = await asked.answer
            if answer is not None:
                return answer
        return None

    async def once(self, extension: str, call: HostCall, kind: CallKind, perform: Perform) -> dict[str, Any]:
        """Perform a host call and return its result; a call that an earlier life recorded is not repeated (W6)."""
        work = self._asker(extension)
        if work is None:
            return await perform(None)

        async def uncertain(name: str, call: HostCall, mark: dict[str, str]) -> bool:
            return await self.inquire(UncertainInquiry(extension, name, call, mark)) or False

        async def asked(name: str | None) -> dict[str, Any]:
            """Perform the call; when a dialog's person is not yet present, let the run ask instead."""
            if name is None or not (is_plain(call) and self.absent()):
                return await perform(name)
            answer = await self.inquire(DialogInquiry(extension, name, call.params))
            return {"value": answer.value if answer is not None else None}

        return await work.calls.once(extension, call, kind, asked, uncertain)

    async def kept(self, extension: str) -> None:
        """Wait until the answers that people gave an extension are on record."""
        for work in list(self._works.values()):
            if work.extension in (extension, None):
                await work.calls.settled()

    def waits(self, node: str) -> bool:
        """Whether this process has work for a node (`run:node:iteration`) that waits for an answer."""
        return any(place.startswith(f"{node}:") for place in self._works)

    async def during(
        self,
        ctx: Execution,
        start: Callable[[], Awaitable[T]],
        *,
        extension: str | None = None,
        name: str = "",
        about: dict[str, Any] | None = None,
        changes: bool = False,
        repeats: bool = False,
        whole: bool = False,
    ) -> T:
        """Run `start`, let the run ask its questions, and return its result.

        `changes`: the work may change something without asking. `repeats`: somebody else makes sure that doing it twice
        is safe. `whole`: everything that it does is kept, so that doing it again repeats nothing (W6). The call raises
        `Parked` when a question has no answer yet; the node's next execution calls it again.
        """
        place = ctx.place + name
        work = self._works.get(place)
        repeats = repeats or whole
        if work is None:
            if not repeats:
                self._check(ctx, place)
                if changes:
                    await ctx.effect(f"{place}granted", self._mark)  # W3
            calls = KeptCalls(place, self._mark, whole=whole)
            work = self._works[place] = _Work(ctx, extension, asyncio.ensure_future(start()), calls)
        work.calls.bind(ctx)
        try:
            while True:
                if work.asked:
                    await self._put(ctx, place, work.asked[0], about or {}, marks=not repeats)
                    work.asked.popleft()
                    continue
                if work.task.done():
                    break
                work.stir.clear()
                await work.stir.wait()
        except Parked:
            work.calls.bind(None)
            self._watch(work)
            raise
        except BaseException:
            del self._works[place]
            work.abandon()
            raise
        del self._works[place]
        work.calls.end()
        return work.task.result()  # type: ignore[no-any-return]

    async def close(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        works = list(self._works.values())
        self._works.clear()  # nobody is left to ask instead
        for work in works:
            work.abandon()

    # Asking

    def _asker(self, extension: str) -> _Work | None:
        """Return the work whose run asks: work of this extension, else of one that called its tool, else of all.

        Of several, the one that began last asks.
        """
        works = list(self._works.values())[::-1]
        for wanted in (extension, *self.callers(extension), None):
            for work in works:
                if work.extension == wanted and not work.task.done():
                    return work
        return None

    async def _put(self, ctx: Execution, place: str, asked: _Asked, about: dict[str, Any], *, marks: bool) -> None:
        """Ask the question as an interrupt, and pass its answer to the waiting caller."""
        inquiry = asked.inquiry
        key = f"{place}{inquiry.name}:{asked.number}"
        data = inquiry.shown(key, about)
        told = {name: data[name] for name in _ANNOUNCED}
        told["actions"] = ["edit" if action == "edit-accept" else action for action in data["actions"]]
        if self.recorded is not None:
            await self.recorded()  # the ledger shows the question before the run shows that it waits
        value = await ctx.interrupt(
            "approval",
            data,
            key=key,
            resume_schema=inquiry.schema,
            announce=("approval.requested", told),
        )
        answer = inquiry.read(value, self._clock.now_ms())
        if marks and inquiry.lets_change(answer):
            await ctx.effect(f"{place}granted", self._mark)  # W3
        if not asked.answer.done():
            asked.answer.set_result(answer)

    def _mark(self) -> dict[str, str]:
        return {"life": self.life, "at": iso(self._clock.now_ms())}

    def _check(self, ctx: Execution, place: str) -> None:
        mark = ctx.recorded(f"{place}granted")
        if mark is not None and mark["life"] != self.life:
            raise Problem(
                "effect_uncertain",
                "A person let the extension change something, the process died, and nobody knows how far it came.",
                effect_key=place,
                begun_at=mark["at"],
            )

    # The end of a run (W4)

    def _watch(self, work: _Work) -> None:
        if work.run_id not in self._watches:
            task = asyncio.get_running_loop().create_task(self._until_end(work.run_id, work.tenant))
            self._watches[work.run_id] = task
            task.add_done_callback(lambda _: self._watches.pop(work.run_id, None))

    async def _until_end(self, run_id: str, tenant: str) -> None:
        async for _ in self._runs().follow(run_id, tenant):
            pass
        for place, work in list(self._works.items()):
            if work.run_id == run_id:
                del self._works[place]
                work.abandon()


_ANNOUNCED = ("artifactId", "artifactType", "title", "actions")
