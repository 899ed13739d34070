"""Nodes that ask a model: a prompt with streamed text, and output that must fit a schema.

A model's answer is an effect: recorded once, never asked again (OpenWOP §1.5, §1.11).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.kernel.json_schema import check_schema, misfit
from holdfast.runs.execution import Execution
from holdfast.runs.nodes.registry import NodeError, NodeType
from holdfast.runs.ports import ModelDelta, ModelRequest

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_GROWTH = 2


async def call_prompt(ctx: Execution) -> dict[str, Any]:
    """Ask a model; its text is streamed as `output.chunk` and comes back as `text`."""
    answer = await _ask(ctx, "call", _request(ctx, _messages(ctx)), stream=True)
    if answer["refusal"] is not None:
        raise _refused(ctx, answer)
    return {"text": answer["text"], "model": answer["model"], "finishReason": answer["finishReason"]}


async def structured_output(ctx: Execution) -> dict[str, Any]:
    """Ask until the answer fits `outputSchema`, at most as often as the host's `schemaRounds`."""
    schema = ctx.config.get("outputSchema") or {"type": "object"}
    return {"result": await ask_structured(ctx, _messages(ctx), schema, "call")}


async def ask_structured(
    ctx: Execution, messages: list[dict[str, Any]], schema: dict[str, Any], key: str
) -> dict[str, Any]:
    """An answer that fits `schema`; what is wrong with a try is told to the model with the next."""
    request = _request(ctx, messages, schema)
    budget, reason, detail = request.max_tokens, "unknown", ""
    rounds = max(1, ctx.limits.schema_rounds)
    for attempt in range(1, rounds + 1):
        if attempt > 1:
            retried = {"nodeId": ctx.node_id, "attempt": attempt, "reason": reason, "previousError": detail}
            ctx.emit("envelope.retry.attempted", retried)
        answer = await _ask(ctx, f"{key}:{attempt}", msgspec.structs.replace(request, max_tokens=budget))
        who = {"nodeId": ctx.node_id, "provider": answer["provider"], "model": answer["model"]}
        if answer["refusal"] is not None:
            raise _refused(ctx, answer)
        if answer["finishReason"] == "length":
            ctx.emit("envelope.truncated", {**who, "stopReason": "max_tokens"})
            reason, detail = "truncation", "The answer was cut off."
            budget = budget * _GROWTH if budget else None
            continue
        value, path = parse_lenient(answer["text"])
        if path is None:
            reason, detail = "parse-error", "The answer is not JSON."
        elif (problem := _misfit(schema, value)) is None:
            if path != "direct":
                ctx.emit("envelope.recovery.applied", {"nodeId": ctx.node_id, "path": path})
            return value  # type: ignore[no-any-return]
        else:
            reason, detail = "schema-violation", problem
        told = {
            "role": "user",
            "content": f"Your answer was not accepted: {detail} Answer with JSON that fits the schema.",
        }
        said = {"role": "assistant", "content": answer["text"]}
        request = msgspec.structs.replace(request, messages=[*messages, said, told])
    exhausted = {"nodeId": ctx.node_id, "totalAttempts": rounds, "finalReason": reason, "finalError": detail}
    ctx.emit("envelope.retry.exhausted", exhausted)
    code = "envelope_truncated" if reason == "truncation" else "envelope_payload_invalid"
    raise NodeError(code, f"No answer fitted after {rounds} tries: {detail}", retryable=False)


def parse_lenient(text: str) -> tuple[Any, str | None]:
    """A JSON value from a model's text, and how it was found: direct, out of a fence, or between braces."""
    tries = [("direct", text)]
    if match := _FENCE.match(text):
        tries.append(("markdown-fence", match.group(1)))
    if (start := text.find("{")) != -1 and (end := text.rfind("}")) > start:
        tries.append(("brace-walker", text[start : end + 1]))
    for path, candidate in tries:
        try:
            return msgspec.json.decode(candidate), path
        except (msgspec.DecodeError, UnicodeError):
            continue
    return None, None


