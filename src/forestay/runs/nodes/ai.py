"""Nodes that ask a model: for streamed text, or for output that must fit a schema.

A model's answer is an effect: it is recorded once, and the model is not asked again (OpenWOP §1.5, §1.11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from forestay.agents import PromptKind, node_prompts, prompt_text
from forestay.kernel import Problem, canonical, check_schema, misfit
from forestay.models import Completion, Message, Params, ToolCall, Usage, fold, whole
from forestay.runs.execution import Execution
from forestay.runs.nodes.checks import numbers, positive, shaped
from forestay.runs.nodes.outside import mcp_tool
from forestay.runs.nodes.registry import NodeError, NodeType
from forestay.runs.prompting import prompted, tell_prompts, with_prompts

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
TRUNCATION_GROWTH = 2


async def call_prompt(ctx: Execution) -> dict[str, Any]:
    """Ask a model; stream its text as `output.chunk` and return it as `text`. With `mcp`, call a tool instead."""
    if isinstance(wanted := ctx.config.get("mcp"), dict):
        return await mcp_tool(ctx, wanted)
    answer = await _ask(ctx, "call", _request(ctx, await _messages(ctx)), stream=True)
    if answer["refusal"] is not None:
        raise _refused(ctx, answer)
    return {"text": answer["text"], "model": answer["model"], "finishReason": answer["finishReason"]}


async def structured_output(ctx: Execution) -> dict[str, Any]:
    """Ask until the answer fits `outputSchema`, at most `schemaRounds` times, which is a limit of the host."""
    schema = ctx.config.get("outputSchema") or {"type": "object"}
    return {"result": await ask_structured(ctx, await _messages(ctx), schema, "call")}


async def ask_structured(
    ctx: Execution, messages: list[dict[str, Any]], schema: dict[str, Any], key: str
) -> dict[str, Any]:
    """Ask for an answer that fits `schema`; each retry tells the model what was wrong."""
    request = _request(ctx, messages)
    failed = _Try("unknown", "")
    rounds = max(1, ctx.limits.schema_rounds)
    for attempt in range(1, rounds + 1):
        if attempt > 1:
            retried = {"nodeId": ctx.node_id, "attempt": attempt, "reason": failed.reason}
            ctx.emit("envelope.retry.attempted", {**retried, "previousError": failed.detail})
        answer = await _ask(ctx, f"{key}:{attempt}", request)
        failed = _judge(ctx, answer, schema)
        if failed.reason is None:
            return failed.value  # type: ignore[no-any-return]
        if failed.reason == "truncation":  # the answer lacked room, so the model needs no correction
            budget = request.params.max_tokens * TRUNCATION_GROWTH if request.params.max_tokens else None
            params = msgspec.structs.replace(request.params, max_tokens=budget)
            request = msgspec.structs.replace(request, params=params)
        else:
            request = _corrected(request, messages, answer["text"], failed.detail)
    if failed.reason == "parse-error" and _is_prose(answer["text"]):
        kind = str(schema.get("title") or schema.get("$id") or "structured-output")
        engaged = {"nodeId": ctx.node_id, "originalEnvelopeType": kind, "fallbackCalls": 1}
        ctx.emit("envelope.nlToFormat.engaged", engaged)
        rounds += 1
        failed = _judge(ctx, await _ask(ctx, f"{key}:{rounds}", request), schema)
        if failed.reason is None:
            return failed.value  # type: ignore[no-any-return]
    raise _exhausted(ctx, rounds, failed)


class _Try(msgspec.Struct, frozen=True):
    """The result of one answer: a value, or the reason why it failed."""

    reason: str | None
    detail: str
    value: Any = None


def _judge(ctx: Execution, answer: dict[str, Any], schema: dict[str, Any]) -> _Try:
    if answer["refusal"] is not None:
        raise _refused(ctx, answer)
    if answer["finishReason"] == "length":
        who = {"nodeId": ctx.node_id, "provider": answer["provider"], "model": answer["model"]}
        is_partial = parse_lenient(answer["text"])[1] is not None
        ctx.emit("envelope.truncated", {**who, "stopReason": "max_tokens", "partialPayloadAvailable": is_partial})
        return _Try("truncation", "The answer was cut off.")
    value, path = parse_lenient(answer["text"])
    if path is None:
        return _Try("parse-error", "The answer is not JSON.")
    if (problem := _misfit(schema, value)) is not None:
        return _Try("schema-violation", problem)
    if path != "direct":
        ctx.emit("envelope.recovery.applied", {"nodeId": ctx.node_id, "path": path})
    return _Try(None, "", value)


def _corrected(request: _Request, messages: list[dict[str, Any]], text: str, detail: str) -> _Request:
    correction = f"Your answer was not accepted: {detail} Answer with JSON that fits the schema."
    said = [{"role": "assistant", "content": text}, {"role": "user", "content": correction}]
    return msgspec.structs.replace(request, messages=[*messages, *said])


def _is_prose(text: str) -> bool:
    """Whether the model answered in prose: the text does not begin like JSON."""
    return bool(text.strip()) and not text.lstrip().startswith(("{", "[", "`", '"'))


def _exhausted(ctx: Execution, rounds: int, failed: _Try) -> NodeError:
    ended = {"nodeId": ctx.node_id, "totalAttempts": rounds, "finalReason": failed.reason, "finalError": failed.detail}
    ctx.emit("envelope.retry.exhausted", ended)
    ctx.emit("cap.breached", {"kind": "schema", "limit": ctx.limits.schema_rounds, "observed": rounds})
    code = "envelope_truncation_unrecoverable" if failed.reason == "truncation" else "envelope_payload_invalid"
    return NodeError(code, f"No answer fits the schema after {rounds} attempts: {failed.detail}", retryable=False)


def parse_lenient(text: str) -> tuple[Any, str | None]:
    """Return a JSON value from a model's text, and how it was found: directly, in a fence, or between braces."""
    tries = [("direct", text)]
    if match := _FENCE.match(text):
        tries.append(("markdown-fence", match.group(1)))
    if (start := text.find("{")) != -1 and (end := text.rfind("}")) > start:
        tries.append(("brace-walker", text[start : end + 1]))
    for path, candidate in tries:
        try:
            return canonical.decode(candidate), path
        except Problem:
            continue
    return None, None


