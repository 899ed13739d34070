"""The only door out of an extension (Pi §3.2): derive, compare, decide, perform, leave evidence.

Invariants:

- D1  No connector runs before policy has allowed the derived capability for this extension.
- D2  A claim that differs from the derived capability is `invalid_request`, and nothing is performed.
- D3  Every call that is admitted leaves host_call.start, policy.decision and host_call.end, in that order. Of an
      extension that makes very many, a repeat that changed nothing is counted in one record (`repeats.py`).
- D4  A call ends once: with a result, an error, a timeout or a cancellation; nothing follows its end.
- D5  Synchronous and asynchronous calls pass through the same steps.
- D6  A person is asked at most once per extension and capability, unless they said "once"; without a person the
      answer is no. What was asked and answered stands in the records between the first decision and the second.
- D7  What a person decided for a session ends with that session.
- D8  A yes for a path outside the project makes that path, and no other, reachable at once: for the call that asked,
      and for as long as the yes holds.
- D9  A call is weighed before anything else reads it: what is kept, shown or looked up has a largest size.
- D10 An extension that passes a quota is stopped: this call and every later one is refused.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Literal

import msgspec

from forestay.extensions import capabilities
from forestay.extensions.connectors.contract import Call, Connector, Output, Waiting
from forestay.extensions.connectors.paths import Roots, protected_problem
from forestay.extensions.consent import Consent, Question, Questions
from forestay.extensions.evidence import Event, Evidence, weighed_params
from forestay.extensions.flight import Flight, Learned, Subject
from forestay.extensions.grants import Grants
from forestay.extensions.parts import CREDITS, Stream, own_thread
from forestay.extensions.protocol import Chunk, HostCall, HostCallError, HostResult
from forestay.extensions.quotas import Quotas
from forestay.extensions.repeats import Key
from forestay.kernel import (
    Clock,
    Decision,
    Grant,
    Policy,
    Problem,
    Request,
    Scope,
    SubjectRules,
    SystemClock,
    Weighed,
    cut,
    redact_text,
)

MAX_PARALLEL = 64
SYNC_LIMIT_MS = 600_000
_GRANTED_RULES = ("subject-allow", "default")
MAX_NAME = 65_536  # characters of a path, an address or a name
_NAMES = ("path", "prefix", "url", "name", "to", "target", "cwd", "op", "channel")
MAX_KEPT = 1024 * 1024  # bytes of a call whose parameters the host keeps, shows or passes on
_KEEPING = ("session", "ui", "events", "env")  # a log line is cut by its connector
_ASKING = frozenset(("read", "env"))  # capabilities whose use changes nothing


class Dispatcher:
    """Performs the host calls of all extensions of one host."""

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
        clock: Clock | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.policy = policy
        self._base = policy
        self._learned: list[Learned] = []
        self._connectors = {connector.method: connector for connector in connectors}
        self._evidence = evidence
        self._quotas = quotas
        self._clock = clock or SystemClock()
        self._questions = Questions(consent, grants, weigh=weigh, hold=hold)
        self._reach = reach  # the folders that a policy opens to a subject
        self._subjects: dict[str, Subject] = {}
        self._running: dict[str, Flight] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = loop
        if loop is None:
            self.attend()
        self._threads = ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="forestay-connector")

    def attend(self) -> None:
        """Take the running loop, if there is one, as the place where persons, models and sessions are asked."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            pass

    def learn(self, subject: str, effect: Literal["allow", "deny"], grant: Grant, *, session: bool = False) -> None:
        """A decision that holds as long as this dispatcher, or as this session, whatever the ledger says later."""
        self._learned.append(Learned(subject, effect, grant, session))
        self.policy = _with(self.policy, subject, effect, grant)
        self._open_folders(subject)

    def end_session(self) -> None:
        """Another session begins: what was decided for the one before it is forgotten (D7)."""
        self._learned = [item for item in self._learned if not item.session]
        self.renew(self._base)

    def renew(self, base: Policy, settled: Iterable[tuple[str, str]] = ()) -> None:
        """Other rules from now on; what a person said about the `settled` (subject, capability) pairs is outdated."""
        outdated = set(settled)
        self._base = base
        self._learned = [
            item
            for item in self._learned
            if item.grant.source != "person" or (item.subject, item.grant.capability) not in outdated
        ]
        for item in self._learned:
            base = _with(base, item.subject, item.effect, item.grant)
        self.policy = base
        self._open_folders(*self._subjects)

    def _open_folders(self, *subjects: str) -> None:
        """What policy allows is within reach from the next call on (D8)."""
        for name in subjects if self._reach is not None else ():
            known = self._subjects.get(name)
            if known is not None and self._reach is not None:
                self._subjects[name] = msgspec.structs.replace(known, roots=self._reach(name, self.policy))

    def admit(self, subject: Subject) -> None:
        """Make an extension known; calls of unknown ones are refused."""
        self.attend()
        self._subjects[subject.id] = subject

    def dismiss(self, extension: str) -> None:
        """Forget an extension and stop what it has under way."""
        self._subjects.pop(extension, None)
        for flight in list(self._running.values()):
            if flight.subject.id == extension:
                flight.stop()

    def close(self) -> None:
        """Stop every call, wait for the connectors, and write what is left."""
        for flight in list(self._running.values()):
            flight.stop()
        self._threads.shutdown(wait=True)
        self._evidence.close()

    # The two ways in (D5)

    async def call(self, call: HostCall, extension: str) -> AsyncIterator[HostResult]:
        """Perform `call`; a streamed one gives parts and then its end."""
        loop = self._loop = asyncio.get_running_loop()
        try:
            flight = self._open(call, extension)
        except Problem as problem:
            yield _error(call, problem)
            return
        stream = Stream(loop) if _streams(call) else None
        end: HostResult | None = None
        try:
            connector = self._connector(call.method)
            decision = self._decide(flight)
            if decision.effect == "prompt":
                decision = await self._settle(flight, decision)
            self._enter(flight, decision, stream)
            work = self._work(connector, flight)
            work.add_done_callback(_heard)
            if stream is not None:
                work.add_done_callback(lambda _: stream.finish())
                async for part in stream.parts(work, self._patience(flight)):
                    yield HostResult(call.call_id, part.output, False, chunk=part.chunk)
            output = await asyncio.wait_for(asyncio.shield(work), self._patience(flight))
            end = self._ok(flight, output, stream)
        except (Problem, TimeoutError) as error:
            end = self._failed(flight, _as_problem(error), stream)
        except Exception as error:  # noqa: BLE001 - the door must answer whatever a connector does
            end = self._failed(flight, Problem.unexpected(error), stream)
        finally:
            if end is None:  # the reader went away, or its task was cancelled
                self._failed(flight, Problem("cancelled", "The caller went away."), stream)
        yield end

    def call_sync(self, call: HostCall, extension: str) -> HostResult:
        """As `call`, on the extension's own thread, which waits."""
        try:
            flight = self._open(call, extension)
        except Problem as problem:
            return _error(call, problem)
        try:
            connector = self._connector(call.method)
            decision = self._decide(flight)
            if decision.effect == "prompt":
                flight.asking = self._posted(self._settle(flight, decision))
                decision = flight.asking.result()
            self._enter(flight, decision, None, default_ms=SYNC_LIMIT_MS)
            assert flight.call is not None
            done: Any = connector.run(flight.call, call.params)
            if getattr(connector, "waits", False):
                posted = self._posted(done)
                flight.call.on_cancel(posted.cancel)
                done = posted.result(self._patience(flight))
            output: Output = done
            return self._ok(flight, output, None)
        except (Problem, TimeoutError, CancelledError) as error:
            return self._failed(flight, _as_problem(error), None)
        except Exception as error:  # noqa: BLE001 - the door must answer whatever a connector does
            return self._failed(flight, Problem.unexpected(error), None)

    def cancel(self, call_id: str) -> None:
        flight = self._running.get(call_id)
        if flight is not None:
            flight.stop()

    def cancel_token(self, extension: str, token: str) -> None:
        """Stop every call that the extension made under this token; again, or too late, does nothing (Pi §3.2)."""
        for flight in list(self._running.values()):
            if flight.subject.id == extension and flight.request.cancel_token == token:
                flight.stop()

    # The steps

    def _open(self, call: HostCall, extension: str) -> Flight:
        """Who asks, for what (D2); the call is now on record."""
        subject = self._subjects.get(extension)
        if subject is None:
            raise Problem("permission_denied", f"No extension {extension[:80]!r} is loaded here.")
        started = self._clock.monotonic()
        if self._quotas is not None:
            self._quotas.call(extension, started)
        flight = Flight(subject, call, "", started)
        if not self._evidence.in_full(flight.correlation) and not _streams(call):
            flight.held = []
        try:
            flight.params_hash, flight.size = weighed_params(call.method, call.params)
            if flight.size > MAX_NAME:
                _check_size(call, flight.size)
            flight.capability = capabilities.derive(call.method, call.params)
            self._check_claim(call, flight.capability)
        except Problem as problem:
            flight.capability = call.capability[:40] or "unknown"
            self._record(flight, self._start(flight))
            self._record(flight, self._end(flight, problem))
            raise
        with self._lock:
            if call.call_id in self._running:
                raise Problem("invalid_request", f"The call id {call.call_id[:80]!r} is in use.", at="$.call_id")
            self._running[call.call_id] = flight
        try:
            self._record(flight, self._start(flight))
        except Problem:
            self._running.pop(call.call_id, None)
            raise
        return flight

    def _check_claim(self, call: HostCall, derived: str) -> None:
        if call.capability and call.capability != derived:
            raise Problem(
                "capability_mismatch",
                f"The call claims {call.capability[:40]!r} and needs {derived!r}.",
                claimed=call.capability[:40],
                derived=derived,
            )

    def _connector(self, method: str) -> Connector | Waiting:
        connector = self._connectors.get(method)
        if connector is None:
            raise Problem("invalid_request", f"Nothing here answers {method!r}.", at="$.method")
        return connector

    def _decide(self, flight: Flight) -> Decision:
        """What policy says about the call as it stands (D1)."""
        call, subject = flight.request, flight.subject
        if flight.capability == capabilities.NONE:
            return Decision("allow", "no-capability", "Pure computation needs no capability.", {})
        allowed = subject.methods.get(flight.capability)
        if allowed and call.method not in allowed:
            reason = f"The manifest of {subject.id} limits {flight.capability} to {', '.join(allowed)}."
            return Decision(
                "deny", "manifest-methods", reason, {"capability": flight.capability, "method": call.method}
            )
        resource = capabilities.resource(call.method, call.params, flight.roots)
        flight.decided.add((flight.capability, resource))
        by_name = call.method == "env" and resource is not None and _looks_secret(resource)
        decision = self.policy.decide(Request(subject.id, flight.capability, call.method, resource, by_name))
        if decision.rule == "mode-strict" and resource is None and self._has_scoped(subject.id, flight.capability):
            # Only parts are granted: the connector shows those parts, and the extension's own folders.
            return Decision("downgrade", "scope-filter", "Only what was granted is reachable.", decision.evidence)
        return decision

    async def _settle(self, flight: Flight, decision: Decision) -> Decision:
        """What a person says, when policy says to ask (D6); the first decision is on record before they are asked."""
        about = decision.evidence
        request = Request(flight.subject.id, flight.capability, flight.request.method, about.get("resource"))
        before = self._clock.monotonic()
        held = flight.roots.guarded(flight.capability, request.resource)
        if held is not None:
            raise protected_problem(str(request.resource), held)  # no yes would open it
        asked: list[str | None] = []

        def told(name: str, data: dict[str, Any]) -> None:
            self._release(flight)
            if name == "consent.asked":
                asked.append(request.resource)
                self._record(flight, self._decision(flight, decision))
            self._record(flight, Event(name, _redacted(data), flight.ids))

        scope = capabilities.asked_scope(
            flight.capability, flight.request.method, flight.request.params, request.resource
        )
        settled = await self._questions.settle(self, request, decision, self._clock.now_ms(), told, scope)
        flight.asked_for = self._clock.monotonic() - before
        if settled.rule == "person-allow" and settled.allowed:
            limits = tuple(settled.evidence.get("scope", ()))
            flight.by_person[flight.capability] = Scope.of(flight.capability, limits) if limits else Scope()
            flight.roots = self._subjects.get(flight.subject.id, flight.subject).roots
            if asked and flight.capability in ("read", "write") and _is_outside(request.resource):
                self._open_asked(flight, request)
        return settled

    def _open_asked(self, flight: Flight, request: Request) -> None:
        """The path outside the project that a person was asked about and allowed, within reach of this call (D8)."""
        path, who = str(request.resource), flight.subject.id
        flight.opened.add((request.capability, path))
        grant = Grant(request.capability, Scope(paths=(path,)), source="person")
        if self._reach is not None:
            flight.roots = self._reach(who, self.policy.allowing(who, grant))
        holds = self.policy.decide(request).allowed  # for longer than this call
        if holds and not self._names(who, request.capability, path) and "*" not in path and "?" not in path:
            self.learn(who, "allow", grant, session=True)

    def _names(self, subject: str, capability: str, path: str) -> bool:
        """Whether a grant covers a path outside the project by its name: one without a scope ends at the project."""
        rules, now = self.policy.subjects.get(subject, SubjectRules()), self._clock.now_ms()
        request = Request(subject, capability, resource=path)
        grants = [grant for grant in (*rules.allow, *self.policy.defaults) if grant.scope.paths]
        return any(msgspec.structs.replace(grant, methods=()).covers(request, now) for grant in grants)

    def _has_scoped(self, subject: str, capability: str) -> bool:
        rules = self.policy.subjects.get(subject)
        grants = (*self.policy.defaults, *(rules.allow if rules else ()))
        return capability in ("env", "read", "write") and any(grant.capability == capability for grant in grants)

    def _enter(self, flight: Flight, decision: Decision, stream: Stream | None, default_ms: int | None = None) -> None:
        """Record the decision; go on only when it allows (D1, D3)."""
        if flight.capability != capabilities.NONE:
            self._record(flight, self._decision(flight, decision))
            if decision.allowed and flight.capability not in _ASKING:
                self._release(flight)  # what may change something is on record before it is done
        decision.require()
        timeout = flight.request.timeout_ms if flight.request.timeout_ms is not None else default_ms
        call = Call(
            extension=flight.subject.id,
            call_id=flight.request.call_id,
            roots=flight.roots,
            permit=lambda capability, resource: self._permit(flight, capability, resource),
            granted=lambda capability, resource: self._granted(flight, capability, resource),
            refused=lambda capability, resource: self._refused(flight, capability, resource),
            emit=stream.emit if stream is not None else None,
            room=stream.room if stream is not None else None,
            scopes=lambda capability: self._scopes(flight.subject.id, capability),
            deadline=flight.started + flight.asked_for + timeout / 1000 if timeout is not None else None,
            monotonic=self._clock.monotonic,
            context=flight.request.context,
        )
        if stream is not None:
            call.on_cancel(stream.abandon)
        flight.call = call

    def _permit(self, flight: Flight, capability: str, resource: str | None) -> None:
        """Policy again, for what a connector found on its way: where a link led, where a redirect points."""
        outside = _is_outside(resource)
        if (capability, resource) in flight.decided and not outside:
            return
        method = flight.request.method
        decision = self.policy.decide(Request(flight.subject.id, capability, method, resource))
        if decision.effect == "prompt" and not outside and flight.allows(capability, resource):
            decision = Decision("allow", "person-allow", f"A person allowed {capability} here.", decision.evidence)
        asked = (capability, resource) in flight.opened
        if outside and decision.effect == "prompt" and asked:
            decision = Decision("allow", "person-allow", f"A person allowed {capability} here.", decision.evidence)
        elif (
            outside
            and not asked
            and decision.effect != "deny"
            and not self._names(flight.subject.id, capability, str(resource))
        ):
            reason = f"{resource} lies outside the project and no grant names it."
            decision = Decision("deny", "outside-project", reason, decision.evidence)
        if (capability, resource) not in flight.decided or not decision.allowed:
            self._record(flight, self._decision(flight, decision))
        decision.require()
        flight.decided.add((capability, resource))

    def _granted(self, flight: Flight, capability: str, resource: str) -> bool:
        """Whether policy allows it without asking; `capability!` only when a grant names the resource."""
        plain = capability.rstrip("!")
        if plain == capability and not _is_outside(resource) and flight.allows(plain, resource or None):
            return True
        request = Request(flight.subject.id, plain, flight.request.method, resource or None, plain != capability)
        if plain in ("read", "write") and _is_outside(resource) and not self._names(flight.subject.id, plain, resource):
            return False
        return self.policy.decide(request).allowed

    def _scopes(self, subject: str, capability: str) -> list[str]:
        """Patterns that are granted; none when a denial is about the same capability, for a process cannot tell."""
        rules, now = self.policy.subjects.get(subject, SubjectRules()), self._clock.now_ms()
        if any(grant.capability == capability for grant in (*rules.deny, *self.policy.denials)):
            return []
        grants = [grant for grant in (*rules.allow, *self.policy.defaults) if grant.capability == capability]
        return [pattern for grant in grants if grant.covers_time(now) for pattern in grant.scope.patterns]

    def _refused(self, flight: Flight, capability: str, resource: str) -> bool:
        decision = self.policy.decide(Request(flight.subject.id, capability, flight.request.method, resource))
        return decision.rule in ("subject-deny", "global-deny")

    def _work(self, connector: Connector | Waiting, flight: Flight) -> asyncio.Future[Output]:
        assert flight.call is not None and self._loop is not None
        if getattr(connector, "waits", False):
            task = asyncio.ensure_future(connector.run(flight.call, flight.request.params))  # type: ignore[arg-type]
            loop = self._loop
            flight.call.on_cancel(lambda: _cancel_task(loop, task))
            return task
        if flight.request.params.get("op") == "watch" or flight.request.method == "exec":
            call, params = flight.call, flight.request.params
            return own_thread(self._loop, lambda: connector.run(call, params))  # type: ignore[arg-type,return-value]
        return self._loop.run_in_executor(self._threads, connector.run, flight.call, flight.request.params)  # type: ignore[arg-type]

    def _patience(self, flight: Flight) -> float | None:
        """Seconds that are left; the connector gets a moment more, to end by itself and tell how far it came."""
        call = flight.call
        if call is None or call.deadline is None:
            return None
        return max(0.0, call.deadline - self._clock.monotonic()) + 0.25

    def _posted(self, work: Any) -> Future[Any]:
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

    # Ends (D4) and records (D3)

    def _ok(self, flight: Flight, output: Output, stream: Stream | None) -> HostResult:
        self._record(flight, self._end(flight, None))
        self._land(flight)
        chunk = Chunk(stream.index, True) if stream is not None else None
        return HostResult(flight.request.call_id, output, False, chunk=chunk)

    def _failed(self, flight: Flight, problem: Problem, stream: Stream | None) -> HostResult:
        if flight.call is None and not flight.ended:
            pass
        elif flight.call is not None:
            if flight.call.cancelled.is_set() and problem.key not in ("timeout", "capability_denied"):
                problem = Problem("cancelled", "The call was cancelled.")
            flight.call.cancel()
        if not flight.ended:
            try:
                self._record(flight, self._end(flight, problem))
            except Problem as broken:
                problem = broken
        self._land(flight)
        chunk = Chunk(stream.index, True) if stream is not None else None
        error = _error(flight.request, problem)
        return HostResult(error.call_id, {}, True, error.error, chunk)

    def _land(self, flight: Flight) -> None:
        flight.ended = True
        self._running.pop(flight.request.call_id, None)
        if self._quotas is None or flight.call is None:
            return
        if flight.call.wrote:
            self._quotas.spend(flight.subject.id, "storage", flight.call.wrote)
        if flight.request.method in ("session", "ui"):
            self._quotas.spend(flight.subject.id, "session", flight.size)

    def _record(self, flight: Flight, event: Event) -> None:
        if flight.capability == capabilities.NONE:
            return
        if flight.held is None:
            self._evidence.write(flight.correlation, event)
            return
        flight.held.append(self._evidence.stamped(event))
        if event.name == "host_call.end":
            held, flight.held = flight.held, None
            key, data = _summary(held)
            self._evidence.repeat(flight.correlation, key, data, held)

    def _release(self, flight: Flight) -> None:
        """Write the records that were held back: the call is no repeat."""
        held, flight.held = flight.held, None
        if held:
            self._evidence.write(flight.correlation, *held)

    def _start(self, flight: Flight) -> Event:
        call = flight.request
        data: dict[str, Any] = {
            "capability": flight.capability,
            "method": call.method[:40],
            "params_hash": flight.params_hash,
            "runtime": flight.subject.runtime,
        }
        if call.timeout_ms is not None:
            data["timeout_ms"] = call.timeout_ms
        return Event("host_call.start", data, flight.ids)

    def _decision(self, flight: Flight, decision: Decision) -> Event:
        data = {
            **_redacted(decision.evidence),
            "effect": decision.effect,
            "rule": decision.rule,
            "reason": _told(decision.reason),
            "runtime": flight.subject.runtime,
        }
        return Event("policy.decision", data, flight.ids, "info" if decision.allowed else "warn")

    def _end(self, flight: Flight, problem: Problem | None) -> Event:
        data: dict[str, Any] = {
            "capability": flight.capability,
            "method": flight.request.method[:40],
            "duration_ms": round((self._clock.monotonic() - flight.started) * 1000, 3),
            "is_error": problem is not None,
            "runtime": flight.subject.runtime,
        }
        if flight.call is not None:
            data.update(flight.call.facts)
        if problem is not None:
            data["error"] = {"code": problem.row.pi, "problem": problem.key}
        return Event("host_call.end", data, flight.ids, "info" if problem is None else "warn")


