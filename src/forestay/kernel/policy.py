"""Who may do what: one evaluator for extension capabilities, tool gates, API scopes, relay roles and egress.

Rules have one order (Pi §4, §2B.3), and the first that applies decides:

- P1  a denial for this subject
- P2  a denial for everybody
- P3  a grant for this subject
- P4  a default grant
- P5  the mode: strict denies, prompt asks, permissive allows and says so

An expired rule does not apply. A resource that must be granted by name (a secret, a private address) is allowed by a
grant that names it and by nothing else, in every mode. A decision never fails: it denies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec

from forestay.kernel.clock import Clock, SystemClock
from forestay.kernel.problems import Problem
from forestay.kernel.scopes import Scope

AUDIT = "audit"
"""The stream of decisions that no stream of their own has."""

MAX_MADE = 1024  # decisions that a policy remembers
_LONG = 512  # characters of a resource about which it remembers none

Mode = Literal["strict", "prompt", "permissive"]
Effect = Literal["allow", "deny", "prompt", "downgrade"]


class Request(msgspec.Struct, frozen=True):
    """`subject` wants to use `capability` by `method` on `resource`.

    The resource is a located path, a host or an environment name; None when it cannot be known beforehand.
    """

    subject: str
    capability: str
    method: str = ""
    resource: str | None = None
    by_name_only: bool = False


class Grant(msgspec.Struct, frozen=True):
    """A rule about one capability, limited by scope, methods and time."""

    capability: str
    scope: Scope = Scope()
    methods: tuple[str, ...] = ()
    expires_ms: int | None = None
    effect: Literal["allow", "downgrade"] = "allow"
    source: str = "config"

    @classmethod
    def parse(cls, text: str, *, source: str = "flag", expires_ms: int | None = None) -> Grant:
        """`CAP` or `CAP:SCOPE[,SCOPE…]`, as on the command line (rules/pi P11)."""
        capability, colon, rest = text.partition(":")
        if not capability or (colon and not rest):
            raise Problem("pattern_invalid", f"{text[:80]!r} is not a grant.", at=text[:80], fix="CAP or CAP:SCOPE")
        patterns = tuple(part for part in rest.split(",") if part)
        scope = Scope.of(capability, patterns) if patterns else Scope()
        return cls(capability, scope, source=source, expires_ms=expires_ms)

    def covers(self, request: Request, now_ms: int) -> bool:
        if self.capability not in (request.capability, "*"):
            return False
        if not self.covers_time(now_ms):
            return False
        if self.methods and request.method not in self.methods:
            return False
        if request.by_name_only:
            return self.scope.names(request.resource)
        return self.scope.covers(request.resource)

    def denies(self, request: Request, now_ms: int) -> bool:
        """As a denial: a resource that is not known beforehand is denied with the rest."""
        plain = Request(request.subject, request.capability, request.method, request.resource)
        return self.covers(plain, now_ms) or (
            request.resource is None and self.capability == request.capability and self.covers_time(now_ms)
        )

    def covers_time(self, now_ms: int) -> bool:
        return self.expires_ms is None or now_ms < self.expires_ms


class SubjectRules(msgspec.Struct, frozen=True):
    """What a person decided about one subject."""

    allow: tuple[Grant, ...] = ()
    deny: tuple[Grant, ...] = ()
    mode: Mode | None = None


class Decision(msgspec.Struct, frozen=True):
    """What was decided, by which rule, and why in words for a person."""

    effect: Effect
    rule: str
    reason: str
    evidence: dict[str, Any]

    @property
    def allowed(self) -> bool:
        return self.effect in ("allow", "downgrade")

    def require(self, denied: str = "capability_denied", message: str = "", **details: Any) -> None:
        """Return when the decision allows; else raise the Problem that says why not.

        `denied` names the contract's problem for a denial, `message` its words and `details` what else it tells.
        """
        if not self.allowed:
            key = denied if self.effect == "deny" else "consent_required"
            raise Problem(key, message or self.reason, **{"rule": self.rule, **self.evidence, **details})


class Policy:
    """The rules in force. Immutable: `allowing` and `denying` give a changed copy."""

    def __init__(
        self,
        mode: Mode = "strict",
        *,
        defaults: Iterable[Grant] = (),
        denials: Iterable[Grant] = (),
        subjects: Mapping[str, SubjectRules] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.mode: Mode = mode
        self.defaults = tuple(defaults)
        self.denials = tuple(denials)
        self.subjects: dict[str, SubjectRules] = dict(subjects or {})
        self._clock = clock or SystemClock()
        self._made: dict[Request, Decision] | None = None if self._expires() else {}

    def decide(self, request: Request) -> Decision:
        """The first rule that applies, in the order P1 to P5."""
        if self._made is None or len(request.resource or "") > _LONG:
            return self._decided(request)
        made = self._made.get(request)
        if made is None:
            if len(self._made) >= MAX_MADE:
                self._made.clear()
            made = self._made[request] = self._decided(request)
        return made

    def asks(self, subject: str) -> bool:
        """Whether any decision about a subject can be that a person must decide."""
        return (self.subjects.get(subject, _NO_RULES).mode or self.mode) == "prompt"

    def _expires(self) -> bool:
        """Whether a decision may differ from one moment to the next; else the same question has the same answer."""
        rules = self.subjects.values()
        grants = chain(self.defaults, self.denials, *((*item.allow, *item.deny) for item in rules))
        return any(grant.expires_ms is not None for grant in grants)

    def _decided(self, request: Request) -> Decision:
        now = self._clock.now_ms()
        rules = self.subjects.get(request.subject, _NO_RULES)
        for grant in rules.deny:
            if grant.denies(request, now):
                return _decision(
                    "deny", "subject-deny", request, f"{request.subject} was denied {_what(request)}.", grant
                )
        for grant in self.denials:
            if grant.denies(request, now):
                return _decision("deny", "global-deny", request, f"{_what(request)} is denied to everybody.", grant)
        for grant in rules.allow:
            if grant.covers(request, now):
                reason = f"{request.subject} was granted {_what(request)}."
                return _decision(grant.effect, "subject-allow", request, reason, grant)
        for grant in self.defaults:
            if grant.covers(request, now):
                reason = f"{_what(request)} is granted to everybody by default."
                return _decision(grant.effect, "default", request, reason, grant)
        return self._by_mode(request, rules.mode or self.mode, _near_miss(request, rules.allow, now))

    def _by_mode(self, request: Request, mode: Mode, near: str) -> Decision:
        who, what = request.subject, _what(request)
        if request.by_name_only:
            reason = f"{what} is only available to a grant that names it, and {who} has none."
            return _decision("deny", "by-name-only", request, reason)
        if mode == "permissive":
            return _decision(
                "allow", "mode-permissive", request, f"{who} has no rule for {what}; the mode allows it.{near}"
            )
        if mode == "prompt":
            return _decision("prompt", "mode-prompt", request, f"{who} asks for {what}; a person must decide.{near}")
        return _decision(
            "deny", "mode-strict", request, f"{who} has no grant for {what}, and the mode is strict.{near}"
        )

    def allowing(self, subject: str, *grants: Grant) -> Policy:
        rules = self.subjects.get(subject, _NO_RULES)
        return self._with(subject, SubjectRules((*rules.allow, *grants), rules.deny, rules.mode))

    def denying(self, subject: str, *grants: Grant) -> Policy:
        rules = self.subjects.get(subject, _NO_RULES)
        return self._with(subject, SubjectRules(rules.allow, (*rules.deny, *grants), rules.mode))

    def _with(self, subject: str, rules: SubjectRules) -> Policy:
        return Policy(
            self.mode,
            defaults=self.defaults,
            denials=self.denials,
            subjects={**self.subjects, subject: rules},
            clock=self._clock,
        )


_NO_RULES = SubjectRules()


def scope_request(key_id: str, scope: str, tenant: str) -> Request:
    """The question whether a key may use an API scope in a tenant: the scope is the capability."""
    return Request(key_id, scope, "api", tenant)


def scope_policy(key_id: str, scopes: Iterable[str], tenant: str, clock: Clock | None = None) -> Policy:
    """The rules of one API key: its scopes, in its own tenant, and nothing else."""
    grants = tuple(Grant(scope, Scope(tenants=(tenant,)), source="key") for scope in scopes)
    return Policy("strict", subjects={key_id: SubjectRules(grants)}, clock=clock)


def _decision(effect: Effect, rule: str, request: Request, reason: str, grant: Grant | None = None) -> Decision:
    evidence: dict[str, Any] = {"subject": request.subject, "capability": request.capability}
    if request.method:
        evidence["method"] = request.method
    if request.resource is not None:
        evidence["resource"] = request.resource
    if grant is not None:
        evidence["source"] = grant.source
        if grant.scope.patterns:
            evidence["scope"] = list(grant.scope.patterns)
    return Decision(effect, rule, reason, evidence)


def _near_miss(request: Request, grants: Sequence[Grant], now_ms: int) -> str:
    """Why a grant for the right capability did not count, when there is one."""
    for grant in grants:
        if grant.capability == request.capability:
            if not grant.covers_time(now_ms):
                return " A grant for it has expired."
            if grant.methods and request.method not in grant.methods:
                return f" A grant covers only {', '.join(grant.methods)}."
            return f" A grant covers only {', '.join(grant.scope.patterns)}."
    return ""


def _what(request: Request) -> str:
    return f"{request.capability} on {request.resource}" if request.resource is not None else request.capability
