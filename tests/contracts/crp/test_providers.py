"""The sidecar reaches real models: providers registered over HTTP, spoken to in their own wire protocols."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.models.wire import Reply, Server, serving

from .conftest import Sidecar

ASK = {"system_prompt": "Be brief.", "task_input": "Say it."}


@contextmanager
def provider(*replies: Reply) -> Iterator[Server]:
    """A provider on a loop of its own."""
    ready, stop = threading.Event(), threading.Event()
    found: list[Server] = []

    async def main() -> None:
        async with serving(*replies) as server:
            found.append(server)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(10)
        yield found[0]
    finally:
        stop.set()
        thread.join(20)


def test_an_openai_provider_with_a_base_url_continues_over_windows(sidecar: Sidecar) -> None:
    first, second = "The first half of a long sentence ", "and its second half."
    with provider(Reply(texts=(first,), finish="length"), Reply(texts=(second,), finish="stop")) as server:
        session = sidecar.open()
        body = {
            "provider_type": "openai",
            "model": "gpt-x",
            "api_key": "sk-test",
            "base_url": server.openai,
            "priority": 1,
        }
        assert sidecar.client.post(f"/sessions/{session}/providers", json=body).status_code == 200
        answer = sidecar.client.post(f"/sessions/{session}/dispatch", json=ASK).json()
        assert answer["output"] == first + second
        assert answer["continuation_windows"] == 1
        assert answer["quality_report"]["telemetry"]["model"] == "openai:gpt-x"
        assert server.headers[0]["authorization"] == "Bearer sk-test"
        assert [message["role"] for message in server.requests[1]["messages"]] == [
            "system",
            "user",
            "assistant",
            "user",
        ]
        assert sidecar.model.calls == []


def test_an_anthropic_provider(sidecar: Sidecar) -> None:
    with provider(Reply(texts=("Hello ", "there."), finish="end_turn")) as server:
        session = sidecar.open()
        body = {"provider_type": "anthropic", "model": "claude-x", "api_key": "k", "base_url": server.anthropic}
        assert sidecar.client.post(f"/sessions/{session}/providers", json=body).status_code == 200
        assert sidecar.client.post(f"/sessions/{session}/dispatch", json=ASK).json()["output"] == "Hello there."


def test_a_provider_that_fails_gives_way_to_the_next(sidecar: Sidecar) -> None:
    broken = Reply(status=400, error={"error": {"message": "no", "type": "invalid_request_error"}})
    with provider(broken, broken, broken) as server:
        session = sidecar.open()
        body = {"provider_type": "openai", "model": "gpt-x", "api_key": "k", "base_url": server.openai}
        sidecar.client.post(f"/sessions/{session}/providers", json=body)
        assert sidecar.client.post(f"/sessions/{session}/dispatch", json=ASK).json()["output"] == "An answer."


def test_the_key_of_a_provider_is_in_no_answer_and_no_record(sidecar: Sidecar) -> None:
    session = sidecar.open()
    body = {"provider_type": "openai", "model": "m", "api_key": "sk-very-secret", "base_url": "http://127.0.0.1:9/v1"}
    assert "sk-very-secret" not in sidecar.client.post(f"/sessions/{session}/providers", json=body).text
    assert b"sk-very-secret" not in sidecar._path.read_bytes()
