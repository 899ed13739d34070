"""The same answers over HTTP, gRPC, MCP and A2A, each with the real client of that protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import httpx
import jsonschema_rs
import msgspec
import pytest
from a2a.client import ClientConfig, create_client
from a2a.client.client import ClientCallContext
from a2a.helpers.proto_helpers import new_data_part, new_message
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, Role, SendMessageRequest, TaskState
from a2a.utils.errors import A2AError
from google.protobuf.struct_pb2 import Struct
from google.rpc import error_details_pb2, status_pb2
from mcp import Client
from starlette.applications import Starlette

from forestay.envelope import encode
from forestay.envelope.conformance import conform
from forestay.envelope.transports.a2a_agent import EXTENSION, envelope_in, negotiate
from forestay.envelope.transports.a2a_tasks import NEXT, advance, is_terminal
from forestay.envelope.transports.discovery import legacy_route
from forestay.envelope.transports.grpc_service import DETAILS_KEY, METHOD, call
from forestay.envelope.transports.http import negotiate as negotiate_media
from forestay.envelope.transports.mcp_server import from_tool_result, mcp_server
from forestay.envelope.types import MEDIA_TYPE, Envelope, Error
from forestay.envelope.validate import decode
from forestay.kernel import Ids, ManualClock, Problem
from tests.contracts.lafs.schema import published
from tests.envelope import serving

FAILURES = [
    ("book.get", {"id": "nope"}, "E_NOT_FOUND_RESOURCE", 404, "NOT_FOUND"),
    ("busy", {}, "E_RATE_LIMITED", 429, "RESOURCE_EXHAUSTED"),
    ("wrong", {}, "E_VALIDATION_SCHEMA", 400, "INVALID_ARGUMENT"),
    ("locked", {}, "E_AUTH_REQUIRED", 401, "UNAUTHENTICATED"),
    ("crash", {}, "E_INTERNAL_UNEXPECTED", 500, "INTERNAL"),
    ("nowhere", {}, "E_NOT_FOUND_RESOURCE", 404, "UNIMPLEMENTED"),
]


async def over_http(url: str, name: str, parameters: dict[str, Any], **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{url}/operations/{name}", json=parameters, headers=headers)


async def grpc_refusal(channel: grpc.aio.Channel, name: str, parameters: dict[str, Any]) -> grpc.aio.AioRpcError:
    """The error of a call, as a client sees it that knows nothing of us but the method's name."""
    request = Struct()
    request.update({"operation": name, "parameters": parameters})
    stub: Any = channel.unary_unary(
        METHOD, request_serializer=Struct.SerializeToString, response_deserializer=Struct.FromString
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(request, timeout=20)
    return caught.value


async def over_a2a(url: str, name: str, parameters: dict[str, Any], *, extended: bool = True) -> list[Any]:
    """All events of one message, by the SDK's own client with streaming."""
    async with httpx.AsyncClient() as http:
        client = await create_client(url, ClientConfig(streaming=True, httpx_client=http))
        part = new_data_part({"operation": name, "parameters": parameters})
        request = SendMessageRequest(message=new_message([part], role=Role.ROLE_USER))
        headers = {"A2A-Extensions": EXTENSION} if extended else {}
        context = ClientCallContext(service_parameters=headers)
        return [event async for event in client.send_message(request, context=context)]


def failed_envelope(events: list[Any]) -> Envelope:
    """The envelope of the last status."""
    found = envelope_in(events[-1].status_update.status.message.parts)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "parameters", "code", "status", "grpc_code"), FAILURES)