def _misfit(schema: dict[str, Any], value: Any) -> str | None:
    found = misfit(schema, value)
    return None if found is None else f"{found[1]} (at ${found[0]})"


async def _messages(ctx: Execution) -> list[dict[str, Any]]:
    """Return the messages to ask: the node's own, and the prompts that apply to it (RFC 0029)."""
    own = _own_messages(ctx)
    has_system = any(item["role"] == "system" for item in own)
    given: tuple[PromptKind, ...] = (*(("system",) if has_system else ()), *(("user",) if own else ()))
    prompts = await prompted(ctx, given=given)
    tell_prompts(ctx, prompts)
    if has_system and prompt_text(prompts, "system"):
        ctx.log("warn", "A prompt replaces the node's own system prompt.", code="prompt_ref_supersedes_inline")
    found = with_prompts(own, prompts)
    if not any(item["role"] != "system" for item in found):
        raise NodeError("invalid_input", "The node has neither a prompt nor messages.", retryable=False)
    return found


def _own_messages(ctx: Execution) -> list[dict[str, Any]]:
    messages = ctx.inputs.get("messages", ctx.config.get("messages"))
    if isinstance(messages, list) and messages:
        return messages
    prompt = ctx.inputs.get("prompt", ctx.config.get("prompt"))
    if prompt is None:
        prompt = ctx.configurable.get("promptOverrides", {}).get(ctx.config.get("promptId"), ctx.config.get("promptId"))
    system = ctx.config.get("systemPrompt")
    found = [{"role": "system", "content": system}] if isinstance(system, str) else []
    return found if prompt is None else [*found, {"role": "user", "content": str(prompt)}]


class _Request(msgspec.Struct, frozen=True):
    """A node's request to a model; `mock` is the run's mock provider."""

    messages: list[dict[str, Any]]
    provider: str | None
    model: str | None
    params: Params
    mock: dict[str, Any] | None


def _request(ctx: Execution, messages: list[dict[str, Any]]) -> _Request:
    """Build the request; the run's `configurable` overrides the node's configuration."""
    chosen = {**ctx.config, **{k: v for k, v in ctx.configurable.items() if k in ("model", "temperature", "maxTokens")}}
    tokens = int(chosen["maxTokens"]) if chosen.get("maxTokens") else None
    params = Params(max_tokens=tokens, temperature=chosen.get("temperature"))
    return _Request(messages, chosen.get("provider"), chosen.get("model"), params, ctx.configurable.get("mockProvider"))