def _is_outside(resource: str | None) -> bool:
    return resource is not None and resource.startswith("/")


def _check_size(call: HostCall, size: int) -> None:
    """No name and nothing that is kept is larger than it may be (D9)."""
    if call.method in _KEEPING and size > MAX_KEPT:
        raise Problem(
            "payload_too_large",
            f"A call of {call.method} has {size} bytes; at most {MAX_KEPT} are taken.",
            limit=MAX_KEPT,
            observed=size,
        )
    given = call.params.get("input") if call.method == "tool" else None
    for params in (call.params, given if isinstance(given, Mapping) else {}):
        for name in _NAMES:
            value = params.get(name)
            if isinstance(value, str) and len(value) > MAX_NAME:
                told = f"`{name}` has {len(value)} characters; at most {MAX_NAME} are taken."
                raise Problem("payload_too_large", told, at=f"$.params.{name}", limit=MAX_NAME, observed=len(value))


def _with(policy: Policy, subject: str, effect: Literal["allow", "deny"], grant: Grant) -> Policy:
    return policy.allowing(subject, grant) if effect == "allow" else policy.denying(subject, grant)


def _summary(events: list[Event]) -> tuple[Key, dict[str, Any]]:
    """What makes two calls the same (what was asked, every decision, how it ended), and what is told of them."""
    start, end = events[0].data, events[-1].data
    decisions = [event.data for event in events[1:-1]]
    error = end.get("error") or {}
    key = (
        *(start.get(name) for name in ("capability", "method", "params_hash")),
        *((item.get("effect"), item.get("rule"), item.get("resource"), item.get("capability")) for item in decisions),
        error.get("problem"),
    )
    last = {name: value for name, value in (decisions[-1] if decisions else {}).items() if name != "scope"}
    return key, {**last, **{name: start[name] for name in start if name != "timeout_ms"}, **end}