def test_the_same_failure_with_the_right_code_on_every_transport(
    name: str, parameters: dict[str, Any], code: str, status: int, grpc_code: str
) -> None:
    async def with_grpc() -> tuple[Envelope, str]:
        async with serving.grpc_channel() as channel:
            envelope = await call(channel, name, parameters, timeout=20)
            return envelope, (await grpc_refusal(channel, name, parameters)).code().name

    async def with_mcp() -> Envelope:
        async with Client(mcp_server(serving.operations(), "books")) as client:
            result = await client.call_tool(name, parameters)
            assert result.is_error is True
            return decode(msgspec.json.encode(result.structured_content))

    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        plain = asyncio.run(over_http(url, name, parameters))
        detailed = asyncio.run(over_http(url, name, parameters, accept="application/problem+json"))
        a2a = failed_envelope(asyncio.run(over_a2a(url, name, parameters)))
    by_http = decode(plain.content)
    by_grpc, seen_code = asyncio.run(with_grpc())
    by_mcp = asyncio.run(with_mcp())
    assert (plain.status_code, detailed.status_code, seen_code) == (status, status, grpc_code)
    assert detailed.headers["content-type"] == "application/problem+json"
    assert detailed.json()["title"] == code and detailed.json()["status"] == status
    errors = [envelope.error for envelope in (by_http, by_grpc, by_mcp, a2a)]
    assert all(error == errors[0] for error in errors) and isinstance(errors[0], Error)
    assert errors[0].code == code
    for envelope in (by_http, by_grpc, by_mcp, a2a):
        report = conform(encode(envelope))
        assert report.ok, report.failed


def test_http_negotiates_the_form_and_says_when_to_come_back() -> None:
    async def talk(url: str) -> None:
        lafs = await over_http(url, "book.get", {"id": "b1"}, accept=MEDIA_TYPE)
        assert lafs.status_code == 200 and lafs.headers["content-type"] == MEDIA_TYPE
        assert decode(lafs.content).result == serving.BOOKS[1]
        busy = await over_http(url, "busy", {}, accept="application/problem+json, application/json;q=0.5")
        assert busy.headers["retry-after"] == "2"
        body = busy.json()
        assert body["type"] == "https://lafs.dev/errors/v1/rate-limited"
        assert body["retryAfterMs"] == 1500 and body["agentAction"] == "wait" and body["instance"]
        refused = await over_http(url, "book.get", {"id": "b1"}, accept="text/html")
        assert refused.status_code == 406
        crash = await over_http(url, "crash", {})
        assert "somebody" not in crash.text and "secret" not in crash.text
        half = await over_http(url, "half", {})
        assert half.status_code == 503 and half.headers["retry-after"] == "1"
        assert half.json()["result"] == {"done": 3}

    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        asyncio.run(talk(url))


def test_http_gives_the_form_that_was_asked_for() -> None:
    async def talk(url: str) -> None:
        asked = {"limit": 3, "_fields": ["id", "author"], "_expand": ["author"]}
        answer = (await over_http(url, "book.list", asked)).json()
        assert answer["result"][0] == {"id": "b0", "author": {"id": "a0", "name": "Author a0"}}
        assert answer["_meta"]["mvi"] == "custom" and answer["page"]["total"] == 20
        small = (await over_http(url, "book.list", {"_budget": {"maxTokens": 400}, "_mvi": "minimal"})).json()
        assert set(small["_meta"]) == {"requestId", "contextVersion", "warnings"}
        assert small["page"]["limit"] == len(small["result"]) < 20 and small["page"]["hasMore"] is True
        unknown = (await over_http(url, "book.list", {"_expand": ["publisher"]})).json()
        assert unknown["error"]["code"] == "E_DISCLOSURE_UNKNOWN_FIELD"
        assert unknown["error"]["details"]["known"] == ["author"]

    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        asyncio.run(talk(url))


@pytest.mark.parametrize(
    ("accept", "failed", "chosen"),
    [
        (None, True, "application/json"),
        ("*/*", True, "application/json"),
        ("application/problem+json", True, "application/problem+json"),
        ("application/problem+json", False, "application/json"),
        ("application/json;q=0.2, application/problem+json;q=0.9", True, "application/problem+json"),
        (f"{MEDIA_TYPE}, application/json;q=0.5", False, MEDIA_TYPE),
        ("application/*;q=0.5, application/json;q=0", False, MEDIA_TYPE),
        ("text/html", False, None),
        ("application/json;q=nonsense", False, None),
    ],
)
def test_media_types_are_negotiated(accept: str | None, failed: bool, chosen: str | None) -> None:
    assert negotiate_media(accept, failed=failed) == chosen


