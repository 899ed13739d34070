"""Prompt templates (RFC 0027 to 0029) beyond the kit's scenarios: nodes and agents that use them for real."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from forestay.conformance import node, workflow
from tests.contracts.openwop.conftest import Api, refused

SAID = {"mockProvider": {"id": "stream-text", "config": {"tokens": ["Aye."]}}}


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not capabilities.get("prompts", {}).get("mutableLibrary"):
        pytest.skip("this host's prompts cannot be changed")


def stored(api: Api, kind: str, text: str, **more: Any) -> str:
    """A template; the reference to it."""
    body = {"templateId": f"t.{uuid4().hex[:12]}", "version": "1.0.0", "kind": kind, "text": text, **more}
    answer = api.post("/v1/prompts", body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"].startswith(f"/v1/prompts/{body['templateId']}")
    return f"prompt:{body['templateId']}@1.0.0"


def ran(api: Api, document: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    assert api.http.put(f"/v1/workflows/{document['id']}", json=document).status_code in (200, 201)
    body = {"workflowId": document["id"], "inputs": inputs or {}, "configurable": SAID}
    answer = api.caller("test").post("/v1/runs", body)
    assert answer.status_code == 201, answer.text
    return api.wait(answer.json()["runId"])


def told(api: Api, run_id: str, *kinds: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in api.events(run_id) if event["type"] in kinds]


def test_a_template_with_a_mistake_says_where(api: Api) -> None:
    body = {"templateId": "t.bad", "version": "1.0.0", "kind": "user", "text": "x", "variables": [{"name": "a b"}]}
    assert refused(api.post("/v1/prompts", body), 400, "prompt_template_invalid")["at"].startswith("$.variables")
    other = {**body, "templateId": "t.other", "variables": []}
    refused(api.http.put("/v1/prompts/t.bad", json=other), 400, "prompt_template_invalid")
    refused(api.post("/v1/prompts:render", {"ref": "no ref", "variables": {}}), 400, "prompt_ref_invalid")
    refused(api.caller("reader").post("/v1/prompts", body), 403, "forbidden")


def test_templates_are_told_apart_by_their_filters(api: Api) -> None:
    tag = uuid4().hex
    refs = [stored(api, kind, "x", tags=[tag]) for kind in ("system", "user", "few-shot")]
    page = api.get("/v1/prompts", params={"tag": tag, "limit": 2}).json()
    rest = api.get("/v1/prompts", params={"tag": tag, "cursor": page["nextCursor"]}).json()
    found = [f"prompt:{item['templateId']}@{item['version']}" for item in (*page["items"], *rest["items"])]
    assert sorted(found) == sorted(refs) and "nextCursor" not in rest
    assert len(api.get("/v1/prompts", params={"tag": tag, "kind": "user"}).json()["items"]) == 1
    assert all(item["meta"]["source"] == "user" for item in page["items"])


def test_a_node_asks_with_its_workflows_prompts_unless_it_names_its_own(api: Api) -> None:
    default, own = stored(api, "system", "Be brief."), stored(api, "system", "Be {{how}}.")
    defaults = {"promptRefs": {"system": default}}
    how = {"how": {"type": "static", "value": "slow"}}
    for config, wanted, layer in (({}, default, "workflow-defaults"), ({"systemPromptRef": own}, own, "node")):
        ask = node("ask", "core.ai.callPrompt", {"prompt": "Well?", **config}, inputs=how)
        run = ran(api, workflow(f"prompted-{layer}", ask, defaults=defaults))
        assert run["status"] == "completed", run
        (resolved,) = told(api, run["runId"], "agent.promptResolved")
        assert (resolved["kind"], resolved["resolved"]) == ("system", wanted)
        assert [entry["layer"] for entry in resolved["chain"] if entry["applied"]] == [layer]
        (composed,) = told(api, run["runId"], "prompt.composed")
        rendered = api.post("/v1/prompts:render", {"ref": wanted, "variables": {"how": "slow"}}).json()
        assert (composed["hash"], composed["refs"]) == (rendered["hash"], [wanted])


def test_a_value_that_is_missing_fails_the_node_and_a_fork_keeps_what_was_said(api: Api) -> None:
    slots = [{"name": "what", "type": "string", "required": True}]
    ref = stored(api, "user", "Say {{what}}.", variables=slots)
    ask = node("ask", "core.ai.callPrompt", {"userPromptRef": ref})
    run = ran(api, workflow("prompted-short", ask))
    assert (run["status"], run["error"]["code"]) == ("failed", "prompt_variable_unresolved")
    ask["inputs"] = {"what": {"type": "static", "value": "aye"}}
    run = ran(api, workflow("prompted-whole", ask))
    assert run["status"] == "completed", run
    assert api.http.delete(f"/v1/prompts/{ref[7:].partition('@')[0]}").status_code == 204
    fork = api.post(f"/v1/runs/{run['runId']}:fork", {"mode": "replay"}).json()["runId"]
    assert api.wait(fork)["status"] == "completed"
    kinds = ("agent.promptResolved", "prompt.composed")
    assert told(api, fork, *kinds) == told(api, run["runId"], *kinds) != []


def test_a_node_that_names_no_prompt_is_refused_with_its_place(api: Api) -> None:
    document = workflow("prompted-wrong", node("ask", "core.ai.callPrompt", {"userPromptRef": "no ref"}))
    (error,) = api.post("/v1/workflows:check", document).json()["errors"]
    assert error["at"] == "$.nodes[0].config.userPromptRef"


def test_an_agent_tells_which_prompts_it_works_by(api: Api) -> None:
    task = stored(api, "user", "Do this: {{task}}")
    work = node("work", "core.agent", {"task": "Say aye.", "userPromptRef": task})
    run = ran(api, workflow("prompted-agent", work))
    assert run["status"] == "completed", run
    resolved = told(api, run["runId"], "agent.promptResolved")
    applied = [entry["layer"] for item in resolved for entry in item["chain"] if entry["applied"]]
    assert ([item["kind"] for item in resolved], applied) == (["system", "user"], ["agent-intrinsic", "node"])
    (composed,) = told(api, run["runId"], "prompt.composed")
    rendered = api.post("/v1/prompts:render", {"ref": task, "variables": {"task": "Say aye."}}).json()
    assert composed["hash"] == rendered["hash"]