_OURS = frozenset(("capability", "method", "source", "subject", "rule"))
"""Fields whose words are the host's own; everything else may hold what an extension chose."""


@functools.lru_cache(maxsize=2048)  # an extension asks for the same few things again and again
def _told(text: str) -> str:
    return redact_text(cut(text, 4096))


def _redacted(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _told(value) if isinstance(value, str) and key not in _OURS else value for key, value in data.items()}


def _heard(work: asyncio.Future[Any]) -> None:
    """An end that comes after the call was given up is nobody's surprise."""
    if not work.cancelled():
        work.exception()


def _cancel_task(loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)


def _streams(call: HostCall) -> bool:
    return call.params.get("stream") is True or (call.method == "fs" and call.params.get("op") == "watch")


def _looks_secret(name: str) -> bool:
    from forestay.extensions.connectors.environment import looks_secret

    return looks_secret(name)


def _as_problem(error: Exception) -> Problem:
    if isinstance(error, CancelledError):
        return Problem("cancelled", "The call was cancelled.")
    return error if isinstance(error, Problem) else Problem("timeout", "The call took longer than it may.")


def _error(call: HostCall, problem: Problem) -> HostResult:
    body = problem.as_pi()
    error = HostCallError(body["code"], body["message"], {**body["details"], "problem": problem.key}, body["retryable"])
    return HostResult(call.call_id, {}, True, error)


__all__ = ["CREDITS", "Dispatcher", "Question", "Subject"]
