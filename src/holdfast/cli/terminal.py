"""Asking the person at the terminal: one line on standard error, one line of answer."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from holdfast.kernel.printable import one_line, printable

if TYPE_CHECKING:
    from holdfast.extensions.consent import Remember


def attended() -> bool:
    """Whether somebody is there to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def asked(question: str) -> str:
    """The first letter of what the person says; nothing when they only press return."""
    return (await told(question)).lower()[:1]


async def told(question: str) -> str:
    """What the person says, in one line."""
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


def expected(weighed: Any) -> str:
    """The expected loss of both answers, in one line."""
    costs = f"granting costs {weighed.loss_grant:.3g}, denying {weighed.loss_deny:.3g}"
    return f"expected loss: {costs}; {weighed.effect} costs less (P(malicious) = {weighed.probability:.3g})"


async def permission(asks: dict[str, Any]) -> dict[str, Any]:
    """The answer to a capability prompt of a run, as its interrupt takes it."""
    about = asks["artifactData"]
    said = (asks["title"], asks["description"], about["allows"])
    sys.stderr.write("\n" + "\n  ".join(one_line(str(text)) for text in said) + "\n")
    if about.get("sandbox"):
        sys.stderr.write(f"  {one_line(str(about['sandbox']))}\n")
    loss = about.get("loss")
    if loss:
        costs = f"granting costs {loss['lossGrant']:.3g}, denying {loss['lossDeny']:.3g}"
        sys.stderr.write(f"  expected loss: {costs}; {one_line(str(loss['advice']))} costs less\n")
    allow, remember = await _allowed()
    return {"action": "accept" if allow else "reject", "remember": remember}


async def _allowed() -> tuple[bool, Remember]:
    """Whether the person allows it, and for how long that holds."""
    reply = await asked("Allow? [o]nce, [y]es for this session, [a]lways, [n]o, ne[v]er: ")
    words: dict[str, Remember] = {"o": "once", "a": "always", "v": "always"}
    return reply in ("o", "y", "a"), words.get(reply, "session")


class TerminalConsent:
    """`extensions.Consent`: capabilities are asked for where the command was started."""

    async def ask(self, question: Any) -> Any:
        from holdfast.extensions.consent import Answer

        about = f" on {question.resource}" if question.resource else ""
        asks = f"{question.extension} asks for {question.capability}{about}: {question.meaning}"
        sys.stderr.write(f"\n{one_line(asks)}\n")
        if question.note:
            sys.stderr.write(f"  {one_line(question.note)}\n")
        if question.weighed is not None:
            sys.stderr.write(f"  {expected(question.weighed)}\n")
        allow, remember = await _allowed()
        return Answer(allow=allow, remember=remember)
