"""The client beside a real host: the same calls for plain code and for coroutines (K1 to K3)."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.client import AsyncClient, Call, Client, calls
from forestay.kernel import Problem
from forestay.runs import Step, workflow
from tests.contracts.openwop.conftest import LocalHost


@workflow
def greet(name: str = "Aurora") -> Step:
    return workflow.step("core.identity", greeting="Hello, " + name)


@workflow
def gate(sure: bool = False) -> Step:
    return workflow.step("core.approvalGate", {"title": "Go on?", "actions": ["accept", "reject"]}, id="ask")


@workflow
def three() -> None:
    for _ in range(3):
        workflow.step("core.delay", {"delayMs": 1})


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path_factory.mktemp("client") / "data")
    made.start()
    with Client(made.url, made.keys["full"]) as client:
        for item in (greet, gate, three):
            client.put_workflow(item.document)
    yield made
    made.stop()


@pytest.fixture
def client(host: LocalHost) -> Iterator[Client]:
    with Client(host.url, host.keys["full"]) as found:
        yield found


def test_an_event_with_a_line_separator_in_its_text_is_one_event(client: Client) -> None:
    run = client.run("greet", {"name": "Bo\u2028re\x85alis"})
    assert run.outputs == {"greeting": "Hello, Bo\u2028re\x85alis"}
    assert [event.sequence for event in client.events(run.run_id)] == list(range(run.last_sequence + 1))


def test_a_run_is_started_followed_and_read(client: Client) -> None:
    run = client.run("greet", {"name": "Borealis"})
    assert (run.status, run.outputs) == ("completed", {"greeting": "Hello, Borealis"})
    seen = [event.sequence for event in client.events(run.run_id)]
    assert seen == list(range(run.last_sequence + 1))
    assert run.run_id in [item.run_id for item in client.runs(workflow="greet")]


def test_the_list_goes_over_every_page(client: Client) -> None:
    made = {client.start("greet", tags=["paged"]).run_id for _ in range(3)}
    for run_id in made:
        client.wait(run_id)
    first = client.send(calls.page(tag="paged", limit=2))
    assert (len(first.runs), first.next_cursor is None) == (2, False)
    assert {run.run_id for run in client.runs(tag="paged")} == made


def test_a_question_is_shown_and_answered(client: Client) -> None:
    run = client.run("gate")
    assert run.status == "waiting-approval"
    question = client.questions(run.run_id)[0]
    client.answer(run.run_id, question.node_id, {"action": "accept"})
    assert client.wait(run.run_id).status == "completed"


def test_k1_a_refusal_is_the_problem_that_it_was(client: Client, host: LocalHost) -> None:
    with pytest.raises(Problem) as caught:
        client.get("run_nothing")
    assert caught.value.key == "not_found"
    with Client(host.url, host.keys["reader"]) as reader, pytest.raises(Problem) as caught:
        reader.start("greet")
    assert caught.value.key == "permission_denied"
    with Client(host.url, "fsk_wrong") as stranger, pytest.raises(Problem) as caught:
        stranger.get("run_nothing")
    assert caught.value.key == "unauthenticated"


def test_k1_a_host_that_is_not_there_is_named() -> None:
    waits: list[float] = []
    with Client("http://127.0.0.1:1", "fsk_x", sleep=waits.append) as client:
        with pytest.raises(Problem, match=r"The host at http://127\.0\.0\.1:1 does not answer"):
            client.start("greet")
        assert waits == []  # K3: nothing that changes something is tried again
        with pytest.raises(Problem, match="does not answer"):
            list(client.events("run_x"))
    assert len(waits) == 12


def test_k3_the_same_key_starts_one_run(client: Client) -> None:
    made = {client.start("greet", idempotency_key="once").run_id for _ in range(2)}
    assert len(made) == 1


def test_k2_a_host_that_is_killed_loses_no_event_and_repeats_none(tmp_path: Path) -> None:
    host = LocalHost(tmp_path / "data")
    host.start()
    port = host.url.rpartition(":")[2]

    def restart(_: float) -> None:
        if host.process is not None and host.process.poll() is not None:
            host.process.stdout.close()  # type: ignore[union-attr]
            host.start("--port", port)
            client.answer(run_id, "ask", {"action": "accept"})

    with Client(host.url, host.keys["full"], sleep=restart) as client:
        client.put_workflow(gate.document)
        run_id = client.start("gate").run_id
        found = []
        for event in client.events(run_id):
            found.append(event.sequence)
            if event.type == "interrupt.requested" and host.process is not None:
                host.process.kill()
                host.process.wait()
        assert client.get(run_id).status == "completed"
    host.stop()
    assert found == list(range(len(found)))


def test_coroutines_have_the_same_calls(host: LocalHost) -> None:
    asyncio.run(_coroutines(host))


async def _coroutines(host: LocalHost) -> None:
    async with AsyncClient(host.url, host.keys["full"]) as client:
        run = await client.run("greet", {"name": "Corona"})
        assert run.outputs == {"greeting": "Hello, Corona"}
        seen = [event.sequence async for event in client.events(run.run_id)]
        assert seen == list(range(run.last_sequence + 1))
        assert run.run_id in [item.run_id async for item in client.runs(workflow="greet")]
        waiting = await client.run("gate")
        question = (await client.questions(waiting.run_id))[0]
        await client.answer(waiting.run_id, question.node_id, {"action": "accept"})
        assert (await client.wait(waiting.run_id)).status == "completed"
        with pytest.raises(Problem):
            await client.get("run_nothing")
        assert [agent.agent_id for agent in await client.agents()] == ["core.forestay.assistant"]
        async with await client.relay("tests") as session:
            await session.ingest("The Aurora lies at berth 7.", "note")
            assert "berth 7" in (await session.dispatch("You know.", "Where does the Aurora lie?")).output


def test_the_relay_and_an_agent_answer(client: Client) -> None:
    with client.relay("tests") as session:
        assert session.ingest("The Aurora lies at berth 7.", "note").facts_extracted == 1
        assert session.facts("Aurora")[0].text == "The Aurora lies at berth 7."
        assert "berth 7" in session.dispatch("You know the harbour.", "Where does the Aurora lie?").output
    assert client.ask("Where does the Aurora lie?")


def test_both_clients_have_the_same_public_methods_with_the_same_parameters() -> None:
    def face(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in vars(kind).items()
            if not name.startswith("_") and callable(member)
        }

    assert face(Client) == face(AsyncClient)


def test_every_call_is_an_operation_that_the_host_describes(client: Client, host: LocalHost) -> None:
    headers = {"Authorization": f"Bearer {host.keys['full']}"}
    described: dict[tuple[str, str], list[str]] = {}
    for document, prefix in (("/v1/openapi.json", ""), ("/host/v1/openapi.json", ""), ("/crp/openapi.json", "/crp")):
        found = httpx.get(client.url + document, headers=headers, trust_env=False).json()
        for path, methods in found["paths"].items():
            for method, operation in methods.items():
                described.setdefault((operation["operationId"], method.upper()), []).append(prefix + path)
    made: list[Call[Any]] = [
        calls.start("w"), calls.get("r"), calls.page(), calls.cancel("r"), calls.pause("r"), calls.resume("r"),
        calls.fork("r"), calls.questions("r"), calls.answer("r", "n", 1), calls.put({"id": "w"}), calls.agents(),
        calls.open_session("a"), calls.ingest("s", "t"), calls.dispatch("s", "p", "t"), calls.facts("s"),
        calls.close_session("s"),
    ]  # fmt: skip
    for call in made:
        paths = described[call.name.removeprefix("crp."), call.method]
        assert any(re.fullmatch(re.sub(r"\\\{[A-Za-z]+\\\}", "[^/]+", re.escape(p)), call.path) for p in paths), call
    functions = [item for _, item in inspect.getmembers(calls, inspect.isfunction)]
    own = [item for item in functions if item.__module__ == calls.__name__ and not item.__name__.startswith("_")]
    assert len(own) == len(made)
