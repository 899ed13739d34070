"""What each extension may do, and how much: the policy in force, decisions of people, answers about calls, quotas.

- A1  A person is asked at most once per extension and capability, unless they said "once"; without a person the
      answer is no. The records of the question and of the answer stand between the two decisions.
- A2  What a person decided for a session ends with that session.
- A3  A yes for a path outside the project makes that path, and no other, reachable at once: for the call that asked,
      and for as long as the yes holds.

The quotas count what an extension uses of the host. An extension that passes one is stopped with a Problem.

- Q1  Each extension has its own counts: one that is stopped takes nothing from another.
- Q2  Bytes are counted over a day that begins with the first of them; what a session keeps is counted as long as it
      is kept. Calls are a bucket: so many a second, and twenty seconds' worth of them at once.
- Q3  A quota is passed once; from then on the extension is off until a person loads it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.extensions.api_table import NONE
from forestay.extensions.capabilities import asked_scope, derive, resource_of
from forestay.extensions.connectors.environment import looks_secret
from forestay.extensions.connectors.paths import Roots, protected_problem
from forestay.extensions.consent import Questions
from forestay.extensions.host_call import CallRecords, Learned, PendingCall, Subject
from forestay.extensions.protocol import HostCall
from forestay.kernel import (
    Clock,
    Decision,
    ExtensionQuotas,
    Grant,
    Policy,
    Problem,
    Request,
    Scope,
    SubjectRules,
    SystemClock,
)

_PARTLY = ("env", "read", "write")
"""Capabilities of which a connector can show the granted part when the whole is not granted."""
Used = Literal["evidence", "log", "storage", "session"]
BURST_SECONDS = 20
DAY = 86_400.0
_MB = 1_048_576
_TOLD = {
    "evidence": "left {used} MB of evidence within a day",
    "log": "logged {used} MB within a day",
    "storage": "wrote {used} MB to files within a day",
    "session": "gave the session and its notices {used} MB to keep",
}


class Authority:
    """Decides about the calls of the subjects that it knows."""

    def __init__(
        self,
        policy: Policy,
        questions: Questions,
        records: CallRecords,
        clock: Clock,
        reach: Callable[[str, Policy], Roots] | None,
    ) -> None:
        """`reach` gives the folders that a policy opens to a subject."""
        self.policy = policy
        self._base = policy
        self._learned: list[Learned] = []
        self._questions = questions
        self._records = records
        self._clock = clock
        self._reach = reach
        self._subjects: dict[str, Subject] = {}

    def admit(self, subject: Subject) -> None:
        self._subjects[subject.id] = subject

    def dismiss(self, subject: str) -> None:
        self._subjects.pop(subject, None)

    def subject(self, name: str) -> Subject:
        known = self._subjects.get(name)
        if known is None:
            raise Problem("permission_denied", f"No extension {name[:80]!r} is loaded here.")
        return known

    def methods_of(self, name: str) -> dict[str, tuple[str, ...]]:
        """The methods that a loaded extension's manifest limits it to, by capability."""
        known = self._subjects.get(name)
        return dict(known.methods) if known is not None else {}

    # Rules

    def learn(self, subject: str, effect: Literal["allow", "deny"], grant: Grant, *, session: bool = False) -> None:
        """Keep a decision as long as this host runs, or as long as this session, whatever the ledger says later."""
        self._learned.append(Learned(subject, effect, grant, session))
        self.policy = _with(self.policy, subject, effect, grant)
        self._open_folders(subject)

    def end_session(self) -> None:
        """Forget what was decided for the session that ends (A2)."""
        self._learned = [item for item in self._learned if not item.session]
        self.renew(self._base)

    def renew(self, base: Policy, settled: Iterable[tuple[str, str]] = ()) -> None:
        """Use other rules from now on, without what a person said about the `settled` (subject, capability) pairs."""
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
        """Let the subjects reach what policy allows, from the next call on (A3)."""
        for name in subjects if self._reach is not None else ():
            known = self._subjects.get(name)
            if known is not None and self._reach is not None:
                self._subjects[name] = msgspec.structs.replace(known, roots=self._reach(name, self.policy))

    # Before a call

    def decide(self, pending: PendingCall) -> Decision:
        """Returns what policy says about a call."""
        call, subject, capability = pending.request, pending.subject, pending.capability
        if capability == NONE:
            return Decision("allow", "no-capability", "Pure computation needs no capability.", {})
        resource = resource_of(call.method, call.params, pending.roots)
        pending.decided.add((capability, resource))
        return decided(self.policy, Request(subject.id, capability, call.method, resource), subject.methods)

    def asks(self, call: HostCall, name: str) -> bool:
        """Whether a person would be asked about a call; a call that cannot be decided is not asked about."""
        if not self.policy.asks(name):
            return False
        try:
            pending = PendingCall(self.subject(name), call, 0.0)
            pending.capability = derive(call.method, call.params)
        except Problem:
            return False
        return self.decide(pending).effect == "prompt"

    async def settle(self, pending: PendingCall, decision: Decision) -> Decision:
        """Asks a person when policy says so (A1). The first decision is on record before the question."""
        call, capability = pending.request, pending.capability
        request = Request(pending.subject.id, capability, call.method, decision.evidence.get("resource"))
        before = self._clock.monotonic()
        held = pending.roots.guarded(capability, request.resource)
        if held is not None:
            raise protected_problem(str(request.resource), held)  # no yes would open it
        was_asked = False

        def told(name: str, data: dict[str, Any]) -> None:
            nonlocal was_asked
            self._records.release(pending)
            if name == "consent.asked":
                was_asked = True
                self._records.decided(pending, decision)
            self._records.consent(pending, name, data)

        scope = asked_scope(capability, call.method, call.params, request.resource)
        settled = await self._questions.settle(self, request, decision, self._clock.now_ms(), told, scope)
        pending.asked_for = self._clock.monotonic() - before
        if settled.rule == "person-allow" and settled.allowed:
            limits = tuple(settled.evidence.get("scope", ()))
            allowed = Scope.of(capability, limits) if limits else Scope()
            pending.by_person = {**pending.by_person, capability: allowed}
            pending.roots = self._subjects.get(pending.subject.id, pending.subject).roots
            if was_asked and capability in ("read", "write") and is_outside(request.resource):
                self._open_asked(pending, request)
        return settled

    def _open_asked(self, pending: PendingCall, request: Request) -> None:
        """Let this call reach the path outside the project that a person has just allowed (A3)."""
        path, who = str(request.resource), pending.subject.id
        pending.opened |= {(request.capability, path)}
        grant = Grant(request.capability, Scope(paths=(path,)), source="person")
        if self._reach is not None:
            pending.roots = self._reach(who, self.policy.allowing(who, grant))
        holds = self.policy.decide(request).allowed  # for longer than this call
        if holds and not _names(self.policy, request, self._clock.now_ms()) and "*" not in path and "?" not in path:
            self.learn(who, "allow", grant, session=True)

    # During a call, for its connector

    def permit(self, pending: PendingCall, capability: str, resource: str | None) -> None:
        """Ask policy again about what a connector found: where a link led, where a redirect points."""
        outside, key = is_outside(resource), (capability, resource)
        if not outside and key in pending.decided:
            return
        request = Request(pending.subject.id, capability, pending.request.method, resource)
        decision = self.policy.decide(request)
        asked = key in pending.opened
        if decision.effect == "prompt" and (asked if outside else pending.allows(capability, resource)):
            decision = Decision("allow", "person-allow", f"A person allowed {capability} here.", decision.evidence)
        if not asked:
            decision = confined(self.policy, request, decision, self._clock.now_ms())
        if key not in pending.decided or not decision.allowed:
            self._records.decided(pending, decision)
        decision.require()
        pending.decided.add(key)

    def granted(self, pending: PendingCall, capability: str, resource: str) -> bool:
        """Whether policy allows it without asking; `capability!` only when a grant names the resource."""
        plain = capability.rstrip("!")
        outside, subject = is_outside(resource), pending.subject.id
        if plain == capability and not outside and pending.allows(plain, resource or None):
            return True
        request = Request(subject, plain, pending.request.method, resource or None, plain != capability)
        if plain in ("read", "write") and outside and not _names(self.policy, request, self._clock.now_ms()):
            return False
        return self.policy.decide(request).allowed

    def refused(self, pending: PendingCall, capability: str, resource: str) -> bool:
        """Whether a rule denies exactly that."""
        decision = self.policy.decide(Request(pending.subject.id, capability, pending.request.method, resource))
        return decision.rule in ("subject-deny", "global-deny")

    def scopes(self, pending: PendingCall, capability: str) -> list[str]:
        """The granted patterns; none when a denial has the same capability, because a process cannot check it."""
        rules, now = self.policy.subjects.get(pending.subject.id, SubjectRules()), self._clock.now_ms()
        if any(grant.capability == capability for grant in (*rules.deny, *self.policy.denials)):
            return []
        grants = [grant for grant in (*rules.allow, *self.policy.defaults) if grant.capability == capability]
        return [pattern for grant in grants if grant.covers_time(now) for pattern in grant.scope.patterns]


