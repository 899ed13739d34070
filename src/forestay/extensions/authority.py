"""Who may do what: the policy in force, what people add to it, and its answers about calls under way.

- A1  A person is asked at most once per extension and capability, unless they said "once"; without a person the
      answer is no. What was asked and answered stands in the records between the first decision and the second.
- A2  What a person decided for a session ends with that session.
- A3  A yes for a path outside the project makes that path, and no other, reachable at once: for the call that asked,
      and for as long as the yes holds.
"""

from __future__ import annotations

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
from forestay.kernel import Clock, Decision, Grant, Policy, Problem, Request, Scope, SubjectRules

_PARTLY = ("env", "read", "write")
"""Capabilities of which a connector can show the granted part when the whole is not granted."""


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
        """A decision that holds as long as this host, or as this session, whatever the ledger says later."""
        self._learned.append(Learned(subject, effect, grant, session))
        self.policy = _with(self.policy, subject, effect, grant)
        self._open_folders(subject)

    def end_session(self) -> None:
        """Another session begins: what was decided for the one before it is forgotten (A2)."""
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
        """What policy allows is within reach from the next call on (A3)."""
        for name in subjects if self._reach is not None else ():
            known = self._subjects.get(name)
            if known is not None and self._reach is not None:
                self._subjects[name] = msgspec.structs.replace(known, roots=self._reach(name, self.policy))

    # Before a call

    def decide(self, pending: PendingCall) -> Decision:
        """What policy says about a call as it stands."""
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
        """What a person says, when policy says to ask (A1); the first decision is on record before they are asked."""
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
        """The path outside the project that a person was asked about and allowed, within reach of this call (A3)."""
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
        """Policy again, for what a connector found on its way: where a link led, where a redirect points."""
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
        """Whether somebody denied exactly that."""
        decision = self.policy.decide(Request(pending.subject.id, capability, pending.request.method, resource))
        return decision.rule in ("subject-deny", "global-deny")

    def scopes(self, pending: PendingCall, capability: str) -> list[str]:
        """Patterns that are granted; none when a denial is about the same capability, for a process cannot tell."""
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
