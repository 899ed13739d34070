"""Chat completions as Ollama and llama.cpp stream them, each with its own habits: a conversation with a tool.

The bodies are written as these servers send them. Ollama repeats the role in every piece and sends a call whole.
llama.cpp begins with a content of null, sends a call's arguments in pieces, and adds timings of its own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from forestay import models
from forestay.kernel import ManualClock, Problem
from forestay.models import Message, ToolCall, ToolSpec
from tests.models.local_servers import answering

WEATHER = ToolSpec("weather", "The weather.", {"type": "object", "properties": {"town": {"type": "string"}}})
USAGE = {"prompt_tokens": 148, "completion_tokens": 21, "total_tokens": 169}


def ollama(*pieces: dict[str, Any], finish: str) -> str:
    common = {"id": "chatcmpl-571", "object": "chat.completion.chunk", "created": 1760000000, "model": "qwen3:4b"}
    common["system_fingerprint"] = "fp_ollama"

    def chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
        said = {"role": "assistant", "content": "", **delta}
        return {**common, "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}

    return _events(
        *(chunk(piece, None) for piece in pieces), chunk({}, finish), {**common, "choices": [], "usage": USAGE}
    )


def llama_cpp(*pieces: dict[str, Any], finish: str) -> str:
    common = {"created": 1760000000, "id": "chatcmpl-9JxkqA", "model": "ggml-model.gguf"}
    common |= {"system_fingerprint": "b6500-3d4e7b2f", "object": "chat.completion.chunk"}
    timings = {"cache_n": 0, "prompt_n": 148, "prompt_ms": 512.3, "predicted_n": 21, "predicted_per_second": 40.1}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"finish_reason": finish, "index": 0, "delta": delta}], **common}

    return _events(
        chunk({"role": "assistant", "content": None}),
        *map(chunk, pieces),
        chunk({}, finish),
        {"choices": [], **common, "usage": USAGE, "timings": timings},
    )


def _events(*chunks: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _call(arguments: str, **more: Any) -> dict[str, Any]:
    return {"index": 0, **more, "function": {**({"name": "weather"} if more else {}), "arguments": arguments}}


OLLAMA = (
    ollama(
        {"reasoning": "The user wants the weather."},
        {"tool_calls": [_call('{"town":"Kiel"}', id="call_oe4n2kxa", type="function")]},
        finish="tool_calls",
    ),
    ollama({"content": "It rains"}, {"content": " in Kiel."}, finish="stop"),
)
LLAMA_CPP = (
    llama_cpp(
        {"reasoning_content": "The user wants"},
        {"reasoning_content": " the weather."},
        {"tool_calls": [_call("{", id="RrZ3kyKyBzVmWqdY", type="function")]},
        {"tool_calls": [_call('"town":')]},
        {"tool_calls": [_call('"Kiel"}')]},
        finish="tool_calls",
    ),
    llama_cpp({"content": "It rains"}, {"content": " in"}, {"content": " Kiel."}, finish="stop"),
)


@pytest.mark.parametrize(
    ("service", "variable", "play", "key"),
    [
        ("ollama", "OLLAMA_HOST", OLLAMA, "call_oe4n2kxa"),
        ("llamacpp", "LLAMACPP_HOST", LLAMA_CPP, "RrZ3kyKyBzVmWqdY"),
    ],
)
async def test_a_conversation_with_a_tool(
    service: str, variable: str, play: tuple[str, str], key: str, clock: ManualClock
) -> None:
    with answering({}, plays=play) as address:
        model = models.open(f"{service}:m@{address}", clock=clock, environ={})
        try:
            asked = [Message("user", "What is the weather in Kiel?")]
            first = await models.fold(model.stream(asked, tools=[WEATHER]))
            assert first.tool_calls == (ToolCall(key, "weather", {"town": "Kiel"}),)
            assert (first.text, first.finish_reason) == ("", "tool_calls")
            result = Message("tool", "rainy", tool_call_id=key)
            last = await models.fold(
                model.stream([*asked, Message("assistant", "", first.tool_calls), result], tools=[WEATHER])
            )
        finally:
            await model.aclose()
    assert (last.text, last.finish_reason) == ("It rains in Kiel.", "stop")
    assert last.usage is not None and (last.usage.input_tokens, last.usage.output_tokens) == (148, 21)


REFUSALS: list[tuple[int, dict[str, Any], str, str]] = [
    (
        404,
        {"message": 'model "m" not found, try pulling it first', "type": "api_error"},
        "provider_rejected",
        "pulling",
    ),
    (401, {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}, "provider_unauthenticated", ""),
    (503, {"code": 503, "message": "Loading model", "type": "unavailable_error"}, "provider_error", "Loading model"),
]


@pytest.mark.parametrize(("status", "error", "key", "told"), REFUSALS)
async def test_a_refusal_is_said_in_the_servers_own_words(
    status: int, error: dict[str, Any], key: str, told: str, clock: ManualClock
) -> None:
    with answering({}, refuses=(status, {"error": error})) as address:
        model = models.open(f"llamacpp:m@{address}", clock=clock, environ={}, retries=models.Retries(attempts=1))
        try:
            with pytest.raises(Problem) as caught:
                await models.fold(model.stream([Message("user", "Who?")]))
        finally:
            await model.aclose()
    assert caught.value.key == key, caught.value
    assert told in f"{caught.value.message} {caught.value.details}"
