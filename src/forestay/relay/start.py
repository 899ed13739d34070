"""How a dispatch begins: the record that says what was asked; a task that does not fit is ingested first (CRP §1.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from forestay.kernel import Draft, Problem
from forestay.relay import guard, window
from forestay.relay.ingest import ingest
from forestay.relay.oversize import question, shortened
from forestay.relay.types import SecurityFlags, TaskIntent

if TYPE_CHECKING:
    from forestay.relay.dispatch import Terms
    from forestay.relay.session import Session


class Task(msgspec.Struct, frozen=True):
    """A task whose texts have been validated."""

    intent: TaskIntent
    system_prompt: str
    task_input: str
    goal: str
    flags: SecurityFlags


def checked(intent: TaskIntent) -> Task:
    system_prompt, flags = guard.validate(intent.system_prompt or "", "system_prompt")
    task_input, task_flags = guard.validate(intent.task_input or "", "task_input")
    goal, goal_flags = guard.validate(intent.description, "description")
    return Task(intent, system_prompt, task_input, goal, guard.both(guard.both(flags, task_flags), goal_flags))


async def start(
    session: Session,
    task: Task,
    terms: Terms,
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
    if not plan.fits:
        if plan.system + plan.reserve + 64 > plan.context_window:
            raise Problem(
                "window_exceeded",
                f"{plan.system} tokens of system prompt and tools and {plan.reserve} of output do not fit into "
                f"{plan.context_window}.",
                at="$.system_prompt",
                limit=plan.context_window,
            )
        await ingest(session, text, trusted=True)
        query = query or f"{task.goal}\n{question(text)}"
        room = (plan.context_window - plan.system - plan.reserve) // 4
        text = shortened(text, room, session.model.count_tokens)
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
        "auto_ingested": not plan.fits,
        "remember": session.warm.config.remember_answers if remember is None else remember,
        **({"key": key} if key else {}),
    }
    drafts = [Draft("crp.dispatch.start", begun), *guard.injection_records(task.flags)]
    return drafts, plan if plan.fits else None
