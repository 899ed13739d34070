"""Who may do what: one evaluator for extension capabilities, tool gates, API scopes, relay roles and egress.

Rules have one order (Pi §4, §2B.3), and the first that applies decides:

- P1  a denial for this subject
- P2  a denial for everybody
- P3  a grant for this subject
- P4  a default grant
- P5  the mode: strict denies, prompt asks, permissive allows and says so

An expired rule does not apply. A resource that must be granted by name (a secret, a private address) is allowed by a
grant that names it and by nothing else, in every mode. A decision never fails: it denies.

A scope says what a grant covers: path globs, host names, environment names, tool names, tenants. Patterns are compiled
once and matched in time proportional to pattern times text: no pattern can explode. `locate` is the only function here
that looks at the disk: it resolves `..` and links before anything is compared.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.kernel.ambient import Clock, SystemClock
from forestay.kernel.problems import Problem

MAX_PATTERN = 1024
MAX_PATH = 4096
_MAX_WILDCARDS = 32
SCOPED = ("read", "write", "http", "env", "tool")  # the capabilities that `Scope.of` knows limits for


class Scope(msgspec.Struct, frozen=True):
    """A capability's limits; an empty list does not limit (Pi §3.3)."""

    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    def covers(self, resource: str | None) -> bool:
        """Whether `resource` lies inside; without limits everything does, an unknown resource only then."""
        patterns = self.patterns
        if not patterns:
            return True
        if resource is None:
            return False
        if self.paths:
            return any(match_path(pattern, resource) for pattern in self.paths)
        if self.hosts:
            return any(match_host(pattern, resource) for pattern in self.hosts)
        return any(match_env(pattern, resource) for pattern in patterns)

    def names(self, resource: str | None) -> bool:
        """Whether a pattern is this very resource, without any wildcard."""
        return resource is not None and any(
            "*" not in pattern and "?" not in pattern and pattern.lower() == resource.lower()
            for pattern in self.patterns
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        return self.paths or self.hosts or self.env or self.tools or self.tenants

    @classmethod
    def of(cls, capability: str, patterns: tuple[str, ...]) -> Scope:
        """The scope that `patterns` mean for `capability`, each checked."""
        if capability in ("read", "write"):
            return cls(paths=tuple(check_path_pattern(pattern) for pattern in patterns))
        if capability == "http":
            return cls(hosts=tuple(check_host_pattern(pattern) for pattern in patterns))
        if capability == "env":
            return cls(env=tuple(check_env_pattern(pattern) for pattern in patterns))
        if capability == "tool":
            return cls(tools=tuple(check_tool_pattern(pattern) for pattern in patterns))
        raise Problem(
            "pattern_invalid",
            f"The capability {capability} takes no scope.",
            at=patterns[0],
            fix="Leave the scope out.",
        )


def locate(root: Path, path: str) -> str:
    """Where `path` really is: relative to `root` when inside it ("." for the root), else absolute."""
    if "\0" in path or len(path) > MAX_PATH:
        raise Problem("invalid_text", "The path holds a NUL character or is too long.", limit=MAX_PATH)
    base = os.path.realpath(root)
    real = os.path.realpath(os.path.join(base, path))  # noqa: PTH118 - Path would fold `..` before links are followed
    if real == base:
        return "."
    prefix = base if base.endswith(os.sep) else base + os.sep
    return real[len(prefix) :] if real.startswith(prefix) else real


def check_path_pattern(pattern: str) -> str:
    """`pattern` in its normal form; a Problem when it is malformed or would cost too much."""
    if not pattern or "\0" in pattern or len(pattern) > MAX_PATTERN:
        raise Problem("pattern_invalid", "A path pattern is empty or too long.", at=pattern[:80], limit=MAX_PATTERN)
    if pattern.count("*") + pattern.count("?") > _MAX_WILDCARDS:
        raise Problem("pattern_invalid", f"A path pattern has more than {_MAX_WILDCARDS} wildcards.", at=pattern[:80])
    absolute = pattern.startswith("/")
    parts: list[str] = []
    for part in pattern.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            raise Problem("pattern_invalid", "A path pattern must not climb with `..`.", at=pattern[:80])
        if part == "**" and parts and parts[-1] == "**":
            continue
        parts.append(part)
    return ("/" if absolute else "") + "/".join(parts) or "."


def check_host_pattern(pattern: str) -> str:
    host = pattern.strip().lower().rstrip(".")
    body = host.removeprefix("*.")
    if not body or len(host) > 255 or any(character in body for character in "*?/@ \0\t\n") or "://" in host:
        raise Problem(
            "pattern_invalid",
            "A host is a name, an address, or `*.` and a name.",
            at=pattern[:80],
            fix="api.example.com",
        )
    return host


def check_env_pattern(pattern: str) -> str:
    body = pattern.removesuffix("*")
    if not pattern or len(pattern) > 255 or "*" in body or "=" in pattern or "\0" in pattern:
        raise Problem("pattern_invalid", "An environment name may end in `*`, nothing else.", at=pattern[:80])
    return pattern


def check_tool_pattern(pattern: str) -> str:
    body = pattern.removesuffix("*")
    if not pattern or len(pattern) > 255 or any(character in body for character in "*?,\0\t\n "):
        raise Problem("pattern_invalid", "A tool is a name, which may end in `*`.", at=pattern[:80])
    return pattern


def exactly(capability: str, resource: str) -> tuple[str, ...] | None:
    """The patterns that mean this resource and nothing else; None where none can say it."""
    if capability not in SCOPED or "*" in resource or "?" in resource or "," in resource:
        return None
    try:
        return Scope.of(capability, (resource,)).patterns
    except Problem:
        return None


def match_path(pattern: str, path: str) -> bool:
    """Whether the glob covers the path: `*` and `?` inside a segment, `**` across segments, itself included."""
    if pattern.startswith("/") != path.startswith("/"):
        return False
    wanted = pattern.strip("/").split("/")
    parts = [] if path in (".", "/") else path.strip("/").split("/")
    if wanted == ["."]:
        return not parts
    return _glob(wanted, parts, "**", _match_segment)


def match_host(pattern: str, host: str) -> bool:
    """Exact, or `*.name` for everything below `name`; a pattern without a port covers every port."""
    host, port = _split_port(host.lower().rstrip("."))
    wanted, wanted_port = _split_port(pattern.lower().rstrip("."))
    if wanted_port is not None and wanted_port != port:
        return False
    if wanted.startswith("*."):
        return host.endswith(wanted[1:]) and len(host) > len(wanted) - 1
    return _canonical_host(host) == _canonical_host(wanted)


def match_env(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _match_segment(pattern: str, text: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    return _glob(pattern, text, "*", lambda wanted, letter: wanted in ("?", letter))


def _glob(pattern: Sequence[str], items: Sequence[str], star: str, same: Callable[[str, str], bool]) -> bool:
    """Wildcard matching with one resume point: after a later star, an earlier one never needs to be tried again."""
    position = index = 0
    resume, mark = -1, 0
    while index < len(items):
        if position < len(pattern) and pattern[position] == star:
            resume, mark = position, index
            position += 1
        elif position < len(pattern) and same(pattern[position], items[index]):
            position += 1
            index += 1
        elif resume >= 0:
            mark += 1
            position, index = resume + 1, mark
        else:
            return False
    return all(part == star for part in pattern[position:])


def _split_port(host: str) -> tuple[str, str | None]:
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name, rest.removeprefix(":") or None
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and ":" not in name else (host, None)


def _canonical_host(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


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
