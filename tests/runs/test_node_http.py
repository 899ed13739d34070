"""N1 to N4: requests of nodes are told, decided, asked about and followed."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel import Problem, place_of
from forestay.runs.node_http import TOOL_NAME, forbidden
from forestay.runs.nodes.core import standard_registry
from forestay.runs.ports import Caller, EgressDecision, HttpRequest, HttpResponse
from forestay.runs.types import RunEvent
from tests.runs.conftest import TENANT, Host
from tests.runs.documents import finish, node, start, waiting, workflow
from tests.runs.events import check_events

URL = "https://api.example.com/v1?token=canary"


class Web:
    """A connector whose decisions are written down; `leads` are redirects by address."""

    def __init__(self, *decisions: str, leads: dict[str, str] | None = None, fails: Problem | None = None) -> None:
        self.decisions = list(decisions)
        self.leads = leads or {}
        self.fails = fails
        self.sent: list[HttpRequest] = []

    async def decide(self, request: HttpRequest, caller: Caller) -> EgressDecision:
        assert caller.workflow_id == "w"
        return _decided(self.decisions.pop(0), request)

    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        self.sent.append(request)
        if self.fails is not None:
            raise self.fails
        if request.url in self.leads:
            return HttpResponse(status=302, headers={"location": self.leads[request.url]}, body=b"")
        decided = (
            None if request.credential is None else _decided("downgraded" if request.redirected else "allowed", request)
        )
        return HttpResponse(status=200, headers={}, body=b"seven", decided=decided)


def _decided(decision: Any, request: HttpRequest) -> EgressDecision:
    reason: Any = {"allowed": "ok", "approval-required": None}.get(decision, "out-of-audience")
    return EgressDecision(decision, place_of(request.url).host, request.credential, reason)


def document(**config: Any) -> dict[str, Any]:
    return workflow("w", [node("get", "core.http", config={"url": URL, **config})])


async def told(runs: Any, run_id: str, *types: str) -> list[RunEvent]:
    events = await runs.events(run_id, TENANT)
    check_events(events)
    assert "canary" not in str([event.payload for event in events if event.type in ("egress.decided", *_PAIR)])
    return [event for event in events if event.type in types]


_PAIR = ("agent.toolCalled", "agent.toolReturned")


async def decisions(runs: Any, run_id: str) -> list[str]:
    return [event.payload["decision"] for event in await told(runs, run_id, "egress.decided")]


async def test_n1_a_call_is_a_pair_and_so_is_a_blocked_one(host: Host) -> None:
    async with host(http=Web()) as runs:
        run_id = await start(runs, document())
        assert (await finish(runs, run_id)).outputs == {"status": 200, "headers": {}, "body": "seven"}
        called, returned = await told(runs, run_id, *_PAIR)
        assert called.payload["transport"] == "http" and called.payload["toolName"] == TOOL_NAME
        assert called.payload["principal"] == "alice" and called.payload["argsHash"].startswith("sha256:")
        assert returned.payload["callId"] == called.payload["callId"] and returned.payload["status"] == "ok"
        assert returned.causation_id == called.event_id and isinstance(returned.payload["durationMs"], int)
    async with host(http=Web(fails=Problem("address_blocked", "No.", reason="ssrf"))) as runs:
        run_id = await start(runs, document(credential=None))
        assert (await finish(runs, run_id)).status == "failed"
        called, returned = await told(runs, run_id, *_PAIR)
        assert returned.payload["status"] == "forbidden" and returned.causation_id == called.event_id
        assert await decisions(runs, run_id) == []


async def test_n2_a_decision_is_a_fact_of_the_log(host: Host) -> None:
    for decision, status in (("allowed", "completed"), ("denied", "failed")):
        web = Web(decision)
        async with host(http=web) as runs:
            run_id = await start(runs, document(credential="api"))
            assert (await finish(runs, run_id)).status == status
            (event,) = await told(runs, run_id, "egress.decided")
            assert event.payload["destination"] == "api.example.com" and event.payload["credentialId"] == "api"
            assert len(web.sent) == (decision == "allowed")
            (_, returned) = await told(runs, run_id, *_PAIR)
            assert returned.payload["status"] == ("ok" if decision == "allowed" else "forbidden")


async def test_n2_the_last_moment_may_refuse_what_was_allowed(host: Host) -> None:
    request = HttpRequest(method="GET", url=URL, credential="api")
    late = forbidden(msgspec.structs.replace(_decided("denied", request), reason="expired"))
    for problem, reason in ((late, "expired"), (Problem("address_blocked", "No.", reason="ssrf"), "ssrf-blocked")):
        async with host(http=Web("allowed", fails=problem)) as runs:
            run_id = await start(runs, document(credential="api"))
            assert (await finish(runs, run_id)).status == "failed"
            first, second = await told(runs, run_id, "egress.decided")
            assert (first.payload["decision"], second.payload["decision"]) == ("allowed", "denied")
            assert second.payload["reason"] == reason


async def test_n3_the_run_waits_for_a_person_also_across_a_restart(host: Host) -> None:
    for action, wanted in (("accept", ["approval-required", "allowed"]), ("reject", ["approval-required", "denied"])):
        web = Web("approval-required")
        async with host(http=web) as runs:
            run_id = await start(runs, document(credential="api"))
            await waiting(runs, run_id, "interrupt.requested")
            assert web.sent == []
        async with host(http=web) as runs:  # decided before: it is not decided again
            await runs.resolve_by_node(run_id, "get", TENANT, {"resumeValue": {"action": action}}, "me")
            done = await finish(runs, run_id)
            assert done.status == ("completed" if action == "accept" else "failed")
            assert [request.approved for request in web.sent] == ([True] if action == "accept" else [])
            assert await decisions(runs, run_id) == wanted
            called, returned = await told(runs, run_id, *_PAIR)
            assert returned.causation_id == called.event_id


async def test_n4_each_hop_is_a_request_of_its_own(host: Host) -> None:
    registry = standard_registry(custom=False)

    @registry.node("test.fetches", requires=("http",))
    async def fetches(ctx: Any) -> dict[str, Any]:
        found = await ctx.http.fetch(URL, credential="api", redirects=3)
        return {"url": found.url, "body": found.body}

    web = Web("allowed", "allowed", "downgraded", leads={URL: "/v2", "https://api.example.com/v2": "https://evil.net/"})
    async with host(http=web, nodes=registry) as runs:
        run_id = await start(runs, workflow("w", [node("n", "test.fetches")]))
        assert (await finish(runs, run_id)).outputs == {"url": "https://evil.net/", "body": "seven"}
        assert [request.redirected for request in web.sent] == [False, True, True]
        assert await decisions(runs, run_id) == ["allowed", "allowed", "downgraded"]
        pairs = await told(runs, run_id, *_PAIR)
        assert [event.payload["callId"] for event in pairs[::2]] == [event.payload["callId"] for event in pairs[1::2]]
        assert len({event.payload["callId"] for event in pairs}) == 3
    loop = Web(leads={URL: URL})
    async with host(http=loop, nodes=registry) as runs:
        run_id = await start(runs, document(redirects=2, failOn=[]))
        assert (await finish(runs, run_id)).outputs["status"] == 302 and len(loop.sent) == 3


async def test_a_credential_comes_from_the_document_and_not_from_inputs(host: Host) -> None:
    flow = workflow("w", [{**node("get", "core.http", config={"url": URL}), "credentialsRef": "api"}])
    web = Web("allowed")
    async with host(http=web) as runs:
        await finish(runs, await start(runs, flow))
        assert [request.credential for request in web.sent] == ["api"]
