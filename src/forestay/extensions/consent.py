"""Asks a person about a capability: once, with the consequences, and remembers the answer as the person wants (D6).

Q1  While a question is open, a call with the same extension, capability and resource waits for the same answer. A call
    for another resource waits too, and gets its own question if the answer does not cover it.
Q2  An answer takes effect before the call continues: for this call, for the session, or on the ledger.
Q3  While a person is asked, the extension's deadline does not run.
Q4  A yes is only for what was asked: this path, this host, this tool (P16). Only `everything` is wider. Where no
    pattern can name the resource, a yes is for this one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from forestay.extensions.api_table import CAPABILITIES
from forestay.extensions.grants import Grants
from forestay.kernel import SCOPED, Decision, Grant, Policy, Problem, Request, Scope, Weighed

Remember = Literal["once", "session", "always"]
REMEMBER: dict[Remember, str] = {
    "once": "for this call only; the next one asks again",
    "session": "until this session ends: when another one begins or the host stops",
    "always": "until somebody revokes it, or it expires",
}
EXPIRIES = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}  # the offered durations of "always", in seconds


class Question(msgspec.Struct, frozen=True):
    """A question for a person, with policy's reason and the cost of each answer."""

    extension: str
    capability: str
    meaning: str
    resource: str | None
    method: str = ""
    rule: str = ""
    reason: str = ""
    evidence: dict[str, Any] = {}
    weighed: Weighed | None = None
    note: str = ""
    """Further information for the person: for `exec`, how commands are confined here."""
    scope: tuple[str, ...] | None = None
    """Patterns that cover exactly what was asked about; None where no pattern can."""

    @property
    def limitable(self) -> bool:
        """Whether a yes can be narrower than the whole capability."""
        return self.resource is not None and self.capability in SCOPED


class Answer(msgspec.Struct, frozen=True):
    """A person's answer: how long it holds, and for which resources.

    Without `scope`, a yes is for what was asked about (Q4), and a no for the whole capability; `everything` is a yes
    to the whole capability.
    """

    allow: bool
    remember: Remember = "session"
    scope: tuple[str, ...] = ()
    expires_ms: int | None = None
    comment: str = ""
    everything: bool = False


class Consent(Protocol):
    async def ask(self, question: Question) -> Answer | None:
        """Return the person's answer; None when nobody is there to ask."""


class Holder(Protocol):
    """Has the current policy, and adds decisions to it."""

    policy: Policy

    def learn(self, subject: str, effect: Literal["allow", "deny"], grant: Grant, *, session: bool = False) -> None: ...


Told = Callable[[str, dict[str, Any]], None]
"""Receives `consent.asked` and `consent.answered`, each with its data."""


