"""The local model quotes, names its source, picks tools, and says what it is (L1 to L3)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay import models
from forestay.kernel import ManualClock
from forestay.models import DEFAULT_PARAMS, Completion, Message, Params, ToolCall, ToolSpec, fold
from forestay.models.local.answer import NOTHING_FOUND
from forestay.models.local.toolpick import fill

CONTEXT = """[source: notes/harbour.md]
The harbour was dredged in 1931. A new lighthouse followed in 1934, built of red granite.
- The ferry leaves at 07:40 every weekday.

[source: notes/tides.md]
Spring tides reach 5.2 metres at the north pier. 灯台は1934年に建てられた。

# Costs
Mooring costs 14 euros a night. (source: prices.csv)
"""


def tool(name: str, description: str, required: list[str] | None = None, **properties: Any) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return ToolSpec(name, description, schema)


async def ask(
    text: str, *tools: ToolSpec, params: Params = DEFAULT_PARAMS, after: tuple[Message, ...] = ()
) -> Completion:
    return await fold(models.open("local").stream([Message("user", text), *after], tools=tools, params=params))


@pytest.mark.parametrize(
    ("question", "quote", "source"),
    [
        ("When was the harbour dredged?", "The harbour was dredged in 1931.", "notes/harbour.md"),
        ("What is the lighthouse built of?", "A new lighthouse followed in 1934, built of red granite.", "notes/harbour.md"),  # noqa: E501
        ("When does the ferry leave?", "The ferry leaves at 07:40 every weekday.", "notes/harbour.md"),
        ("How high are spring tides?", "Spring tides reach 5.2 metres at the north pier.", "notes/tides.md"),
        ("灯台はいつ建てられた？", "灯台は1934年に建てられた。", "notes/tides.md"),
        ("What does mooring cost a night?", "Mooring costs 14 euros a night.", "prices.csv"),
    ],
)  # fmt: skip
async def test_it_quotes_the_answer_and_names_the_source(question: str, quote: str, source: str) -> None:
    answer = await ask(CONTEXT + "\n\n" + question)
    assert answer.text == f'The local model found this in {source}: "{quote}"'
    assert answer.finish_reason == "stop" and answer.usage is not None


SHIPS = """# Yard
The Heron was built in Leith by Marta Holm. It was launched in April and carries 40 tons.
The Gannet was built in 1902. Her boiler is 3 metres long.
Repairs of the Gannet end when the boiler arrives. The crane lifts nine tons.
"""


@pytest.mark.parametrize(
    ("question", "quote"),
    [
        ("When was the Heron launched?", "It was launched in April and carries 40 tons."),
        ("how much does the heron carry?", "It was launched in April and carries 40 tons."),
        ("Where was the Heron built?", "The Heron was built in Leith by Marta Holm."),
        ("When was the Gannet built?", "The Gannet was built in 1902."),
        ("How long is the Gannet's boiler?", "Her boiler is 3 metres long."),
        ("How much does the crane lift?", "The crane lifts nine tons."),
        ("Which ship was built in Leith?", "The Heron was built in Leith by Marta Holm."),
        ("How many tons does the crane lift? Use tally, then write \"x\" to a.md", "The crane lifts nine tons."),
    ],
)  # fmt: skip
async def test_it_answers_with_the_sentence_that_answers(question: str, quote: str) -> None:
    """What is said of `it` counts for what `it` is; a question for a time or an amount gets one."""
    assert (await ask(f"{SHIPS}\n\n{question}")).text == f'The local model found this in Yard: "{quote}"'


@pytest.mark.parametrize(
    "question",
    [
        "When was the Gannet launched?",  # the Heron was
        "when was the gannet launched?",
        "How many boilers has the Heron?",
        "When does the crane lift?",
        "When was the Heron built?",  # where and by whom is known
        "What colour is the Heron?",
        "Where does the Puffin lie?",
        "How many tons does the crane of the Puffin lift?",
    ],
)
async def test_it_says_so_when_what_is_near_does_not_answer(question: str) -> None:
    assert (await ask(f"{SHIPS}\n\n{question}")).text == NOTHING_FOUND


async def test_it_reads_the_relays_passages() -> None:
    envelope = """[CRITICAL STATE]
[GOAL] When was the harbour dredged?

