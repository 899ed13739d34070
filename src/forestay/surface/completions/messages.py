"""`/anthropic/v1/messages`: the same answers in Anthropic's form, whole or as a stream."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from forestay.host import Host
from forestay.kernel import Problem
from forestay.models import Message, ToolCall, ToolSpec
from forestay.surface.answers import anthropic_error
from forestay.surface.completions.answering import (
    BODY_LIMIT,
    PROBLEMS,
    SCOPES,
    Answered,
    alive,
    arguments_of,
    begin,
    heard,
    unsupported,
    whole,
)
from forestay.surface.completions.request_parts import (
    Content,
    Given,
    ToolName,
    check_choice,
    no_function,
    own_tool,
    text_of,
)
from forestay.surface.operations import Call, Operations
from forestay.surface.sse import frame

_THOUGHT = ("thinking", "redacted_thinking")  # another model's thoughts are not part of the conversation
api = Operations[Host](contract="anthropic", tag="anthropic", scopes=SCOPES, problems=PROBLEMS)


class Block(Given, frozen=True):
    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Content = None


class Turn(Given, frozen=True):
    role: Literal["user", "assistant"]
    content: str | list[Block]


class CallersTool(Given, frozen=True):
    name: ToolName
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(Given, frozen=True):
    type: str


class MessagesRequest(Given, frozen=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[Turn], Meta(min_length=1)]
    system: Content = None
    tools: list[CallersTool] | None = None
    tool_choice: ToolChoice | None = None
    stream: bool | None = None


@api.post(
    "/anthropic/v1/messages",
    "anthropic.messages",
    dict[str, Any],
    body_limit=BODY_LIMIT,
    streams=True,  # an answer waits for its run's end, with or without a stream
)
async def create(host: Host, call: Call, body: MessagesRequest) -> Response | dict[str, Any]:
    """The next message of a conversation with an agent, whole or as server-sent events."""
    chosen = body.tool_choice.type if body.tool_choice is not None else None
    check_choice(chosen)
    tools = [] if chosen == "none" else [_tool(item, n) for n, item in enumerate(body.tools or ())]
    said = [message for number, turn in enumerate(body.messages) for message in _messages(turn, number)]
    run_id = await begin(host, call, body.model, said, tools, text_of(body.system, "$.system"))
    if not body.stream:
        return _message(body.model, await whole(host, call, run_id))
    return call.stream(alive(_frames(host, call.tenant, run_id, body.model)))


@api.get("/anthropic/v1/models", "anthropic.models", dict[str, Any], scopes=("manifest:read",))
async def models(host: Host, call: Call) -> dict[str, Any]:
    """The agents of the caller's tenant, as models."""
    found = [
        {"type": "model", "id": item.agent_id, "display_name": item.agent_id, "created_at": "1970-01-01T00:00:00Z"}
        for item in await host.directory.listed(call.tenant)
    ]
    ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {"first_id": None, "last_id": None}
    return {"data": found, "has_more": False, **ends}


async def _frames(host: Host, tenant: str, run_id: str, model: str) -> AsyncGenerator[bytes, None]:
    places = itertools.count()
    yield _event("message_start", message={**_shell(run_id, model), "usage": _NOTHING})
    begun: int | None = None
    try:
        async for item in heard(host, tenant, run_id):
            if isinstance(item, str):
                if begun is None:
                    begun = next(places)
                    yield _event("content_block_start", index=begun, content_block={"type": "text", "text": ""})
                yield _event("content_block_delta", index=begun, delta={"type": "text_delta", "text": item})
                continue
            if begun is not None:
                yield _event("content_block_stop", index=begun)
            for made in item.calls:
                for line in _call_events(next(places), made):
                    yield line
            ended = {"stop_reason": _stop(item), "stop_sequence": None}
            yield _event("message_delta", delta=ended, usage=_usage(item))
    except Problem as problem:
        yield _event("error", error=anthropic_error(problem))
        return
    yield _event("message_stop")


def _call_events(place: int, made: ToolCall) -> Iterator[bytes]:
    block = {"type": "tool_use", "id": made.id, "name": made.name, "input": {}}
    yield _event("content_block_start", index=place, content_block=block)
    delta = {"type": "input_json_delta", "partial_json": arguments_of(made)}
    yield _event("content_block_delta", index=place, delta=delta)
    yield _event("content_block_stop", index=place)


def _event(type: str, **more: Any) -> bytes:
    return frame(msgspec.json.encode({"type": type, **more}), type)


_NOTHING = {"input_tokens": 0, "output_tokens": 0}


def _shell(run_id: str, model: str) -> dict[str, Any]:
    """Return a message without content yet."""
    common = {"id": f"msg_{run_id}", "type": "message", "role": "assistant", "model": model}
    return {**common, "content": [], "stop_reason": None, "stop_sequence": None}


def _message(model: str, answer: Answered) -> dict[str, Any]:
    text = [{"type": "text", "text": answer.text}] if answer.text else []
    calls = [{"type": "tool_use", "id": made.id, "name": made.name, "input": made.arguments} for made in answer.calls]
    ended = {"content": [*text, *calls], "stop_reason": _stop(answer), "usage": _usage(answer)}
    return {**_shell(answer.run_id, model), **ended}


def _stop(answer: Answered) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _usage(answer: Answered) -> dict[str, int]:
    return {"input_tokens": answer.usage.input_tokens, "output_tokens": answer.usage.output_tokens}


def _tool(item: CallersTool, number: int) -> ToolSpec:
    if item.type not in (None, "custom"):  # tools of other types run at Anthropic
        raise no_function(number)
    return own_tool(item.name, item.description, item.input_schema)


def _messages(turn: Turn, number: int) -> Iterator[Message]:
    """Yield one turn as messages: first a message for each tool result, then the text."""
    if isinstance(turn.content, str):
        yield Message(turn.role, turn.content)
        return
    texts: list[str] = []
    calls: list[ToolCall] = []
    for place, block in enumerate(turn.content):
        at = f"$.messages[{number}].content[{place}]"
        if block.type == "text" and block.text is not None:
            texts.append(block.text)
        elif block.type == "tool_use" and turn.role == "assistant" and block.id and block.name:
            calls.append(ToolCall(block.id, block.name, block.input or {}))
        elif block.type == "tool_result" and turn.role == "user" and block.tool_use_id:
            yield Message("tool", text_of(block.content, f"{at}.content"), tool_call_id=block.tool_use_id)
        elif block.type not in _THOUGHT:
            raise unsupported(at, f"Agents read text and results of tools, not {block.type[:40]!r}.")
    if texts or calls:
        yield Message(turn.role, "".join(texts), tuple(calls))
