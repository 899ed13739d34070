"""A key's end is the end of what it opened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from forestay.surface import Serving
from tests.security.world import node, run, workflow


@pytest.mark.parametrize("surface", ["api", "console"])
def test_a_stream_says_nothing_more_once_its_key_is_revoked(tmp_path: Path, surface: str) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        gate = node("gate", "core.approvalGate", title="Go on?", message="Go on?", actions=["accept", "reject"])
        await http.put("/v1/workflows/gated", json=workflow("gated", gate, node("after", "core.identity")))
        run_id = (await http.post("/v1/runs", json={"workflowId": "gated", "inputs": {}})).json()["runId"]
        made, text = await serving.services.keys.create("reader")
        headers = {"Authorization": f"Bearer {text}"}
        async with httpx.AsyncClient(base_url=serving.url, trust_env=False, timeout=30) as reader:
            await reader.post("/login", data={"key": text})
            path = f"/v1/runs/{run_id}/events" if surface == "api" else f"/runs/{run_id}/live"
            async with reader.stream("GET", path, headers=headers) as stream:
                assert stream.status_code == 200
                parts = stream.aiter_text()
                seen = await anext(parts)
                while "node.suspended" not in seen:
                    seen += await anext(parts)
                await serving.services.keys.revoke(made.key_id)
                answer = {"resumeValue": {"action": "accept"}}
                assert (await http.post(f"/v1/runs/{run_id}/interrupts/gate", json=answer)).status_code < 300
                async with asyncio.timeout(20):
                    rest = "".join([part async for part in parts])
        assert "completed" not in rest and "resumed" not in rest, rest
        assert (await http.get(f"/v1/runs/{run_id}")).status_code == 200

    run(tmp_path, story, filled=False)


def test_a_long_poll_says_nothing_once_its_key_is_revoked(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        gate = node("gate", "core.approvalGate", title="Go on?", message="Go on?", actions=["accept", "reject"])
        await http.put("/v1/workflows/gated", json=workflow("gated", gate, node("after", "core.identity")))
        run_id = (await http.post("/v1/runs", json={"workflowId": "gated", "inputs": {}})).json()["runId"]
        last = (await http.get(f"/v1/runs/{run_id}")).json()["lastSequence"]
        made, text = await serving.services.keys.create("reader")
        path = f"/v1/runs/{run_id}/events/poll?lastSequence={last}&timeout=20"
        poll = asyncio.ensure_future(http.get(path, headers={"Authorization": f"Bearer {text}"}))
        while not serving.services.load.streams:
            await asyncio.sleep(0.01)
        await serving.services.keys.revoke(made.key_id)
        await http.post(f"/v1/runs/{run_id}/interrupts/gate", json={"resumeValue": {"action": "accept"}})
        answer = await poll
        assert (answer.status_code, answer.json()["error"]) == (401, "key_revoked")

    run(tmp_path, story, filled=False)


PATHS = {"api": "/v1/runs/{}/events", "console": "/runs/{}/live"}


@pytest.mark.parametrize("end", ["revoked", "expired"])
@pytest.mark.parametrize("surface", ["api", "console"])
def test_an_idle_stream_is_closed_with_its_key(tmp_path: Path, surface: str, end: str) -> None:
    """Nothing happens in the run, and no heartbeat is due: the key's end alone closes the stream."""

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        gate = node("gate", "core.approvalGate", title="Go on?", message="Go on?", actions=["accept", "reject"])
        await http.put("/v1/workflows/gated", json=workflow("gated", gate))
        run_id = (await http.post("/v1/runs", json={"workflowId": "gated", "inputs": {}})).json()["runId"]
        expires = serving.host.clock.now_ms() + 2_000 if end == "expired" else None
        made, text = await serving.services.keys.create("reader", expires_ms=expires)
        headers = {"Authorization": f"Bearer {text}"}
        async with httpx.AsyncClient(base_url=serving.url, trust_env=False, timeout=30) as reader:
            await reader.post("/login", data={"key": text})
            async with reader.stream("GET", PATHS[surface].format(run_id), headers=headers) as stream:
                assert stream.status_code == 200
                parts = stream.aiter_text()
                await anext(parts)
                if end == "revoked":
                    await serving.services.keys.revoke(made.key_id)
                async with asyncio.timeout(10):  # a heartbeat comes after 15 seconds
                    assert ":keepalive" not in "".join([part async for part in parts])
        assert serving.services.load.streams == 0
        assert (await http.get(f"/v1/runs/{run_id}")).json()["status"] == "waiting-approval"

    run(tmp_path, story, filled=False)


def test_an_idle_long_poll_is_answered_when_its_key_ends(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        gate = node("gate", "core.approvalGate", title="Go on?", message="Go on?", actions=["accept", "reject"])
        await http.put("/v1/workflows/gated", json=workflow("gated", gate))
        run_id = (await http.post("/v1/runs", json={"workflowId": "gated", "inputs": {}})).json()["runId"]
        last = (await http.get(f"/v1/runs/{run_id}")).json()["lastSequence"]
        made, text = await serving.services.keys.create("reader")
        path = f"/v1/runs/{run_id}/events/poll?lastSequence={last}&timeout=60"
        poll = asyncio.ensure_future(http.get(path, headers={"Authorization": f"Bearer {text}"}, timeout=70))
        while not serving.services.load.streams:
            await asyncio.sleep(0.01)
        await serving.services.keys.revoke(made.key_id)
        async with asyncio.timeout(10):
            answer = await poll
        assert (answer.status_code, answer.json()["error"]) == (401, "key_revoked")
        assert answer.headers["x-request-id"]

    run(tmp_path, story, filled=False)