[SOURCE PASSAGES]
[SOURCE_PASSAGE source="notes/harbour.md" window=1 confidence=0.90 readonly=true]
(History)
The harbour was dredged in 1931.
[/SOURCE_PASSAGE]"""
    answer = await ask(envelope + "\n\nWhen was the harbour dredged?")
    assert answer.text == 'The local model found this in notes/harbour.md: "The harbour was dredged in 1931."'


async def test_it_says_what_it_is_when_nothing_answers() -> None:
    assert (await ask(CONTEXT + "\n\nWho wrote the opera Fidelio?")).text == NOTHING_FOUND
    assert "local model" in NOTHING_FOUND


async def test_instructions_are_not_context() -> None:
    messages = [
        Message("system", "Answer questions about the harbour dredging."),
        Message("user", "Who dredged the harbour?"),
    ]
    assert (await fold(models.open("local").stream(messages))).text == NOTHING_FOUND


@settings(deadline=None)
@given(st.text(max_size=400), st.text(max_size=60))
def test_l1_l2_deterministic_and_verbatim_for_any_text(context: str, question: str) -> None:
    async def run() -> tuple[str, str]:
        content = f"{context}\n\n{question}"
        return (await ask(content)).text, (await ask(content)).text

    first, second = ManualClock().run(run())
    assert first == second
    found = re.fullmatch(r'The local model found this in .*?: "(.*)"', first, re.DOTALL)
    assert first == NOTHING_FOUND or (found and found[1] in context + question)


async def test_it_picks_the_tool_by_its_description_and_fills_the_arguments() -> None:
    tools = (
        tool("weather", "Current weather of a city.", city={"type": "string"}),
        tool("add_numbers", "Add two numbers.", a={"type": "number"}, b={"type": "number"}),
    )
    answer = await ask("Please add the numbers 3 and 4.5", *tools)
    assert answer.tool_calls == (ToolCall("local_0", "add_numbers", {"a": 3, "b": 4.5}),)
    assert answer.finish_reason == "tool_calls"
    assert (await ask('What is the weather in city "Ålesund"?', *tools)).tool_calls[0].arguments == {"city": "Ålesund"}


async def test_no_tool_fits_so_none_is_called() -> None:
    weather = tool("weather", "Current weather of a city.", city={"type": "string"})
    assert (await ask("Who wrote Fidelio?", weather)).tool_calls == ()


async def test_a_required_number_that_the_question_lacks_means_no_call() -> None:
    adder = tool("add_numbers", "Add two numbers.", a={"type": "number"}, b={"type": "number"})
    assert (await ask("Add the number 3.", adder)).tool_calls == ()


async def test_l3_after_the_result_it_repeats_it_and_calls_nothing_again() -> None:
    adder = tool("add_numbers", "Add two numbers.", a={"type": "number"}, b={"type": "number"})
    after = (
        Message("assistant", "", (ToolCall("c1", "add_numbers", {"a": 3, "b": 4}),)),
        Message("tool", '{"sum": 7}', tool_call_id="c1"),
    )
    answer = await ask("Add the numbers 3 and 4.", adder, after=after)
    assert answer.tool_calls == ()
    assert answer.text == '`add_numbers` returned: {"sum": 7}'


async def test_a_second_tool_is_called_when_the_question_names_it() -> None:
    tools = (
        tool("count_words", "Count the words of a text.", text={"type": "string"}),
        tool("save_note", "Save a note.", text={"type": "string"}),
    )
    after = (
        Message("assistant", "", (ToolCall("c1", "count_words", {"text": "a b"}),)),
        Message("tool", "2", tool_call_id="c1"),
    )
    answer = await ask('Count the words of "a b" and save a note.', *tools, after=after)
    assert [call.name for call in answer.tool_calls] == ["save_note"]


@pytest.mark.parametrize(
    ("question", "rule", "value"),
    [
        ("read notes/a.md please", {"path": {"type": "string"}}, {"path": "notes/a.md"}),
        ("fetch https://example.org/x?y=1.", {"url": {"type": "string"}}, {"url": "https://example.org/x?y=1"}),
        ("write to ada@example.org", {"email": {"type": "string"}}, {"email": "ada@example.org"}),
        ("in metric units", {"units": {"enum": ["imperial", "metric"]}}, {"units": "metric"}),
        ("sum 1, 2 and -3", {"values": {"type": "array", "items": {"type": "number"}}}, {"values": [1, 2, -3]}),
        ("find lighthouses", {"query": {"type": "string"}}, {"query": "find lighthouses"}),
        ("limit 5 offset 2", {"offset": {"type": "integer"}, "limit": {"type": "integer"}}, {"offset": 2, "limit": 5}),
        ("half: 0.5", {"count": {"type": "integer"}}, None),
        ("anything", {"thing": {"type": "object"}}, None),
    ],
)
def test_arguments_out_of_a_question(question: str, rule: dict[str, Any], value: Any) -> None:
    assert fill(question, {"properties": rule, "required": list(rule)}) == value


async def test_max_tokens_and_stop_are_kept_and_a_cut_answer_goes_on() -> None:
    question = CONTEXT + "\n\nWhen was the harbour dredged?"
    whole = (await ask(question)).text
    first = await ask(question, params=Params(max_tokens=5))
    assert first.finish_reason == "length" and whole.startswith(first.text)
    rest = await ask(question, after=(Message("assistant", first.text),))
    assert first.text + rest.text == whole
    assert (await ask(question, params=Params(stop=("found",)))).text == "The local model "


@pytest.mark.parametrize(
    "text",
    ["." * 200_000 + "x", " " * 200_000 + "x", "(source: " * 30_000, "a." * 100_000, '"' * 100_001, "@" * 100_000],
)
async def test_hostile_text_costs_no_more_than_its_length(text: str) -> None:
    search = tool("search_text", "Search the text.", query={"type": "string"}, path={"type": "string"})
    await ask(f"{text}\n\nSearch the text {text}?", search)
