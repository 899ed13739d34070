"""The only door out of a guest (Pi §3.2): derive, compare, decide, perform, leave evidence.

A call names its guest, its method and its parameters. What runs the guest does not matter here.

- D1  No connector runs before policy has allowed the derived capability for this extension.
- D2  A claim that differs from the derived capability is `invalid_request`, and nothing is performed.
- D3  Every call that is admitted leaves host_call.start, policy.decision and host_call.end, in that order. Of an
      extension that makes very many, a repeat that changed nothing is counted in one record (`repeats.py`).
- D4  A call ends once: with a result, an error, a timeout or a cancellation; nothing follows its end.
- D5  Synchronous and asynchronous calls pass through the same steps.
- D6  A call is weighed before anything else reads it: what is kept, shown or looked up has a largest size.
- D7  An extension that passes a quota is stopped: this call and every later one is refused.
- D8  What may not happen twice goes past the keeper, after policy has allowed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar

from forestay.extensions.api_table import METHODS, NONE
from forestay.extensions.authority import Authority, PendingPolicy, Quotas
from forestay.extensions.capabilities import derive
from forestay.extensions.connectors.contract import Call, Connector, Output, Waiting
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.consent import Consent, Questions
from forestay.extensions.evidence import Evidence, weighed_params
from forestay.extensions.grants import Grants
from forestay.extensions.host_call import CallKeeper, CallRecords, Kind, PendingCall, Subject, kind_of
from forestay.extensions.protocol import Chunk, HostCall, HostCallError, HostResult
from forestay.extensions.result_stream import ResultStream, own_thread
from forestay.kernel import Clock, Decision, Grant, Policy, Problem, Request, SystemClock, Weighed

T = TypeVar("T")
MAX_PARALLEL = 64
SYNC_LIMIT_MS = 600_000
MAX_NAME = 65_536  # characters of a path, an address or a name
_NAMES = ("path", "prefix", "url", "name", "to", "target", "cwd", "op", "channel")
MAX_KEPT = 1024 * 1024  # bytes of a call whose parameters the host keeps, shows or passes on
_AT_ONCE = {"fs": ("exists", "stat", "access"), "env": (None,)}
"""By method: the operations that look at one thing and read nothing."""
_HARMLESS = frozenset(("read", "env"))  # capabilities whose use changes nothing
_GRACE = 0.25  # seconds beyond a deadline, in which a connector ends by itself and tells how far it came


class Dispatcher:
    """Performs the host calls of all guests of one host."""

    def __init__(
        self,
        policy: Policy,
        connectors: Iterable[Connector | Waiting],
        evidence: Evidence,
        *,
        consent: Consent | None = None,
        grants: Grants | None = None,
        weigh: Callable[[str, str], Weighed | None] = lambda _extension, _capability: None,
        hold: Callable[[str, bool], None] = lambda _extension, _held: None,
        reach: Callable[[str, Policy], Roots] | None = None,
        quotas: Quotas | None = None,
        keeper: CallKeeper | None = None,
        clock: Clock | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        connectors = list(connectors)
        self._connectors = {item.method: item for item in connectors if isinstance(item, Connector)}
        self._waiting = {item.method: item for item in connectors if isinstance(item, Waiting)}
        self._quotas = quotas
        self._keeper = keeper
        self._clock = clock or SystemClock()
        self._records = CallRecords(evidence, self._clock)
        questions = Questions(consent, grants, weigh=weigh, hold=hold)
        self.authority = Authority(policy, questions, self._records, self._clock, reach)
        self._running: dict[str, PendingCall] = {}
        self._loop: asyncio.AbstractEventLoop | None = loop
        if loop is None:
            self.attend()
        self._threads = ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="forestay-connector")

    def attend(self) -> None:
        """Ask persons, models and sessions on the running loop, if there is one."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            pass

    def learn(self, subject: str, effect: Literal["allow", "deny"], grant: Grant) -> None:
        """A decision that holds as long as this dispatcher, whatever the ledger says later."""
        self.authority.learn(subject, effect, grant)

    def admit(self, subject: Subject) -> None:
        """Make an extension known; calls of unknown ones are refused."""
        self.attend()
        self.authority.admit(subject)

    def dismiss(self, extension: str) -> None:
        """Forget an extension and stop what it has under way."""
        self.authority.dismiss(extension)
        self._stop(lambda pending: pending.subject.id == extension)

    def close(self) -> None:
        """Stop every call, wait for the connectors, and write what is left."""
        self._stop(lambda _: True)
        self._threads.shutdown(wait=True)
        self._records.close()

    # The two ways in (D5)

    async def call(self, call: HostCall, extension: str) -> AsyncIterator[HostResult]:
        """Perform `call`; a streamed one gives parts and then its end."""
        if not _streams(call):
            yield await self.answer(call, extension)
            return
        loop = self._loop = asyncio.get_running_loop()
        try:
            pending = self._open(call, extension)
        except Problem as problem:
            yield _error(call, problem)
            return
        stream, end = ResultStream(loop), None
        try:
            entered = self._enter(pending, await self._decided(pending), stream)
            if (kind := self._kind(pending)) is not None:
                await self._kept(pending, entered, kind)
            work = self._work(pending, entered)
            work.add_done_callback(_heard)
            work.add_done_callback(lambda _: stream.finish())
            async for part in stream.parts(self._patience(pending)):
                yield HostResult(call.call_id, part.output, False, chunk=part.chunk)
            end = self._ok(pending, await self._done(pending, work), stream)
        except Exception as error:  # noqa: BLE001 - the door must answer whatever a connector does
            end = self._failed(pending, _as_problem(error), stream)
        finally:
            if end is None:  # the reader went away, or its task was cancelled
                self._failed(pending, Problem("cancelled", "The caller went away."), stream)
        yield end

    async def answer(self, call: HostCall, extension: str) -> HostResult:
        """As `call`, for one that does not stream."""
        self._loop = asyncio.get_running_loop()
        try:
            pending = self._open(call, extension)
        except Problem as problem:
            return _error(call, problem)
        end: HostResult | None = None
        try:
            entered = self._enter(pending, await self._decided(pending), None)
            kind = self._kind(pending)
            output = await (self._performed(pending, entered) if kind is None else self._kept(pending, entered, kind))
            end = self._ok(pending, output, None)
        except Exception as error:  # noqa: BLE001 - the door must answer whatever a connector does
            end = self._failed(pending, _as_problem(error), None)
        finally:
            if end is None:  # the caller's task was cancelled
                self._failed(pending, Problem("cancelled", "The caller went away."), None)
        return end

    def call_sync(self, call: HostCall, extension: str) -> HostResult:
        """As `call`, on the extension's own thread, which waits."""
        try:
            pending = self._open(call, extension)
        except Problem as problem:
            return _error(call, problem)
        try:
            decision = self.authority.decide(pending)
            if decision.effect == "prompt":
                pending.asking = self._posted(self.authority.settle(pending, decision))
                decision = pending.asking.result()
            entered = self._enter(pending, decision, None, default_ms=SYNC_LIMIT_MS)
            waiting = self._waiting_for(pending)
            if (kind := self._kind(pending)) is not None:
                posted = self._posted(self._kept(pending, entered, kind))
                entered.on_cancel(partial(_cancelled, posted))
                output = posted.result()
            elif waiting is None:
                output = self._connectors[call.method].run(entered, call.params)
            else:
                posted = self._posted(waiting.wait(entered, call.params))
                entered.on_cancel(partial(_cancelled, posted))
                output = posted.result(self._patience(pending))
            return self._ok(pending, output, None)
        except Exception as error:  # noqa: BLE001 - the door must answer whatever a connector does
            return self._failed(pending, _as_problem(error), None)

    def is_quick(self, call: HostCall, extension: str) -> bool:
        """Whether `call_sync` may answer on the event loop's own thread: it waits for nobody, and takes one look."""
        params = call.params
        if params.get("op") not in _AT_ONCE.get(call.method, ()) or params.get("stream") is True:
            return False
        return not self.authority.asks(call, extension)

    def own_call(self, extension: str) -> Call:
        """Returns what an extension may do now, for a program that the host starts for it. Records nothing."""
        pending = PendingCall(self.authority.subject(extension), HostCall("", "", "exec", {}), self._clock.monotonic())
        return Call(
            extension, "", pending.roots, PendingPolicy(self.authority, pending), monotonic=self._clock.monotonic
        )

    def may(self, extension: str, capability: str) -> bool:
        """Whether policy does not refuse this outright now. Records nothing."""
        return self.authority.policy.decide(Request(extension, capability)).effect != "deny"

    def cancel(self, call_id: str) -> None:
        pending = self._running.get(call_id)
        if pending is not None:
            pending.stop()

    def cancel_token(self, extension: str, token: str) -> None:
        """Stop every call that the extension made under this token; again, or too late, does nothing (Pi §3.2)."""
        self._stop(lambda pending: pending.subject.id == extension and pending.request.cancel_token == token)

    def _stop(self, which: Callable[[PendingCall], bool]) -> None:
        for pending in list(self._running.values()):
            if which(pending):
                pending.stop()

    # The steps

    def _open(self, call: HostCall, extension: str) -> PendingCall:
        """Check the caller and the request, and put the call on record (D2, D6, D7)."""
        subject = self.authority.subject(extension)
        started = self._clock.monotonic()
        if self._quotas is not None:
            self._quotas.call(extension, started)
        pending = PendingCall(subject, call, started)
        streams = _streams(call)
        try:
            pending.params_hash, pending.size = weighed_params(call.method, call.params)
            if pending.size > MAX_NAME:
                _check_size(call, pending.size)
            pending.capability = derive(call.method, call.params)
            if call.capability:
                _check_claim(call, pending.capability)
            if call.method not in self._connectors and call.method not in self._waiting:
                raise Problem("invalid_request", f"Nothing here answers {call.method!r}.", at="$.method")
        except Problem as problem:
            pending.capability = call.capability[:40] or "unknown"
            self._records.started(pending, streams=streams)
            self._records.ended(pending, problem)
            raise
        if self._running.setdefault(call.call_id, pending) is not pending:
            raise Problem("invalid_request", f"The call id {call.call_id[:80]!r} is in use.", at="$.call_id")
        self._records.started(pending, streams=streams)
        return pending

    async def _decided(self, pending: PendingCall) -> Decision:
        """What policy says, or a person when policy says to ask."""
        decision = self.authority.decide(pending)
        return await self.authority.settle(pending, decision) if decision.effect == "prompt" else decision

    def _enter(
        self, pending: PendingCall, decision: Decision, stream: ResultStream | None, default_ms: int | None = None
    ) -> Call:
        """Record the decision; go on only when it allows (D1, D3)."""
        if pending.capability != NONE:
            self._records.decided(pending, decision)
            if pending.capability not in _HARMLESS and decision.allowed:
                self._records.release(pending)  # what may change something is on record before it is done
        decision.require()
        request = pending.request
        timeout = request.timeout_ms if request.timeout_ms is not None else default_ms
        call = pending.call = Call(
            pending.subject.id,
            request.call_id,
            pending.roots,
            PendingPolicy(self.authority, pending),
            parts=stream,
            deadline=pending.started + pending.asked_for + timeout / 1000 if timeout is not None else None,
            monotonic=self._clock.monotonic,
            context=request.context,
        )
        if stream is not None:
            call.on_cancel(stream.abandon)
        return call

    def _kind(self, pending: PendingCall) -> Kind | None:
        """What a call is to the keeper; None when it goes past none (D8)."""
        if self._keeper is None:
            return None
        return kind_of(pending.request, pending.capability, streams=_streams(pending.request))

    async def _kept(self, pending: PendingCall, entered: Call, kind: Kind) -> Output:
        """Perform a call past the keeper; of a streamed one, only what comes before it."""
        assert self._keeper is not None, "it said what the call is"
        request = pending.request

        async def perform(place: str | None) -> Output:
            if _streams(request):
                return {}
            entered.place = place
            return await self._performed(pending, entered)

        return await self._keeper.once(pending.subject.id, request, kind, perform)

    async def _performed(self, pending: PendingCall, entered: Call) -> Output:
        """What the connector of a call gives."""
        request = pending.request
        waiting = self._waiting_for(pending)
        if waiting is not None and entered.deadline is None:
            return await _awaited(waiting, entered, request.params)
        work = self._work(pending, entered)
        work.add_done_callback(_heard)
        return await self._done(pending, work)

    async def _done(self, pending: PendingCall, work: asyncio.Future[Output]) -> Output:
        begun, patience = asyncio.shield(work), self._patience(pending)  # a caller that leaves does not cut it
        try:
            return await (begun if patience is None else asyncio.wait_for(begun, patience))
        except asyncio.CancelledError:
            if work.cancelled():  # the call was cancelled, not its caller
                raise Problem("cancelled", "The call was cancelled.") from None
            raise

    def _work(self, pending: PendingCall, call: Call) -> asyncio.Future[Output]:
        """Start the connector: on the loop, on a thread of its own when it may take long, or in the pool."""
        loop, request, waiting = asyncio.get_running_loop(), pending.request, self._waiting_for(pending)
        params = request.params
        if waiting is not None:
            task = asyncio.ensure_future(waiting.wait(call, params))
            call.on_cancel(partial(_cancel_task, loop, task))
            return task
        connector = self._connectors[request.method]
        if request.method == "exec" or params.get("op") == "watch":
            return own_thread(loop, partial(connector.run, call, params))
        return loop.run_in_executor(self._threads, connector.run, call, params)

    def _waiting_for(self, pending: PendingCall) -> Waiting | None:
        """The connector that waits for the answer; a tool that is not built in is another extension's."""
        method = pending.request.method
        return self._waiting.get("tool.other" if method == "tool" == pending.capability else method)

    def _patience(self, pending: PendingCall) -> float | None:
        """Seconds that are left for a call, and a moment more for its connector."""
        call = pending.call
        if call is None or call.deadline is None:
            return None
        return max(0.0, call.deadline - self._clock.monotonic()) + _GRACE

    def _posted(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """`work` on the loop, for a thread that waits for it."""
        loop = self._loop
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if loop is None or loop is here or not loop.is_running():
            work.close()
            raise Problem("consent_required", "A synchronous call cannot wait here for somebody's answer.")
        return asyncio.run_coroutine_threadsafe(work, loop)

    # Ends (D4)

    def _ok(self, pending: PendingCall, output: Output, stream: ResultStream | None) -> HostResult:
        self._records.ended(pending, None)
        self._land(pending)
        chunk = None if stream is None else _last(stream)
        return HostResult(pending.request.call_id, output, False, None, chunk)

    def _failed(self, pending: PendingCall, problem: Problem, stream: ResultStream | None) -> HostResult:
        if pending.call is not None:
            if pending.call.cancelled.is_set() and problem.key not in ("timeout", "capability_denied"):
                problem = Problem("cancelled", "The call was cancelled.")
            pending.call.cancel()
        if not pending.ended:
            try:
                self._records.ended(pending, problem)
            except Problem as broken:
                problem = broken
        self._land(pending)
        return _error(pending.request, problem, _last(stream))

    def _land(self, pending: PendingCall) -> None:
        pending.ended = True
        self._running.pop(pending.request.call_id, None)
        if self._quotas is None or pending.call is None:
            return
        if pending.call.wrote:
            self._quotas.spend(pending.subject.id, "storage", pending.call.wrote)
        if pending.request.method in ("session", "ui"):
            self._quotas.spend(pending.subject.id, "session", pending.size)


def _check_claim(call: HostCall, derived: str) -> None:
    claimed = call.capability[:40]
    if call.capability != derived:
        told = f"The call claims {claimed!r} and needs {derived!r}."
        raise Problem("capability_mismatch", told, claimed=claimed, derived=derived)


def _check_size(call: HostCall, size: int) -> None:
    """No name and nothing that is kept is larger than it may be (D6)."""
    row = METHODS.get(call.method)
    if row is not None and row.keeps and size > MAX_KEPT:
        told = f"A call of {call.method} has {size} bytes; at most {MAX_KEPT} are taken."
        raise Problem("payload_too_large", told, limit=MAX_KEPT, observed=size)
    given = call.params.get("input") if call.method == "tool" else None
    for params in (call.params, given if isinstance(given, Mapping) else {}):
        for name in _NAMES:
            value = params.get(name)
            if isinstance(value, str) and len(value) > MAX_NAME:
                told = f"`{name}` has {len(value)} characters; at most {MAX_NAME} are taken."
                raise Problem("payload_too_large", told, at=f"$.params.{name}", limit=MAX_NAME, observed=len(value))


async def _awaited(waiting: Waiting, call: Call, params: Mapping[str, Any]) -> Output:
    """Wait for a connector here: a task of its own would cost two turns of the loop. It ends when it is cancelled."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            call.on_cancel(partial(_end_soon, loop, limit))
            return await waiting.wait(call, params)
    except TimeoutError:
        if limit.expired():
            raise Problem("cancelled", "The call was cancelled.") from None
        raise


def _end_soon(loop: asyncio.AbstractEventLoop, limit: asyncio.Timeout) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_end, limit, loop.time())


def _end(limit: asyncio.Timeout, now: float) -> None:
    with suppress(RuntimeError):  # it has ended already
        limit.reschedule(now)


def _heard(work: asyncio.Future[Any]) -> None:
    """Read a result that comes after the call was given up, so that asyncio does not report it as lost."""
    if not work.cancelled():
        work.exception()


def _cancel_task(loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)


def _streams(call: HostCall) -> bool:
    return call.params.get("stream") is True or (call.method == "fs" and call.params.get("op") == "watch")


def _last(stream: ResultStream | None) -> Chunk | None:
    return Chunk(stream.index, True) if stream is not None else None


def _cancelled(future: Future[Any]) -> None:
    future.cancel()


def _as_problem(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, CancelledError):
        return Problem("cancelled", "The call was cancelled.")
    if isinstance(error, TimeoutError):
        return Problem("timeout", "The call took longer than it may.")
    return Problem.unexpected(error)


def _error(call: HostCall, problem: Problem, chunk: Chunk | None = None) -> HostResult:
    body = problem.as_pi()
    error = HostCallError(body["code"], body["message"], {**body["details"], "problem": problem.key}, body["retryable"])
    return HostResult(call.call_id, {}, True, error, chunk)
