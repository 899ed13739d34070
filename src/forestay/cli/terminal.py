"""Asks the person at the terminal: a question on standard error, one line of answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from forestay.kernel import Problem, canonical, one_line, printable

if TYPE_CHECKING:
    from forestay.extensions import Remember


def attended() -> bool:
    """Whether somebody is there to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def asked(question: str) -> str:
    """Ask; return the answer's first letter, or nothing when the person only presses return."""
    return (await told(question)).lower()[:1]


async def told(question: str) -> str:
    """Ask; return the answer, one line."""
    return (await _reader[-1](printable(question))).strip()


async def _from_standard_input(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line


_reader: list[Callable[[str], Awaitable[str]]] = [_from_standard_input]


@contextmanager
def answered_by(reader: Callable[[str], Awaitable[str]]) -> Iterator[None]:
    """Let `reader` answer questions within the block: a conversation has one reader for all typed input."""
    _reader.append(reader)
    try:
        yield
    finally:
        _reader.pop()


async def permission(asks: dict[str, Any]) -> dict[str, Any]:
    """Ask about a run's capability prompt; return the answer in its interrupt's form."""
    about = asks["artifactData"]
    lines = (asks["title"], asks["description"], about["allows"])
    sys.stderr.write("\n" + "\n  ".join(one_line(str(text)) for text in lines) + "\n")
    if about.get("sandbox"):
        sys.stderr.write(f"  {one_line(str(about['sandbox']))}\n")
    loss = about.get("loss") or {}
    if loss.get("words"):
        sys.stderr.write(f"  {one_line(str(loss['words']))}\n")
    wider = (about.get("choices") or {}).get("everything")
    said = await _allowed(wider["means"] if isinstance(wider, dict) else None, loss.get("arithmetic") or ())
    answer: dict[str, Any] = {"action": "accept" if said.allow else "reject", "remember": said.remember}
    if said.everything:
        answer["everything"] = True
    return answer | ({"expiresInSeconds": said.seconds} if said.seconds else {})


async def form(asks: dict[str, Any]) -> dict[str, Any]:
    """Ask for the fields of a run's form, a line each; an empty line keeps the field's value."""
    about = asks["artifactData"]
    sys.stderr.write(f"\n{one_line(str(asks['title']))}\n  {printable(str(asks.get('description', '')))}\n")
    values = dict(about["arguments"])
    for name, field in about["schema"].get("properties", {}).items():
        text = await told(f"  {one_line(name)} [{one_line(str(values.get(name, '')))}]: ")
        if text:
            values[name] = text if field.get("type", "string") == "string" else _read(text)
    if await asked("Send this? [y/N] ") != "y":
        return {"action": "reject"}
    return {"action": "edit-accept", "editedArtifactData": {"arguments": values}}


def _read(text: str) -> Any:
    """Decode a typed number, boolean or list; else return the text, which the host checks."""
    try:
        return canonical.decode(text.encode())
    except Problem:
        return text


class _Said(NamedTuple):
    """The person's decision: yes or no, for how long, for everything or only for the request."""

    allow: bool
    remember: Remember
    everything: bool = False
    seconds: int | None = None


async def _allowed(wider: str | None, arithmetic: Sequence[str] = ()) -> _Said:
    """Ask whether, how far and for how long to allow it; `wider` says what a yes to everything opens (P16).

    `arithmetic` is how the risk was calculated; one key shows it.
    """
    all_of_it = "[e]verything, " if wider is not None else ""
    why = ", [?] why" if arithmetic else ""
    question = f"Allow? [o]nce, [y]es for this session, [a]lways, {all_of_it}[n]o, ne[v]er{why}: "
    while (reply := await asked(question)) == "?" and arithmetic:
        sys.stderr.write("".join(f"    {one_line(str(line))}\n" for line in arithmetic))
    everything = reply == "e" and wider is not None
    if everything:
        sys.stderr.write(f"  {one_line(str(wider))}\n")
        reply = await asked("Everything? [y]es for this session, [a]lways, [n]o: ")
        if reply not in ("y", "a"):
            return _Said(False, "once")
    words: dict[str, Remember] = {"o": "once", "a": "always", "v": "always"}
    remember = words.get(reply, "session")
    return _Said(reply in ("o", "y", "a"), remember, everything, await _end() if reply == "a" else None)


async def _end() -> int | None:
    """Ask when "always" ends, in seconds from now; None: only when the person takes it back."""
    from forestay.extensions import EXPIRIES

    reply = await asked("It ends after an [h]our, a [d]ay, a [w]eek, or [Enter] when you take it back: ")
    return next((seconds for name, seconds in EXPIRIES.items() if reply and name[0] == reply), None)


def _reach(question: Any) -> str:
    """Say how far a plain yes goes."""
    if not question.limitable:
        return f"A yes is for {question.capability}, without a limit: it cannot be narrower."
    return f"A yes is for {', '.join(question.scope)} only." if question.scope else "A yes is for this call only."


class TerminalConsent:
    """`extensions.Consent` that asks at the terminal where the command was started."""

    async def ask(self, question: Any) -> Any:
        from forestay.extensions import Answer
        from forestay.host import everything
        from forestay.kernel import SystemClock

        about = f" on {question.resource}" if question.resource else ""
        asks = f"{question.extension} asks for {question.capability}{about}: {question.meaning}"
        sys.stderr.write(f"\n{one_line(asks)}\n  {one_line(_reach(question))}\n")
        if question.note:
            sys.stderr.write(f"  {one_line(question.note)}\n")
        weighed = question.weighed
        if weighed is not None:
            sys.stderr.write(f"  {one_line(weighed.words)}\n")
        wider = everything(question)
        said = await _allowed(
            wider["means"] if wider is not None else None, weighed.arithmetic if weighed is not None else ()
        )
        expires = SystemClock().now_ms() + said.seconds * 1000 if said.seconds else None
        return Answer(said.allow, said.remember, expires_ms=expires, everything=said.everything)
