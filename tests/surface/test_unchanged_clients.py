"""Unchanged official clients talk with agents: `openai` at `/openai/v1` and `anthropic` at `/anthropic`, whole and
streamed, with tools of their own; and `a2a-sdk` in plain text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import new_message, new_text_part
from a2a.types.a2a_pb2 import Role, SendMessageRequest, TaskState
from openai import OpenAI

from tests.console.served import KEY, Served, served

ASSISTANT = "core.forestay.assistant"
WEATHER = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER}}
OWN_TOOL = {"type": "function", "name": "weather", "description": "The weather.", "parameters": WEATHER}
PLAY: list[dict[str, Any]] = [
    {"when": "What is the weather", "repeat": True, "tool_calls": [
        {"name": "weather", "arguments": {"town": "Kiel"}, "id": "c1"}]},
    {"when": "rainy", "repeat": True, "text": "It rains in Kiel."},
    {"when": "read and report", "repeat": True, "text": "I look.", "tool_calls": [
        {"name": "weather", "arguments": {"town": "Kiel"}, "id": "c2"},
        {"name": "read", "arguments": {"path": "note.md"}, "id": "c3"}]},
    {"when": "Look into the table", "repeat": True, "tool_calls": [
        {"name": "read", "arguments": {"path": "tide.csv"}, "id": "c4"}]},
    {"when": "low water", "repeat": True, "text": "The table says: nine."},
    {"when": "What was my name", "repeat": True, "text": "You are Ada."},
    {"when": "fails", "repeat": True, "error": "provider_rejected"},
    {"when": "Say it", "repeat": True, "text": "The harbour opens at seven. " * 40},
]  # fmt: skip


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "note.md").write_text("The harbour opens at seven.\n")
    (folder / "tide.csv").write_text("low water,9:00\n")
    (folder / "forestay.toml").write_text('[models]\ndefault = "scripted:play.jsonl"\nembedder = "hashed"\n')
    (folder / "play.jsonl").write_text("\n".join(map(json.dumps, PLAY)))
    with served(folder) as made:
        yield made


@pytest.fixture
def client(host: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{host.url}/openai/v1", api_key=KEY, max_retries=0) as made:
        yield made


def ask(client: OpenAI, text: str, **more: Any) -> Any:
    return client.chat.completions.create(model=ASSISTANT, messages=[{"role": "user", "content": text}], **more)


def test_an_agent_answers_as_a_model_and_the_answer_is_a_run(host: Served, client: OpenAI) -> None:
    answer = ask(client, "Say it.")
    choice = answer.choices[0]
    assert choice.message.content.startswith("The harbour opens at seven.")
    assert (choice.finish_reason, answer.model, answer.object) == ("stop", ASSISTANT, "chat.completion")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    run = host.api.get(f"/v1/runs/{answer.id.removeprefix('chatcmpl-')}").json()
    assert (run["status"], run["outputs"]["output"]) == ("completed", choice.message.content)


def test_a_stream_is_the_same_text_in_pieces_with_usage_at_its_end(client: OpenAI) -> None:
    chunks = list(ask(client, "Say it.", stream=True, stream_options={"include_usage": True}))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert sum(bool(text) for text in texts) > 2
    assert "".join(texts) == ask(client, "Say it.").choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens > 0
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_the_caller_is_called_by_the_caller(client: OpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather?"}]

    def turn() -> Any:
        sent: dict[str, Any] = {"model": ASSISTANT, "messages": messages, "tools": [TOOL]}
        if not stream:
            return client.chat.completions.create(**sent).choices[0]
        with client.chat.completions.stream(**sent) as events:
            return events.get_final_completion().choices[0]

    first = turn()
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"town": "Kiel"})
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": call.id, "type": "function",
             "function": {"name": call.function.name, "arguments": call.function.arguments}}]},
        {"role": "tool", "tool_call_id": call.id, "content": "rainy"},
    ]  # fmt: skip
    last = turn()
    assert (last.message.content, last.finish_reason) == ("It rains in Kiel.", "stop")


def test_a_call_of_the_hosts_own_tool_is_made_here_and_only_the_callers_is_handed_over(client: OpenAI) -> None:
    chosen = ask(client, "Please read and report.", tools=[TOOL]).choices[0]
    assert [call.function.name for call in chosen.message.tool_calls] == ["weather"]
    assert chosen.message.content == "I look."


def test_what_was_said_before_is_told_to_the_model(host: Served, client: OpenAI) -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "I am Ada."}]},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "What was my name?"},
    ]
    answer = client.chat.completions.create(model=ASSISTANT, messages=messages)
    assert answer.choices[0].message.content == "You are Ada."
    run = host.api.get(f"/v1/runs/{answer.id.removeprefix('chatcmpl-')}").json()
    said = run["inputs"]["conversation"]["messages"]
    assert [item["role"] for item in said] == ["system", "user", "assistant"]


def test_responses_hold_a_conversation_by_their_ids(client: OpenAI) -> None:
    first = client.responses.create(
        model=ASSISTANT, input="What is the weather?", tools=[OWN_TOOL], instructions="Short."
    )
    (call,) = first.output
    assert call.type == "function_call" and json.loads(call.arguments) == {"town": "Kiel"}
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "rainy"}]
    second = client.responses.create(model=ASSISTANT, previous_response_id=first.id, input=result, tools=[OWN_TOOL])
    assert second.output_text == "It rains in Kiel."
    assert client.responses.retrieve(second.id).output_text == second.output_text
    assert second.usage is not None and second.usage.total_tokens > 0


def test_a_response_streams(client: OpenAI) -> None:
    with client.responses.stream(model=ASSISTANT, input="Say it.") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") > 2
    assert final.output_text == "The harbour opens at seven. " * 40
    with client.responses.stream(model=ASSISTANT, input="What is the weather?", tools=[OWN_TOOL]) as stream:
        stream.until_done()
        (call,) = stream.get_final_response().output
    assert call.type == "function_call"


def test_agents_and_the_embedder_are_models(client: OpenAI) -> None:
    names = [item.id for item in client.models.list()]
    assert ASSISTANT in names and "hashed" in names
    assert client.models.retrieve(ASSISTANT).object == "model"
    one, other, far = client.embeddings.create(model="hashed", input=["the harbour", "the harbours", "xyz"]).data

    def likeness(left: Any, right: Any) -> float:
        return sum(a * b for a, b in zip(left.embedding, right.embedding, strict=True))

    assert likeness(one, other) > likeness(one, far)
    floats = client.embeddings.create(model="hashed", input="the harbour", encoding_format="float").data[0]
    assert likeness(one, floats) == pytest.approx(1.0, abs=1e-5)


def test_refusals_are_the_clients_own_errors(host: Served, client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no-such-agent"):
        client.chat.completions.create(model="no-such-agent", messages=[{"role": "user", "content": "x"}])
    with (
        pytest.raises(openai.AuthenticationError),
        OpenAI(base_url=f"{host.url}/openai/v1", api_key="no", max_retries=0) as other,
    ):
        other.models.list()
    key = host.api.post("/host/v1/keys", json={"name": "reads", "scopes": ["runs:read"]}).json()["result"]["apiKey"]
    with (
        pytest.raises(openai.PermissionDeniedError),
        OpenAI(base_url=f"{host.url}/openai/v1", api_key=key, max_retries=0) as reader,
    ):
        ask(reader, "Say it.")
    for more in (
        {"n": 2},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required"},
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, "Say it.", **more)
        assert caught.value.body["param"] == next(iter(more))  # type: ignore[index]
    image = [{"type": "image_url", "image_url": {"url": "https://h/x.png"}}]
    with pytest.raises(openai.BadRequestError, match="image_url"):  # which its client does not send again
        client.chat.completions.create(model=ASSISTANT, messages=[{"role": "user", "content": image}])  # type: ignore[typeddict-item]
    orphan: Any = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c9", "content": "y"}]
    with pytest.raises(openai.BadRequestError, match="answers a call"):
        client.chat.completions.create(model=ASSISTANT, messages=orphan)


def test_a_run_that_fails_is_an_error_whole_and_streamed(client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        ask(client, "This fails.")
    assert caught.value.code == "provider_error"
    with pytest.raises(openai.APIError) as told:
        list(ask(client, "This fails.", stream=True))
    assert told.value.code == "provider_error"


@pytest.fixture
def messages(host: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=f"{host.url}/anthropic", api_key=KEY, max_retries=0) as made:
        yield made


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"model": ASSISTANT, "max_tokens": 1000, "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_client_holds_a_conversation_with_its_own_tool(
    host: Served, messages: anthropic.Anthropic, stream: bool
) -> None:
    tool = {"name": "weather", "description": "The weather.", "input_schema": WEATHER}
    sent = said("What is the weather?", tools=[tool], system="Be short.")

    def turn() -> anthropic.types.Message:
        if not stream:
            made: anthropic.types.Message = messages.messages.create(**sent)
            return made
        with messages.messages.stream(**sent) as events:
            return events.get_final_message()

    first = turn()
    (call,) = first.content
    assert call.type == "tool_use" and (call.name, call.input) == ("weather", {"town": "Kiel"})
    assert (first.stop_reason, first.role, first.model) == ("tool_use", "assistant", ASSISTANT)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "rainy"}]}
    sent["messages"] += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    last = turn()
    assert [block.to_dict() for block in last.content] == [{"type": "text", "text": "It rains in Kiel."}]
    assert last.stop_reason == "end_turn" and last.usage.output_tokens > 0
    run = host.api.get(f"/v1/runs/{last.id.removeprefix('msg_')}").json()
    assert (run["status"], run["outputs"]["output"]) == ("completed", "It rains in Kiel.")
    assert run["inputs"]["conversation"]["instructions"] == "Be short."


def test_a_message_streams_in_pieces(messages: anthropic.Anthropic) -> None:
    with messages.messages.stream(**said("Say it.")) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 2 and "".join(pieces) == "The harbour opens at seven. " * 40
    assert final.content[0].text == "".join(pieces) and final.usage.output_tokens > 0  # type: ignore[union-attr]
    assert ASSISTANT in [item.id for item in messages.models.list()]


def test_refusals_are_errors_of_anthropics_client(host: Served, messages: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="no-such-agent"):
        messages.messages.create(**{**said("x"), "model": "no-such-agent"})
    for other in ({"api_key": "no"}, {"auth_token": "no"}):
        with (
            anthropic.Anthropic(base_url=f"{host.url}/anthropic", max_retries=0, **other) as stranger,  # type: ignore[arg-type]
            pytest.raises(anthropic.AuthenticationError),
        ):
            stranger.messages.create(**said("x"))
    assert httpx.get(f"{host.url}/v1/runs", headers={"X-Api-Key": KEY}).status_code == 401, "only Anthropic's address"
    image = {"type": "image", "source": {"type": "url", "url": "https://h/x.png"}}
    for more in ({"tool_choice": {"type": "any"}}, {"messages": [{"role": "user", "content": [image]}]}):
        with pytest.raises(anthropic.BadRequestError):  # which its client does not send again
            messages.messages.create(**{**said("x"), **more})
    with pytest.raises(anthropic.APIStatusError, match="the model fails here"):
        messages.messages.create(**said("This fails."))
    with pytest.raises(anthropic.APIError), messages.messages.stream(**said("This fails.")) as stream:
        stream.get_final_message()


def test_plain_text_over_a2a_is_a_question_that_a_run_answers(host: Served) -> None:
    async def story(text: str) -> list[Any]:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=60, trust_env=False) as http:
            client = await create_client(host.url, ClientConfig(streaming=True, httpx_client=http))
            request = SendMessageRequest(message=new_message([new_text_part(text)], role=Role.ROLE_USER))
            return [event async for event in client.send_message(request)]

    before = len(host.api.get("/v1/runs", params={"workflowId": "forestay-ask"}).json()["runs"])
    events = asyncio.run(story("What was my name?"))
    (answer,) = [item.artifact_update.artifact for item in events if item.HasField("artifact_update")]
    assert [part.text for part in answer.parts] == ["You are Ada."]
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    after = host.api.get("/v1/runs", params={"workflowId": "forestay-ask"}).json()["runs"]
    assert len(after) == before + 1
    card = host.api.get("/.well-known/agent-card.json").json()
    assert "text/plain" in card["defaultInputModes"]
    failed = asyncio.run(story("This fails."))[-1].status_update.status
    assert failed.state == TaskState.TASK_STATE_FAILED
    assert "fails here" in failed.message.parts[0].text


def test_a_conversation_over_a2a_streams_uses_tools_and_remembers(host: Served) -> None:
    async def story() -> tuple[list[Any], list[Any], str]:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=60, trust_env=False) as http:
            client = await create_client(host.url, ClientConfig(streaming=True, httpx_client=http))

            async def say(text: str, context: str | None) -> list[Any]:
                message = new_message([new_text_part(text)], role=Role.ROLE_USER, context_id=context)
                return [event async for event in client.send_message(SendMessageRequest(message=message))]

            first = await say("Say it.", None)
            context = first[0].task.context_id
            return first, await say("Look into the table.", context), context

    first, second, context = asyncio.run(story())

    def pieces(events: list[Any]) -> list[Any]:
        return [item.artifact_update for item in events if item.HasField("artifact_update")]

    def text(events: list[Any]) -> str:
        return "".join(part.text for item in pieces(events) for part in item.artifact.parts)

    assert len(pieces(first)) > 2 and text(first) == "The harbour opens at seven. " * 40
    assert [item.append for item in pieces(first)] == [False] + [True] * (len(pieces(first)) - 1)
    assert [item.last_chunk for item in pieces(first)][-2:] == [False, True]
    assert text(second) == "The table says: nine."
    assert second[0].task.context_id == context
    sessions = host.api.get("/host/v1/sessions").json()["result"]["sessions"]
    (place,) = [item["sessionId"] for item in sessions if item["name"] == f"A2A {context}"]
    entries = host.api.get(f"/host/v1/sessions/{place}").json()["result"]["entries"]
    roles = [item["message"]["role"] for item in entries if item["type"] == "message"]
    assert roles == ["user", "assistant", "user", "assistant", "toolResult", "assistant"]
