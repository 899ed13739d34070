"""A host to test: the one that FORESTAY_CONTRACT_URL and FORESTAY_CONTRACT_KEY name, or `forestay up` in a process.

Against another host, further keys (FORESTAY_CONTRACT_OTHER_KEY of another tenant, …_NO_SCOPES_KEY, …_READER_KEY with
runs:read, …_TEST_KEY, …_EXPIRED_KEY, …_REVOKED_KEY) may be given too. A forestay makes those that are missing itself;
elsewhere, what needs one that is not given is skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contracts.openwop.documents import CONTRACT_NAMES, DOCUMENTS
from tests.forked import Forked

ENDED = ("completed", "failed", "cancelled")


class Api:
    """A host over HTTP, as one caller sees it."""

    def __init__(
        self, url: str, keys: dict[str, str], key: str = "full", callers: dict[str, Api] | None = None
    ) -> None:
        self.url = url
        self.keys = keys
        self.callers = {} if callers is None else callers
        self.callers[key] = self
        headers = {"Authorization": f"Bearer {keys[key]}"} if key else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=70, trust_env=False)
        self._stored: set[str] = set()

    def caller(self, key: str) -> Api:
        """The same host for another caller; `""` has no key."""
        if key and key not in self.keys:
            pytest.skip(f"needs a key that this host was not given: {key}")
        return self.callers.get(key) or Api(self.url, self.keys, key, self.callers)

    def close(self) -> None:
        for caller in self.callers.values():
            caller.http.close()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.post(path, json=body, **options) if body is not None else self.http.post(path, **options)

    def workflow(self, name: str) -> str:
        """The id of one of the suite's workflows, stored if the host takes it."""
        document = DOCUMENTS[name]
        if name in self._stored:
            return str(document["id"])
        answer = self.http.put(f"/v1/workflows/{document['id']}", json=document)
        if answer.status_code in (200, 201):
            self._stored.add(name)
            return str(document["id"])
        if name in CONTRACT_NAMES and self.get(f"/v1/workflows/{CONTRACT_NAMES[name]}").status_code == 200:
            return CONTRACT_NAMES[name]
        pytest.skip(f"this host has no workflow like {name}: {answer.text[:200]}")

    def start(self, name: str, inputs: dict[str, Any] | None = None, **body: Any) -> str:
        answer = self.post("/v1/runs", {"workflowId": self.workflow(name), "inputs": inputs or {}, **body})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["runId"])

    def run(self, run_id: str) -> dict[str, Any]:
        answer = self.get(f"/v1/runs/{run_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Every event so far, by long poll."""
        answer = self.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": after, "timeout": 1})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["events"]
        return found

    def wait(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Wait, by long poll, until a run has one of these statuses (an ended one when none is given)."""
        wanted = statuses or ENDED
        after, patience = -1, time.monotonic() + 30
        while time.monotonic() < patience:
            run = self.run(run_id)
            if run["status"] in wanted:
                return run
            assert run["status"] not in ENDED, run
            page = self.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": after, "timeout": 2}).json()
            after = max([after, *(event["sequence"] for event in page["events"])])
        raise AssertionError(f"{run_id} did not become {wanted}: {self.run(run_id)}")

    def stream(self, run_id: str, **options: Any) -> list[tuple[str, str, Any]]:
        """A whole stream as (id, event, data)."""
        found = []
        with self.http.stream("GET", f"/v1/runs/{run_id}/events", **options) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    found.append((fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])))
                    fields = {}
        return found


def refused(answer: httpx.Response, status: int, error: str) -> dict[str, Any]:
    """The details of a refusal that is exactly the contract's envelope (§1.2)."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) <= {"error", "message", "details"}
    assert body["error"] == error
    assert isinstance(body["message"], str) and body["message"]
    details: dict[str, Any] = body.get("details", {})
    return details


class LocalHost:
    """`forestay up` as a process, with keys made before it starts."""

    def __init__(self, folder: Path, project: Path | None = None) -> None:
        self.folder, self.project = folder, project or Path.cwd()
        self.keys = asyncio.run(_make_keys(folder))
        self.process: Forked | None = None
        self.url = ""

    def start(self, *options: str) -> str:
        command = ["up", "--port", "0", "--data", str(self.folder), "--json"]
        environment = {**os.environ, "FORESTAY_API_KEY": self.keys["full"]}
        self.process = Forked(self.project, *command, *options, environ=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the host ended with {self.process.wait()}"
        self.url = str(json.loads(line)["result"]["url"])
        return self.url

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


async def _make_keys(folder: Path) -> dict[str, str]:
    from forestay.kernel import Ids, Ledger, SystemClock
    from forestay.surface import Keys
    from forestay.surface.auth import KeyTable

    folder.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    async with Ledger.open(folder / "ledger.db", projections=[KeyTable()], clock=clock) as ledger:
        keys = Keys(ledger, clock, Ids(clock))
        made = {
            "full": await keys.create("full", principal="tester"),
            "other": await keys.create("other", tenant="other"),
            "no_scopes": await keys.create("no-scopes", scopes=[]),
            "reader": await keys.create("reader", scopes=["runs:read"]),
            "test": await keys.create("test", test=True),
            "expired": await keys.create("expired", expires_ms=1),
            "revoked": await keys.create("revoked"),
        }
        await keys.revoke(made["revoked"][0].key_id)
    return {name: text for name, (_, text) in made.items()}


FURTHER: dict[str, dict[str, Any]] = {
    "other": {"tenant": "contract-suite-other"},
    "no_scopes": {"scopes": []},
    "reader": {"scopes": ["runs:read"]},
    "test": {"test": True},
    "expired": {"expiresAt": "2020-01-01T00:00:00Z"},
    "revoked": {},
}


def _asked_for(url: str, full: str) -> dict[str, str]:
    """Further keys from a host that makes keys as we do; none from any other."""
    made = {}
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {full}"}, trust_env=False) as http:
        for name, options in FURTHER.items():
            answer = http.post("/host/v1/keys", json={"name": f"suite-{name}".replace("_", "-"), **options})
            if answer.status_code == 201:
                result = answer.json()["result"]
                made[name] = str(result["apiKey"])
                if name == "revoked":
                    http.delete(f"/host/v1/keys/{result['description']['keyId']}")
    return made


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    url = os.environ.get("FORESTAY_CONTRACT_URL")
    if url:
        prefix, suffix = "FORESTAY_CONTRACT_", "_KEY"
        given = {
            name[len(prefix) : -len(suffix)].lower(): value
            for name, value in os.environ.items()
            if name.startswith(prefix) and name.endswith(suffix) and name != f"{prefix}KEY"
        }
        full = os.environ["FORESTAY_CONTRACT_KEY"]
        yield url.rstrip("/"), {**_asked_for(url, full), "full": full, **given}
        return
    host = LocalHost(tmp_path_factory.mktemp("host"))
    host.start("--sample-seams")
    try:
        yield host.url, host.keys
    finally:
        host.stop()


@pytest.fixture(scope="session")
def api(target: tuple[str, dict[str, str]]) -> Iterator[Api]:
    made = Api(*target)
    yield made
    made.close()


@pytest.fixture(scope="session")
def capabilities(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/.well-known/openwop").json()
    return found
