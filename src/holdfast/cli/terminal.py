"""Asking the person at the terminal: one line on standard error, one line of answer."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

# A model, a tool and an extension may say anything; only its words reach the terminal, never its control sequences.
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
_VISIBLE |= dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")


def visible(text: str) -> str:
    """The text with every control character, and every one that turns the direction of writing, made visible."""
    return text.translate(_VISIBLE)


def attended() -> bool:
    """Whether somebody is there to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def asked(question: str) -> str:
    """The first letter of what the person says; nothing when they only press return."""
    return (await told(question)).lower()[:1]


async def told(question: str) -> str:
    """What the person says, in one line."""
    sys.stderr.write(question)
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
    sys.stderr.write(visible(f"\n{asks['title']}\n  {asks['description']}\n  {about['allows']}\n"))
    if about.get("sandbox"):
        sys.stderr.write(f"  {about['sandbox']}\n")
    loss = about.get("loss")
    if loss:
        costs = f"granting costs {loss['lossGrant']:.3g}, denying {loss['lossDeny']:.3g}"
        sys.stderr.write(f"  expected loss: {costs}; {loss['advice']} costs less\n")
    reply = await asked("Allow? [o]nce, [y]es for this session, [a]lways, [n]o, ne[v]er: ")
    remember = {"o": "once", "a": "always", "v": "always"}.get(reply, "session")
    return {"action": "accept" if reply in ("o", "y", "a") else "reject", "remember": remember}


class TerminalConsent:
    """`extensions.Consent`: capabilities are asked for where the command was started."""

    async def ask(self, question: Any) -> Any:
        from holdfast.extensions.consent import Answer, Remember

        about = f" on {question.resource}" if question.resource else ""
        asks = f"{question.extension} asks for {question.capability}{about}: {question.meaning}"
        sys.stderr.write(f"\n{visible(asks)}\n")
        if question.note:
            sys.stderr.write(f"  {question.note}\n")
        if question.weighed is not None:
            sys.stderr.write(f"  {expected(question.weighed)}\n")
        reply = await asked("Allow? [o]nce, [y]es for this session, [a]lways, [n]o, ne[v]er: ")
        words: dict[str, Remember] = {"o": "once", "a": "always", "v": "always"}
        return Answer(allow=reply in ("o", "y", "a"), remember=words.get(reply, "session"))
