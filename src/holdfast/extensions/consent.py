"""Asking a person about a capability: once, with the consequences said, and remembered as they wish (D6)."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from holdfast.extensions.capabilities import CAPABILITIES
from holdfast.extensions.grants import Grants
from holdfast.kernel.policy import Decision, Grant


class Question(msgspec.Struct, frozen=True):
    """What a person is asked."""

    extension: str
    capability: str
    meaning: str
    resource: str | None
    note: str = ""
    """What the person should know besides: for `exec`, how commands are confined here."""


class Answer(msgspec.Struct, frozen=True):
    """What the person said; remembered beyond this process only when they wish."""

    allow: bool
    remember: bool = False
    expires_ms: int | None = None


class Consent(Protocol):
    async def ask(self, question: Question) -> Answer: ...


class Questions:
    """Each question is asked once per extension and capability; who asks meanwhile waits for the same answer."""

    def __init__(self, consent: Consent | None, grants: Grants | None) -> None:
        self._consent = consent
        self._grants = grants
        self._open: dict[tuple[str, str], asyncio.Future[Answer]] = {}

    async def settle(self, holder: Any, extension: str, decision: Decision) -> Decision:
        """`decision`, or, when it says to ask, what the person answered. `holder.policy` learns the answer."""
        if decision.effect != "prompt" or self._consent is None:
            return decision
        capability = decision.evidence["capability"]
        key = (extension, capability)
        future = self._open.get(key)
        if future is None:
            future = self._open[key] = asyncio.get_running_loop().create_future()
            question = Question(
                extension,
                capability,
                CAPABILITIES.get(capability, capability),
                decision.evidence.get("resource"),
                _note(capability),
            )
            try:
                answer = await self._consent.ask(question)
            except BaseException as error:
                del self._open[key]
                future.set_exception(error)
                future.exception()
                raise
            await self._learn(holder, extension, capability, answer)
            future.set_result(answer)
        answer = await future
        if answer.allow:
            return Decision(
                "allow", "person-allow", f"A person allowed {capability} to {extension}.", decision.evidence
            )
        return Decision("deny", "person-deny", f"A person denied {capability} to {extension}.", decision.evidence)

    async def _learn(self, holder: Any, extension: str, capability: str, answer: Answer) -> None:
        grant = Grant(capability, expires_ms=answer.expires_ms, source="person")
        change = holder.policy.allowing if answer.allow else holder.policy.denying
        holder.policy = change(extension, grant)
        if answer.remember and self._grants is not None:
            record = self._grants.allow if answer.allow else self._grants.deny
            await record(extension, grant, by="person")


def _note(capability: str) -> str:
    if capability != "exec":
        return ""
    from holdfast.extensions.sandbox import Sandbox

    return Sandbox.detect().describes
