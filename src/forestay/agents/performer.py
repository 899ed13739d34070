"""Performing the loop's steps: what `decide` said becomes what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from forestay.agents import pi, structured
from forestay.agents.asking import call_model
from forestay.agents.calling import ask_approval, call_tool, gate_call, refuse_call
from forestay.agents.decide import CALLER, AgentState
from forestay.agents.manifest import AgentManifest
from forestay.agents.ports import Kept
from forestay.agents.prompt_chain import prompt_text
from forestay.agents.stage import Stage
from forestay.agents.steps import (
    AskApproval,
    Begin,
    Begun,
    CallModel,
    CallTool,
    Confirm,
    Confirmed,
    Correct,
    Corrected,
    Fail,
    Finish,
    GateCall,
    Record,
    RefuseCall,
    Step,
)
from forestay.agents.transcript import since_history
from forestay.kernel import canonical
from forestay.models import Message
from forestay.tools import ApprovalRequest, Tool


async def perform(stage: Stage, state: AgentState, step: Step) -> Record:
    """Do what `decide` said, and give back what happened."""
    match step:
        case Begin():
            return await _begin(stage)
        case CallModel():
            return await call_model(stage, state)
        case GateCall(call):
            return await gate_call(stage, state, call)
        case AskApproval():
            return await ask_approval(stage, state, step)
        case CallTool():
            return await call_tool(stage, state.place, step)
        case RefuseCall():
            return await refuse_call(stage, state.place, step)
        case Correct(message):
            return Corrected(message)
        case Confirm():
            return await _confirm(stage, step)
        case Finish() | Fail():
            raise AssertionError("the loop ends before it performs its end")
        case _:
            assert_never(step)


async def end(stage: Stage, state: AgentState, step: Finish | Fail) -> Kept | None:
    """Tell the extensions, and keep the answer in mind where the agent has a memory; where it is kept."""
    if state.handled:  # nothing had begun
        return None
    error = step.key if isinstance(step, Fail) else None

    async def body() -> None:
        await tell_end(stage, state, error)

    await stage.effects.perform("agent/end", body, cls="read", later=True)
    if isinstance(step, Finish) and step.outcome == "completed":
        return await _remember(stage, step.output)
    return None


async def tell_end(stage: Stage, state: AgentState, error: str | None) -> None:
    await stage.tell_turn_end(state)
    spoken = [pi.to_pi(message) for message in since_history(state)]
    await stage.tell("agent_end", messages=spoken, error=error)


async def _begin(stage: Stage) -> Begun:
    transcript = stage.transcript

    async def body() -> Begun:
        leaf = transcript.leaf() if transcript is not None else None
        offered = await stage.tools.list()
        system, prompt = _spoken(stage)
        answer = await stage.tell("input", text=prompt, source=_source(stage)) or {} if prompt else {}
        if answer.get("action") == "handled":
            return Begun((Message("user", prompt, task=True),), (), handled=True)
        if answer.get("action") == "transform" and isinstance(answer.get("text"), str):
            prompt = answer["text"]
        answer = await stage.tell("before_agent_start", prompt=prompt, systemPrompt=system) or {}
        if isinstance(answer.get("systemPrompt"), str):
            system = answer["systemPrompt"]
        added = pi.from_pi(answer["message"]) if "message" in answer else None
        await stage.tell("agent_start")
        messages = [Message("system", system)]
        messages += [Message("user", prompt, task=True)] if prompt or leaf is None else []
        messages += [added] if added is not None else []
        kept = tuple(item for item in answer.get("messages") or () if isinstance(item, dict))
        recalled = await _recalled(stage, prompt)
        return Begun(tuple(messages), surface(stage.manifest, offered), history=leaf, added=kept, recalled=recalled)

    begun = await stage.step("agent/begin", body, Begun)
    first, rest = begun.messages[:1], (*await _remembered(stage, begun.recalled), *begun.messages[1:])
    if transcript is None or begun.history is None:
        return msgspec.structs.replace(begun, messages=(*first, *rest))
    history = transcript.history(begun.history)
    messages = (*first, *(history if rest else _asked(history)), *rest)
    return msgspec.structs.replace(begun, messages=messages, known=len(history))


def _spoken(stage: Stage) -> tuple[str, str]:
    """What the model is told before anything else, and the task, each by the prompts that apply (RFC 0029)."""
    manifest, prompts = stage.manifest, stage.invocation.prompts
    wanted = "" if manifest.return_schema is None else structured.wanted(manifest.return_schema)
    system = [prompt_text(prompts, "system") or manifest.instructions, prompt_text(prompts, "schema-hint"), wanted]
    task = [prompt_text(prompts, "few-shot"), prompt_text(prompts, "user") or _text(stage.invocation.task)]
    return "\n\n".join(filter(None, system)), "\n\n".join(filter(None, task))


def _source(stage: Stage) -> str:
    return stage.transcript.source if stage.transcript is not None else "rpc"


def _asked(history: Sequence[Message]) -> list[Message]:
    """A conversation that goes on without a new message: what was said last in the user's name is the task."""
    at = max((at for at, message in enumerate(history) if message.role == "user"), default=-1)
    return [msgspec.structs.replace(item, task=True) if n == at else item for n, item in enumerate(history)]


def surface(manifest: AgentManifest, offered: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools that the allowlist leaves, and the caller's own; of two with one name the first stays (A3, A6)."""
    allowed = manifest.allowed({name for tool in offered for name in (tool.id or tool.name, tool.name)})
    kept: dict[str, Tool] = {}
    for tool in offered:
        if not allowed.isdisjoint((tool.id or tool.name, tool.name)) or tool.source == CALLER:
            kept.setdefault(tool.name, tool)
    return tuple(kept.values())


async def _confirm(stage: Stage, step: Confirm) -> Confirmed:
    request = ApprovalRequest(
        "low-confidence",
        "The agent is not sure of its answer. Is it good enough?",
        f"Its confidence is {step.confidence:g}; {step.threshold:g} was asked for.",
        known={"confidence": step.confidence, "threshold": step.threshold, "answer": step.output},
    )
    answer = await stage.approvals.ask("agent/confidence", request)
    return Confirmed(answer.action != "reject")


async def _recalled(stage: Stage, prompt: str) -> tuple[str, ...]:
    if stage.memory is None or not stage.manifest.memory.long_term:
        return ()
    return tuple(await stage.memory.recall(stage.manifest.agent_id, prompt))


async def _remembered(stage: Stage, ids: Sequence[str]) -> list[Message]:
    """What the agent recalled when it began, as far as it is not forgotten."""
    entries = await stage.memory.read(ids) if stage.memory is not None and ids else ()
    lines = "\n".join(f"- {entry}" for entry in entries)
    return [Message("user", f"What you remember from earlier work:\n{lines}")] if entries else []


async def _remember(stage: Stage, output: Any) -> Kept | None:
    memory = stage.memory
    if memory is None or not stage.manifest.memory.long_term:
        return None
    key = "agent/remember"
    identity = f"{stage.invocation.id}/{key}"

    # The task is kept with its answer: an answer alone ("7") shares no word with the task that will ask for it.
    entry = f"{_text(stage.invocation.task)}\n{_text(output)}"

    async def body() -> Any:
        return msgspec.to_builtins(await memory.remember(stage.manifest.agent_id, entry, idempotency_key=identity))

    kept = await stage.effects.perform(key, body, cls="write", idempotency_key=identity, later=True)
    return None if kept is None else msgspec.convert(kept, Kept)


def _text(task: Any) -> str:
    return task if isinstance(task, str) else canonical.encode(task).decode()
