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


# The head of a request ends somewhere, whatever it is for.
REJECTED = ["400", "401", "403", "404", "405", "406", "409", "415", "422", "428", "429", "431", "5xx"]
# Where a check knows one status too few.
MORE_STATUSES = {
    "runs.fork": ("positive_data_acceptance", ["2xx", "401", "403", "404", "409", "422", "5xx"]),
    # An answer that comes when the run has ended is 422 by the contract.
    "interrupts.resolve-by-node": ("positive_data_acceptance", ["2xx", "401", "403", "404", "409", "422", "5xx"]),
    # An address may have the right form and still be one that the host never calls: 400 by W24.
    "webhooks.register": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "runs.create": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    # A condition that does not hold is 412, and one that is none is 400: the documents are ours, the headers are not.
    "workflows.put": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "412", "5xx"]),
    # A text is a session file or it is none, and only a message of the user has something before it.
    "sessions.import": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "sessions.fork": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    # An entry is bounded in bytes, and its end is a time; what is forgotten together has a memory, a tag or both.
    "memory.put": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "memory.forget-all": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "seams.memory-put": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    # What a credential and a request are made of, a pattern says only in part.
    "credentials.put": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "seams.safe-fetch": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "seams.safe-fetch-run": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "seams.oauth": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "oauth.begin": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    # A template names its slots, a reference is read in two forms, and a signal has what its kind says.
    "prompt-templates.create": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "prompt-templates.update": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "prompt-templates.render": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "annotations.create": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    # The gate refuses what a manifest requires, and a run has the variables that its workflow declares.
    "seams.install-gate": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "seams.variables": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    # A capability has its words, and a host's budgets are hard or advisory: the other scenario is 501, as documented.
    "policy.explain": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "seams.budget": ("not_a_server_error", ["2xx", "4xx", "501"]),
    # A form has the fields of its own workflow, and a source what it needs: a mailbox, a cron line.
    "triggers.subscribe": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
    "triggers.submit": ("positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409", "5xx"]),
}


def schemathesis(api: Api, folder: Path, *options: str, only_ended: bool = False) -> None:
    ended = [api.start("noop"), api.start("chain")]
    for run_id in ended:
        api.wait(run_id)
    ids = {
        "workflowId": [api.workflow("noop")],
        "runId": ended if only_ended else [*ended, api.start("approval")],
        "name": ["suite.go"],
        "agentId": ["core.forestay.assistant"],
        "toolId": ["forestay:read"],
        "departmentId": ["growth"],
    }
    schedule = {"workflowId": ids["workflowId"][0], "cron": "0 0 1 1 *"}
    made = api.post("/v1/schedules", schedule)
    if made.status_code == 201:
        ids["scheduleId"] = [made.json()["scheduleId"]]
    context = api.post("/host/v1/contexts", {"objective": "Move the boats"})
    if context.status_code == 201:
        ids["ledgerId"] = [context.json()["result"]["ledgerId"]]
    session = api.post("/host/v1/sessions", {"name": "Boats"})
    if session.status_code == 201:
        ids["sessionId"] = [session.json()["result"]["sessionId"]]
    spare = [
        api.post("/host/v1/keys", {"name": f"spare-{uuid.uuid4()}", "scopes": ["runs:read"]}).json() for _ in range(6)
    ]
    config = folder / "schemathesis.toml"
    rejected = f"checks.negative_data_rejection.expected-statuses = {json.dumps(REJECTED)}\n"
    config.write_text(rejected + "".join(map(_more, MORE_STATUSES)))
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("--config-file", str(config), "run", f"{api.url}/v1/openapi.json"),
        *("--header", f"Authorization: Bearer {api.keys['full']}"),
        # Texts with U+0000 are refused everywhere, which no schema says; the hostile requests send them.
        *("--generation-allow-x00", "false"),
        *("--workers", "1", "--no-color", "--request-timeout", "65", "--suppress-health-check", "all"),
        *options,
    ]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.contracts.openwop.real_ids",
        "FORESTAY_KNOWN_IDS": json.dumps(ids),
        "FORESTAY_SUITE_URL": api.url,
        "FORESTAY_SUITE_KEY": api.keys["full"],
        "FORESTAY_SPARE_KEYS": json.dumps([key["result"]["description"]["keyId"] for key in spare if "result" in key]),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, _failures(done.stdout) + done.stdout[-300:] + done.stderr[-2000:]


def _more(name: str) -> str:
    check, statuses = MORE_STATUSES[name]
    line = f"checks.{check}.expected-statuses = {json.dumps(statuses)}"
    return f'[[operations]]\ninclude-operation-id = "{name}"\n{line}\n'


# A stream stays open for as long as its run, so it is tried on runs that have ended.
STREAM = "events.stream"
# The state of a session goes on for as long as somebody reads it: `tests/surface/test_session_ui.py` reads it.
ENDLESS = "sessions.ui.stream"


def _failures(said: str) -> str:
    """The parts of the report between its headings and its advice: requests that got no answer, then bad answers."""
    headed = ("".join(said.partition(heading)[1:]).partition("WARNINGS")[0] for heading in ("ERRORS", "FAILURES"))
    return "".join(headed)[:8000]


def test_schemathesis_finds_nothing(api: Api, tmp_path: Path) -> None:
    fuzzing = ("--phases", "fuzzing", "--max-examples", "4", "--seed", "1")
    schemathesis(api, tmp_path, *fuzzing, "--exclude-operation-id", STREAM, "--exclude-operation-id", ENDLESS)


def test_schemathesis_finds_nothing_in_streams(api: Api, tmp_path: Path) -> None:
    fuzzing = ("--phases", "coverage,fuzzing", "--max-examples", "20", "--seed", "1")
    schemathesis(api, tmp_path, *fuzzing, "--include-operation-id", STREAM, only_ended=True)


def test_what_a_check_is_told_is_about_operations_that_are_there(document: dict[str, Any]) -> None:
    names = {operation["operationId"] for methods in document["paths"].values() for operation in methods.values()}
    assert names >= {*MORE_STATUSES, STREAM, ENDLESS}


@pytest.mark.sweep
def test_schemathesis_finds_nothing_in_every_phase(api: Api, tmp_path: Path) -> None:
    phases = ("--phases", "coverage,fuzzing,stateful", "--max-examples", "60", "--seed", str(uuid.uuid4().int))
    schemathesis(api, tmp_path, *phases, "--exclude-operation-id", STREAM, "--exclude-operation-id", ENDLESS)
