"""`/host/v1`, `/_lafs/context`, the agent card and `/a2a` over a real host with a real extension."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

from forestay.console import Console
from forestay.envelope import decode as valid_envelope
from forestay.host import Options
from forestay.kernel import Config, ExtensionConfig, Http, Models
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.surface.hosting import Serving, serve
from tests.contracts.openwop.documents import DOCUMENTS

EXTENSION = """
import fs from "node:fs";
export default function (pi) {
  pi.registerTool({ name: "tide", label: "Tide", description: "Reads the tide table",
    parameters: { type: "object", properties: {} },
    async execute() { return { content: [{ type: "text", text: fs.readFileSync("tide.txt", "utf8") }] }; } });
}
"""
Story = Callable[[Serving, httpx.AsyncClient], Awaitable[None]]


def run(folder: Path, story: Story, *turns: Turn, public_url: str = "") -> None:
    async def whole() -> None:
        (folder / "harbour.ts").write_text(EXTENSION)
        (folder / "tide.txt").write_text("high at noon")
        config = Config(
            models=Models(default="script"),
            extensions=ExtensionConfig(paths=["harbour.ts"]),
            http=Http(public_url=public_url),
        )
        models = {"script": Scripted(Script(turns, position="conversation"))}
        options = Options(config=config, root=folder, data=folder / ".forestay", models=models)
        async with asyncio.timeout(60), serve(options, console=Console) as serving:
            await serving.host.extensions.trust.give(serving.host.root)
            headers = {"Authorization": f"Bearer {serving.services.keys.lend(principal='ann')}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=30) as http:
                await story(serving, http)

    asyncio.run(whole())


async def result(http: httpx.AsyncClient, method: str, path: str, status: int = 200, **options: Any) -> Any:
    """The result of an answer that is a valid envelope, and the envelope's own kind of thing."""
    answer = await http.request(method, path, **options)
    assert answer.status_code == status, answer.text
    found = valid_envelope(answer.content)
    assert found.success == (status < 400)
    assert found.meta.request_id == answer.headers["x-request-id"]
    return found.result if found.success else found.error


def test_an_extension_from_the_list_to_its_evidence_and_what_was_decided(tmp_path: Path) -> None:
    turns = Turn(tool_calls=(ScriptedCall("tide", {}),)), Turn("It is high at noon."), Turn("Again.")

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        listed = await result(http, "GET", "/host/v1/extensions")
        assert (listed["loaded"], listed["trust"], listed["brings"]) == (False, "trusted", ["harbour.ts"])
        assert (await result(http, "GET", "/host/v1/grants")) == {"grants": []}

        grant = {"extension": "harbour", "effect": "allow", "capability": "read", "scope": "tide.txt"}
        made = await result(http, "POST", "/host/v1/grants", 201, json=grant)
        assert [(item["effect"], item["capability"], item["scope"]) for item in made["grants"]] == [
            ("allow", "read", ["tide.txt"])
        ]
        await _ask(http)
        (card,) = (await result(http, "GET", "/host/v1/extensions"))["extensions"]
        assert (card["name"], card["state"], card["tools"]) == ("harbour", "loaded", 1)
        assert card["calls"] >= 1

        shown = await result(http, "GET", "/host/v1/extensions/harbour")
        assert "tide" in str(shown["registrations"])
        (read,) = [line for line in shown["capabilities"] if line["capability"] == "read"]
        assert read["inferred"] and read["allowed"] >= 1 and read["places"]
        assert any(rule["effect"] == "allow" and rule["scope"] == ["tide.txt"] for rule in read["rules"])
        evidence = await result(http, "GET", "/host/v1/extensions/harbour/evidence?limit=5")
        first = evidence["calls"][0]
        assert (first["capability"], first["decision"], first["outcome"]) == ("read", "allow", "ok")
        assert "high at noon" not in str(evidence), "what was read is not in the evidence"

        assert (await result(http, "DELETE", "/host/v1/grants/harbour/read")) == {"revoked": 1}
        denied = {**grant, "effect": "deny", "expiresAt": "2199-01-01T00:00:00Z"}
        assert (await result(http, "POST", "/host/v1/grants", 201, json=denied))["grants"][0]["effect"] == "deny"
        suite = serving.host.extensions.opened
        assert suite is not None and suite.dispatcher.authority.policy.subjects["harbour"].deny, "in force at once"

    run(tmp_path, story, *turns)


