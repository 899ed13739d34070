"""How a dispatch begins: the record that says what was asked (CRP §1.3).

The text of a task that does not fit into the window is ingested first; what is sent is its beginning and its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from forestay.kernel import Draft, Problem
from forestay.relay import guard, window
from forestay.relay.ingest import ingest
from forestay.relay.types import SecurityFlags, TaskIntent

if TYPE_CHECKING:
    from forestay.relay.dispatch import DispatchTerms
    from forestay.relay.session import Session


_PARAGRAPH = 600
_NOTE = "\n\n[The middle of this input is left out here; what it says about the task stands in the passages above.]\n\n"


class Task(msgspec.Struct, frozen=True):
    """A task whose texts have been validated."""

    intent: TaskIntent
    system_prompt: str
    task_input: str
    goal: str
    flags: SecurityFlags


def checked(intent: TaskIntent) -> Task:
    (system_prompt, task_input, goal), flags = guard.validate_all(
        system_prompt=intent.system_prompt or "", task_input=intent.task_input or "", description=intent.description
    )
    return Task(intent, system_prompt, task_input, goal, flags)


async def start(
    session: Session,
    task: Task,
    terms: DispatchTerms,
    *,
    operation: str,
    query: str | None = None,
    remember: bool | None = None,
    key: str = "",
) -> tuple[list[Draft], window.Plan | None]:
    """The records that begin a dispatch, and the plan of its first window where that is known already.

    The model's answer becomes facts where the caller asks for it (C20).
    """
    text = task.task_input
    limit = task.intent.max_output_tokens
    plan = window.plan(
        session.model, session.warm.config, task.system_prompt, text, limit, terms.specs, terms.around
    )  # fmt: skip
    if not (fits := plan.fits):
        if plan.system + plan.reserve + 64 > plan.context_window:
            raise Problem(
                "window_exceeded",
                f"{plan.system} tokens of system prompt and tools and {plan.reserve} of output do not fit into "
                f"{plan.context_window}.",
                at="$.system_prompt",
                limit=plan.context_window,
            )
        await ingest(session, text, trusted=True)
        query = query or f"{task.goal}\n{_question(text)}"
        room = (plan.context_window - plan.system - plan.reserve) // 4
        text = _shortened(text, room, session.model.count_tokens)
    begun = {
        "dispatch_id": session.relay.ids.uuid4(),
        "kind": operation,
        "system_prompt": task.system_prompt,
        "task_input": text,
        "goal": task.goal,
        "query": query or f"{task.goal}\n{text}".strip(),
        "max_windows": task.intent.max_windows,
        "max_output_tokens": limit,
        # As text: a marker may be a character that the ledger refuses.
        "flags": msgspec.json.encode(task.flags).decode(),
        "auto_ingested": not fits,
        "remember": session.warm.config.remember_answers if remember is None else remember,
        **({"key": key} if key else {}),
    }
    drafts = [Draft("crp.dispatch.start", begun), *guard.injection_records(task.flags)]
    return drafts, plan if fits else None


def _shortened(text: str, room: int, count: Callable[[str], int]) -> str:
    """The first and the last part of `text`, cut at lines or spaces, together at most `room` tokens.

    People put the question first or last; both ends are kept.
    """
    room = max(16, room - count(_NOTE))
    characters = max(32, int(len(text) * room / max(1, count(text)) / 2))
    while characters:
        head, tail = _start(text, characters), _end(text, characters)
        if count(head) + count(tail) <= room:
            return head + _NOTE + tail
        characters = characters * 3 // 4
    return _NOTE.strip()


def _question(text: str) -> str:
    """What the task asks, for the ranking: its first and its last paragraph."""
    first, _, _ = text.strip().partition("\n\n")
    _, _, last = text.strip().rpartition("\n\n")
    return f"{first[:_PARAGRAPH]}\n{last[-_PARAGRAPH:]}"


def _start(text: str, limit: int) -> str:
    part = text[:limit]
    for mark in ("\n\n", "\n", " "):
        at = part.rfind(mark, limit // 2)
        if at > 0:
            return part[:at]
    return part


def _end(text: str, limit: int) -> str:
    part = text[-limit:]
    for mark in ("\n\n", "\n", " "):
        at = part.find(mark, 0, limit // 2)
        if at >= 0:
            return part[at + len(mark) :]
    return part
