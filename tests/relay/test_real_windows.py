"""The window is never overrun: any text and any budget, beside six real tokenizers and the chat formats around them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from forestay.kernel import Ledger, ManualClock, Problem
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, Estimator, Message, Params, ToolSpec, Usage, observed
from forestay.relay import variants
from tests.models.any_text import any_text
from tests.models.tokenizers import NAMES, Counters, counting

from .conftest import Endless, make_relay

pytestmark = pytest.mark.sweep

LONG = any_text()
TOOL = ToolSpec(
    "berths",
    'Says which "berths" are free.\nAsk once.',
    {"type": "object", "properties": {"quay": {"type": "string"}, "länge": {"type": "number"}}, "required": ["quay"]},
)
_TOOLS = """

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


class Format(NamedTuple):
    """How a chat is written for a model: marks that are a token each, and text around what a role says."""

    first: int  # marks before the request, and of the answer's role
    marks: int  # of one message
    around: Callable[[Message], str] = lambda message: message.content


def _llama(message: Message) -> str:
    """As Llama 2 was trained: written out, so that its own tokenizer cuts it."""
    if message.role == "system":
        return f"<<SYS>>\n{message.content}\n<</SYS>>\n\n"
    return f"[INST] {message.content} [/INST]" if message.role == "user" else f" {message.content} "


def _mistral(message: Message) -> str:
    return f"{message.content}\n\n" if message.role == "system" else _llama(message)


# OpenAI says 3 tokens for a message, 1 for its role and 3 for the answer; ChatML has one more behind each message.
_CHATML = Format(first=3, marks=5)
FORMATS = {
    "o200k": _CHATML,
    "cl100k": _CHATML,
    "claude": Format(0, 0, lambda message: f"\n\nHuman: {message.content}\n\nAssistant:"),
    "llama": Format(0, 1, _llama),
    "llama3": Format(first=5, marks=5),
    "mistral": Format(0, 1, _mistral),
}


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counters]:
    with counting(tmp_path_factory.mktemp("tokenizers")) as found:
        yield found


class Tokenized(Endless):
    """A model with a real tokenizer, which fills every window that it gets and says what it counted.

    The relay counts with that tokenizer, or estimates where it does not know it.
    """

    def __init__(self, counters: Counters, tokenizer: str, text: str, *, known: bool, **options: Any) -> None:
        super().__init__(lambda _: text, **options)
        self._tokens = lambda said: counters.count(tokenizer, said)
        self._format = FORMATS[tokenizer]
        self._counter = None if known else Estimator()

    def count_tokens(self, text: str) -> int:
        return self._tokens(text) if self._counter is None else self._counter.count(text)

    def real_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """What its server would count: the whole chat in the model's own format, with the tools in front of it."""
        said = sum(self._tokens(self._format.around(message)) for message in messages)
        told = self._tokens(_TOOLS.format("\n".join(map(_tool_line, tools)))) if tools else 0
        return said + told + self._format.first + self._format.marks * len(messages)

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        answer = self._answer(messages, tools, params)
        return answer if self._counter is None else observed(answer, self._counter, messages, tools)

    async def _answer(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params) -> Deltas:
        text = self._text(len(self.calls))[: self._size * (params.max_tokens or 1)]
        self.calls.append(list(messages))
        self.params.append(params)
        self.tools.append(tools)
        yield Delta(text)
        yield Delta(finish_reason="length", usage=Usage(self.real_tokens(messages, tools), self._tokens(text)))


def _tool_line(tool: ToolSpec) -> str:
    said = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return json.dumps({"type": "function", "function": said}, ensure_ascii=False)


made: list[int] = []


@pytest.mark.parametrize("known", [True, False], ids=["known", "estimated"])
@pytest.mark.parametrize("tokenizer", NAMES)
@given(
    texts=st.lists(LONG, min_size=1, max_size=4),
    system=LONG,
    tasks=st.lists(LONG, min_size=1, max_size=3),
    output=any_text(surrogates=True),
    window=st.integers(256, 5000),
    reserve=st.integers(1, 900),
    tools=st.booleans(),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_w1_a_request_in_its_chat_format_and_its_answer_fit_the_window(
    tokenizer: str,
    known: bool,
    counters: Counters,
    ledger: Ledger,
    clock: ManualClock,
    texts: list[str],
    system: str,
    tasks: list[str],
    output: str,
    window: int,
    reserve: int,
    tools: bool,
) -> None:
    """Any text and any budget, before the provider reported anything and after."""

    async def main() -> None:
        model = Tokenized(counters, tokenizer, output or "x", known=known, context_window=window)
        session = await make_relay(ledger, clock, model).init(f"app {len(made)}", config={"max_output_tokens": reserve})
        made.append(1)
        for text in texts:
            await session.ingest(text)
        for task in tasks:
            try:
                if tools:
                    await variants.agentic(session, system, task, tools=[TOOL], max_windows=4)
                else:
                    await session.dispatch(system, task, max_windows=4)
            except Problem as problem:
                assert problem.key in ("window_exceeded", "budget_exhausted"), problem
        fullest = 0.0
        for messages, params, told in zip(model.calls, model.params, model.tools, strict=True):
            assert params.max_tokens is not None and params.max_tokens >= 1
            taken = model.real_tokens(messages, told) + params.max_tokens
            assert taken <= window
            fullest = max(fullest, taken / window)
        target(fullest)
        await session.close()

    clock.run(main())