async def _ask(http: httpx.AsyncClient) -> dict[str, Any]:
    """One agent run, with whatever it asks accepted."""
    body = {"workflowId": "forestay-ask", "inputs": {"question": "When is the tide high?"}}
    run_id = (await http.post("/v1/runs", json=body)).json()["runId"]
    after = -1
    while (run := (await http.get(f"/v1/runs/{run_id}")).json())["status"] not in ("completed", "failed"):
        if run["status"] == "waiting-approval":
            (asked,) = (await result(http, "GET", "/host/v1/prompts"))["prompts"]
            assert (asked["runId"], asked["nodeId"]) == (run_id, "agent") and asked["text"]
            await http.post(asked["answerAt"], json={"resumeValue": {"action": "accept"}})
        page = (await http.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": after, "timeout": 5})).json()
        after = max([after, *(event["sequence"] for event in page["events"])])
    assert run["status"] == "completed", run
    found: dict[str, Any] = run
    return found


def test_bad_decisions_are_refused_with_their_place(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        good = {"extension": "harbour", "effect": "allow", "capability": "read"}
        for change in ({"capability": "fly"}, {"effect": "maybe"}, {"expiresAt": "soon"}, {"extension": ""}, {"x": 1}):
            error = await result(http, "POST", "/host/v1/grants", 400, json=good | change)
            assert error.code == "E_VALIDATION_SCHEMA"
        await result(http, "DELETE", "/host/v1/grants/harbour/read", 404)
        await result(http, "GET", "/host/v1/extensions/nobody", 404)
        await result(http, "GET", "/host/v1/extensions/nobody/evidence?limit=0", 400)

    run(tmp_path, story)


def test_the_ledger_is_read_and_verified(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        await http.put("/v1/workflows/suite-noop", json=DOCUMENTS["noop"] | {"id": "suite-noop"})
        run_id = (await http.post("/v1/runs", json={"workflowId": "suite-noop"})).json()["runId"]
        found = await result(http, "GET", f"/host/v1/ledger/streams?prefix=run/{run_id}")
        assert [item["stream"] for item in found["streams"]] == [f"run/{run_id}"] and found["moreAfter"] is None
        one = await result(http, "GET", "/host/v1/ledger/streams?limit=1")
        assert one["moreAfter"] == one["streams"][0]["stream"] and one["records"] > 1
        records = await result(http, "GET", f"/host/v1/ledger/records?stream=run/{run_id}&limit=2")
        assert [item["seq"] for item in records["records"]] == [0, 1]
        assert records["records"][0]["type"] == "run.started"
        assert records["records"][1]["prev"] == records["records"][0]["hash"]
        verified = await result(http, "POST", "/host/v1/ledger/verify")
        assert verified["ok"] and verified["faults"] == [] and verified["records"] >= found["records"]
        assert (await result(http, "POST", "/host/v1/ledger/verify", json={"prefix": "none/"}))["records"] == 0
        await result(http, "GET", "/host/v1/ledger/records?stream=run/none", 404)
        await result(http, "GET", "/host/v1/ledger/records", 400)

    run(tmp_path, story)


def test_agents_and_health_say_what_is_there(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        (listed,) = (await result(http, "GET", "/host/v1/agents"))["agents"]
        shown = await result(http, "GET", f"/host/v1/agents/{listed['agentId']}")
        assert shown["instructions"] and shown["toolAllowlist"] == ["*"]
        await result(http, "GET", "/host/v1/agents/nobody", 404)
        health = await result(http, "GET", "/host/v1/health")
        assert health["status"] == "healthy"
        fleet = ["fleet"] if serving.host.ledger.shared else []
        names = ["ledger", "disk", "engine", "extensions", "model", *fleet]
        assert [item["name"] for item in health["findings"]] == names

    run(tmp_path, story)


def test_the_operator_admits_tenants_and_nobody_else_does(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        own = (await result(http, "GET", "/host/v1/keys"))["keys"]
        scopes = ["keys:manage", "runs:read"]
        made = await result(
            http, "POST", "/host/v1/keys", 201, json={"name": "quay", "tenant": "quay", "scopes": scopes}
        )
        assert made["description"]["tenant"] == "quay"
        admitted = {"headers": {"Authorization": f"Bearer {made['apiKey']}"}}
        await result(http, "POST", "/host/v1/keys", 403, json={"name": "x", "tenant": "default"}, **admitted)
        second = await result(http, "POST", "/host/v1/keys", 201, json={"name": "x", "tenant": "quay"}, **admitted)
        assert second["description"]["tenant"] == "quay" and second["description"]["scopes"] == scopes
        listed = (await result(http, "GET", "/host/v1/keys", **admitted))["keys"]
        assert {key["tenant"] for key in listed} == {"quay"} and len(listed) == 2
        everybody = (await result(http, "GET", "/host/v1/keys"))["keys"]
        assert {key["keyId"] for key in everybody} == {key["keyId"] for key in (*own, *listed)}
        await result(http, "DELETE", f"/host/v1/keys/{second['description']['keyId']}")
        revoked = {"Authorization": f"Bearer {second['apiKey']}"}
        assert (await http.get("/v1/runs", headers=revoked)).status_code == 401

    run(tmp_path, story)


def test_what_is_the_operators_is_nobody_elses(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        _, text = await serving.services.keys.create("k", tenant="other")
        other = {"Authorization": f"Bearer {text}"}
        grant = {"extension": "harbour", "effect": "allow", "capability": "exec"}
        for method, path, body in (
            ("GET", "/host/v1/extensions", None),
            ("GET", "/host/v1/extensions/harbour", None),
            ("GET", "/host/v1/extensions/harbour/evidence", None),
            ("GET", "/host/v1/grants", None),
            ("POST", "/host/v1/grants", grant),
            ("DELETE", "/host/v1/grants/harbour/exec", None),
            ("GET", "/host/v1/ledger/streams", None),
            ("GET", "/host/v1/ledger/records?stream=grants", None),
            ("POST", "/host/v1/ledger/verify", {}),
            ("GET", "/host/v1/agents/core.forestay.assistant", None),
            ("GET", "/host/v1/health", None),
        ):
            error = await result(http, method, path, 403, json=body, headers=other)
            assert error.code == "E_PERMISSION_DENIED", path
        assert (await result(http, "GET", "/host/v1/prompts", headers=other)) == {"prompts": [], "more": 0}
        assert (await result(http, "GET", "/host/v1/grants")) == {"grants": []}

    run(tmp_path, story)


def test_the_description_of_the_host_api_is_true(tmp_path: Path) -> None:
    """Every path of the document is served, every served path is in it, and answers fit their schemas."""

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        document = (await http.get("/host/v1/openapi.json", headers={"Authorization": ""})).json()
        described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
        served = {
            (item.method, item.path)
            for item in serving.app.operations
            if item.path.startswith(("/host/v1/", "/_lafs/"))
        }
        assert described == served
        for path, item in document["paths"].items():
            if "get" not in item or "{" in path or path.endswith("openapi.json"):
                continue
            if any(parameter["in"] == "query" and parameter["required"] for parameter in item["get"]["parameters"]):
                continue
            asked = {"subject": "host", "capability": "egress", "on": "example.com"} if "/policy/" in path else {}
            told = item["get"]["responses"]["200"]["content"]
            if "application/json" not in told:
                continue  # a page for a browser
            answer = await http.get(path, params=asked)
            schema = told["application/json"]["schema"]
            whole = {**schema, "components": document["components"]}
            jsonschema_rs.validate(whole, answer.json())
            wrong = {**answer.json(), "result": {"nothing": "of that kind"}}
            assert not jsonschema_rs.is_valid(whole, wrong), path

    run(tmp_path, story)


def test_a_context_ledger_is_kept_and_read(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        new = {"objective": "Move the boats", "constraints": ["not at night"]}
        made = await result(http, "POST", "/host/v1/contexts", 201, json=new)
        place = f"/host/v1/contexts/{made['ledgerId']}"
        step = {"operation": "boats.move", "version": 0, "contextDelta": {"append": {"decisions": ["at noon"]}}}
        after = await result(http, "POST", place, json=step)
        assert (made["version"], after["version"]) == (0, 1)
        stale = await result(http, "POST", place, 409, json=step)
        assert stale.code == "E_CONTEXT_STALE"
        read = await result(http, "GET", f"{made['readAt']}?mode=delta&sinceVersion=0")
        assert [entry["operation"] for entry in read["entries"]] == ["boats.move"]
        summary = await result(http, "GET", f"{made['readAt']}?mode=summary")
        assert (summary["version"], summary["checksum"]) == (1, after["checksum"])
        await result(http, "GET", f"{made['readAt']}?mode=all", 400)
        await result(http, "GET", "/_lafs/context/none", 404)
        _, text = await serving.services.keys.create("k", tenant="other")
        other = {"Authorization": f"Bearer {text}"}
        for method, path, body in (("GET", made["readAt"], None), ("POST", place, {**step, "version": 1})):
            refused = await http.request(method, path, json=body, headers=other)
            assert refused.status_code in (403, 404) and "boats" not in refused.text.lower()

    run(tmp_path, story)


def _message(operation: str, **parameters: Any) -> dict[str, Any]:
    parts = [{"data": {"operation": operation, "parameters": parameters}}]
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": parts}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


def test_the_card_names_skills_that_work_and_each_tenant_has_its_own_tasks(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        card = await http.get("/.well-known/agent-card.json", headers={"Authorization": ""})
        assert card.status_code == 200 and card.headers["cache-control"] == "public, max-age=3600"
        again = {"Authorization": "", "If-None-Match": card.headers["etag"]}
        assert (await http.get("/.well-known/agent-card.json", headers=again)).status_code == 304
        assert (await http.post("/.well-known/agent-card.json")).status_code == 405
        assert (await http.post("/.well-known/agent-card.json", headers={"Authorization": ""})).status_code == 401
        (interface,) = card.json()["supportedInterfaces"]
        assert interface["url"] == "https://agents.example.com/a2a"
        names = {skill["id"] for skill in card.json()["skills"]}
        assert names == {"agent.ask", "runs.start", "runs.show", "agents.list"}

        assert (await http.post("/a2a", json={}, headers={"Authorization": ""})).status_code == 401
        protocol = {"A2A-Version": "1.0"}
        said = (await http.post("/a2a", json=_message("agent.ask", question="When?"), headers=protocol)).json()
        task = said["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", said
        answer = task["artifacts"][0]["parts"][0]["data"]
        assert answer["status"] == "completed" and answer["outputs"]
        for bad in (_message("fly"), _message("runs.show", runId="none"), _message("agent.ask", question=5)):
            failed = (await http.post("/a2a", json=bad, headers=protocol)).json()["result"]["task"]
            assert failed["status"]["state"] == "TASK_STATE_FAILED"

        _, text = await serving.services.keys.create("k", tenant="other")
        other = {"Authorization": f"Bearer {text}", **protocol}
        look = {"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task["id"]}}
        assert (await http.post("/a2a", json=look, headers=protocol)).json()["result"]["id"] == task["id"]
        assert "error" in (await http.post("/a2a", json=look, headers=other)).json()
        foreign = _message("runs.show", runId=answer["runId"])
        seen = (await http.post("/a2a", json=foreign, headers=other)).json()["result"]["task"]
        assert seen["status"]["state"] == "TASK_STATE_FAILED"

    run(tmp_path, story, Turn("At noon."), public_url="https://agents.example.com/")
