"""Asking the person at the terminal: one line on standard error, one line of answer."""

from __future__ import annotations

import asyncio
import sys
from typing import Any


def attended() -> bool:
    """Whether somebody is there to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def asked(question: str) -> str:
    """The first letter of what the person says; nothing when they only press return."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip().lower()[:1]


def expected(weighed: Any) -> str:
    """The expected loss of both answers, in one line."""
    costs = f"granting costs {weighed.loss_grant:.3g}, denying {weighed.loss_deny:.3g}"
    return f"expected loss: {costs}; {weighed.effect} costs less (P(malicious) = {weighed.probability:.3g})"


class TerminalConsent:
    """`extensions.Consent`: capabilities are asked for where the command was started."""

    async def ask(self, question: Any) -> Any:
        from holdfast.extensions.consent import Answer

        about = f" on {question.resource}" if question.resource else ""
        sys.stderr.write(f"\n{question.extension} asks for {question.capability}{about}: {question.meaning}\n")
        if question.note:
            sys.stderr.write(f"  {question.note}\n")
        if question.weighed is not None:
            sys.stderr.write(f"  {expected(question.weighed)}\n")
        reply = await asked("Allow? [y]es this time, [a]lways, [n]o, ne[v]er: ")
        return Answer(allow=reply in ("y", "a"), remember="always" if reply in ("a", "v") else "session")
