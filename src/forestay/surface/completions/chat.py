"""`/openai/v1/chat/completions`: whole or as a stream, with the caller's own tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from forestay.host import Host
from forestay.kernel import Problem
from forestay.models import Message, ToolSpec
from forestay.surface.answers import openai_error
from forestay.surface.completions.answering import (
    BODY_LIMIT,
    PROBLEMS,
    SCOPES,
    Answered,
    alive,
    arguments_of,
    begin,
    heard,
    tool_call,
    unsupported,
    whole,
)
from forestay.surface.completions.request_parts import (
    NO_FORM,
    Content,
    Given,
    ToolName,
    check_choice,
    no_function,
    own_tool,
    spoken,
    text_of,
)
from forestay.surface.operations import Call, Operations
from forestay.surface.sse import frame

DONE = frame(b"[DONE]")
api = Operations[Host](contract="openai", tag="openai", scopes=SCOPES, problems=PROBLEMS)


class Function(Given, frozen=True):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class FunctionTool(Given, frozen=True):
    type: str
    function: Function | None = None


class CalledFunction(Given, frozen=True):
    name: str
    arguments: str


class FunctionCall(Given, frozen=True):
    id: str
    function: CalledFunction
    type: str = "function"


class ChatMessage(Given, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    tool_calls: list[FunctionCall] | None = None
    tool_call_id: str | None = None


class StreamOptions(Given, frozen=True):
    include_usage: bool | None = None


class ChatRequest(Given, frozen=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    tools: list[FunctionTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    logprobs: bool | None = None
    response_format: dict[str, Any] | None = None


@api.post(
    "/openai/v1/chat/completions",
    "openai.chat",
    dict[str, Any],
    body_limit=BODY_LIMIT,
    streams=True,  # an answer waits for its run's end, with or without a stream
)
async def complete(host: Host, call: Call, body: ChatRequest) -> Response | dict[str, Any]:
    """The next answer of a conversation with an agent, as a completion or as server-sent events."""
    _check(body)
    tools = [] if body.tool_choice == "none" else [_tool(item, n) for n, item in enumerate(body.tools or ())]
    messages = [_message(item, n) for n, item in enumerate(body.messages)]
    run_id = await begin(host, call, body.model, messages, tools)
    common = {"id": f"chatcmpl-{run_id}", "created": host.clock.now_ms() // 1000, "model": body.model}
    if not body.stream:
        return _completion(common, await whole(host, call, run_id))
    counted = body.stream_options is not None and bool(body.stream_options.include_usage)
    return call.stream(alive(_frames(host, call.tenant, run_id, common, counted)))


async def _frames(
    host: Host, tenant: str, run_id: str, common: dict[str, Any], counted: bool
) -> AsyncGenerator[bytes, None]:
    def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
        body = {**common, "object": "chat.completion.chunk", "choices": choices, **more}
        return frame(msgspec.json.encode(body))

    def delta(finish: str | None = None, **said: Any) -> bytes:
        return chunk([{"index": 0, "delta": said, "logprobs": None, "finish_reason": finish}])

    yield delta(role="assistant", content="")
    try:
        async for item in heard(host, tenant, run_id):
            if isinstance(item, str):
                yield delta(content=item)
                continue
            for number, made in enumerate(_calls(item)):
                yield delta(tool_calls=[{"index": number, **made}])
            yield delta("tool_calls" if item.calls else "stop")
            if counted:
                yield chunk([], usage=_usage(item))
    except Problem as problem:
        yield frame(msgspec.json.encode({"error": openai_error(problem)}))
        return
    yield DONE


def _completion(common: dict[str, Any], answer: Answered) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = _calls(answer)
    finish = "tool_calls" if answer.calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**common, "object": "chat.completion", "choices": [choice], "usage": _usage(answer)}


def _calls(answer: Answered) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}
        for call in answer.calls
    ]


def _usage(answer: Answered) -> dict[str, Any]:
    used = answer.usage
    counts = {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens}
    return {**counts, "total_tokens": used.input_tokens + used.output_tokens}


def _check(body: ChatRequest) -> None:
    """Refuse options that would change the answer's shape and are not supported."""
    if body.n not in (None, 1):
        raise unsupported("$.n", "An agent gives one answer.")
    if body.logprobs:
        raise unsupported("$.logprobs", "An agent has no log probabilities.")
    if (body.response_format or {}).get("type", "text") != "text":
        raise unsupported("$.response_format", NO_FORM)
    check_choice(body.tool_choice)


def _tool(item: FunctionTool, number: int) -> ToolSpec:
    if item.type != "function" or item.function is None:
        raise no_function(number)
    return own_tool(item.function.name, item.function.description, item.function.parameters)


def _message(item: ChatMessage, number: int) -> Message:
    at = f"$.messages[{number}]"
    text = text_of(item.content, f"{at}.content")
    if item.role == "tool":
        return Message("tool", text, tool_call_id=item.tool_call_id or "")
    if item.role == "assistant":
        calls = (tool_call(made.id, made.function.name, made.function.arguments) for made in item.tool_calls or ())
        return Message("assistant", text, tuple(calls))
    return spoken(item.role, text, at)
