"""Memory (RFC 0004, 0057, 0080): kept, found, expired and forgotten, on a host that says it has one."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, LocalHost, refused

PATH = "/host/v1/memory"
SEAM = "/v1/host/sample/memory"
ENTRY = {"id", "content", "tags", "createdAt"}


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not (capabilities.get("memory") or {}).get("supported"):
        pytest.skip("this host has no memory")


@pytest.fixture
def ref() -> str:
    return f"suite/{uuid.uuid4().hex}"


def put(api: Api, ref: str, content: str, **more: Any) -> str:
    answer = api.post(PATH, {"memoryRef": ref, "content": content, **more})
    assert answer.status_code == 201, answer.text
    assert content not in answer.text  # an answer may be kept, the content must not be
    return str(answer.json()["result"]["memoryId"])


def found(api: Api, **query: Any) -> list[dict[str, Any]]:
    answer = api.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["result"]["memories"]
    return entries


def test_the_document_says_what_the_memory_does(capabilities: dict[str, Any]) -> None:
    memory = capabilities["memory"]
    assert memory["writable"] is True and memory["ttlSupported"] is True
    assert memory["retention"] == {"ttl": True, "forget": True}
    assert memory["search"]["supported"] and set(memory["search"]["modes"]) <= {"semantic", "filter"}
    assert memory["attribution"] == {"supported": True, "emitsWriteEvents": True}
    assert capabilities["agents"]["memoryBackends"] == ["long-term"]
    assert "compaction" not in memory and "distillation" not in memory


def test_what_is_kept_is_listed_found_and_forgotten(api: Api, ref: str) -> None:
    aurora = put(api, ref, "The Aurora lies at berth 7.", tags=["ship"])
    petrel = put(api, ref, "The Petrel lies at berth 3.")
    assert [item["memoryId"] for item in found(api, memoryRef=ref)] == [petrel, aurora]
    assert [item["memoryId"] for item in found(api, memoryRef=ref, tag="ship")] == [aurora]
    (best, *_) = found(api, memoryRef=ref, q="Where does the Aurora lie?")
    assert best["memoryId"] == aurora and best["content"] == "The Aurora lies at berth 7." and best["score"] > 0
    one = api.get(f"{PATH}/{aurora}").json()["result"]
    assert (one["tags"], one["writtenBy"]["principal"]) == (["ship"], best["writtenBy"]["principal"])
    assert api.http.delete(f"{PATH}/{aurora}").status_code == 204
    assert api.http.delete(f"{PATH}/{aurora}").status_code == api.get(f"{PATH}/{aurora}").status_code == 404
    assert [item["memoryId"] for item in found(api, memoryRef=ref)] == [petrel]
    assert api.post(f"{PATH}:forget", {"memoryRef": ref}).json()["result"] == {"forgotten": 1}
    assert found(api, memoryRef=ref) == []


def test_an_entry_that_has_expired_is_not_there(api: Api, ref: str) -> None:
    past = put(api, ref, "Long ago.", expiresAt="2020-01-01T00:00:00Z")
    short = put(api, ref, "For a second.", ttlSeconds=1)
    assert [item["memoryId"] for item in found(api, memoryRef=ref)] == [short]
    assert api.get(f"{PATH}/{past}").status_code == 404
    until = time.monotonic() + 20
    while found(api, memoryRef=ref) and time.monotonic() < until:
        time.sleep(0.05)
    assert api.get(f"{PATH}/{short}").status_code == 404


def test_another_tenant_gets_nothing(api: Api, ref: str) -> None:
    mine = put(api, ref, "The code of the gate is in the blue book.", tags=["gate"])
    other = api.caller("other")
    assert found(other, memoryRef=ref) == [] and found(other, q="gate code") == []
    assert other.get(f"{PATH}/{mine}").status_code == other.http.delete(f"{PATH}/{mine}").status_code == 404
    assert other.post(f"{PATH}:forget", {"memoryRef": ref, "tag": "gate"}).json()["result"] == {"forgotten": 0}
    assert api.get(f"{PATH}/{mine}").status_code == 200
    reader = api.caller("reader")
    assert reader.get(PATH).status_code == reader.post(PATH, {"memoryRef": ref, "content": "x"}).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"memoryRef": "r"},
        {"content": "x"},
        {"memoryRef": "r", "content": ""},
        {"memoryRef": "", "content": "x"},
        {"memoryRef": "r", "content": "x" * 20_000},
        {"memoryRef": "r", "content": "x", "tags": [""]},
        {"memoryRef": "r", "content": "x", "expiresAt": "soon"},
        {"memoryRef": "r", "content": "x", "ttlSeconds": 0},
        {"memoryRef": "r", "content": "x", "ttlSeconds": 5, "expiresAt": "2040-01-01T00:00:00Z"},
        {"memoryRef": "r", "content": "x", "tenant": "other"},
    ],
)
def test_what_is_no_entry_is_refused(api: Api, body: dict[str, Any]) -> None:
    assert api.post(PATH, body).status_code == 400


def test_to_forget_everything_needs_a_name(api: Api) -> None:
    assert api.post(f"{PATH}:forget", {}).status_code == 400


def test_a_repeated_request_keeps_one_entry(api: Api, ref: str) -> None:
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    body = {"memoryRef": ref, "content": "Once."}
    made = {api.post(PATH, body, headers=headers).json()["result"]["memoryId"] for _ in range(3)}
    assert [item["memoryId"] for item in found(api, memoryRef=ref)] == list(made)


def test_a_write_of_a_run_is_attributed_without_its_content(api: Api) -> None:
    """An agent with a memory keeps its answer; the run's log says where, and the entry says from which run."""
    name = f"m{uuid.uuid4().hex[:10]}"
    agent = {
        "agentId": f"vendor.suite.{name}",
        "persona": "Keeper",
        "modelClass": "general",
        "systemPrompt": "Answer.",
        "memoryShape": {"longTerm": True},
    }
    pack = {"name": f"vendor.suite.{name}", "version": "1.0.0", "agents": [agent]}
    if api.post("/host/v1/agent-packs", pack).status_code != 201:
        pytest.skip("this host installs no agents over HTTP")
    answer = api.post("/v1/runs", {"agentId": agent["agentId"], "inputs": {"task": "Say CANARY-77."}})
    assert answer.status_code == 201, answer.text
    run = api.wait(answer.json()["runId"])
    events = api.events(run["runId"])
    (written,) = [event for event in events if event["type"] == "memory.written"]
    assert set(written["payload"]) == {"memoryRef", "memoryId", "nodeId", "agentId"}
    kinds = [event["type"] for event in events]
    assert kinds.index("memory.written") < kinds.index("agent.invocation.completed")
    entry = api.get(f"{PATH}/{written['payload']['memoryId']}").json()["result"]
    assert "CANARY-77" in entry["content"] and entry["memoryRef"] == written["payload"]["memoryRef"]
    assert entry["writtenBy"]["runId"] == run["runId"] and entry["writtenBy"]["agentId"] == agent["agentId"]


