"""Five ways to dispatch, each a thin layer over the one window engine (CRP §1.14).

| variant          | model calls                              | what it adds                                      |
|------------------|------------------------------------------|---------------------------------------------------|
| tools            | until the model stops calling tools      | the five context tools; the model pulls           |
| reflexive        | 1 when the draft is grounded, else 2     | the draft is checked without a model, then redone |
| progressive      | 2: choose sections, then answer          | an outline first, then the chosen sections        |
| stream-augmented | as many windows as the answer needs      | each window gets facts for what was just written  |
| agentic          | as tools, at most `max_steps` tool calls | the tools, the caller's tools, and a trace        |

Every call is a window in the ledger. A call whose output the user does not see counts as overhead (C4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import Draft
from forestay.models import ToolCall, ToolSpec
from forestay.relay.dispatch import DispatchTerms
from forestay.relay.guard import intent_of
from forestay.relay.session import fold
from forestay.relay.tools import Toolbox, structure
from forestay.relay.types import QualityReport, Reply

if TYPE_CHECKING:
    from forestay.relay.session import Session

_OUTLINE_HEADINGS = 200
_AUGMENTED_WINDOW = 512
_DEFAULT_STEPS = 32


class Dispatched(msgspec.Struct, frozen=True):
    """A reply, the tool calls that the caller has to make, and a trace of the steps."""

    output: str
    report: QualityReport
    tool_calls: tuple[ToolCall, ...] = ()
    trace: tuple[dict[str, Any], ...] = ()


async def tools(
    session: Session,
    system_prompt: str,
    task_input: str,
    *,
    tools: Sequence[ToolSpec] = (),
    max_steps: int = _DEFAULT_STEPS,
    operation: str = "dispatch_tools",
    remember: bool | None = None,
    **options: Any,
) -> Dispatched:
    """Let the model pull context through tools; return the calls of the caller's own tools to the caller."""
    toolbox = Toolbox(session.warm, tools, session.vectors)
    terms = DispatchTerms(toolbox=toolbox, max_steps=max_steps)
    intent = intent_of(system_prompt=system_prompt, task_input=task_input, **options)
    async with session.begun(intent, terms, operation=operation, remember=remember) as engine:
        reply = await fold(engine.events())
    return Dispatched(reply.output, reply.report, engine.pending_calls, tuple(toolbox.trace))


async def agentic(
    session: Session,
    system_prompt: str,
    task_input: str,
    *,
    tools: Sequence[ToolSpec] = (),
    max_steps: int = 10,
    **options: Any,
) -> Dispatched:
    """Run the tool loop with a limit on its steps; the trace shows each step's call."""
    return await _tools(
        session, system_prompt, task_input, tools=tools, max_steps=max_steps, operation="dispatch_agentic", **options
    )


async def reflexive(session: Session, system_prompt: str, task_input: str, **options: Any) -> Dispatched:
    """Get a draft, check its statements against the facts without a model, and ask again when some lack support."""
    draft = await session.dispatch(system_prompt, task_input, operation="dispatch_reflexive", **options)
    doubtful = _unsupported(draft)
    trace = {"step": 1, "draft_characters": len(draft.output), "unsupported": len(doubtful)}
    if not doubtful or not draft.report.telemetry or not draft.report.telemetry.facts_in_envelope:
        return Dispatched(draft.output, draft.report, (), (trace,))
    await _overhead(session, draft)
    review = (
        f"{task_input}\n\nA first answer was:\n{draft.output}\n\nNot supported by the context:\n"
        + "\n".join(f"- {text}" for text in doubtful[:20])
        + "\n\nWrite the answer again. Keep what the context supports, and correct or leave out the rest."
    )
    final = await session.dispatch(system_prompt, review, operation="dispatch_reflexive", query=task_input, **options)
    return Dispatched(final.output, final.report, (), (trace, {"step": 2, "unsupported": len(_unsupported(final))}))


def _unsupported(reply: Reply) -> list[str]:
    found = reply.report.groundedness
    return (
        [reply.output[item.start : item.end] for item in found.support if not item.fact_ids]
        if found is not None
        else []
    )


async def progressive(session: Session, system_prompt: str, task_input: str, **options: Any) -> Dispatched:
    """Show the model the outline of the facts, let it choose sections, then let it answer with those sections."""
    outline = _outline(session)
    if not outline:
        reply = await session.dispatch(system_prompt, task_input, operation="dispatch_progressive", **options)
        return Dispatched(reply.output, reply.report, (), ({"step": 1, "sections": []},))
    listing = "\n".join(f"{number}. {name}" for number, name in enumerate(outline, start=1))
    question = (
        f"These sections are known:\n{listing}\n\nWhich of them are needed for the following task? "
        f"Answer with their numbers only, separated by commas.\n\n{task_input}"
    )
    choice = await session.dispatch(system_prompt, question, operation="dispatch_progressive", query="", max_windows=1)
    await _overhead(session, choice)
    chosen = [outline[number - 1] for number in _numbers(choice.output) if 1 <= number <= len(outline)]
    query = "\n".join([task_input, *(name.rpartition(": ")[2] for name in chosen)])
    reply = await session.dispatch(system_prompt, task_input, operation="dispatch_progressive", query=query, **options)
    return Dispatched(reply.output, reply.report, (), ({"step": 1, "sections": chosen}, {"step": 2}))


async def stream_augmented(session: Session, system_prompt: str, task_input: str, **options: Any) -> Dispatched:
    """Write in short windows, each with an envelope for the task and for the text just written."""
    reply = await session.dispatch(
        system_prompt,
        task_input,
        operation="dispatch_stream_augmented",
        terms=DispatchTerms(reground=True, window_tokens=_AUGMENTED_WINDOW),
        **options,
    )
    return Dispatched(reply.output, reply.report)


async def _overhead(session: Session, reply: Reply) -> None:
    """Count the windows of `reply` as overhead: the user does not see them (C4)."""
    windows = reply.report.telemetry.windows if reply.report.telemetry is not None else 1
    await session.record(Draft("crp.dispatch.overhead", {"windows": windows}))


def _outline(session: Session) -> list[str]:
    names = [
        f"{source['source']}: {item['heading']}" for source in structure(session.warm) for item in source["headings"]
    ]
    return names[:_OUTLINE_HEADINGS]


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for word in text.replace(",", " ").replace(".", " ").split():
        if word.isascii() and word.isdigit() and len(word) < 7 and int(word) not in found:
            found.append(int(word))
    return found[:50]


_tools = tools
