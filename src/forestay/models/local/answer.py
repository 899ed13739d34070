"""The local model's answer: a call of the tool that fits, or the sentence of the context that answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forestay.models.local.passages import Sentence, best, sentences
from forestay.models.local.tokens import tokens_of
from forestay.models.local.toolpick import pick
from forestay.models.protocol import Delta, Deltas, FinishReason, Message, Params, ToolCall, ToolSpec, Usage

_LONGEST_RESULT = 2_000
NOTHING_FOUND = (
    "I am forestay's local model: I only quote the context I am given, and nothing in it answers this. "
    "Add a text that does (a .md or .txt file of the project), or configure a larger model."
)


async def answer(messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params) -> Deltas:
    read = sum(len(tokens_of(message.content)) for message in messages)
    question, context, done = _situation(messages)
    choice = pick(question, tools, [name for name, _ in done])
    if choice is not None:
        tool, arguments = choice
        call = ToolCall(f"local_{len(done)}", tool.name, arguments)
        yield Delta(tool_calls=(call,), finish_reason="tool_calls", usage=Usage(read, 1))
        return
    text = _until(_say(question, context, done), params.stop)
    text = text.removeprefix(_begun(messages, text))
    tokens = tokens_of(text)
    shown = tokens if params.max_tokens is None else tokens[: params.max_tokens]
    for token in shown:
        yield Delta(token)
    reason: FinishReason = "stop" if len(shown) == len(tokens) else "length"
    yield Delta(finish_reason=reason, usage=Usage(read, len(shown)))


def _situation(messages: Sequence[Message]) -> tuple[str, list[Sentence], list[tuple[str, str]]]:
    """Return the question, the sentences that may answer it, and the tools called for it with their results."""
    asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    if asked < 0:
        return "", [], []
    question, around = _question(messages[asked].content)
    context = sentences(around)
    for message in messages[:asked]:
        if message.role == "user":
            context.extend(sentences(message.content))
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    done = [
        (names.get(message.tool_call_id or "", "tool"), message.content)
        for message in messages[asked + 1 :]
        if message.role == "tool"
    ]
    return question, context, done


def _question(content: str) -> tuple[str, str]:
    """Return the last paragraph that asks something, else the last one; and the text around it."""
    paragraphs = [paragraph for paragraph in re.split(r"\n\s*\n", content) if paragraph.strip()]
    if not paragraphs:
        return "", ""
    asking = [at for at, paragraph in enumerate(paragraphs) if paragraph.rstrip().endswith(("?", "？"))]
    at = asking[-1] if asking else len(paragraphs) - 1
    return paragraphs[at].strip(), "\n\n".join(paragraphs[:at] + paragraphs[at + 1 :])


def _say(question: str, context: list[Sentence], done: list[tuple[str, str]]) -> str:
    parts = [f"`{name}` returned: {_shortened(question, result)}" for name, result in done]
    found = best(question, context)
    if found is not None:
        parts.append(f'The local model found this in {found.source or "the context"}: "{found.text}"')
    return "\n\n".join(parts) or NOTHING_FOUND


def _shortened(question: str, result: str) -> str:
    """Return a result unchanged, or its most fitting sentence when it is long."""
    if len(result) <= _LONGEST_RESULT:
        return result
    found = best(question, sentences(result))
    return f'"{found.text}"' if found else result[:_LONGEST_RESULT]


def _until(text: str, stops: Sequence[str]) -> str:
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def _begun(messages: Sequence[Message], text: str) -> str:
    """Return the beginning of the answer that the conversation already ends with, to continue a cut answer."""
    last = messages[-1] if messages else None
    return last.content if last and last.role == "assistant" and text.startswith(last.content) else ""
