"""Every route of the whole host: without a key, and with the key of another tenant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.console import PAGES, Console
from forestay.host import Options
from forestay.surface import Serving, serve
from forestay.surface.a2a import RPC_PATH
from tests.host.furnishing import MARK, answered, furnish

# What anybody may read: what the host is and whether it lives. Everything else needs a key.
PUBLIC = {
    "/.well-known/openwop",
    "/.well-known/agent-card.json",
    "/.well-known/forestay-audit-key",
    "/v1/openapi.json",
    "/host/v1/openapi.json",
    "/healthz",
    "/readyz",
    "/crp/health",
    "/crp/ready",
    "/crp/openapi.json",
}
BODIES: dict[str, Any] = {
    "/v1/runs/{runId}:fork": {"mode": "replay"},
    "/v1/runs/{runId}/signals/{name}": {"payload": {}},
    "/v1/runs/{runId}/interrupts/{nodeId}": {"resumeValue": {"action": "accept"}},
    "/host/v1/contexts/{ledgerId}": {"operation": "x", "version": 0, "contextDelta": {}},
    "/v1/schedules/{scheduleId}:backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"},
    "/v1/schedules/{scheduleId}": {"workflowId": "acme-flow", "cron": "0 * * * *"},
    "/v1/runs/{runId}/annotations": {"signal": {"kind": "flag"}},
    "/v1/agents/{agentId}/deployments": {"version": "1.0.0", "transition": "promote"},
    "/host/v1/trigger-subscriptions/{subscriptionId}:deliver": {"eventId": "forged", "inputs": {}},
    "/v1/host/sample/test/runs/{runId}/variables": {"variables": {"note": "changed"}},
}
# What a route names that is no tenant's own: tools of the host, extensions, signals, a question of a session.
NOBODYS = {"toolId", "name", "capability", "model", "requestId", "artifactId"}
# A tenant may have one of its own under the same id.
OWN = {
    ("PUT", "/v1/workflows/{workflowId}"),
    ("PUT", "/host/v1/roster/{rosterId}"),
    ("PUT", "/host/v1/credentials/{credentialId}"),
}
SHARED = {"nodeId", "workflowId"}  # words that anybody may use
NOT_THERE = {
    # What is the operator's, and no tenant's at all.
    "/host/v1/agents/{agentId}",
    "/host/v1/extensions/{name}",
    "/host/v1/extensions/{name}/evidence",
    "/openai/v1/models/{model}",
    "/v1/tools/{toolId}",
    # What acme's run is not, or needs more than a path: the run is looked up first, and that is what the sweep asks.
    "/v1/runs/{runId}/artifacts/{artifactId}",
    "/v1/runs/{runId}/eval-summary",
    "/v1/runs/{runId}/query",
    "/v1/runs/{runId}:diff",
    "/v1/host/sample/memory/{memoryId}",
}


def run(story: Callable[[Serving], Coroutine[Any, Any, None]], folder: Path, *, sample_seams: bool = False) -> None:
    async def whole() -> None:
        async with serve(Options(data=folder, sample_seams=sample_seams), console=Console) as serving:
            await story(serving)

    asyncio.run(whole())


@asynccontextmanager
async def client(serving: Serving, tenant: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {}
    if tenant is not None:
        headers["Authorization"] = f"Bearer {(await serving.services.keys.create('k', tenant=tenant))[1]}"
    async with httpx.AsyncClient(base_url=serving.url, headers=headers, timeout=30) as http:
        yield http


def routes(serving: Serving) -> list[tuple[str, str, str]]:
    """(auth, method, path) of everything that is served."""
    own = [(item.auth, item.method, item.path) for item in serving.app.operations if item.contract != "console"]
    return [*own, ("key", "GET", RPC_PATH)]


def filled(path: str, ids: dict[str, str]) -> str:
    """The path with what it names; a suite and a conversation have names that others have too."""
    if path.startswith("/host/v1/eval-suites"):
        ids = {**ids, "name": ids.get("suite", "x")}
    if path.startswith("/host/v1/sessions"):
        ids = {**ids, "sessionId": ids.get("conversation", "x")}
    return re.sub(r"\{(\w+)\}", lambda name: ids.get(name[1], "x"), path)


def test_without_a_key_everything_but_the_public_documents_is_401(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        found = routes(serving)
        assert {path for auth, _, path in found if auth == "none"} == PUBLIC
        async with client(serving) as nobody:
            for auth, method, path in found:
                answer = await nobody.request(method, filled(path, {}), json={} if method != "GET" else None)
                if auth == "none":
                    assert answer.status_code in (200, 304), (method, path)
                elif auth == "token":
                    assert answer.status_code in (400, 401, 403, 404, 410), (method, path, answer.status_code)
                else:
                    assert answer.status_code == 401, (method, path, answer.status_code)
            for path in (
                "/v1/nothing",
                "/host/v1/nothing",
                "/v1/agents",
                "/crp/nothing",
                "/etc/passwd",
                "/../etc/passwd",
            ):
                assert (await nobody.get(path)).status_code == 401, path

    run(story, tmp_path)


def test_without_a_login_the_console_shows_its_login_and_nothing_else(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with client(serving) as nobody:
            for method, path, _ in PAGES:
                answer = await nobody.request(method, re.sub(r"\{[^}]+\}", "x", path))
                assert answer.status_code == 303 and answer.headers["location"].startswith("/login"), (method, path)

    run(story, tmp_path)


def test_a_malformed_or_foreign_key_is_401(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with client(serving) as nobody:
            for text in ("", "Bearer", "Basic abc", "Bearer fsk_" + "0" * 40, "Bearer " + "x" * 5000):
                for path in ("/v1/runs", "/crp/sessions", "/host/v1/keys"):
                    answer = await nobody.get(path, headers={"Authorization": text})
                    assert answer.status_code in (400, 401, 431), (text[:20], path)

    run(story, tmp_path)


async def standing(acme: httpx.AsyncClient, serving: Serving, ids: dict[str, str]) -> dict[str, tuple[int, bool]]:
    """What acme reads of its own: of each route, the status and whether the mark is there."""
    read = [path for auth, method, path in routes(serving) if (auth, method) == ("key", "GET") and "stream" not in path]
    found = {}
    for path in read:
        if path.endswith("/events"):
            continue  # it goes on for as long as its run
        answer = await acme.get(filled(path, ids))
        found[path] = (answer.status_code, MARK in answer.text)
    return found


def test_a_tenant_never_sees_or_touches_what_is_anothers(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with client(serving, "acme") as acme, client(serving, "other") as other:
            ids = {**await furnish(acme), **await answered(acme)}
            before = await standing(acme, serving, ids)
            for auth, method, path in routes(serving):
                if auth != "key" or (method, path) in OWN:
                    continue
                nobodys = not set(re.findall(r"\{(\w+)\}", path)) - NOBODYS
                body = BODIES.get(path, {}) if method not in ("GET", "DELETE") else None
                answer = await other.request(method, filled(path, ids), json=body)
                assert MARK not in answer.text, (method, path)
                if nobodys or path == "/v1/host/sample/test/runs/{runId}/events":  # of a run that is not there: none
                    shown = [name for name, value in ids.items() if name not in SHARED and value in answer.text]
                    assert not shown, (method, path, shown)
                else:
                    assert answer.status_code in (400, 403, 404), (method, path, answer.status_code, answer.text[:200])
            assert await standing(acme, serving, ids) == before
            waits = (await acme.get(f"/v1/runs/{ids['runId']}")).json()
            assert waits["status"] == "waiting-approval", "nobody else answered, cancelled or paused it"
            for tenant in ("acme", "default"):
                refused = await other.post("/v1/runs", json={"workflowId": "acme-flow", "tenantId": tenant})
                assert refused.status_code in (403, 404)

    run(story, tmp_path, sample_seams=True)


def test_the_sweep_has_one_of_everything_that_a_route_names(tmp_path: Path) -> None:
    """A route that names something of a tenant's is asked for something that is there."""

    async def story(serving: Serving) -> None:
        async with client(serving, "acme") as acme:
            ids = {**await furnish(acme), **await answered(acme)}
            named = {
                name for auth, _, path in routes(serving) if auth == "key" for name in re.findall(r"\{(\w+)\}", path)
            }
            assert named - ids.keys() == NOBODYS
            there = {path: found for path, found in (await standing(acme, serving, ids)).items() if "{" in path}
            missing = {path for path, (status, _) in there.items() if status != 200}
            assert sorted(missing) == sorted(NOT_THERE)

    run(story, tmp_path, sample_seams=True)


