"""`/openai/v1/responses`: the same answers in the form of OpenAI's newer interface.

A response is its run, so it is kept: `previous_response_id` continues its conversation, and it can be read again.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from forestay.host import COMPLETION, Conversation, Host
from forestay.kernel import Problem, parse_iso
from forestay.models import Message, ToolSpec
from forestay.runs import TERMINAL, RunSnapshot
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
    read,
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

_ID = "resp_"
api = Operations[Host](contract="openai", tag="openai", scopes=SCOPES, problems=PROBLEMS)


class InputItem(Given, frozen=True):
    type: str = "message"
    role: str | None = None
    content: Content = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content = None


class OwnTool(Given, frozen=True):
    type: str
    name: ToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ResponseRequest(Given, frozen=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    input: str | list[InputItem]
    instructions: str | None = None
    tools: list[OwnTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stream: bool | None = None
    previous_response_id: Annotated[str, Meta(max_length=128)] | None = None
    background: bool | None = None
    text: dict[str, Any] | None = None


@api.post(
    "/openai/v1/responses",
    "openai.respond",
    dict[str, Any],
    body_limit=BODY_LIMIT,
    streams=True,  # an answer waits for its run's end, with or without a stream
)
async def respond(host: Host, call: Call, body: ResponseRequest) -> Response | dict[str, Any]:
    """An agent's answer to an input, as a response or as server-sent events."""
    _check(body)
    tools = [] if body.tool_choice == "none" else [_tool(item, n) for n, item in enumerate(body.tools or ())]
    messages = await _before(host, call.tenant, body.previous_response_id) if body.previous_response_id else []
    messages += [Message("user", body.input)] if isinstance(body.input, str) else _said(body.input)
    run_id = await begin(host, call, body.model, messages, tools, body.instructions or "")
    shell = _shell(run_id, body.model, host.clock.now_ms() // 1000)
    shell |= {"instructions": body.instructions, "previous_response_id": body.previous_response_id}
    if not body.stream:
        return _whole(shell, await whole(host, call, run_id))
    return call.stream(alive(_frames(host, call.tenant, run_id, shell)))


@api.get("/openai/v1/responses/{responseId}", "openai.response", dict[str, Any])
async def show(host: Host, call: Call) -> dict[str, Any]:
    """A response as it stands: its run goes on without its caller."""
    run = await _run(host, call.tenant, call.path["responseId"])
    made = parse_iso(run.created_at) // 1000 if run.created_at else 0
    shell = _shell(run.run_id, str(run.inputs.get("agentId", "")), made)
    if run.status not in TERMINAL:
        return shell
    try:
        return _whole(shell, read(run))
    except Problem as problem:
        return _failed(shell, problem)


async def _frames(host: Host, tenant: str, run_id: str, shell: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    numbers = itertools.count()

    def event(type: str, **more: Any) -> bytes:
        return frame(msgspec.json.encode({"type": type, "sequence_number": next(numbers), **more}), type)

    yield event("response.created", response=shell)
    yield event("response.in_progress", response=shell)
    message, place = _message_item(run_id, "", "in_progress"), {"output_index": 0, "content_index": 0}
    of = {"item_id": message["id"], **place}
    texts: list[str] = []
    try:
        async for item in heard(host, tenant, run_id):
            if isinstance(item, str):
                if not texts:
                    yield event("response.output_item.added", output_index=0, item={**message, "content": []})
                    yield event("response.content_part.added", part=_part(""), **of)
                texts.append(item)
                yield event("response.output_text.delta", delta=item, logprobs=[], **of)
                continue
            said = "".join(texts)
            if texts:
                ended = _message_item(run_id, said, "completed")
                yield event("response.output_text.done", text=said, logprobs=[], **of)
                yield event("response.content_part.done", part=_part(said), **of)
                yield event("response.output_item.done", output_index=0, item=ended)
            for number, made in enumerate(_calls(item), 1 if texts else 0):
                for line in _call_events(event, number, made):
                    yield line
            yield event("response.completed", response=_whole(shell, item, said or None))
    except Problem as problem:
        yield event("response.failed", response=_failed(shell, problem))


def _call_events(event: Any, number: int, made: dict[str, Any]) -> Iterator[bytes]:
    of = {"item_id": made["id"], "output_index": number}
    begun = {**made, "arguments": "", "status": "in_progress"}
    yield event("response.output_item.added", output_index=number, item=begun)
    yield event("response.function_call_arguments.delta", delta=made["arguments"], **of)
    yield event("response.function_call_arguments.done", name=made["name"], arguments=made["arguments"], **of)
    yield event("response.output_item.done", output_index=number, item=made)


def _shell(run_id: str, model: str, created: int) -> dict[str, Any]:
    """Return a response without output yet."""
    return {
        "id": _ID + run_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "model": model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": None,
        "top_p": None,
        "store": True,
    }


def _whole(shell: dict[str, Any], answer: Answered, said: str | None = None) -> dict[str, Any]:
    """Return the whole response; after a stream, `said` is the streamed text."""
    text = answer.text if said is None else said
    output = [_message_item(answer.run_id, text, "completed")] if text else []
    used = answer.usage
    usage = {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.hidden_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }
    return {**shell, "status": "completed", "output": [*output, *_calls(answer)], "usage": usage}


def _failed(shell: dict[str, Any], problem: Problem) -> dict[str, Any]:
    told = openai_error(problem)
    return {**shell, "status": "failed", "error": {"code": "server_error", "message": told["message"]}}


def _message_item(run_id: str, text: str, status: str) -> dict[str, Any]:
    common = {"id": f"msg_{run_id}", "type": "message", "role": "assistant", "status": status}
    return {**common, "content": [_part(text)]}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _calls(answer: Answered) -> list[dict[str, Any]]:
    return [
        {
            "type": "function_call",
            "id": f"fc_{answer.run_id}_{number}",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments_of(call),
            "status": "completed",
        }
        for number, call in enumerate(answer.calls)
    ]


async def _run(host: Host, tenant: str, response_id: str) -> RunSnapshot:
    run = await host.runs.get_run(response_id.removeprefix(_ID), tenant)
    if not response_id.startswith(_ID) or run.workflow_id != COMPLETION["id"]:
        raise Problem("not_found", "There is no such response.", at="$.previous_response_id")
    return run


async def _before(host: Host, tenant: str, response_id: str) -> list[Message]:
    """Return the conversation that ends with a response; its instructions no longer count."""
    run = await _run(host, tenant, response_id)
    answer = read(run)
    given = msgspec.convert(run.inputs["conversation"], Conversation)
    asked = [Message("user", run.inputs["question"])] if run.inputs["question"] else []
    return [*given.messages, *asked, Message("assistant", answer.text, answer.calls)]


def _check(body: ResponseRequest) -> None:
    if body.background:
        raise unsupported("$.background", "Start a run at /v1/runs to work in the background.")
    check_choice(body.tool_choice)
    if ((body.text or {}).get("format") or {}).get("type", "text") != "text":
        raise unsupported("$.text.format", NO_FORM)


def _tool(item: OwnTool, number: int) -> ToolSpec:
    if item.type != "function" or item.name is None:
        raise no_function(number)
    return own_tool(item.name, item.description, item.parameters)


def _said(items: list[InputItem]) -> list[Message]:
    """Return the items as messages; calls in a row become one message of the assistant."""
    messages: list[Message] = []
    for number, item in enumerate(items):
        at = f"$.input[{number}]"
        if item.type == "message":
            messages.append(spoken(item.role, text_of(item.content, f"{at}.content"), at))
        elif item.type == "function_call" and item.call_id and item.name:
            made = tool_call(item.call_id, item.name, item.arguments or "{}")
            if messages and messages[-1].role == "assistant":
                last = messages.pop()
                messages.append(msgspec.structs.replace(last, tool_calls=(*last.tool_calls, made)))
            else:
                messages.append(Message("assistant", "", (made,)))
        elif item.type == "function_call_output" and item.call_id:
            messages.append(Message("tool", text_of(item.output, f"{at}.output"), tool_call_id=item.call_id))
        elif item.type != "reasoning":  # another model's thoughts are not part of the conversation
            raise unsupported(at, f"Agents read messages and calls of functions, not {item.type[:40]!r}.")
    return messages