def test_grpc_tells_the_reason_the_wait_and_the_field() -> None:
    async def talk() -> tuple[list[Any], list[Any]]:
        async with serving.grpc_channel() as channel:
            return [await details(channel, "busy"), await details(channel, "wrong")]  # type: ignore[return-value]

    async def details(channel: grpc.aio.Channel, name: str) -> list[Any]:
        trailers = dict((await grpc_refusal(channel, name, {})).trailing_metadata() or ())
        return list(status_pb2.Status.FromString(trailers[DETAILS_KEY]).details)

    busy, wrong = asyncio.run(talk())
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert busy[0].Unpack(info) and busy[1].Unpack(retry)
    assert (info.reason, info.metadata["agentAction"]) == ("E_RATE_LIMITED", "wait")
    assert retry.retry_delay.ToMilliseconds() == 1500
    bad = error_details_pb2.BadRequest()
    assert wrong[1].Unpack(bad)
    assert bad.field_violations[0].field == "$.year"


def test_grpc_carries_a_success_unchanged() -> None:
    async def talk() -> Envelope:
        async with serving.grpc_channel() as channel:
            return await call(channel, "book.list", {"limit": 2}, request_id="req-from-me", timeout=20)

    envelope = asyncio.run(talk())
    assert envelope.result == serving.BOOKS[:2] and envelope.meta.request_id == "req-from-me"
    assert envelope.meta.transport == "grpc"


def test_mcp_tools_say_what_they_do_and_answer_in_envelopes() -> None:
    async def talk() -> None:
        async with Client(mcp_server(serving.operations(), "books")) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools["book.get"].annotations is not None and tools["book.get"].annotations.read_only_hint is True
            assert tools["busy"].annotations is not None and tools["busy"].annotations.read_only_hint is False
            result = await client.call_tool("book.get", {"id": "b2"})
            assert result.is_error is False
            assert result.structured_content["result"] == serving.BOOKS[2]
            assert decode(result.content[0].text).result == serving.BOOKS[2]  # type: ignore[union-attr]

    asyncio.run(talk())


def test_mcp_over_http_with_the_packages_own_client() -> None:
    def make(_url: str) -> Any:
        return mcp_server(serving.operations(), "books").streamable_http_app(json_response=True)

    async def talk(url: str) -> Any:
        async with Client(f"{url}/mcp") as client:
            return await client.call_tool("book.get", {"id": "nope"})

    with serving.served(make) as url:
        result = asyncio.run(talk(url))
    assert result.is_error is True and result.structured_content["error"]["code"] == "E_NOT_FOUND_RESOURCE"


def test_mcp_errors_of_other_tools_are_not_guessed_from_their_words(clock: ManualClock, ids: Ids) -> None:
    import mcp_types as types

    for words in ("Rate limit exceeded, retry in 60s", "404 not found", "permission denied", "timeout"):
        foreign = types.CallToolResult(content=[types.TextContent(type="text", text=words)], is_error=True)
        envelope = from_tool_result(foreign, "tool", clock=clock, ids=ids)
        assert isinstance(envelope.error, Error)
        assert envelope.error.code == "E_INTERNAL_UNEXPECTED" and envelope.error.retryable is False
        assert envelope.error.retry_after_ms is None and envelope.error.message == words
    fine = types.CallToolResult(content=[], structured_content={"a": 1})
    assert from_tool_result(fine, "tool", clock=clock, ids=ids).result == {"a": 1}


