"""Rate limits and backpressure over HTTP (OpenWOP §1.2, §1.4): a host of our own with small limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from forestay.host import Options
from forestay.kernel import Config, Http, HttpRates, Rate
from forestay.surface import serve


def test_rate_limits_answer_429_with_when_to_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        config = Config(http=Http(rates=HttpRates(key=Rate(1, 3))))
        async with serve(Options(data=tmp_path, config=config)) as serving:
            headers = {"Authorization": f"Bearer {serving.services.keys.lend()}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False) as http:
                statuses = [(await http.get("/v1/runs")).status_code for _ in range(3)]
                limited = await http.get("/v1/runs")
                assert statuses == [200, 200, 200]
                assert limited.status_code == 429
                body = limited.json()
                assert body["error"] == "rate_limited" and body["details"]["scope"] == "key"
                assert 0 < body["details"]["retryAfterMs"] <= 1000
                assert limited.headers["retry-after"] == "1"
                assert (await http.get("/.well-known/openwop")).status_code == 200

    asyncio.run(main())


def test_a_full_host_answers_503_with_when_to_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with serve(Options(data=tmp_path)) as serving:
            headers = {"Authorization": f"Bearer {serving.services.keys.lend()}"}
            serving.services.load._most["requests"] = 0
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False) as http:
                full = await http.get("/v1/runs")
                assert (full.status_code, full.json()["error"]) == (503, "service_unavailable")
                assert full.headers["retry-after"] == str(full.json()["details"]["retryAfter"])

    asyncio.run(main())


def test_a_thousand_streams_on_one_process(tmp_path: Path) -> None:
    """1,000 readers of one run, one of them never reading: the engine ends the run, and every reader sees it."""
    from forestay.runs import CreateRun
    from tests.contracts.openwop.documents import DOCUMENTS

    async def reader(address: tuple[str, int], path: str, key: str, ready: asyncio.Semaphore) -> bytes:
        incoming, outgoing = await asyncio.open_connection(*address)
        outgoing.write(
            f"GET {path} HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        )
        head = await incoming.readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        ready.release()
        body = await incoming.read()
        outgoing.close()
        return body

    async def main() -> None:
        async with serve(Options(data=tmp_path)) as serving:
            key = serving.services.keys.lend()
            runs = serving.host.runs
            await runs.put_workflow(DOCUMENTS["approval"], tenant=None)
            run_id = (await runs.create_run(CreateRun(workflow_id="suite-approval"), "default")).run_id
            parts = httpx.URL(serving.url)
            address = (parts.host, parts.port or 80)
            path = f"/v1/runs/{run_id}/events"
            ready = asyncio.Semaphore(0)
            readers = [asyncio.create_task(reader(address, path, key, ready)) for _ in range(1000)]
            idle = await asyncio.open_connection(*address)
            head = f"GET {path} HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
            idle[1].write(head.encode())
            for _ in readers:
                await ready.acquire()
            body = {"resumeValue": {"action": "accept"}}
            while not (await runs.interrupts(run_id, "default")):
                await asyncio.sleep(0.01)
            await runs.resolve_by_node(run_id, "gate", "default", body)
            bodies = await asyncio.gather(*readers)
            assert all(b"run.completed" in item for item in bodies)
            assert len({item.count(b"\nevent: ") for item in bodies}) == 1
            idle[1].close()

    asyncio.run(main())
