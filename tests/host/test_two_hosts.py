"""Two real host processes on one PostgreSQL ledger: every part of a host knows that it is not alone."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from forestay.kernel import Ids, Ledger, ManualClock, SeededRandomness
from forestay.relay import guard
from forestay.runs import Outbox, Runs, Schedules, ScheduleSpec, ScheduleTable, projections
from tests.host.hosts import HostProcess, hosts, until
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, workflow
from tests.runs.receiver import Receiver, receiving

GATED = workflow("gated", [node("gate", "core.approvalGate"), node("last")], [edge("gate", "last")])
SHORT = workflow("short", [node("only")])
YES = {"resumeValue": {"action": "accept"}}
MISSED = 40


async def prepare(ledger: str) -> None:
    """A schedule whose last `MISSED` moments nobody was there for, all to be caught up."""
    clock = ManualClock(round(time.time() * 1000) - MISSED * 60_000)
    ids = Ids(clock, SeededRandomness(1))
    tables = [*projections(), ScheduleTable(), Outbox()]
    async with Ledger.open(ledger, projections=tables, clock=clock, ids=ids) as opened:
        runs = Runs(opened, clock=clock, ids=ids, randomness=SeededRandomness(1), secret=b"s" * 32)
        await runs.put_workflow(SHORT, tenant=None)
        schedules = Schedules(opened, runs, clock=clock, ids=ids)
        spec = ScheduleSpec(workflow_id="short", cron="* * * * *", overlap="allow", catch_up="all", tags=["missed"])
        await schedules.create(spec, "default", schedule_id="sch_missed")


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def ledger() -> str:
    return new_ledger()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, ledger: str) -> Iterator[list[HostProcess]]:
    asyncio.run(prepare(ledger))
    place = httpx.URL(receiver.url)
    with hosts(tmp_path_factory.mktemp("pair"), ledger, 2, "--allow-egress", f"{place.host}:{place.port}") as found:
        found[0].ask("PUT", "/v1/workflows/gated", GATED)
        yield found


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def records(ledger: str, prefix: str) -> list[Any]:
    async def read() -> list[Any]:
        async with Ledger.open(ledger) as opened:
            return [record for _, record in await opened.read_all(prefix, limit=10_000)]

    return asyncio.run(read())


def test_each_tick_of_a_schedule_is_claimed_once(pair: list[HostProcess], ledger: str) -> None:
    def fired() -> list[Any]:
        return [record for record in records(ledger, "schedule/sch_missed") if record.type == "schedule.fired"]

    until(lambda: len(fired()) >= MISSED)
    moments = Counter(record.payload["scheduledFor"] for record in fired())
    assert max(moments.values()) == 1
    assert len({record.payload["runId"] for record in fired()}) == len(moments)
    types = {record.type for record in records(ledger, "schedule/sch_missed")}
    assert types == {"schedule.created", "schedule.fired"}, "none was refused, and none put down twice"


def test_a_schedule_is_everywhere_at_once(pair: list[HostProcess]) -> None:
    one, two = pair
    spec = {"workflowId": "short", "cron": "0 0 1 1 *"}
    name = one.ask("POST", "/v1/schedules", spec)["scheduleId"]
    assert two.ask("GET", f"/v1/schedules/{name}")["nextAt"]
    two.ask("POST", f"/v1/schedules/{name}:pause")
    assert one.ask("GET", f"/v1/schedules/{name}")["state"] == "paused"
    listed = [item["scheduleId"] for item in two.ask("GET", "/v1/schedules")["schedules"]]
    assert name in listed
    at_once(*(lambda host=host: host.ask("PUT", f"/v1/schedules/{name}", spec) for host in pair * 3))
    one.ask("DELETE", f"/v1/schedules/{name}")
    assert two.client.get(f"/v1/schedules/{name}").status_code == 404


def test_a_key_is_good_and_bad_everywhere(pair: list[HostProcess]) -> None:
    one, two = pair
    made = one.ask("POST", "/host/v1/keys", {"name": "other"})["result"]
    headers = {"Authorization": f"Bearer {made['apiKey']}"}
    until(lambda: two.client.get("/v1/runs", headers=headers).status_code == 200)
    gate = one.ask("POST", "/v1/runs", {"workflowId": "gated"})["runId"]
    with one.client.stream("GET", f"/v1/runs/{gate}/events", headers=headers) as stream:
        assert stream.status_code == 200
        two.ask("DELETE", f"/host/v1/keys/{made['description']['keyId']}")
        assert two.client.get("/v1/runs", headers=headers).status_code == 401
        until(lambda: one.client.get("/v1/runs", headers=headers).status_code == 401)
        for _ in stream.iter_raw():
            pass  # it ends, because the key has ended


def test_events_of_a_run_stream_from_any_process(pair: list[HostProcess]) -> None:
    one, two = pair
    run_id = one.ask("POST", "/v1/runs", {"workflowId": "gated"})["runId"]
    seen: list[str] = []
    with two.client.stream("GET", f"/v1/runs/{run_id}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: "))
            if seen and seen[-1] == "node.suspended":
                seen.append("answered by two")
                two.ask("POST", f"/v1/runs/{run_id}/interrupts/gate", YES)
    assert "run.completed" in seen
    assert one.ask("GET", f"/v1/runs/{run_id}")["status"] == "completed"


def test_one_idempotency_key_is_one_run_whoever_is_asked(pair: list[HostProcess]) -> None:
    def create(host: HostProcess, number: int) -> str:
        headers = {"Idempotency-Key": f"same-{number}"}
        while True:
            answer = host.client.post("/v1/runs", json={"workflowId": "short"}, headers=headers)
            if answer.status_code != 409:  # 409: the other one is at it
                assert answer.status_code == 201, answer.text
                return str(answer.json()["runId"])

    for number in range(5):
        made = at_once(*(partial(create, host, number) for host in pair * 2))
        assert len(set(made)) == 1


def test_each_delivery_of_a_webhook_goes_out_once(pair: list[HostProcess], receiver: Receiver) -> None:
    one, two = pair
    receiver.take()
    wanted = {"url": receiver.url, "events": ["run.completed"], "tags": ["told"]}
    made = one.ask("POST", "/v1/webhooks", wanted)
    body = {"workflowId": "short", "tags": ["told"]}
    runs = at_once(*(lambda host=host: host.ask("POST", "/v1/runs", body)["runId"] for host in pair * 10))
    until(lambda: len({got.delivery for got in receiver.got}) == len(runs))
    until(lambda: not two.ask("GET", f"/v1/webhooks/{made['webhookId']}/deliveries")["deliveries"])
    assert sorted(got.document["runId"] for got in receiver.got) == sorted(runs)
    assert all(got.is_signed_with(made["secret"]) for got in receiver.got)


def test_an_inbound_event_starts_one_run_whoever_gets_it(pair: list[HostProcess]) -> None:
    one, _ = pair
    made = one.ask("POST", "/host/v1/trigger-subscriptions", {"source": "queue", "workflowId": "short"})["result"]
    name = made["subscription"]["subscriptionId"]

    def offer(host: HostProcess, number: int) -> str:
        event = {"eventId": f"event-{number}", "inputs": {}}
        return str(host.ask("POST", f"/host/v1/trigger-subscriptions/{name}:deliver", event)["result"]["deliveryId"])

    wanted = [(host, number) for number in range(5) for host in pair * 2]
    accepted = at_once(*(lambda host=host, number=number: offer(host, number) for host, number in wanted))
    assert len(set(accepted)) == 5

    def delivered() -> list[Any]:
        found = one.ask("GET", "/host/v1/trigger-deliveries")["result"]["deliveries"]
        return [item for item in found if item["subscriptionId"] == name and item["state"] == "delivered"]

    until(lambda: len(delivered()) == 5)
    assert [item["attempts"] for item in delivered()] == [1] * 5


def test_a_relay_session_is_one_session_in_two_processes(pair: list[HostProcess]) -> None:
    one, two = pair
    opened = one.ask("POST", "/crp/sessions", {"app_id": "harbour"})
    path = f"/crp/sessions/{opened['session_id']}"

    def ingest(host: HostProcess, number: int) -> Any:
        text = f"The crane number {number} lifts {number + 3} tons. It stands at berth {number + 40}."
        return host.ask("POST", f"{path}/ingest", {"text": text, "source_label": f"crane-{number}"})

    at_once(*(lambda number=number: ingest(pair[number % 2], number) for number in range(8)))
    counts = {host.ask("GET", f"{path}/status")["facts_in_warm_state"] for host in pair}
    assert len(counts) == 1 and counts.pop() >= 8
    one.ask("POST", f"{path}/ingest", {"text": "The harbour master of Alkmaar is Ada Kroon."})
    task = {"system_prompt": "You are brief.", "task_input": "Who is the harbour master of Alkmaar?"}
    answers = at_once(
        *(lambda host=host: host.ask("POST", f"{path}/dispatch", task) for host in pair * 2),
        *(lambda number=number: ingest(pair[number % 2], number) for number in range(8, 12)),
    )
    assert all("Ada Kroon" in answer["output"] for answer in answers[:4])
    assert {host.ask("GET", f"{path}/status")["windows_completed"] for host in pair} == {4}
    two.ask("POST", f"{path}/close")
    refused = one.client.get(f"{path}/status")
    assert refused.status_code >= 400 and "closed" in refused.text


def test_a_bound_session_is_signed_for_any_process(pair: list[HostProcess]) -> None:
    one, two = pair
    secret = "a binding secret of the caller"
    opened = one.ask("POST", "/crp/sessions", {"app_id": "bound", "binding_secret": secret})
    key = guard.session_key(secret.encode(), bytes.fromhex(opened["nonce"]))
    path = f"/crp/sessions/{opened['session_id']}/status"
    signed = {"X-CRP-Signature": guard.signature(key, "GET", path, b"")}
    assert two.client.get(path, headers=signed).status_code == 200
    assert two.client.get(path).status_code == 401
    assert one.client.get(path, headers=signed).status_code == 200


def test_a_conversation_goes_on_in_either_process(pair: list[HostProcess]) -> None:
    one, _ = pair
    name = one.ask("POST", "/host/v1/sessions")["result"]["sessionId"]
    for number in range(4):
        host, other = pair[number % 2], pair[(number + 1) % 2]
        turn = host.ask("POST", f"/host/v1/sessions/{name}/turns", {"message": f"Say the number {number}."})["result"]
        until(lambda: other.ask("GET", f"/v1/runs/{turn['runId']}")["status"] == "completed")  # noqa: B023
    told = [host.ask("GET", f"/host/v1/sessions/{name}")["result"]["entries"] for host in pair]
    assert told[0] == told[1] and len(told[0]) >= 8


def test_an_agent_works_while_another_process_looks_at_its_session(pair: list[HostProcess]) -> None:
    one, two = pair
    stop = False

    def look() -> int:
        seen = 0
        while not stop:
            for session in two.ask("GET", "/crp/sessions")["sessions"]:
                answer = two.client.get(f"/crp/sessions/{session['session_id']}/status")
                seen += answer.status_code == 200
        return seen

    def work() -> list[str]:
        nonlocal stop
        try:
            asked = {"workflowId": "forestay-ask", "inputs": {"question": "What is in this folder?"}}
            runs = [one.ask("POST", "/v1/runs", asked)["runId"] for _ in range(3)]
            until(lambda: all(one.ask("GET", f"/v1/runs/{run}")["status"] == "completed" for run in runs))
            return runs
        finally:
            stop = True

    assert len(at_once(work, look)[0]) == 3


def test_a_dead_hosts_runs_go_on_in_the_other(pair: list[HostProcess]) -> None:
    one, two = pair
    waiting = [one.ask("POST", "/v1/runs", {"workflowId": "gated"})["runId"] for _ in range(5)]
    for run_id in waiting:
        until(lambda run_id=run_id: one.ask("GET", f"/v1/runs/{run_id}")["status"] == "waiting-approval")
    one.kill()
    begun = time.monotonic()
    for run_id in waiting:
        two.ask("POST", f"/v1/runs/{run_id}/interrupts/gate", YES)
        until(lambda run_id=run_id: two.ask("GET", f"/v1/runs/{run_id}")["status"] == "completed")
    assert time.monotonic() - begun < 20
