"""Webhooks (B1 to B5): a real host, a real receiver on loopback, a clock that jumps."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host, Options, open_host
from forestay.kernel import Config, Draft, Ledger, ManualClock, Problem, SeededRandomness
from forestay.kernel.settings import Data
from forestay.runs.breaker import FAILURES, Breaker
from forestay.runs.log import Outbox
from forestay.runs.types import CreateRun, ForkRequest
from forestay.runs.webhooks import ROTATION_GRACE_MS, RetryPolicy, fingerprint
from tests.contracts.openwop.documents import DOCUMENTS, from_variable, node, variable, workflow

TENANT = "default"


@pytest.fixture
def clock() -> ManualClock:
    # The receiver is on the same loop: what was sent to it is there at once. Threads are waited for in any case.
    return ManualClock(threshold=0.02)


class Receiver:
    """An HTTP server on loopback that keeps what it gets and answers as told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.says = b""
        self.arrived = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def events(self) -> list[tuple[str, int]]:
        bodies = [json.loads(body) for _, body in self.got]
        return [(body["event"]["type"], body["event"]["sequence"]) for body in bodies]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        self.arrived.set()
        status = self.answers.pop(0) if self.answers else 200
        length = len(self.says)
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nLocation: http://127.0.0.1:1/\r\n\r\n"
        with contextlib.suppress(ConnectionError):
            writer.write(head.encode() + self.says)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def opened(
    data: Path, clock: ManualClock, receiver: Receiver, *others: str, ledger: str = "", **policy: int
) -> AsyncIterator[Host]:
    options = Options(
        config=Config(data=Data(ledger=ledger)),
        data=data,
        clock=clock,
        randomness=SeededRandomness(1),
        allow_egress=(f"127.0.0.1:{receiver.port}", *others),
        retry=RetryPolicy(**policy),
    )
    async with open_host(options) as host:
        for name in ("noop", "approval"):
            await host.runs.put_workflow(DOCUMENTS[name], tenant=None)
        yield host


async def finish(host: Host, name: str = "suite-noop", **request: Any) -> str:
    made = await host.runs.create_run(CreateRun(workflow_id=name, **request), TENANT)
    async for _ in host.runs.follow(made.run_id, TENANT):
        pass
    return made.run_id


async def settled(host: Host, receiver: Receiver, count: int) -> None:
    while len(receiver.got) < count:
        receiver.arrived.clear()
        await receiver.arrived.wait()
    await host.webhooks.settled()


