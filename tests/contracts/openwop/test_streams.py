"""Streams and long poll (OpenWOP §1.9, W8, W14)."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import httpx
import pytest

from tests.contracts.openwop.conftest import Api, refused

QUIET = {"node.started", "node.retried", "variable.changed", "log.appended"}


@pytest.fixture(scope="module")
def ended(api: Api) -> str:
    run_id = api.start("chain")
    api.wait(run_id)
    return run_id


def test_updates_is_the_default_and_omits_the_quiet_types(api: Api, ended: str) -> None:
    shown = api.stream(ended)
    assert shown == api.stream(ended, params={"streamMode": "updates"})
    types = [name for _, name, _ in shown]
    assert types[0] == "run.started" and types[-1] == "run.completed"
    assert not QUIET & set(types)
    assert not any(name.startswith("lease.") for name in types)


def test_debug_shows_the_whole_log(api: Api, ended: str) -> None:
    shown = [data for _, _, data in api.stream(ended, params={"streamMode": "debug"})]
    assert shown == api.events(ended)
    assert [int(id) for id, _, _ in api.stream(ended, params={"streamMode": "debug"})] == list(range(len(shown)))


def test_messages_of_a_run_without_models_is_empty(api: Api, ended: str) -> None:
    assert api.stream(ended, params={"streamMode": "messages"}) == []


def test_a_union_shows_what_any_of_its_modes_shows(api: Api, ended: str) -> None:
    union = [data["sequence"] for _, _, data in api.stream(ended, params={"streamMode": "updates,messages"})]
    single = [data["sequence"] for _, _, data in api.stream(ended, params={"streamMode": "updates"})]
    assert union == single
    names = {name for _, name, _ in api.stream(ended, params={"streamMode": "updates,debug"})}
    assert names == {"updates", "debug"}


def test_values_sends_states(api: Api, ended: str) -> None:
    shown = api.stream(ended, params={"streamMode": "values"})
    assert {name for _, name, _ in shown} == {"state.snapshot"}
    assert shown[-1][2]["status"] == "completed"
    assert shown[-1][2] == api.run(ended)


@pytest.mark.parametrize("mode", ["nonsense", "values,updates", "updates,", "Updates", "debug,nonsense"])
def test_unknown_modes_are_refused_with_what_there_is(api: Api, ended: str, mode: str) -> None:
    answer = api.get(f"/v1/runs/{ended}/events", params={"streamMode": mode})
    details = refused(answer, 400, "unsupported_stream_mode")
    assert set(details["supported"]) == {"updates", "values", "messages", "debug"}


@pytest.mark.parametrize("value", ["-1", "5001", "x", "1.5", ""])
def test_w8_a_buffer_out_of_range_is_refused(api: Api, ended: str, value: str) -> None:
    refused(api.get(f"/v1/runs/{ended}/events", params={"bufferMs": value}), 400, "validation_error")


@pytest.mark.parametrize("mode", ["updates", "debug", "updates,messages"])
def test_last_event_id_goes_on_after_it(api: Api, ended: str, mode: str) -> None:
    whole = api.stream(ended, params={"streamMode": mode})
    for index in range(len(whole)):
        rest = api.stream(ended, params={"streamMode": mode}, headers={"Last-Event-ID": whole[index][0]})
        assert rest == whole[index + 1 :]


@pytest.mark.parametrize("mode", ["updates", "values", "debug"])
def test_a_stream_that_resumes_beyond_the_log_ends_with_its_run(api: Api, mode: str) -> None:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    headers = {"Last-Event-ID": "500"}
    with api.http.stream("GET", f"/v1/runs/{run_id}/events", params={"streamMode": mode}, headers=headers) as answer:
        api.post(f"/v1/runs/{run_id}/interrupts/gate", {"resumeValue": {"action": "accept"}})
        for line in answer.iter_lines():
            assert not line.startswith(":"), "it is kept alive though there is nothing more to come"
            assert not line.startswith("event:") or line == "event: state.snapshot"


def test_resuming_values_begins_with_a_state(api: Api, ended: str) -> None:
    last = {"Last-Event-ID": str(api.run(ended)["lastSequence"])}
    shown = api.stream(ended, params={"streamMode": "values"}, headers=last)
    assert [(name, data["status"]) for _, name, data in shown] == [("state.snapshot", "completed")]
    waiting = api.start("approval")
    now = api.wait(waiting, "waiting-approval")
    last = {"Last-Event-ID": str(now["lastSequence"])}
    with api.http.stream("GET", f"/v1/runs/{waiting}/events?streamMode=values", headers=last) as answer:
        lines = answer.iter_lines()
        assert next(lines) == f"id: {now['lastSequence']}" and next(lines) == "event: state.snapshot"
    api.post(f"/v1/runs/{waiting}/cancel")


def test_a_strange_last_event_id_is_refused(api: Api, ended: str) -> None:
    answer = api.get(f"/v1/runs/{ended}/events", headers={"Last-Event-ID": "not-ours"})
    refused(answer, 400, "validation_error")


def test_a_buffer_makes_batches(api: Api, ended: str) -> None:
    shown = api.stream(ended, params={"bufferMs": 200, "streamMode": "debug"})
    assert {name for _, name, _ in shown} == {"batch"}
    flat = [event for _, _, data in shown for event in data]
    assert flat == api.events(ended)
    for id, _, data in shown:
        assert int(id) == data[-1]["sequence"]


def test_a_suspension_is_flushed_at_once(api: Api) -> None:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    with api.http.stream("GET", f"/v1/runs/{run_id}/events", params={"bufferMs": 5000}) as answer:
        lines = answer.iter_lines()
        data = next(line for line in lines if line.startswith("data: "))
        assert "node.suspended" in [event["type"] for event in json.loads(data[6:])]
    api.post(f"/v1/runs/{run_id}/cancel")


def test_a_stream_is_live_and_closes_with_the_run(api: Api) -> None:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    seen: list[str] = []
    asked = threading.Event()

    def answer_it() -> None:
        asked.wait(30)
        api.post(f"/v1/runs/{run_id}/interrupts/gate", {"resumeValue": {"action": "accept"}})

    helper = threading.Thread(target=answer_it)
    helper.start()
    with api.http.stream("GET", f"/v1/runs/{run_id}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                seen.append(line[7:])
                if seen[-1] == "node.suspended":
                    asked.set()
    helper.join()
    assert seen[-1] == "run.completed"
    assert seen.index("node.suspended") < seen.index("run.completed")


def test_json_is_given_to_a_caller_that_asks_for_it(api: Api, ended: str) -> None:
    answer = api.get(f"/v1/runs/{ended}/events", headers={"Accept": "application/json"})
    assert answer.json() == {"events": api.events(ended), "isComplete": True}
    bad = api.get(f"/v1/runs/{ended}/events?streamMode=no", headers={"Accept": "application/json"})
    refused(bad, 400, "unsupported_stream_mode")


def test_w8_poll_is_exclusive_and_says_when_it_is_complete(api: Api, ended: str) -> None:
    whole = api.get(f"/v1/runs/{ended}/events/poll").json()
    assert whole["isComplete"] is True
    last = whole["events"][-1]["sequence"]
    rest = api.get(f"/v1/runs/{ended}/events/poll", params={"lastSequence": last - 1}).json()
    assert [event["sequence"] for event in rest["events"]] == [last]
    none = api.get(f"/v1/runs/{ended}/events/poll", params={"lastSequence": last, "timeout": 1}).json()
    assert none == {"events": [], "isComplete": True}


@pytest.mark.parametrize("query", ["timeout=0", "timeout=61", "timeout=x", "lastSequence=-2", "lastSequence=x"])
def test_w8_a_poll_out_of_range_is_refused(api: Api, ended: str, query: str) -> None:
    refused(api.get(f"/v1/runs/{ended}/events/poll?{query}"), 400, "validation_error")


def test_poll_waits_for_the_next_event(api: Api) -> None:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    last = api.events(run_id)[-1]["sequence"]
    found: list[Any] = []

    def poll() -> None:
        params = {"lastSequence": last, "timeout": 30}
        found.append(api.get(f"/v1/runs/{run_id}/events/poll", params=params).json())

    waiting = threading.Thread(target=poll)
    waiting.start()
    api.post(f"/v1/runs/{run_id}/interrupts/gate", {"resumeValue": {"action": "accept"}})
    waiting.join()
    assert found[0]["events"] and found[0]["events"][0]["sequence"] == last + 1


def test_poll_without_news_returns_empty(api: Api) -> None:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    last = api.events(run_id)[-1]["sequence"]
    page = api.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": last, "timeout": 1}).json()
    assert page == {"events": [], "isComplete": False}
    api.post(f"/v1/runs/{run_id}/cancel")


def test_many_readers_see_the_same(api: Api, ended: str) -> None:
    found: list[Any] = []
    readers = [threading.Thread(target=lambda: found.append(api.stream(ended))) for _ in range(20)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(found) == 20 and all(item == found[0] for item in found)


def test_an_idle_stream_is_closed_when_its_key_is_revoked(api: Api) -> None:
    made = api.post("/host/v1/keys", {"name": f"suite-{uuid.uuid4().hex}", "scopes": ["runs:read"]})
    if made.status_code != 201:
        pytest.skip("this host makes no keys as we do")
    result = made.json()["result"]
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    headers = {"Authorization": f"Bearer {result['apiKey']}"}
    with (
        httpx.Client(base_url=api.url, headers=headers, timeout=12, trust_env=False) as http,
        http.stream("GET", f"/v1/runs/{run_id}/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines)
        assert api.http.delete(f"/host/v1/keys/{result['description']['keyId']}").status_code == 200
        assert ":keepalive" not in list(lines), "it is closed before the next heartbeat"
    assert api.run(run_id)["status"] == "waiting-approval"
    api.post(f"/v1/runs/{run_id}/cancel")