def _misfit(schema: dict[str, Any], value: Any) -> str | None:
    found = misfit(schema, value)
    return None if found is None else f"{found[1]} (at ${found[0]})"


def _messages(ctx: Execution) -> list[dict[str, Any]]:
    messages = ctx.inputs.get("messages", ctx.config.get("messages"))
    if isinstance(messages, list) and messages:
        return messages
    prompt = ctx.inputs.get("prompt", ctx.config.get("prompt"))
    if prompt is None:
        prompt = ctx.configurable.get("promptOverrides", {}).get(ctx.config.get("promptId"), ctx.config.get("promptId"))
    if prompt is None:
        raise NodeError("invalid_input", "There is no prompt and there are no messages.", retryable=False)
    system = ctx.config.get("systemPrompt")
    asked = [{"role": "user", "content": prompt if isinstance(prompt, str) else str(prompt)}]
    return [{"role": "system", "content": system}, *asked] if isinstance(system, str) else asked


def _request(ctx: Execution, messages: list[dict[str, Any]], schema: dict[str, Any] | None = None) -> ModelRequest:
    """The request, where the run's `configurable` overrides the node's configuration."""
    chosen = {**ctx.config, **{k: v for k, v in ctx.configurable.items() if k in ("model", "temperature", "maxTokens")}}
    extra = {"mockProvider": ctx.configurable["mockProvider"]} if "mockProvider" in ctx.configurable else {}
    return ModelRequest(
        messages=messages,
        provider=chosen.get("provider"),
        model=chosen.get("model"),
        temperature=chosen.get("temperature"),
        max_tokens=chosen.get("maxTokens"),
        response_schema=schema,
        extra=extra,
    )


async def _ask(ctx: Execution, key: str, request: ModelRequest, *, stream: bool = False) -> dict[str, Any]:
    """One call as one effect; chunks go out while it runs, the usage with its record."""
    provider = f"model:{request.provider or 'default'}"

    async def call() -> dict[str, Any]:
        text: list[str] = []
        last = ModelDelta()
        async for delta in ctx.models.stream(request, ctx.caller(key, provider)):
            if delta.text:
                text.append(delta.text)
                if stream:
                    chunk = {"nodeId": ctx.node_id, "runId": ctx.run_id, "chunk": delta.text, "isLast": False}
                    ctx.emit("output.chunk", chunk)
                    await ctx.flush()
            last = delta
        if stream:
            meta = {"finishReason": last.finish_reason or "stop"}
            ctx.emit(
                "output.chunk",
                {"nodeId": ctx.node_id, "runId": ctx.run_id, "chunk": "", "isLast": True, "meta": meta},
            )
        used = last.provider or request.provider or "default"
        model = last.model or request.model or "default"
        usage: dict[str, Any] = {
            "provider": used,
            "model": model,
            "inputTokens": last.input_tokens,
            "outputTokens": last.output_tokens,
            "nodeId": ctx.node_id,
        }
        if last.cost_usd is not None:
            usage["costEstimateUsd"] = last.cost_usd
        ctx.emit("provider.usage", usage)
        return {
            "text": "".join(text),
            "provider": used,
            "model": model,
            "finishReason": last.finish_reason or "stop",
            "refusal": last.refusal,
        }

    return await ctx.effect(key, call, provider=provider)


def _refused(ctx: Execution, answer: dict[str, Any]) -> NodeError:
    said = {"nodeId": ctx.node_id, "provider": answer["provider"], "model": answer["model"]}
    ctx.emit("envelope.refusal", {**said, "refusalText": answer["refusal"]})
    return NodeError("envelope_refused_by_provider", "The model refused to answer.", retryable=False)


TYPES = [
    NodeType(type_id="core.ai.callPrompt", execute=call_prompt, requires=("models",), summary="Asks a model."),
    NodeType(
        type_id="core.ai.structuredOutput",
        execute=structured_output,
        requires=("models",),
        check=lambda config: check_schema(config.get("outputSchema"), ".outputSchema"),
        summary="Asks a model for JSON that fits a schema.",
    ),
]