async def test_b1_b2_events_arrive_signed_and_whole(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        made = await host.webhooks.register(TENANT, receiver.url, ["run.started", "run.completed"])
        run_id = await finish(host)
        await settled(host, receiver, 2)
        assert sorted(name for name, _ in receiver.events()) == ["run.completed", "run.started"]
        for headers, body in receiver.got:
            stamp = headers["x-openwop-timestamp"]
            expected = hmac.new(made.secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
            assert headers["x-openwop-signature"] == f"sha256={expected}"
            assert headers["x-openwop-signature-algorithm"] == "v1"
            assert headers["x-openwop-webhook-id"] == made.webhook_id
            assert headers["user-agent"].startswith("openwop-webhook-dispatcher/")
            document = json.loads(body)
            assert (document["runId"], document["workspaceId"]) == (run_id, TENANT)
            assert headers["x-openwop-event-type"] == document["event"]["type"]
            (event,) = await host.runs.events(run_id, TENANT, document["event"]["sequence"], 1)
            assert document["event"]["eventId"] == event.event_id
        assert (
            made.secret_fingerprint == fingerprint(made.secret) == hashlib.sha256(made.secret.encode()).hexdigest()[:8]
        )
        assert await host.webhooks.deliveries(made.webhook_id, TENANT) == []


async def test_b1_only_what_was_asked_for_arrives(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        await host.webhooks.register(TENANT, receiver.url, ["run.completed"], ["wanted"])
        await host.webhooks.register("other", receiver.url, ["run.completed"])
        await finish(host, tags=["unwanted"])
        await finish(host)
        run_id = await finish(host, tags=["wanted", "more"])
        await settled(host, receiver, 1)
        assert [json.loads(body)["runId"] for _, body in receiver.got] == [run_id]


async def test_b1_what_was_not_delivered_is_delivered_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver:
        async with opened(tmp_path, clock, receiver, first_ms=60_000) as host:
            receiver.answers = [500]
            await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
            await finish(host)
            await settled(host, receiver, 1)
        clock.advance(3600)
        async with opened(tmp_path, clock, receiver) as host:
            await settled(host, receiver, 2)
            first, second = receiver.got
            assert first[0]["x-openwop-delivery-id"] == second[0]["x-openwop-delivery-id"]
            assert json.loads(first[1]) == json.loads(second[1])


async def test_b3_failures_are_tried_again_and_end_as_dead_letters(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver, max_attempts=3, first_ms=1000) as host:
        receiver.answers = [500, 302, 404, 200]
        made = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        await finish(host)
        started = clock.now_ms()
        await settled(host, receiver, 3)
        (dead,) = await host.webhooks.deliveries(made.webhook_id, TENANT)
        assert (dead.state, dead.attempts, dead.error) == ("dead", 3, "The receiver answered 404.")
        assert 3000 <= clock.now_ms() - started <= 10_000  # 1 s and 2 s, each up to a quarter longer
        with pytest.raises(Problem) as caught:
            await host.webhooks.retry(made.webhook_id, "whd_none", TENANT)
        assert caught.value.key == "not_found"
        await host.webhooks.retry(made.webhook_id, dead.delivery_id, TENANT)
        await settled(host, receiver, 4)
        assert await host.webhooks.deliveries(made.webhook_id, TENANT) == []


@pytest.mark.parametrize(("status", "attempts"), [(200, 1), (500, 2)])
async def test_b3_a_receiver_that_says_too_much_is_judged_by_its_status(
    tmp_path: Path, clock: ManualClock, status: int, attempts: int
) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        made = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        receiver.says, receiver.answers = b"x" * 1_000_000, [status]
        await finish(host)
        await settled(host, receiver, attempts)
        assert len(receiver.got) == attempts
        assert await host.webhooks.deliveries(made.webhook_id, TENANT) == []


async def test_b4_a_dead_receiver_delays_no_other(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver, "127.0.0.1:1", first_ms=3_600_000) as host:
        dead = receiver.url.replace(str(receiver.port), "1")
        stuck = await host.webhooks.register(TENANT, dead, ["run.completed"])
        await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        for _ in range(12):
            await finish(host)
        await settled(host, receiver, 12)
        assert len(receiver.got) == 12
        waiting = await host.webhooks.deliveries(stuck.webhook_id, TENANT)
        assert len(waiting) == 12 and {item.state for item in waiting} == {"due"}


async def test_b6_a_receiver_that_keeps_failing_is_left_alone_and_tried_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver, max_attempts=50, first_ms=1000) as host:
        receiver.answers = [503] * 9
        made = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        for _ in range(12):
            await finish(host)
        while (await host.webhooks.get(made.webhook_id, TENANT)).state == "active":
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)  # what was on its way has ended; the pause has not
        seen = len(receiver.got)
        assert 5 <= seen <= 8
        standing = await host.webhooks.get(made.webhook_id, TENANT)
        assert standing.state == "failing" and standing.next_attempt_at is not None
        waiting = await host.webhooks.deliveries(made.webhook_id, TENANT)
        assert len(waiting) == 12 and sum(item.attempts for item in waiting) == seen, "no attempt is lost"
        receiver.answers = [503]
        await asyncio.sleep(30)
        assert len(receiver.got) == seen + 1, "one trial when the pause is over"
        while await host.webhooks.deliveries(made.webhook_id, TENANT):
            await asyncio.sleep(20)
        assert (await host.webhooks.get(made.webhook_id, TENANT)).state == "active"


def test_b6_the_pause_doubles_with_every_trial_that_fails() -> None:
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        breaker.ended("r", False, 0)
    assert breaker.allows("r", 0)
    breaker.ended("r", False, 0)
    now, pauses = 0, []
    for _ in range(7):
        opens = breaker.opens_at("r")
        assert opens is not None and not breaker.allows("r", opens - 1) and breaker.allows("r", opens)
        pauses.append(opens - now)
        now = opens
        breaker.began("r")
        assert not breaker.allows("r", now), "one at a time"
        breaker.ended("r", False, now)
    assert pauses == [30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000]
    breaker.ended("r", True, now)
    assert breaker.allows("r", now) and breaker.opens_at("r") is None and breaker.allows("other", 0)


async def test_b5_a_question_goes_out_with_the_token_that_answers_it(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        await host.webhooks.register(TENANT, receiver.url, ["node.suspended", "run.completed"])
        request = CreateRun(workflow_id="suite-approval")
        run_id = (await host.runs.create_run(request, TENANT)).run_id
        await settled(host, receiver, 1)
        (asked,) = json.loads(receiver.got[0][1])["interrupts"]
        assert (asked["nodeId"], asked["kind"]) == ("gate", "approval")
        await host.runs.resolve_by_token(asked["token"], {"resumeValue": {"action": "accept"}})
        await settled(host, receiver, 2)
        assert "interrupts" not in json.loads(receiver.got[1][1])
        assert (await host.runs.get_run(run_id, TENANT)).status == "completed"


async def test_a_run_calls_its_own_callback(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        host.webhooks.expect_callbacks()
        request = CreateRun(workflow_id="suite-approval", callback_url=receiver.url)
        await host.runs.create_run(request, TENANT)
        await settled(host, receiver, 1)
        headers, body = receiver.got[0]
        assert "x-openwop-signature" not in headers
        token = json.loads(body)["interrupts"][0]["token"]
        await host.runs.resolve_by_token(token, {"resumeValue": {"action": "accept"}})
        await settled(host, receiver, 2)
        assert [name for name, _ in receiver.events()] == ["node.suspended", "run.completed"]


async def test_the_history_of_a_fork_is_not_told_again(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        await host.webhooks.register(TENANT, receiver.url, ["run.started", "run.completed"])
        source = await finish(host)
        await settled(host, receiver, 2)
        clock.advance(60)
        made = await host.runs.fork(source, TENANT, ForkRequest(mode="branch", from_seq=1))
        await settled(host, receiver, 3)
        told = [json.loads(body) for _, body in receiver.got[2:]]
        assert [(item["runId"], item["event"]["type"]) for item in told] == [(made.run_id, "run.completed")]


async def test_rotation_signs_with_both_for_a_day(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        old = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        new = await host.webhooks.rotate(old.webhook_id, TENANT)
        assert new.secret != old.secret and len(new.secret) == 64
        await finish(host)
        await settled(host, receiver, 1)
        headers, body = receiver.got[0]
        for name, secret in (("signature", new.secret), ("signature-previous", old.secret)):
            stamped = headers["x-openwop-timestamp"].encode() + b"." + body
            assert headers[f"x-openwop-{name}"] == "sha256=" + hmac.new(secret.encode(), stamped, "sha256").hexdigest()
        clock.advance(ROTATION_GRACE_MS / 1000)
        await finish(host)
        await settled(host, receiver, 2)
        assert "x-openwop-signature-previous" not in receiver.got[1][0]
        assert (await host.webhooks.get(old.webhook_id, TENANT)).secret_version == 2


async def test_changes_at_the_same_moment_come_one_after_the_other(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        made = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        rotated = await asyncio.gather(*(host.webhooks.rotate(made.webhook_id, TENANT) for _ in range(4)))
        assert len({item.secret for item in rotated}) == 4
        changes = [host.webhooks.rotate, host.webhooks.remove, host.webhooks.remove, host.webhooks.rotate]
        ended = await asyncio.gather(*(change(made.webhook_id, TENANT) for change in changes), return_exceptions=True)
        keys = [item.key if isinstance(item, Problem) else "" for item in ended]
        assert keys == ["", "", "subscription_not_found", "subscription_not_found"]


async def test_k4_a_subscription_whose_answer_was_lost_is_told_again(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        asked = (TENANT, receiver.url, ["run.completed"])
        made, again = [await host.webhooks.register(*asked, webhook_id="wh_reserved") for _ in range(2)]
        assert made == again and len(await host.webhooks.subscriptions(TENANT)) == 1


async def test_a_tenant_never_has_more_than_it_may(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forestay.runs.webhooks.MAX_PER_TENANT", 3)
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        asked = (host.webhooks.register(TENANT, receiver.url, ["run.completed"]) for _ in range(8))
        await asyncio.gather(*asked, return_exceptions=True)
        assert len(await host.webhooks.subscriptions(TENANT)) == 3


async def test_a_removed_webhook_gets_nothing_more(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        made = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        stays = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        with pytest.raises(Problem) as caught:
            await host.webhooks.remove(made.webhook_id, "other")
        assert caught.value.key == "subscription_not_found"
        await host.webhooks.remove(made.webhook_id, TENANT)
        await finish(host)
        await settled(host, receiver, 1)
        assert [headers["x-openwop-webhook-id"] for headers, _ in receiver.got] == [stays.webhook_id]
        assert [item.webhook_id for item in await host.webhooks.subscriptions(TENANT)] == [stays.webhook_id]


async def test_the_secret_is_not_on_disk(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        made = await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        await finish(host)
        await settled(host, receiver, 1)
    written = everything_in(tmp_path)
    assert made.secret.encode() not in written
    assert bytes.fromhex(made.secret) not in written


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize(
    ("url", "events"),
    [
        ("http://example.com/", ["run.completed"]),
        ("https://10.0.0.1/", ["run.completed"]),
        ("https://example.com/", []),
        ("https://example.com/", ["not an event"]),
    ],
)
async def test_bad_subscriptions_are_refused(tmp_path: Path, clock: ManualClock, url: str, events: list[str]) -> None:
    async with opened(tmp_path, clock, Receiver()) as host:
        with pytest.raises(Problem) as caught:
            await host.webhooks.register(TENANT, url, events)
        assert caught.value.row.http in (400, 403)


def test_pauses_double_and_stop() -> None:
    policy = RetryPolicy(max_attempts=5, first_ms=1000, most_ms=3000)

    class None_:
        def uniform(self) -> float:
            return 0.0

        def bytes(self, count: int) -> bytes:
            return b""

    assert [policy.pause_ms(attempt, None_()) for attempt in range(1, 6)] == [1000, 2000, 3000, 3000, None]


async def test_b1_a_read_that_fails_for_a_moment_stops_no_delivery(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loops that find and send what is owed live as long as the host."""
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        await host.webhooks.register(TENANT, receiver.url, ["run.completed"])
        await finish(host)
        await settled(host, receiver, 1)

        async def failing(*_: Any) -> Any:
            raise Problem("ledger_io", "The disk failed.")

        with monkeypatch.context() as patched:
            patched.setattr(host.ledger, "query", failing)
            patched.setattr(host.ledger, "read_all", failing)
            await finish(host)
            await asyncio.sleep(5)
        await settled(host, receiver, 2)
        assert [name for name, _ in receiver.events()] == ["run.completed"] * 2


async def test_w24_no_delivery_carries_a_sensitive_value(tmp_path: Path, clock: ManualClock) -> None:
    wanted = ["run.started", "node.started", "node.completed", "node.suspended", "approval.requested", "run.completed"]
    document = workflow(
        "suite-hidden",
        node("echo", "core.identity", inputs={"passed": from_variable("password")}),
        node("gate", "core.approvalGate", {"title": "Go on?"}, inputs={"artifact": from_variable("password")}),
        variables=[variable("password", "string", sensitive=True)],
    )
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        await host.runs.put_workflow(document, tenant=None)
        await host.webhooks.register(TENANT, receiver.url, wanted)
        request = CreateRun(workflow_id="suite-hidden", inputs={"password": "swordfish-canary"})
        run_id = (await host.runs.create_run(request, TENANT)).run_id
        await settled(host, receiver, 6)
        await host.runs.resolve_by_node(run_id, "gate", TENANT, {"resumeValue": {"action": "accept"}})
        await settled(host, receiver, 8)
        bodies = [body.decode() for _, body in receiver.got]
        assert any('"interrupts"' in body for body in bodies)
        assert [body for body in bodies if "swordfish" in body] == []


async def test_w22_a_branch_is_delivered_by_the_tags_that_it_lays_over(tmp_path: Path, clock: ManualClock) -> None:
    async with receiving() as receiver, opened(tmp_path, clock, receiver) as host:
        source = await finish(host, tags=["old"])
        await host.webhooks.register(TENANT, receiver.url, ["run.completed"], ["new"])
        await host.webhooks.register(TENANT, receiver.url, ["run.completed"], ["old"])
        overlay = ForkRequest(mode="branch", from_seq=1, run_options_overlay={"tags": ["new"]})
        fork = await host.runs.fork(source, TENANT, overlay)
        await settled(host, receiver, 1)
        assert [json.loads(body)["runId"] for _, body in receiver.got] == [fork.run_id]


@pytest.mark.parametrize("extra", [{}, {"tags": ["blue"]}, {"callbackUrl": "http://localhost/told"}])
async def test_b1_a_run_in_one_batch_owes_what_it_owes_in_pieces(tmp_path: Path, extra: dict[str, Any]) -> None:
    webhooks = [("all", []), ("blue", ["blue"]), ("red", ["red"])]
    started = {"workflowId": "w", "owner": {"tenant": "t"}, **extra}
    run = [
        Draft("run.started", started, ts=1),
        Draft("node.started", {}, ts=2),
        Draft("node.completed", {}, ts=3),
        Draft("run.completed", {}, ts=4),
    ]
    owed = []
    for name, size in (("whole", 4), ("pieces", 1)):
        async with Ledger.open(tmp_path / f"{name}.db", projections=[Outbox()]) as ledger:
            for webhook, tags in webhooks:
                asked = {"tenant": "t", "events": ["node.started", "run.completed"], "tags": tags}
                await ledger.append(f"webhook/{webhook}", [Draft("webhook.registered", asked)])
            for start in range(0, 4, size):
                await ledger.append("run/run_1", run[start : start + size])
            owed.append(await ledger.query("SELECT * FROM webhook_outbox ORDER BY delivery_id"))
            assert await ledger.query("SELECT * FROM webhook_runs") == []
    assert owed[0] == owed[1]
    assert len(owed[0]) == 2 + (2 if "tags" in extra else 0) + (1 if "callbackUrl" in extra else 0)
