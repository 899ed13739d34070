"""Sensitive values and credentials on every surface, for keys that may not read the run (W24).

Canaries are planted as sensitive variables (given, defaulted, scheduled, laid over a fork) and as inputs that look like
credentials. They travel through nodes, children, artifacts, questions, a model and an agent. Then every surface is
read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contracts.openwop.conftest import ENDED, Api
from tests.contracts.openwop.documents import from_variable, node, variable, workflow

GIVEN, NESTED, DEFAULT = "swordfish-canary-77", "lanternfish-canary-31", "defaultfish-canary-88"
LAID_OVER, SCHEDULED, SAID = "forkfish-canary-12", "cronfish-canary-60", "tunafish-canary-55"
ANSWERED = f"It was {GIVEN}."
SENSITIVE = (GIVEN, NESTED, DEFAULT, LAID_OVER, SCHEDULED, SAID)
CREDENTIALS = (
    "cred_" + "CANARY-NEVER-SECRET-OpaqueRefAlphaNumX9",
    "sk-" + "CANARY-NEVER-SECRET-oai9Lt7Nw2QrZ0aB8m",
    "github_pat_" + "11CANARY0aB8mYjPpQeOpaque",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJjYW5hcnkiOnRydWV9." + "CANARY-jwt-signature-xyz",
)
UNDECLARED = {"userField": CREDENTIALS[0], "text": f"use {CREDENTIALS[1]} now", "list": list(CREDENTIALS[2:])}

CHILD = workflow(
    "suite-canary-child",
    node("echo", "core.identity", inputs={"got": from_variable("given")}),
    variables=[variable("given", "string")],
)
MAIN = workflow(
    "suite-canary",
    node("echo", "core.identity", inputs={"a": from_variable("password"), "b": from_variable("box")}),
    node(
        "make",
        "core.transform",
        {"outputs": {"text": "'x-' + variables.password"}, "artifacts": {"report": "{'p': variables.password}"}},
    ),
    node("sub", "core.subWorkflow", {"workflowId": CHILD["id"], "inputMapping": {"given": "password"}}),
    node(
        "ask", "core.ai.callPrompt", {"prompt": "Repeat: {{password}}"}, inputs={"password": from_variable("password")}
    ),
    node("gate", "core.approvalGate", {"title": "Go on?"}, inputs={"artifact": from_variable("password")}),
    variables=[
        variable("password", "string", sensitive=True),
        variable("box", "object", sensitive=True),
        variable("unset", "string", sensitive=True, defaultValue=DEFAULT),
    ],
)
AGENT = workflow(
    "suite-canary-agent",
    node("agent", "core.agent", inputs={"task": from_variable("question")}),
    variables=[variable("question", "string", sensitive=True)],
)


class Planted:
    """The runs that carry canaries, and a key that may read the audit and nothing else."""

    def __init__(self, api: Api) -> None:
        self.api = api
        for document in (CHILD, MAIN, AGENT):
            answer = api.http.put(f"/v1/workflows/{document['id']}", json=document)
            if answer.status_code not in (200, 201):
                pytest.skip(f"this host cannot store the workflow: {answer.text[:200]}")
        inputs = {"password": GIVEN, "box": {"deep": [NESTED]}, **UNDECLARED}
        self.run_id = self._started(MAIN, inputs)
        self.artifact = api.get(f"/v1/runs/{self.run_id}/artifacts").json()["artifacts"][0]["artifactId"]
        self.asked = api.get(f"/v1/runs/{self.run_id}/interrupts")
        token = self.asked.json()["interrupts"][0]["token"]
        self.inspected = api.caller("").get(f"/v1/interrupts/{token}")
        answer = api.post(
            f"/v1/runs/{self.run_id}/interrupts/gate", {"resumeValue": {"action": "accept", "comment": ANSWERED}}
        )
        assert answer.status_code == 200, answer.text
        api.wait(self.run_id)
        self.fork_id = self._forked()
        self.agent_id = str(self._run(AGENT, {"question": SAID}))
        api.wait(self.agent_id, "waiting-approval", *ENDED)
        schedule = {"workflowId": MAIN["id"], "cron": "0 0 1 1 *", "inputs": {"password": SCHEDULED}}
        self.scheduled = api.post("/v1/schedules", schedule, headers={"Idempotency-Key": uuid.uuid4().hex})
        assert self.scheduled.status_code == 201, self.scheduled.text
        self.schedule_id = self.scheduled.json()["scheduleId"]

    def _run(self, document: dict[str, Any], inputs: dict[str, Any]) -> str:
        body = {"workflowId": document["id"], "inputs": inputs, "metadata": {"note": CREDENTIALS[0]}}
        answer = self.api.post("/v1/runs", body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["runId"])

    def _started(self, document: dict[str, Any], inputs: dict[str, Any]) -> str:
        run_id = self._run(document, inputs)
        self.api.wait(run_id, "waiting-approval")
        return run_id

    def _forked(self) -> str:
        body = {"mode": "branch", "fromSeq": 1, "runOptionsOverlay": {"variables": {"password": LAID_OVER}}}
        answer = self.api.post(f"/v1/runs/{self.run_id}:fork", body)
        assert answer.status_code == 201, answer.text
        fork_id = str(answer.json()["runId"])
        self.api.wait(fork_id, "waiting-approval")
        return fork_id


@pytest.fixture(scope="module")
def planted(api: Api) -> Iterator[Planted]:
    made = Planted(api)
    yield made
    for run_id in (made.fork_id, made.agent_id):
        api.post(f"/v1/runs/{run_id}/cancel")
    api.http.delete(f"/v1/schedules/{made.schedule_id}")


def found(text: str, canaries: tuple[str, ...]) -> list[str]:
    return [canary for canary in canaries if canary in text]


def key(api: Api, *scopes: str) -> str:
    answer = api.post("/host/v1/keys", {"name": f"suite-{uuid.uuid4().hex}", "scopes": list(scopes)})
    if answer.status_code != 201:
        pytest.skip("this host makes no keys as we do")
    return str(answer.json()["result"]["apiKey"])


def caller(api: Api, *scopes: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key(api, *scopes)}"}
    return httpx.Client(base_url=api.url, headers=headers, timeout=30, trust_env=False)


def streams(http: httpx.Client) -> Iterator[str]:
    after: str | None = ""
    while after is not None:
        page = http.get("/host/v1/ledger/streams", params={"after": after, "limit": 1000}).json()["result"]
        yield from (item["stream"] for item in page["streams"])
        after = page["moreAfter"]


def records(http: httpx.Client, stream: str) -> list[dict[str, Any]]:
    answer = http.get("/host/v1/ledger/records", params={"stream": stream, "limit": 1000})
    assert answer.status_code == 200, answer.text
    result: list[dict[str, Any]] = answer.json()["result"]["records"]
    return result


def test_w24_an_audit_key_finds_no_canary_in_the_ledger(api: Api, planted: Planted) -> None:
    leaks = []
    families = set()
    with caller(api, "audit:read") as http:
        for stream in streams(http):
            families.add(stream.partition("/")[0])
            for record in records(http, stream):
                hits = found(json.dumps(record), SENSITIVE + CREDENTIALS)
                leaks += [(stream, record["seq"], record["type"], canary) for canary in hits]
        masked = [record["masked"] for record in records(http, f"run/{planted.run_id}")]
    assert leaks == []
    assert {"run", "artifact", "relay", "schedule", "workflow"} <= families, "the canaries went there"
    assert masked[0] is True


def test_w24_nor_on_the_pages_of_the_console(api: Api, planted: Planted) -> None:
    pages = ["/", "/ledger", "/runs", "/inbox", "/relay", f"/runs/{planted.run_id}"]
    with httpx.Client(base_url=api.url, timeout=30, trust_env=False) as http, caller(api, "audit:read") as audit:
        if http.post("/login", data={"key": key(api, "audit:read")}).status_code != 303:
            pytest.skip("this host has no console as ours")
        names = list(streams(audit))
        pages += [f"/ledger/{name}" for name in names]
        pages += [f"/{name}" for name in names if name.startswith("relay/")]
        leaks = {page: found(http.get(page).text, SENSITIVE + CREDENTIALS) for page in pages}
        assert http.get(f"/ledger/run/{planted.run_id}").status_code == 200
    assert {page: hits for page, hits in leaks.items() if hits} == {}


def test_w24_who_may_read_the_run_sees_the_record_that_its_hash_is_of(api: Api, planted: Planted) -> None:
    with caller(api, "audit:read", "runs:read") as http:
        shown = records(http, f"run/{planted.run_id}")
    assert not any(record["masked"] for record in shown)
    assert GIVEN in json.dumps(shown[0])


def test_w24_an_audit_key_reads_nothing_else(api: Api, planted: Planted) -> None:
    run = f"/v1/runs/{planted.run_id}"
    paths = (run, f"{run}/events", f"{run}/debug-bundle", f"{run}/artifacts", f"{run}/interrupts", "/v1/schedules")
    with caller(api, "audit:read") as http:
        for path in (*paths, "/v1/runs", f"/v1/workflows/{MAIN['id']}", "/crp/sessions"):
            assert http.get(path).status_code == 403, path


def test_w24_no_surface_shows_a_sensitive_value(api: Api, planted: Planted) -> None:
    leaks = {}
    for run_id in (planted.run_id, planted.fork_id, planted.agent_id):
        run = f"/v1/runs/{run_id}"
        for path in (
            run,
            f"{run}/debug-bundle",
            f"{run}/events/poll?timeout=1",
            f"{run}/artifacts",
            f"{run}/ancestry",
            f"{run}:diff?against={planted.run_id}",
            f"{run}/query?expression=variables",
            f"{run}/query?expression=nodes",
            f"{run}/interrupts",
        ):
            answer = api.get(path)
            assert answer.status_code == 200, (path, answer.text)
            leaks[path] = found(answer.text, SENSITIVE)
    artifact = api.get(f"/v1/runs/{planted.run_id}/artifacts/{planted.artifact}")
    assert artifact.status_code == 200
    leaks["artifact"] = found(artifact.text, SENSITIVE)
    stream = api.stream(planted.run_id, params={"streamMode": "debug"})
    leaks["stream"] = found(json.dumps(stream), SENSITIVE)
    values = api.stream(planted.run_id, params={"streamMode": "values"})
    leaks["values"] = found(json.dumps(values), SENSITIVE)
    for name, answer in (("asked", planted.asked), ("inspected", planted.inspected), ("made", planted.scheduled)):
        assert answer.status_code in (200, 201), answer.text
        leaks[name] = found(answer.text, SENSITIVE)
    for path in ("/v1/runs", "/v1/schedules", f"/v1/schedules/{planted.schedule_id}", "/metrics"):
        leaks[path] = found(api.get(path).text, SENSITIVE)
    assert {path: hits for path, hits in leaks.items() if hits} == {}


def test_w24_a_debug_bundle_shows_nothing_that_looks_like_a_credential(api: Api, planted: Planted) -> None:
    bundle = api.get(f"/v1/runs/{planted.run_id}/debug-bundle").text
    assert found(bundle, (*CREDENTIALS, "CANARY")) == []
    noop = api.post("/v1/runs", {"workflowId": api.workflow("noop"), "inputs": UNDECLARED}).json()["runId"]
    api.wait(noop)
    assert found(api.get(f"/v1/runs/{noop}/debug-bundle").text, (*CREDENTIALS, "CANARY")) == []