def test_a2a_streams_the_task_and_its_artifact() -> None:
    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        events = asyncio.run(over_a2a(url, "book.get", {"id": "b3"}))
        plain = asyncio.run(over_a2a(url, "book.get", {"id": "b3"}, extended=False))
    states = [event.status_update.status.state for event in events if event.HasField("status_update")]
    assert states == [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]
    artifacts = [event.artifact_update.artifact for event in events if event.HasField("artifact_update")]
    assert artifacts[0].metadata["x-content-type"] == MEDIA_TYPE
    envelope = envelope_in(artifacts[0].parts)
    assert envelope is not None and envelope.result == serving.BOOKS[3]
    bare = [event.artifact_update.artifact for event in plain if event.HasField("artifact_update")]
    assert envelope_in(bare[0].parts) is None and bare[0].parts[0].media_type == "application/json"


def test_a2a_who_must_authenticate_may_come_back() -> None:
    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        events = asyncio.run(over_a2a(url, "locked", {}))
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_AUTH_REQUIRED


class Agent:
    """The SDK's client, for several messages to one agent."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def send(self, name: str, parameters: dict[str, Any] | None = None, **message: Any) -> list[Any]:
        return [event async for event in self.stream(name, parameters, **message)]

    def stream(self, name: str, parameters: dict[str, Any] | None = None, **message: Any) -> Any:
        references = message.pop("reference_task_ids", [])
        part = new_data_part({"operation": name, "parameters": parameters or {}})
        sent = new_message([part], role=Role.ROLE_USER, **message)
        sent.reference_task_ids.extend(references)
        context = ClientCallContext(service_parameters={"A2A-Extensions": EXTENSION})
        return self.client.send_message(SendMessageRequest(message=sent), context=context)


def with_agent(talk: Any) -> None:
    async def run(url: str) -> None:
        async with httpx.AsyncClient(timeout=30) as http:
            await talk(Agent(await create_client(url, ClientConfig(streaming=True, httpx_client=http))))

    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        asyncio.run(run(url))


def test_a2a_a_task_that_needs_credentials_goes_on_and_then_ends_for_good() -> None:
    async def talk(agent: Agent) -> None:
        first = await agent.send("locked")
        task = first[0].task
        again = await agent.send("book.get", {"id": "b1"}, task_id=task.id, context_id=task.context_id)
        assert again[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        with pytest.raises(A2AError):
            await agent.send("book.get", {"id": "b1"}, task_id=task.id, context_id=task.context_id)

    with_agent(talk)


def test_k2_a_referenced_task_must_be_of_the_same_context() -> None:
    async def talk(agent: Agent) -> None:
        done = (await agent.send("book.get", {"id": "b1"}))[0].task
        near = await agent.send("book.get", {"id": "b2"}, context_id=done.context_id, reference_task_ids=[done.id])
        assert near[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        for reference in (done.id, "no-such-task"):
            far = await agent.send("book.get", {"id": "b2"}, reference_task_ids=[reference])
            assert far[-1].status_update.status.state == TaskState.TASK_STATE_REJECTED
            error = failed_envelope(far).error
            assert isinstance(error, Error) and error.code == "E_NOT_FOUND_RESOURCE"

    with_agent(talk)


def test_a2a_a_working_task_can_be_canceled() -> None:
    async def talk(agent: Agent) -> None:
        task_id = ""
        async for event in agent.stream("slow"):
            if event.HasField("task"):
                task_id = event.task.id
            if event.HasField("status_update"):
                state = event.status_update.status.state
                if state == TaskState.TASK_STATE_WORKING:
                    canceled = await agent.client.cancel_task(CancelTaskRequest(id=task_id))
                    assert canceled.status.state == TaskState.TASK_STATE_CANCELED
                    break
        stored = await agent.client.get_task(GetTaskRequest(id=task_id))
        assert stored.status.state == TaskState.TASK_STATE_CANCELED

    with_agent(talk)


def test_a2a_a_message_without_an_operation_is_rejected() -> None:
    async def talk(url: str) -> list[Any]:
        async with httpx.AsyncClient() as http:
            client = await create_client(url, ClientConfig(streaming=True, httpx_client=http))
            request = SendMessageRequest(message=new_message([new_data_part({"x": 1})], role=Role.ROLE_USER))
            return [event async for event in client.send_message(request)]

    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        events = asyncio.run(talk(url))
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_REJECTED


def test_a2a_the_card_has_an_etag_and_is_not_sent_twice() -> None:
    async def talk(url: str) -> None:
        async with httpx.AsyncClient(base_url=url) as client:
            first = await client.get("/.well-known/agent-card.json")
            assert first.status_code == 200 and "max-age=3600" in first.headers["cache-control"]
            card = first.json()
            assert {skill["id"] for skill in card["skills"]} >= {"book.get", "busy"}
            assert card["capabilities"]["extensions"][0]["uri"] == EXTENSION
            etag = first.headers["etag"]
            assert len(etag.strip('"')) == 32
            again = await client.get("/.well-known/agent-card.json", headers={"If-None-Match": etag})
            assert (again.status_code, again.content) == (304, b"")
            assert (await client.head("/.well-known/agent-card.json")).headers["etag"] == etag
            assert (await client.post("/.well-known/agent-card.json")).status_code == 405

    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        asyncio.run(talk(url))


async def test_the_older_discovery_document_points_to_the_card() -> None:
    route = legacy_route(
        serving.operations(), name="books", version="1.0.0", deprecated_s=1_767_225_600, sunset_s=1_798_761_600
    )
    transport = httpx.ASGITransport(Starlette(routes=[route]))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/.well-known/lafs.json")
        assert answer.headers["deprecation"] == "@1767225600"
        assert answer.headers["sunset"] == "Fri, 01 Jan 2027 00:00:00 GMT"
        assert answer.headers["link"] == '</.well-known/agent-card.json>; rel="successor-version"'
        document = answer.json()
        assert "book.get" in document["capabilities"][0]["operations"]
        contract = published("discovery.schema.json")
        if contract is not None:
            assert jsonschema_rs.validator_for(contract).is_valid(document)
        again = await client.get("/.well-known/lafs.json", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
    with pytest.raises(Problem):
        legacy_route(serving.operations(), name="n", version="1.0.0", deprecated_s=2, sunset_s=1)


def test_a2a_a_required_extension_must_be_activated() -> None:
    async def talk(url: str) -> None:
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
        async with httpx.AsyncClient(base_url=url) as client:
            refused = await client.post("/a2a", json=body)
            assert refused.status_code == 400 and refused.json()["code"] == -32008
            assert refused.headers["content-type"] == "application/problem+json"
            for header in ("A2A-Extensions", "X-A2A-Extensions"):
                taken = await client.post("/a2a", json=body, headers={header: f"{EXTENSION}, urn:other"})
                assert taken.status_code == 200 and taken.headers["a2a-extensions"] == EXTENSION

    with serving.served(lambda url: serving.app(f"{url}/a2a", required=True)) as url:
        asyncio.run(talk(url))


def test_a2a_extensions_are_negotiated() -> None:
    card = serving.agent_card(serving.operations(), name="n", description="d", version="1", url="u", required=True)
    agreed = negotiate([EXTENSION, "urn:other"], card.capabilities.extensions)
    assert (agreed.activated, agreed.unsupported, agreed.missing_required) == ([EXTENSION], ["urn:other"], [])
    assert negotiate([], card.capabilities.extensions).missing_required == [EXTENSION]


def test_k1_a_task_moves_only_along_the_table() -> None:
    for state, following in NEXT.items():
        assert is_terminal(state) == (not following)
        for other in NEXT:
            if other in following:
                assert advance(state, other) == other
            else:
                with pytest.raises(Problem) as caught:
                    advance(state, other)
                assert caught.value.key == "state_conflict"
