"""One answer of an agent: starts a run with a conversation, and reads its text.

O1  The run is on disk before anything is answered. It continues when its caller goes away, and its answer stays.
O2  A caller gets the text as it is written, then the whole answer; a run that fails is a Problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from forestay.host import COMPLETION, Conversation, Host
from forestay.kernel import TABLE, Problem, canonical
from forestay.models import Message, ToolCall, ToolSpec, Usage
from forestay.runs import CreateRun, RunSnapshot
from forestay.surface.operations import Call
from forestay.surface.sse import KEEPALIVE, KEEPALIVE_SECONDS, Awaited

SCOPES = ("runs:create", "runs:read")
PROBLEMS = ("not_found", "schema_mismatch", "request_unsupported")
BODY_LIMIT = 16 * 1024 * 1024


class Answered(msgspec.Struct, frozen=True):
    """The whole answer of a run: its text, and the calls of the caller's own tools."""

    run_id: str
    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage


async def begin(
    host: Host,
    call: Call,
    agent: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    instructions: str = "",
) -> str:
    """Start the run that answers `messages`; return its id (O1)."""
    manifest = await host.directory.get(call.tenant, agent)
    *before, last = checked(messages)
    asks = last.role == "user"
    conversation = Conversation(tuple(before) if asks else tuple(messages), tuple(tools), instructions)
    inputs = {
        "agentId": manifest.agent_id,
        "question": last.content if asks else "",
        "conversation": msgspec.to_builtins(conversation),
    }
    caller, reserved = call.caller, call.id_for("run")
    request = CreateRun(workflow_id=COMPLETION["id"], inputs=inputs)
    try:
        made = await host.runs.create_run(
            request, caller.tenant, caller.principal, workspace=caller.workspace, run_id=reserved
        )
    except Problem as problem:
        if reserved is None or problem.details.get("activeRunId") != reserved:
            raise
        return reserved  # this very request created the run before the host died
    return made.run_id


async def whole(host: Host, call: Call, run_id: str) -> Answered:
    """Wait until the run ends and return its answer; a run that asks a person keeps the caller waiting."""
    waiting = asyncio.ensure_future(host.runs.wait(run_id, call.tenant))
    closing = asyncio.ensure_future(call.closing.wait())
    try:
        await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise Problem("unavailable", "The host is shutting down.", retry_after_ms=5_000)
        return read(waiting.result())
    finally:
        waiting.cancel()
        closing.cancel()


async def heard(host: Host, tenant: str, run_id: str) -> AsyncGenerator[str | Answered, None]:
    """Yield the text as it is written, then the whole answer (O2). Texts between tool calls become paragraphs."""
    spoke = False
    async for piece in words(host, tenant, run_id):
        yield piece
        spoke = True
    answer = read(await host.runs.get_run(run_id, tenant))
    if not spoke and answer.text:
        yield answer.text
    yield answer


async def words(host: Host, tenant: str, run_id: str, *, until_asked: bool = False) -> AsyncGenerator[str, None]:
    """Yield the text of a run as it is written, to its end; with `until_asked`, until it asks a person."""
    spoke = worked = False
    async with aclosing(host.runs.follow(run_id, tenant)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.type == "agent.toolCalled":
                worked = spoke
            elif event.type == "output.chunk":
                yield ("\n\n" if worked else "") + event.payload["chunk"]
                spoke, worked = True, False
            elif event.type == "node.suspended" and until_asked:
                return


async def alive(frames: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield `frames`, and a keep-alive when nothing comes for a while."""
    source = Awaited(frames)
    try:
        while True:
            while not await source.ready(KEEPALIVE_SECONDS):
                yield KEEPALIVE
            item = source.take()
            if item is None:
                return
            yield item
    finally:
        await source.close()


def read(run: RunSnapshot) -> Answered:
    """Return the answer of a run that has ended, or raise the Problem that it ended with."""
    if run.status != "completed":
        raise failure(run)
    outputs = run.outputs or {}
    output = outputs.get("output")
    text = output if isinstance(output, str) else canonical.encode(output).decode()
    calls = msgspec.convert(outputs.get("toolCalls", []), tuple[ToolCall, ...])
    return Answered(run.run_id, text, calls, msgspec.convert(outputs.get("usage"), Usage))


def checked(messages: Sequence[Message]) -> Sequence[Message]:
    """Check that a model can read the conversation: it has a user's message, and every tool call has its result."""
    if not any(message.role == "user" for message in messages):
        raise Problem("schema_mismatch", "The conversation has no message of a user.", at="$.messages")
    waits: set[str] = set()
    for number, message in enumerate(messages):
        at = f"$.messages[{number}]"
        if message.role == "tool":
            if message.tool_call_id not in waits:
                raise Problem("schema_mismatch", "A tool message answers a call of the message before.", at=at)
            waits.discard(message.tool_call_id)
            continue
        if waits:
            told = f"These calls have no result: {', '.join(sorted(waits))[:200]}."
            raise Problem("schema_mismatch", told, at=at)
        waits = {call.id for call in message.tool_calls}
    if waits:
        raise Problem("schema_mismatch", "The last calls have no result yet.", at="$.messages")
    return messages


def tool_call(id: str, name: str, arguments: str) -> ToolCall:
    """Return a tool call that a caller repeats; its arguments come as text."""
    try:
        value: Any = canonical.decode(arguments.encode())
    except Problem:
        value = None
    return ToolCall(id, name, value) if isinstance(value, dict) else ToolCall(id, name, {}, arguments)


def arguments_of(call: ToolCall) -> str:
    return call.malformed or canonical.encode(call.arguments).decode()


def unsupported(at: str, told: str) -> Problem:
    """Return a problem with status 400, because clients repeat a request that gets a 5xx."""
    return Problem("request_unsupported", told, at=at)


def failure(run: RunSnapshot) -> Problem:
    """Return the Problem that a run ended with."""
    if run.status == "cancelled":
        return Problem("cancelled", "The run was cancelled.", runId=run.run_id)
    error = run.error
    if error is None:
        return Problem("node_failed", f"The run ended as {run.status}.", runId=run.run_id)
    details = {name: value for name, value in (error.details or {}).items() if name in ("fix", "address", "at")}
    return Problem(error.code if error.code in TABLE else "node_failed", error.message, runId=run.run_id, **details)
