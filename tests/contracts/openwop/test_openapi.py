"""The served OpenAPI document is true: it is valid, complete, and schemathesis finds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api

ROOT = Path(__file__).parents[3]
REQUIRED = {
    ("get", "/.well-known/openwop"),
    ("get", "/v1/openapi.json"),
    ("get", "/v1/workflows/{workflowId}"),
    ("post", "/v1/runs"),
    ("get", "/v1/runs/{runId}"),
    ("get", "/v1/runs/{runId}/events"),
    ("get", "/v1/runs/{runId}/events/poll"),
    ("post", "/v1/runs/{runId}/cancel"),
    ("post", "/v1/runs:bulk-cancel"),
    ("post", "/v1/runs/{runId}:fork"),
    ("post", "/v1/runs/{runId}:pause"),
    ("post", "/v1/runs/{runId}:resume"),
    ("post", "/v1/runs/{runId}/interrupts/{nodeId}"),
    ("get", "/v1/interrupts/{token}"),
    ("post", "/v1/interrupts/{token}"),
    ("get", "/v1/runs/{runId}/artifacts/{artifactId}"),
    ("post", "/v1/webhooks"),
    ("delete", "/v1/webhooks/{webhookId}"),
}


@pytest.fixture(scope="module")
def document(api: Api) -> dict[str, Any]:
    answer = api.caller("").get("/v1/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_every_required_endpoint_is_described(document: dict[str, Any]) -> None:
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described >= REQUIRED
    assert document["openapi"].startswith("3.1.")


def test_references_lead_somewhere_and_names_are_unique(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.split('"')[0] in schemas
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_scopes_and_security_are_said(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if operation.get("security") == []:
                assert "401" not in operation["responses"], path
            else:
                assert {"401", "403"} <= set(operation["responses"]), path
                assert operation.get("x-scopes"), path


def schemathesis(api: Api, folder: Path, *options: str) -> None:
    ids = {
        "workflowId": [api.workflow("noop")],
        "runId": [api.start("noop"), api.start("approval"), api.start("chain")],
        "nodeId": ["gate"],
        "name": ["suite.go"],
    }
    schedule = {"workflowId": ids["workflowId"][0], "cron": "0 0 1 1 *"}
    made = api.post("/v1/schedules", schedule)
    if made.status_code == 201:
        ids["scheduleId"] = [made.json()["scheduleId"]]
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"),
        f"{api.url}/v1/openapi.json",
        *("--header", f"Authorization: Bearer {api.keys['full']}"),
        # What a schema cannot say (a workflow that holds together, a cron expression, a cursor) is refused with reason.
        # A repeated Idempotency-Key gives the first answer again, also when what it created was deleted since.
        *("--exclude-checks", "positive_data_acceptance,ensure_resource_availability"),
        # A stream stays open for as long as its run: the suite of streams covers it.
        *("--exclude-operation-id", "events.stream"),
        # It finds its own key in the list of keys and revokes it: tests of keys cover that.
        *("--exclude-operation-id", "keys.revoke"),
        *("--workers", "1", "--no-color", "--request-timeout", "65", "--suppress-health-check", "all"),
        *options,
    ]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.contracts.openwop.real_ids",
        "HOLDFAST_KNOWN_IDS": json.dumps(ids),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, _failures(done.stdout) + done.stderr[-2000:]


def _failures(said: str) -> str:
    """The part of the report between its heading and its advice."""
    return said.partition("FAILURES")[2].partition("WARNINGS")[0][:8000]


def test_schemathesis_finds_nothing(api: Api, tmp_path: Path) -> None:
    schemathesis(api, tmp_path, "--phases", "fuzzing", "--max-examples", "4", "--seed", "1")


@pytest.mark.sweep
def test_schemathesis_finds_nothing_in_every_phase(api: Api, tmp_path: Path) -> None:
    phases = ("--phases", "coverage,fuzzing,stateful", "--max-examples", "60", "--seed", str(uuid.uuid4().int))
    schemathesis(api, tmp_path, *phases)