def test_the_seams_are_the_four_operations(api: Api, ref: str) -> None:
    answer = api.post(SEAM, {"memoryRef": ref, "content": "The tide turns at nine.", "tags": ["tide"]})
    if answer.status_code in (404, 405):
        pytest.skip("this host opens no seams")
    assert answer.status_code == 201 and answer.json()["memoryRef"] == ref
    name, query = answer.json()["memoryId"], {"memoryRef": ref}
    listed = api.get(SEAM, params={**query, "tag": "tide", "limit": 0}).json()
    assert listed["memoryRef"] == ref and [item["id"] for item in listed["entries"]] == [name]
    assert set(listed["entries"][0]) == ENTRY
    assert api.get(f"{SEAM}/{name}", params=query).json()["entry"]["content"] == "The tide turns at nine."
    refused(api.get(f"{SEAM}/{name}", params={"memoryRef": "another"}), 404, "not_found")
    gone = api.http.delete(f"{SEAM}/{name}", params=query)
    assert gone.json() == {"memoryRef": ref, "memoryId": name, "removed": True}
    assert api.get(f"{SEAM}/{name}", params=query).status_code == 404


def test_a_forgotten_entry_is_in_no_file_of_the_host(tmp_path: Path) -> None:
    """Everything that a client does with it, on a host of its own; then the running host's files are searched."""
    canary, subject = "Ixworth-Quill", "subject:ixworth"
    host = LocalHost(tmp_path / "data")
    api = Api(host.start(), host.keys)
    try:
        text = f"{canary} is allergic to penicillin."
        headers = {"Idempotency-Key": "one"}
        body = {"memoryRef": "patients", "content": text, "tags": [subject]}
        for _ in range(2):
            name = api.post(PATH, body, headers=headers).json()["result"]["memoryId"]
        assert found(api, q=f"Is {canary} allergic?")[0]["content"] == text
        assert api.post(f"{PATH}:forget", {"tag": subject}).json()["result"] == {"forgotten": 1}
        assert api.get(f"{PATH}/{name}").status_code == 404
        files = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
        assert {"ledger.db", "ledger.db-wal"} <= {file.name for file in files}
        for word in (canary, "penicillin", "subject:ixworth"):
            assert [file.name for file in files if word.encode() in file.read_bytes()] == []
    finally:
        api.close()
        host.stop()
    files = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert not [file for file in files if canary.encode() in file.read_bytes()]