def test_another_tenant_has_no_tools_and_no_texts_of_the_project(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        (tmp_path / "note.md").write_text(f"The {MARK} lies at berth 7.\n")
        async with client(serving, "other") as other:
            body = {
                "workflowId": "forestay-ask",
                "inputs": {"question": f"Use ls and read: where does the {MARK} lie?"},
            }
            run_id = (await other.post("/v1/runs", json=body)).json()["runId"]
            for _ in range(500):
                standing = (await other.get(f"/v1/runs/{run_id}")).json()
                if standing["status"] in ("completed", "failed"):
                    break
                await asyncio.sleep(0.02)
            assert standing["status"] == "completed"
            events = (await other.get(f"/v1/runs/{run_id}/events/poll")).json()["events"]
            assert not [event for event in events if event["type"] == "agent.toolCalled"]
            assert "berth 7" not in str(standing["outputs"])

    run(story, tmp_path / "data")


def test_the_console_shows_a_tenant_its_own_alone(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        _, key = await serving.services.keys.create("k", tenant="other")
        async with client(serving, "acme") as acme, client(serving) as other:
            ids = await furnish(acme)
            assert (await other.post("/login", data={"key": key})).status_code == 303
            for method, path, _ in PAGES:
                if method != "GET" or path.endswith("/live"):
                    continue
                conversation = {"sessionId": ids["conversation"]} if path.startswith("/sessions") else {}
                known = {**ids, "stream": f"run/{ids['runId']}", **conversation}
                address = re.sub(r"\{(\w+)\}", lambda name, known=known: known.get(name[1], "x"), path)  # type: ignore[misc]
                answer = await other.get(address)
                assert MARK not in answer.text, path
                if "{" in path and "{name}" not in path and "relay" not in path:
                    assert answer.status_code in (403, 404), path
                if "ledger" in path:
                    assert answer.status_code == 403, path

    run(story, tmp_path)


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/ledger/../../etc/passwd", "/runs/%00"]
)
def test_no_path_leads_out(tmp_path: Path, path: str) -> None:
    async def story(serving: Serving) -> None:
        async with client(serving, "default") as http:
            answer = await http.get(path)
            assert answer.status_code in (303, 400, 401, 404) and "def " not in answer.text

    run(story, tmp_path)