class PendingPolicy:
    """The authority's answers about one call (`contract.CallPolicy`)."""

    __slots__ = ("_authority", "_pending")

    def __init__(self, authority: Authority, pending: PendingCall) -> None:
        self._authority = authority
        self._pending = pending

    def permit(self, capability: str, resource: str | None) -> None:
        self._authority.permit(self._pending, capability, resource)

    def granted(self, capability: str, resource: str) -> bool:
        return self._authority.granted(self._pending, capability, resource)

    def refused(self, capability: str, resource: str) -> bool:
        return self._authority.refused(self._pending, capability, resource)

    def scopes(self, capability: str) -> list[str]:
        return self._authority.scopes(self._pending, capability)


class Meter:
    """The counts of one extension."""

    __slots__ = ("calls", "since", "spent", "then")

    def __init__(self, now: float, burst: float) -> None:
        self.calls = burst  # that it may make at once
        self.then = now
        self.since: dict[str, float] = {}
        self.spent: dict[str, int] = {}


class Quotas:
    """Counts what extensions use; `over(extension, problem)` hears of the first quota that one of them passes."""

    def __init__(
        self,
        limits: ExtensionQuotas,
        over: Callable[[str, Problem], None],
        *,
        clock: Clock | None = None,
    ) -> None:
        self._limits = limits
        self._over = over
        self._clock = clock or SystemClock()
        self._burst = float(limits.calls_per_second * BURST_SECONDS)
        self._meters: dict[str, Meter] = {}
        self._lock = threading.Lock()
        self.passed: dict[str, Problem] = {}

    def check(self, extension: str) -> None:
        """Raise the Problem of an extension that was stopped (Q3)."""
        problem = self.passed.get(extension)
        if problem is not None:
            raise Problem(problem.key, problem.message, **problem.details)

    def call(self, extension: str, now: float) -> None:
        """Count one host call; raises when the extension is stopped, or by this call passes its rate."""
        if self.passed:
            self.check(extension)
        meter = self._meters.get(extension) or self._meter(extension, now)
        rate = self._limits.calls_per_second
        left = min(self._burst, meter.calls + (now - meter.then) * rate) - 1.0
        meter.calls, meter.then = left, now
        if left < 0:
            told = f"made more than {rate} host calls a second for {BURST_SECONDS} seconds"
            self._pass(extension, "calls_per_second", told, rate)
            self.check(extension)

    def spend(self, extension: str, kind: Used, size: int) -> None:
        """Count bytes; `over` hears of it when there are too many."""
        now = self._clock.monotonic()
        with self._lock:
            meter = self._meters.get(extension) or self._meter(extension, now)
            if kind != "session" and now - meter.since.setdefault(kind, now) >= DAY:
                meter.since[kind], meter.spent[kind] = now, 0
            used = meter.spent[kind] = meter.spent.get(kind, 0) + size
        setting = f"{kind}_mb"
        limit: int = getattr(self._limits, setting)
        if used > limit * _MB:
            self._pass(extension, setting, _TOLD[kind].format(used=used // _MB), limit)

    def _meter(self, extension: str, now: float) -> Meter:
        return self._meters.setdefault(extension, Meter(now, self._burst))

    def _pass(self, extension: str, setting: str, told: str, limit: int) -> None:
        name = f"extensions.quotas.{setting}"
        problem = Problem(
            "quota_exceeded",
            f"{extension} {told}; its quota is {limit} ({name}). It was stopped.",
            extension=extension,
            quota=setting,
            limit=limit,
            setting=name,
            fix=f"Read what it did, then remove it, or raise {name} and start the host again.",
        )
        with self._lock:
            first = self.passed.setdefault(extension, problem) is problem
        if first:
            self._over(extension, problem)


def decided(policy: Policy, request: Request, methods: Mapping[str, tuple[str, ...]]) -> Decision:
    """What policy says of a call of an extension, whose manifest limits capabilities to `methods`."""
    subject, capability, resource = request.subject, request.capability, request.resource
    limits = methods.get(capability)
    if limits and request.method and request.method not in limits:
        reason = f"The manifest of {subject} limits {capability} to {', '.join(limits)}."
        return Decision("deny", "manifest-methods", reason, {"capability": capability, "method": request.method})
    by_name = capability == "env" and resource is not None and looks_secret(resource)
    decision = policy.decide(msgspec.structs.replace(request, by_name_only=True) if by_name else request)
    if decision.rule == "mode-strict" and resource is None and _has_scoped(policy, subject, capability):
        # Only parts are granted: the connector shows those parts, and the extension's own folders.
        return Decision("downgrade", "scope-filter", "Only what was granted is reachable.", decision.evidence)
    return decision


def confined(policy: Policy, request: Request, decision: Decision, now_ms: int) -> Decision:
    """The decision, or a denial where the path lies outside the project and no grant names it."""
    if decision.effect == "deny" or not is_outside(request.resource) or _names(policy, request, now_ms):
        return decision
    reason = f"{request.resource} lies outside the project and no grant names it."
    return Decision("deny", "outside-project", reason, decision.evidence)


def _names(policy: Policy, request: Request, now_ms: int) -> bool:
    """Whether a grant covers a path outside the project by its name: one without a scope ends at the project."""
    rules = policy.subjects.get(request.subject, SubjectRules())
    plain = Request(request.subject, request.capability, resource=request.resource)
    grants = [grant for grant in (*rules.allow, *policy.defaults) if grant.scope.paths]
    return any(msgspec.structs.replace(grant, methods=()).covers(plain, now_ms) for grant in grants)


def _has_scoped(policy: Policy, subject: str, capability: str) -> bool:
    rules = policy.subjects.get(subject)
    grants = (*policy.defaults, *(rules.allow if rules else ()))
    return capability in _PARTLY and any(grant.capability == capability for grant in grants)


def is_outside(resource: str | None) -> bool:
    """Whether a path lies outside the project: only then it is absolute."""
    return resource is not None and resource.startswith("/")


def _with(policy: Policy, subject: str, effect: Literal["allow", "deny"], grant: Grant) -> Policy:
    return policy.allowing(subject, grant) if effect == "allow" else policy.denying(subject, grant)


def granted_folders(policy: Policy, subject: str) -> list[tuple[str, bool]]:
    """Folders outside the project that absolute path grants open: (folder, writable)."""
    rules = policy.subjects.get(subject, SubjectRules())
    found: dict[str, bool] = {}
    for grant in (*rules.allow, *policy.defaults):
        if grant.capability not in ("read", "write"):
            continue
        for pattern in grant.scope.paths:
            if pattern.startswith("/"):
                folder = _literal(pattern)
                if not Path(folder).is_dir():
                    folder = str(Path(folder).parent)
                found[folder] = found.get(folder, False) or grant.capability == "write"
    return sorted(found.items())


def _literal(pattern: str) -> str:
    """The folder that a pattern lies in: its segments before the first wildcard."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if "*" in part or "?" in part:
            break
        parts.append(part)
    return "/".join(parts) or "/"
