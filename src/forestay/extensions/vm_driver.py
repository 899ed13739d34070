"""Drives one isolate: its owner's thread runs its ticks, the event loop waits for everything that takes time.

D1  One thread at a time touches the isolate, the one that its owner has.
D2  What happens while a tick runs waits for the next batch (I4).
D3  Every question gets an answer: a reply, a timeout, or the trap that ended the VM.
D4  After a trap the old VM has no effect: its calls are cancelled, its late results are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import msgspec

from forestay.extensions import effects as said
from forestay.extensions.engine.limits import EngineTrap
from forestay.extensions.engine.owner import Owner
from forestay.extensions.isolate import BATCH_SECONDS, Arrival, Batch, Isolate
from forestay.extensions.problems import trap_problem
from forestay.extensions.protocol import HostCall, HostCalls, HostResult
from forestay.extensions.rounds import Place, Waiter
from forestay.kernel import Problem, outside_work

MAX_CALLS = 1_024  # host calls of one extension under way at the same time
SYNC_SECONDS = 60.0  # a synchronous host call without a limit, made while no caller waits
_SATURATED = 20  # batches in a row that ran to their limit: from then on the extension gets half of a thread
_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


class VmDriver:
    def __init__(
        self,
        name: str,
        dispatcher: HostCalls,
        *,
        now_ms: Callable[[], int],
        on_registration: Callable[[said.Registration], None],
        on_failure: Callable[[said.Failure], None],
        on_trap: Callable[[EngineTrap], None],
    ) -> None:
        self._name = name
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self.stopped: Problem | None = None  # why the extension is off for good; another thread may decide it
        self._on_registration = on_registration
        self._on_failure = on_failure
        self._on_trap = on_trap
        self._loop = asyncio.get_running_loop()
        self._owner = Owner(self._loop)
        self.isolate: Isolate | None = None
        self._inbox: list[Arrival] = []
        self._waiters: dict[int, Waiter] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._delivered: list[asyncio.Future[None]] = []
        self._number = 0
        self._last_call = 0
        self._last_sync = 0
        self._busy = False
        self._place: Place | None = None
        self._saturated = 0
        self._sync_call: str | None = None
        self._deadline_ms: int | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        self._held: list[float] = []
        self.waited = 0.0  # seconds that the extension waited for persons
        self.generation = 0

    # -- asking -----------------------------------------------------------------------------------------------------

    def use(self, isolate: Isolate) -> None:
        """Drive this isolate from now on."""
        self.generation += 1
        self.isolate = isolate
        self._last_call = self._last_sync = 0
        self._deadline_ms = isolate.deadline()
        if not self._busy:
            self._rest()

    def resume(self, isolate: Isolate, calls: list[int], last: int) -> None:
        """Drive an isolate that was frozen while `calls` were under way: whether they happened nobody can say."""
        self.use(isolate)
        self._last_call = self._last_sync = last
        for number in calls:
            interrupted = HostResult.failed(
                self.call_id(number), "io", "The host was restarted while this call was under way.", reason="restarted"
            )
            self._arrive_result(number, interrupted, True)
        self._kick()

    @property
    def calls(self) -> list[int]:
        """The host calls that are under way."""
        return sorted(self._calls)

    async def settled(self, timeout: float) -> None:
        """Until the host calls that are under way have ended, or `timeout` seconds have passed."""
        if self._calls:
            await asyncio.wait(list(self._calls.values()), timeout=timeout)

    @property
    def last_call(self) -> int:
        return max(self._last_call, self._last_sync)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    async def ask(
        self,
        name: str,
        body: bytes,
        *,
        timeout: float | None,
        progress: Callable[[Any], None] | None = None,
    ) -> said.Reply:
        """Send an event and wait for its reply (D3)."""
        if self._closed:
            raise Problem("state_conflict", f"{self._name} is closed.")
        if (stopped := self.stopped) is not None:
            raise stopped
        if self._owner.hurried():
            await asyncio.sleep(0)
        number = self.next_number()
        expires = None if timeout is None else self._loop.time() + timeout
        waiter = Waiter(self._loop.create_future(), expires, progress)
        self._waiters[number] = waiter
        self._inbox.append(("inbound", number, name, body))
        self._kick(attend=True)
        return await self.reply(number, waiter)

    async def reply(self, number: int, waiter: Waiter) -> said.Reply:
        """Wait for the reply to an event that was sent (D3)."""
        try:
            reply = await waiter.future
            if self._calls:  # what it set off without waiting begins before its asker goes on, and maybe closes it
                await asyncio.sleep(0)
            return reply
        except asyncio.CancelledError:
            self.abort(number)
            raise
        finally:
            self._waiters.pop(number, None)

    def place(self, name: str, body: bytes, timeout: float) -> Place | None:
        """A place in a round, for an event; None unless the VM is at rest. Until it is left nothing else runs here."""
        isolate = self.isolate
        if isolate is None or self._busy or self._closed or self._inbox or self._waiters or self._calls:
            return None
        if self._alarm is not None or self._deadline_ms is not None or self._held or self.stopped is not None:
            return None
        if not self._owner.reserve():
            return None
        self._busy = True
        number = self.next_number()
        waiter = self._waiters[number] = Waiter(self._loop.create_future(), None, None)
        self._place = Place(self, isolate, self.generation, ("inbound", number, name, body), waiter, timeout)
        return self._place

    def enter(self, place: Place) -> bool:
        """On the round's thread: the time of a place begins, unless the VM was closed or stopped meanwhile."""
        place.waiter.expires = self._loop.time() + place.timeout
        return self.isolate is place.isolate

    def leave(self, place: Place) -> None:
        """Take what came of a place; one that was not entered was never taken."""
        self._place = None
        self._owner.release()
        if place.batch is not None:
            self._finish(place.batch, place.generation)
            return
        self._waiters.pop(place.number, None)
        if not place.waiter.future.cancel():
            place.waiter.future.exception()  # closed or stopped meanwhile: its next caller gets the reason
        if self._number == place.number:
            self._number -= 1
        self._busy = False
        if self._inbox:
            self._kick()

    def give_up(self, number: int) -> None:
        """Nobody waits any more for the reply to an event that runs."""
        self._waiters.pop(number, None)
        self.abort(number)

    def _leave_round(self) -> None:
        """The VM is wanted: a round must not keep it."""
        if self._place is not None:
            self._place.wanted()

    def slow(self) -> None:
        """The event loop waited for this VM and got no answer in time."""
        self._owner.missed()

    def tell(self, name: str, body: bytes) -> None:
        """Send an event without waiting for a reply."""
        if not self._closed:
            self._inbox.append(("inbound", 0, name, body))
            self._kick()

    def abort(self, number: int) -> None:
        """Raise the abort signal of an event that runs."""
        self.tell("abort", b'{"id":%d}' % number)

    def hold(self, held: bool) -> None:
        """While a person is asked something on the extension's behalf, nobody's time runs out."""
        if held:
            self._held.append(self._loop.time())
            return
        since = self._held.pop() if self._held else self._loop.time()
        if not self._held:
            passed = self._loop.time() - since
            self.waited += passed
            for waiter in self._waiters.values():
                if waiter.expires is not None:
                    waiter.expires += passed
            if not self._busy and self._alarm is None:
                self._rest()

    async def run(self, work: Callable[[Isolate], T]) -> T:
        """Do something with the isolate on its thread, between two batches."""
        isolate = self.isolate
        assert isolate is not None
        return await self.on_thread(lambda: work(isolate))

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Do something on the owner's thread, in its turn."""
        if self._closed:
            raise Problem("state_conflict", f"{self._name} is closed.")
        result: asyncio.Future[T] = self._loop.create_future()

        def done(value: Any) -> None:
            if not result.done():
                if isinstance(value, BaseException):
                    result.set_exception(value)
                else:
                    result.set_result(value)

        self._leave_round()
        self._owner.submit(work, done)
        with outside_work(self._loop):
            return await result

    async def close(self) -> None:
        """Stop: tell the waiting callers, end the thread, and give the VM's memory back."""
        if self._closed:
            return
        self._leave_round()
        self._closed = True
        waiting = self._sync_call
        if waiting is not None:
            self._dispatcher.cancel(waiting)
        self._silence(Problem("cancelled", f"{self._name} was closed."))
        isolate, self.isolate = self.isolate, None
        if isolate is not None:
            self._owner.submit(isolate.close, lambda _: None)
        await self._owner.join()

    def stop(self, problem: Problem) -> None:
        """End the VM for good: its next host call does not return, and each waiting caller gets the reason (D3, D4)."""
        self._leave_round()
        waiting = self._sync_call
        if waiting is not None:
            self._dispatcher.cancel(waiting)
        isolate, self.isolate = self.isolate, None
        self.generation += 1
        if isolate is not None:
            self._owner.submit(isolate.close, lambda _: None)
        self._silence(problem)

    # -- batches ----------------------------------------------------------------------------------------------------

    def _kick(self, attend: bool = False) -> None:
        """Start a batch unless one is under way, which will start the next."""
        self._leave_round()
        if self._busy or self._closed or self.isolate is None:
            return
        self._busy = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        arrivals, self._inbox = self._inbox, []
        isolate, generation = self.isolate, self.generation
        start = self._owner.exchange if attend else self._owner.submit
        start(lambda: isolate.run(arrivals), lambda batch: self._finish(batch, generation))

    def _finish(self, batch: Batch | BaseException, generation: int) -> None:
        self._busy = False
        if self._closed or generation != self.generation:
            return
        if (stopped := self.stopped) is not None:  # decided while the VM ran: what it answered since does not count
            self.stop(stopped)
            return
        if isinstance(batch, BaseException):
            self._silence(Problem.unexpected(batch))
            self._lost(EngineTrap("engine", f"the host failed: {type(batch).__name__}"))
            return
        for effect in batch.effects:
            try:
                self._apply(effect)
            except EngineTrap as trap:
                batch.trap = trap
                break
            except Exception as error:  # noqa: BLE001 - a listener's fault; the caller gets an answer (D3)
                failed = {"message": f"A listener of {self._name} failed.", "exception": error}
                self._loop.call_exception_handler(failed)
        for future in self._delivered:
            if not future.done():
                future.set_result(None)
        self._delivered.clear()
        if batch.trap is not None:
            self._lost(batch.trap)
            return
        self._deadline_ms = batch.deadline_ms
        if self._waiters:
            self._expire()  # an extension that is never at rest must not outrun its deadline
        self._saturated = self._saturated + 1 if batch.more else 0
        if self._saturated > _SATURATED:
            self._alarm = self._loop.call_later(BATCH_SECONDS, self._kick)
        elif self._inbox or batch.more:
            self._kick()
        elif self._waiters or batch.deadline_ms is not None:
            self._rest()

    def _rest(self) -> None:
        """Nothing runs: sleep until the next timer or the next expiry of a question."""
        now = self._loop.time()
        expiries = [] if self._held else [w.expires for w in self._waiters.values() if w.expires is not None]
        wake = min(expiries, default=None)
        if self._deadline_ms is not None:
            due = now + max(0, self._deadline_ms - self._now_ms()) / 1000
            wake = due if wake is None else min(wake, due)
        if wake is not None:
            self._alarm = self._loop.call_at(wake, self._wake)

    def _expire(self) -> None:
        """Tell the callers whose time is over."""
        if self._held:
            return
        now = self._loop.time()
        for number, waiter in list(self._waiters.items()):
            if waiter.expires is not None and waiter.expires <= now and not waiter.future.done():
                waiter.future.set_exception(
                    Problem(
                        "extension_timeout",
                        f"{self._name} did not answer in time.",
                        extension=self._name,
                        hostcall="timeout",
                    )
                )
                self._waiters.pop(number, None)
                self.abort(number)

    def _wake(self) -> None:
        self._alarm = None
        self._expire()
        if self._deadline_ms is not None and self._deadline_ms <= self._now_ms():
            self._kick()
        elif not self._busy:
            self._rest()

    # -- effects ----------------------------------------------------------------------------------------------------

    def _apply(self, effect: said.Effect) -> None:
        if isinstance(effect, said.Reply):
            waiter = self._waiters.pop(effect.number, None)
            if waiter is not None and not waiter.future.done():
                waiter.future.set_result(effect)
        elif isinstance(effect, said.Progress):
            waiter = self._waiters.get(effect.number)
            if waiter is not None and waiter.progress is not None:
                waiter.progress(effect.value)
        elif isinstance(effect, said.Call):
            self._start_call(effect)
        elif isinstance(effect, said.Cancel):
            task = self._calls.get(effect.number)
            if task is not None:
                self._dispatcher.cancel(self.call_id(effect.number))
                task.cancel()
        elif isinstance(effect, said.Registration):
            self._on_registration(effect)
        elif isinstance(effect, said.Failure):
            self._on_failure(effect)

    def call_id(self, number: int) -> str:
        return f"{self._name}/{self.generation}.{number}"

    def _start_call(self, effect: said.Call) -> None:
        if effect.number <= self._last_call:  # the bridge counts up; anybody else's number is a forgery
            raise EngineTrap("engine", f"the call id {effect.number} was used before")
        self._last_call = effect.number
        if len(self._calls) >= MAX_CALLS:
            refused = f"More than {MAX_CALLS} host calls are under way; wait for some of them."
            self._arrive_result(effect.number, HostResult.failed(self.call_id(effect.number), "denied", refused), True)
            return
        call = HostCall(self.call_id(effect.number), effect.capability, effect.method, effect.params, effect.timeout_ms)
        self._calls[effect.number] = self._loop.create_task(self._perform(effect.number, call, self.generation))

    async def _perform(self, number: int, call: HostCall, generation: int) -> None:
        results = self._dispatcher.call(call, self._name)
        try:
            async for result in results:
                if generation != self.generation:
                    return
                last = result.chunk is None or result.chunk.is_last
                self._arrive_result(number, result, last, attend=last)
                if last:
                    return
                await self._taken()  # backpressure: the next part comes when JavaScript has had this one
            self._arrive_result(
                number, HostResult.failed(call.call_id, "internal", "the host call ended without a result"), True
            )
        except Exception as error:  # noqa: BLE001 - a dispatcher that breaks its promise must not leave a promise open
            problem = Problem.unexpected(error).as_pi()
            self._arrive_result(number, HostResult.failed(call.call_id, problem["code"], problem["message"]), True)
        finally:
            self._calls.pop(number, None)
            if isinstance(results, AsyncGenerator):
                await results.aclose()  # left to the interpreter, closing it would cost a task of its own

    def _arrive_result(self, number: int, result: HostResult, last: bool, *, attend: bool = False) -> None:
        body = _error(result) if result.is_error else result.output
        flags = (int(result.is_error), int(last), int(result.chunk is not None))
        self._inbox.append(("result", number, "", _encode([*flags, body])))
        self._kick(attend)

    async def _taken(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._delivered.append(future)
        await future

    def answer_sync(self, request: bytes) -> bytes:
        """Make a synchronous host call on the owner's thread, which waits no longer than the extension's caller."""
        asked = said.read_sync(request)
        if asked.number <= self._last_sync:
            raise EngineTrap("engine", f"the call id {asked.number} was used before")
        self._last_sync = asked.number
        expires = None
        for waiter in list(self._waiters.values()):
            if waiter.expires is not None and (expires is None or waiter.expires < expires):
                expires = waiter.expires
        limit = SYNC_SECONDS if expires is None else max(0.001, expires - self._loop.time())
        timeout_ms = min(int(limit * 1000), asked.timeout_ms if asked.timeout_ms is not None else 2**53)
        call = HostCall(self.call_id(asked.number), asked.capability, asked.method, asked.params, timeout_ms)
        self._sync_call = call.call_id
        if self._closed or self.stopped is not None:
            raise EngineTrap("engine", "the extension was closed")
        result = self._dispatcher.call_sync(call, self._name)
        self._sync_call = None
        if self.stopped is not None:
            raise EngineTrap("engine", "the extension was stopped")
        return _encode([0, _error(result)] if result.is_error else [1, result.output])

    # -- the end of a VM --------------------------------------------------------------------------------------------

    def _lost(self, trap: EngineTrap) -> None:
        """Tell the waiting callers that the VM is gone, drop it, and let the owner decide what comes next (D3, D4)."""
        isolate, self.isolate = self.isolate, None
        self.generation += 1
        if isolate is not None:
            self._owner.submit(isolate.close, lambda _: None)
        self._silence(trap_problem(trap, self._name))
        self._on_trap(trap)

    def _silence(self, problem: Problem) -> None:
        self._inbox.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for number, task in list(self._calls.items()):
            self._dispatcher.cancel(self.call_id(number))
            task.cancel()
        self._calls.clear()
        for waiter in list(self._waiters.values()):
            if not waiter.future.done():
                waiter.future.set_exception(problem)
        self._waiters.clear()
        for future in self._delivered:
            future.cancel()
        self._delivered.clear()


def _error(result: HostResult) -> list[Any]:
    error = result.error
    if error is None:
        return ["internal", "the host call failed without a reason", {}, False]
    return [error.code, error.message, error.details or {}, bool(error.retryable)]