class Questions:
    def __init__(
        self,
        consent: Consent | None,
        grants: Grants | None,
        *,
        weigh: Callable[[str, str], Weighed | None] = lambda _extension, _capability: None,
        hold: Callable[[str, bool], None] = lambda _extension, _held: None,
    ) -> None:
        self._consent = consent
        self._grants = grants
        self._weigh = weigh
        self._hold = hold
        self._open: dict[tuple[str, str], _Open] = {}

    async def settle(
        self,
        holder: Holder,
        request: Request,
        decision: Decision,
        now_ms: int,
        told: Told,
        scope: tuple[str, ...] | None = None,
    ) -> Decision:
        """Return `decision`; if its effect is `prompt`, return the person's answer, which `holder` learns (Q2).

        `scope` covers exactly what the request asks about.
        """
        if decision.effect != "prompt" or self._consent is None:
            return decision
        while (asked := self._open.get((request.subject, request.capability))) is not None:  # Q1
            if asked.resource == request.resource:
                answer = await asyncio.shield(asked.answer)
                return _settled(answer, request, decision, now_ms) if answer is not None else decision
            await asyncio.wait([asked.answer])
            standing = holder.policy.decide(request)
            if standing.effect != "prompt":
                return standing
        answer = await self._answer(holder, request, decision, told, scope)
        if answer is None:
            return decision
        return _settled(answer, request, decision, now_ms)

    async def _answer(
        self, holder: Holder, request: Request, decision: Decision, told: Told, scope: tuple[str, ...] | None
    ) -> Answer | None:
        key = (request.subject, request.capability)
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._open[key] = _Open(request.resource, future)
        self._hold(request.subject, True)
        try:
            answer = await self._asked(request, decision, told, scope)
            if answer is not None:
                answer = _within(answer, request, scope)
                await self._learn(holder, request, answer)
            future.set_result(answer)
            return answer
        except BaseException as error:
            gone = Problem("cancelled", "The caller left before there was an answer.")
            future.set_exception(error if isinstance(error, Exception) else gone)
            future.exception()
            raise
        finally:
            del self._open[key]
            self._hold(request.subject, False)

    async def _asked(
        self, request: Request, decision: Decision, told: Told, scope: tuple[str, ...] | None
    ) -> Answer | None:
        assert self._consent is not None
        question = Question(
            request.subject,
            request.capability,
            CAPABILITIES.get(request.capability, request.capability),
            request.resource,
            request.method,
            decision.rule,
            decision.reason,
            decision.evidence,
            self._weigh(request.subject, request.capability),
            _note(request.capability),
            scope,
        )
        told("consent.asked", _asked_data(question))
        answer = await self._consent.ask(question)
        if answer is not None:
            told("consent.answered", {**_about(question), **_answered_data(_within(answer, request, scope))})
        return answer

    async def _learn(self, holder: Holder, request: Request, answer: Answer) -> None:
        if answer.remember == "once":
            return
        grant = _grant(request, answer)
        if answer.remember == "always" and self._grants is not None:
            record = self._grants.allow if answer.allow else self._grants.deny
            await record(request.subject, grant, by="person")
        effect: Literal["allow", "deny"] = "allow" if answer.allow else "deny"
        holder.learn(request.subject, effect, grant, session=answer.remember == "session")


class _Open(NamedTuple):
    """A question that waits for its answer."""

    resource: str | None
    answer: asyncio.Future[Answer | None]


def _within(answer: Answer, request: Request, scope: tuple[str, ...] | None) -> Answer:
    """Return the answer with its final scope: a yes without resources is for what was asked about (Q4)."""
    limitable = request.resource is not None and request.capability in SCOPED
    if not answer.allow or answer.everything or answer.scope or not limitable or answer.remember == "once":
        return answer
    if scope is None:
        return msgspec.structs.replace(answer, remember="once")
    return msgspec.structs.replace(answer, scope=scope)


def _grant(request: Request, answer: Answer) -> Grant:
    scope = Scope.of(request.capability, answer.scope) if answer.scope else Scope()
    return Grant(request.capability, scope, expires_ms=answer.expires_ms, source="person")


def _settled(answer: Answer, request: Request, decision: Decision, now_ms: int) -> Decision:
    who, what = request.subject, request.capability
    why = f" {answer.comment}" if answer.comment else ""
    if not answer.allow:
        return Decision("deny", "person-deny", f"A person denied {what} to {who}.{why}", decision.evidence)
    if not _grant(request, answer).covers(request, now_ms):
        only = ", ".join(answer.scope)
        return Decision("deny", "person-allow", f"A person allowed {who} {what} only for {only}.", decision.evidence)
    evidence = {**decision.evidence, **({"scope": list(answer.scope)} if answer.scope else {})}
    return Decision("allow", "person-allow", f"A person allowed {what} to {who}.{why}", evidence)


def _about(question: Question) -> dict[str, Any]:
    about = {"capability": question.capability, "method": question.method, "resource": question.resource}
    return {name: value for name, value in about.items() if value}


def _asked_data(question: Question) -> dict[str, Any]:
    data: dict[str, Any] = {**_about(question), "rule": question.rule, "reason": question.reason}
    if question.note:
        data["sandbox"] = question.note
    if question.weighed is not None:
        data["loss"] = question.weighed.arithmetic
    return data


def _answered_data(answer: Answer) -> dict[str, Any]:
    data: dict[str, Any] = {"allow": answer.allow, "remember": answer.remember}
    if answer.scope:
        data["scope"] = list(answer.scope)
    if answer.expires_ms is not None:
        data["expires_ms"] = answer.expires_ms
    if answer.everything:
        data["everything"] = True
    if answer.comment:
        data["comment"] = answer.comment
    return data


def _note(capability: str) -> str:
    if capability != "exec":
        return ""
    from forestay.extensions.sandbox import Sandbox

    return Sandbox.detect().describes
