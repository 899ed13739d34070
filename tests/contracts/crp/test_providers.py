"""The sidecar reaches real models: providers registered over HTTP, spoken to in their own wire protocols."""

from __future__ import annotations

import json

import pytest

from tests.models.wire import Reply, Server
from tests.models.wire import serving_beside as provider

from .conftest import Sidecar

ASK = {"system_prompt": "Be brief.", "task_input": "Say it."}


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


@pytest.mark.parametrize("key", [None, ""])
def test_a_provider_without_a_key_that_can_be_one_is_the_callers_mistake(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    body = {"provider_type": "openai", "model": "gpt-x", "api_key": key}
    answer = sidecar.client.post(f"/sessions/{sidecar.open()}/providers", json=body)
    assert (answer.status_code, answer.json()["details"]["at"]) == (400, "$.api_key")


REFUSALS = {
    "400": Reply(status=400, error={"error": {"message": "no", "type": "invalid_request_error"}}),
    "401": Reply(status=401, error={"error": {"message": "no", "type": "authentication_error"}}),
    "429": Reply(status=429, headers=(("retry-after", "900"),), error={"error": {"message": "slow down"}}),
    "500": Reply(status=500, headers=(("x-should-retry", "false"),), error={"error": {"message": "broken"}}),
}


def _register(sidecar: Sidecar, session: str, server: Server, model: str = "gpt-x", priority: int = 10) -> None:
    body = {
        "provider_type": "openai",
        "model": model,
        "api_key": "k",
        "base_url": server.openai,
        "priority": priority,
    }
    assert sidecar.client.post(f"/sessions/{session}/providers", json=body).status_code == 200


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_c18_a_provider_that_refuses_a_window_is_1020_and_no_other_model_answers(
    refusal: str, window: int, sidecar: Sidecar
) -> None:
    """The partial output is kept, and a resume ends in the exact text."""
    pieces = ("The first window of a long text, ", "the second window that follows it, ", "and the end of it.")
    replies = [Reply(texts=(text,), finish="stop" if text == pieces[-1] else "length") for text in pieces]
    failing = [*replies[: window - 1], REFUSALS[refusal]]
    with provider(*failing, *replies[window - 1 :]) as server:
        session = sidecar.open()
        _register(sidecar, session, server)
        answer = sidecar.client.post(f"/sessions/{session}/dispatch", json=ASK)
        assert answer.status_code == 502
        assert answer.json()["code"] == 1020
        assert answer.json()["details"]["partial_output"] == "".join(pieces[: window - 1])
        again = {**ASK, "resume": window > 1}
        assert sidecar.client.post(f"/sessions/{session}/dispatch", json=again).json()["output"] == "".join(pieces)
    assert sidecar.model.calls == []


def test_c18_a_stream_that_fails_ends_with_an_error_event_and_never_with_another_voice(sidecar: Sidecar) -> None:
    first = "The first window of a long text, "
    with provider(Reply(texts=(first,), finish="length"), REFUSALS["400"]) as server:
        session = sidecar.open()
        _register(sidecar, session, server)
        text = sidecar.client.post(f"/sessions/{session}/dispatch/stream", json=ASK).text
    events = [json.loads(frame.split("\ndata: ")[1]) for frame in text.strip().split("\n\n")]
    assert "".join(item["data"] for item in events if item["event_type"] == "token") == first
    assert events[-1]["event_type"] == "error"
    assert events[-1]["data"]["code"] == 1020
    assert sidecar.model.calls == []


def test_c18_a_fall_back_order_is_the_callers_and_the_answer_names_who_answered(sidecar: Sidecar) -> None:
    with provider(REFUSALS["401"]) as broken, provider(Reply(texts=("Hello.",))) as good:
        session = sidecar.open()
        _register(sidecar, session, good, "second", priority=20)
        _register(sidecar, session, broken, "first", priority=1)
        answer = sidecar.client.post(f"/sessions/{session}/dispatch", json=ASK).json()
        assert answer["output"] == "Hello."
        telemetry = answer["quality_report"]["telemetry"]
        assert telemetry["model"] == "openai:second"
        assert telemetry["fallbacks"] == [{"model": "openai:first", "problem": "provider_unauthenticated"}]
    assert sidecar.model.calls == []


def test_the_key_of_a_provider_is_in_no_answer_and_no_record(sidecar: Sidecar) -> None:
    session = sidecar.open()
    body = {"provider_type": "openai", "model": "m", "api_key": "sk-very-secret", "base_url": "http://127.0.0.1:9/v1"}
    assert "sk-very-secret" not in sidecar.client.post(f"/sessions/{session}/providers", json=body).text
    assert b"sk-very-secret" not in sidecar._path.read_bytes()