async def _ask(ctx: Execution, key: str, request: _Request, *, stream: bool = False) -> dict[str, Any]:
    """Make one call as one effect; emit chunks while it runs, and the usage with its record."""
    provider = f"model:{request.provider or 'default'}"

    async def call() -> dict[str, Any]:
        named = ctx.models.chosen(request.provider, request.model, ctx.caller(key, provider), request.mock)
        model = ctx.metered(named)
        used, _, name = model.name.partition(":")
        text: list[str] = []

        async def heard(piece: str) -> None:
            if stream and text:  # one chunk behind, because the last one is marked
                _chunk(ctx, text[-1])
                await ctx.flush()
            text.append(whole(piece))

        try:
            answer = await fold(
                model.stream([_message(item) for item in request.messages], params=request.params), heard
            )
            if answer.finish_reason == "error":
                raise Problem("provider_error", "The model ended with an error.", model=model.name)
        except Exception:
            if stream and text:
                _chunk(ctx, text[-1])  # the answer broke off after it
            raise
        if stream:
            _chunk(ctx, text[-1] if text else "", answer)
        counted = answer.usage or Usage(0, 0)
        usage: dict[str, Any] = {
            "provider": used,
            "model": name or used,
            "inputTokens": counted.input_tokens,
            "outputTokens": counted.output_tokens,
            "nodeId": ctx.node_id,
        }
        if counted.cost_usd is not None:
            usage["costEstimateUsd"] = counted.cost_usd
        ctx.emit("provider.usage", usage)
        return {
            "text": "".join(text),
            "provider": used,
            "model": name or used,
            "finishReason": answer.finish_reason,
            "refusal": answer.refusal or None,
        }

    return await ctx.effect(key, call, provider=provider)


def _message(item: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(call["id"], call["name"], call.get("arguments", {})) for call in item.get("tool_calls", ()))
    content = item.get("content")
    return Message(
        item["role"], content if isinstance(content, str) else str(content or ""), calls, item.get("tool_call_id")
    )


def _chunk(ctx: Execution, text: str, end: Completion | None = None) -> None:
    """Emit a piece of an answer; the last one has the finish reason and the usage."""
    chunk: dict[str, Any] = {"nodeId": ctx.node_id, "runId": ctx.run_id, "chunk": text, "isLast": end is not None}
    if end is not None:
        asked, said = (end.usage.input_tokens, end.usage.output_tokens) if end.usage is not None else (0, 0)
        usage = {"promptTokens": asked, "completionTokens": said, "totalTokens": asked + said}
        chunk["meta"] = {"finishReason": end.finish_reason, "usage": usage}
    ctx.emit("output.chunk", chunk)


def _refused(ctx: Execution, answer: dict[str, Any]) -> NodeError:
    said = {"nodeId": ctx.node_id, "provider": answer["provider"], "model": answer["model"]}
    ctx.emit("envelope.refusal", {**said, "refusalText": answer["refusal"]})
    return NodeError("envelope_refused_by_provider", "The model refused to answer.", retryable=False)


def _check_model(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from shaped(config, str, "provider", "model", "promptId", "systemPrompt")
    yield from shaped(config, list, "messages")
    yield from positive(config, "maxTokens")
    yield from numbers(config, "temperature")
    try:
        node_prompts(config)
    except Problem as problem:
        yield str(problem.details["at"]).removeprefix("$.config"), problem.message


def _check_structured(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _check_model(config)
    yield from check_schema(config.get("outputSchema"), ".outputSchema")


def _check_prompt(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _check_model(config)
    wanted = config.get("mcp")
    if wanted is None:
        return
    if not isinstance(wanted, dict) or not isinstance(wanted.get("tool"), str) or not wanted["tool"]:
        yield ".mcp", "A call of an MCP tool must be {tool, server, arguments}."
    elif not isinstance(wanted.get("server", ""), str):
        yield ".mcp.server", "The name of an MCP server is expected."
    elif not isinstance(wanted.get("arguments", {}), dict):
        yield ".mcp.arguments", "An object is expected."


TYPES = [
    NodeType(
        type_id="core.ai.callPrompt",
        execute=call_prompt,
        requires=("models",),
        check=_check_prompt,
        summary="Asks a model.",
    ),
    NodeType(
        type_id="core.ai.structuredOutput",
        execute=structured_output,
        requires=("models",),
        check=_check_structured,
        summary="Asks a model for JSON that fits a schema.",
    ),
]
