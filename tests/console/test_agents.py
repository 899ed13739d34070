"""The pages about agents: versions and how they change, evaluations, budgets, and events from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.console.conftest import Console

AGENT = "vendor.page.support"
MANIFEST = {"agentId": AGENT, "persona": "Support", "modelClass": "general", "systemPrompt": "Help."}
ENTRY = {
    "rosterId": "host:sally",
    "persona": "Sally",
    "agentRef": {"agentId": AGENT},
    "owner": {"tenantId": "default"},
    "workflows": ["review"],
}
CHART = {
    "owner": {"tenantId": "default"},
    "departments": [
        {"departmentId": "harbour", "name": "Harbour", "roles": []},
        {
            "departmentId": "desk",
            "name": "Desk",
            "roles": [{"roleId": "clerk", "name": "Clerk"}],
            "parentDepartmentId": "harbour",
        },
    ],
    "members": [{"rosterId": "host:sally", "departmentId": "desk", "roleId": "clerk", "reportsTo": None}],
}


def said(console: Console, method: str, path: str, body: Any = None) -> Any:
    answer = console.running.api.request(method, path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def until(found: Callable[[], bool]) -> None:
    while not found():
        pass


def test_an_agent_is_promoted_and_rolled_back(console: Console) -> None:
    for version in ("1.0.0", "2.0.0"):
        pack = {"name": "vendor.page", "version": version, "agents": [MANIFEST]}
        said(console, "POST", "/host/v1/agent-packs", pack)
    assert any(link["href"] == f"/agents/{AGENT}" for link in console.page("/agents").all("a"))
    path = f"/agents/{AGENT}/transition"
    for version in ("1.0.0", "2.0.0"):
        for _ in range(3):
            console.send(path, version=version, transition="promote")
        done = console.send(path, version=version, transition="promote", channel="stable")
        assert done.headers["location"] == f"/agents/{AGENT}?done=active"
    assert _states(console) == {"1.0.0": "active", "2.0.0": "active"}
    assert "100 percent of runs" in console.page(f"/agents/{AGENT}").one("svg.share")["aria-label"]
    console.send(path, version="2.0.0", transition="rollback")
    assert _states(console)["2.0.0"] == "rolled-back back to 1.0.0"
    console.send(path, 409, version="2.0.0", transition="pause")
    console.send(path, 400, version="2.0.0", transition="explode")
    console.page("/agents/vendor.not.there", 404)


def _states(console: Console) -> dict[str, str]:
    rows = console.page(f"/agents/{AGENT}").one("tbody").all("tr")
    cells = [{cell["data-label"]: cell.text for cell in row.all("td")} for row in rows]
    return {cell["Version"]: cell["State"] for cell in cells}


def test_a_canary_takes_its_share_and_the_share_is_changed(console: Console) -> None:
    canary = "vendor.page.canary"
    path = f"/agents/{canary}/transition"
    for version, share in (("1.0.0", ""), ("2.0.0", "20")):
        pack = {"name": "vendor.share", "version": version, "agents": [{**MANIFEST, "agentId": canary}]}
        said(console, "POST", "/host/v1/agent-packs", pack)
        for _ in range(3):
            console.send(path, version=version, transition="promote")
        console.send(path, version=version, transition="promote", channel="stable", share=share)
    page = console.page(f"/agents/{canary}")
    assert page.one("svg.share")["aria-label"] == "stable: 2.0.0 20 percent of runs, 1.0.0 80 percent of runs"
    assert "No evaluation is asked for." in page.text
    console.send(path, version="2.0.0", transition="adjust-canary", share="35")
    assert "2.0.0: 35 % of runs (canary)" in console.page(f"/agents/{canary}").text
    console.send(path, 400, version="2.0.0", transition="adjust-canary", share="many")
    console.send(path, 400, version="2.0.0", transition="adjust-canary", share="101")


def test_roster_and_chart_are_drawn(console: Console) -> None:
    said(console, "PUT", "/host/v1/roster/host:sally", ENTRY)
    said(console, "PUT", "/host/v1/org-chart", CHART)
    page = console.page("/agents")
    assert "Sally" in page.text
    drawn = page.one("svg.org")
    assert [node.text for node in drawn.all("text") if node.attributes.get("class") == "name"] == [
        "HarbourHarbour",
        "DeskDesk",
    ]
    assert len(drawn.all("path")) == 1, "a line from Harbour to Desk"
    assert "Desk Sally (host:sally) Clerk" in page.one("ul.departments").one("ul").text


def test_evaluations_and_budgets_are_listed(console: Console) -> None:
    match = {"kind": "golden", "match": {"strategy": "regex", "value": ".*"}}
    suite = {"suiteId": "page.evals.one", "version": "1.0.0", "modes": ["golden"]}
    tasks = [{"taskId": "hello", "input": "Say hello.", "expected": match}]
    said(console, "POST", "/host/v1/eval-suites", {**suite, "tasks": tasks})
    assert "Nothing was evaluated yet." in console.page("/evaluations").text
    asked = {"mode": "eval", "evalSuiteRef": "page.evals.one@1.0.0", "agentId": AGENT}
    run_id = said(console, "POST", "/v1/runs", asked)["runId"]
    console.running.until(run_id, "run.completed")
    row = console.page("/evaluations").one("tbody").one("tr")
    cells = {cell["data-label"]: cell.text for cell in row.all("td")}
    assert (cells["Agent"], cells["Score"], cells["Tasks passed"]) == (f"{AGENT} 2.0.0", "1.00 passed", "1 of 1")
    assert not console.page("/evaluations").all("svg"), "one score is no line"
    again = said(console, "POST", "/v1/runs", asked)["runId"]
    console.running.until(again, "run.completed")
    page = console.page("/evaluations")
    assert [node["href"] for node in page.one("svg.chart").all("a")] == [f"/runs/{run_id}", f"/runs/{again}"]
    chosen = [node["value"] for node in page.all("input") if "checked" in node.attributes]
    assert chosen == [again, run_id], "the newest beside the one before it"
    compared = console.page(f"/evaluations/compare?first={run_id}&second={again}")
    cells = {cell["data-label"]: cell.text for cell in compared.all("tbody")[1].one("tr").all("td")}
    assert (cells["Task"], cells["First"], cells["Second"], cells["Change"]) == ("hello", "1.00", "1.00", "+0.00")
    console.page(f"/evaluations/compare?first={run_id}&second=run_nowhere", 404)
    limited = {
        "workflowId": "harbour",
        "inputs": {"question": "Where?"},
        "configurable": {"budget": {"maxTokens": 99999}},
    }
    run_id = said(console, "POST", "/v1/runs", limited)["runId"]
    console.running.until(run_id, "run.failed", "run.completed", "interrupt.requested")
    console.page(f"/evaluations/compare?first={again}&second={run_id}", 404)  # no evaluation
    page = console.page("/budgets")
    row = next(row for row in page.one("tbody").all("tr") if row.one("a")["href"] == f"/runs/{run_id}")
    assert {cell["data-label"]: cell.text for cell in row.all("td")}["Ceiling"] == "99999"
    assert "held of 99999" in row.one("svg.gauge")["aria-label"]


def test_a_dead_letter_is_tried_again(console: Console) -> None:
    wanted = {"source": "queue", "workflowId": "harbour", "retryPolicy": {"maxAttempts": 1}}
    made = said(console, "POST", "/host/v1/trigger-subscriptions", wanted)["result"]
    said(console, "POST", made["binding"]["path"], {"eventId": "e"})  # it has no question
    until(lambda: bool(_redrives(console)))
    console.send(_redrives(console)[0])
    name = made["subscription"]["subscriptionId"]
    until(lambda: said(console, "GET", f"/v1/trigger-subscriptions/{name}")["state"] == "dead-lettered")
    console.send(f"/triggers/{name}/resume")
    console.send(f"/triggers/{name}/pause")
    assert "paused" in console.page("/triggers").text


def _redrives(console: Console) -> list[str]:
    forms = console.page("/triggers?only=dead").all("form")
    return [action for form in forms if (action := form.attributes.get("action", "")).endswith("/redrive")]


def test_what_is_remembered_is_found_and_forgotten(console: Console) -> None:
    for text in ("The Aurora <b>lies</b> at berth 7.", "Bread is baked at four."):
        said(console, "POST", "/host/v1/memory", {"memoryRef": "page/notes", "content": text, "tags": ["t"]})
    assert "Bread is baked" in console.page("/memory").text
    page = console.page("/memory?q=aurora&ref=page%2Fnotes")
    assert "The Aurora <b>lies</b> at berth 7." in page.text and "Bread" not in page.text
    (form,) = [form for form in page.all("form") if form.attributes.get("action", "").endswith("/forget")]
    console.send(form["action"])
    assert "Nothing is remembered that answers this." in console.page("/memory?q=aurora").text
    console.send(form["action"], 404)


def test_prompts_are_shown_with_their_slots(console: Console) -> None:
    assert any(link["href"] == "/prompts" for link in console.page("/agents").all("a"))
    slot = {"name": "who", "type": "string", "required": True}
    body = {"templateId": "page.greet", "version": "1.0.0", "kind": "user", "text": "Greet <{{who}}>."}
    said(console, "POST", "/v1/prompts", {**body, "variables": [slot], "tags": ["kind"]})
    text = console.page("/prompts").text
    for shown in ("prompt:page.greet@1.0.0", "Greet <{{who}}>.", "needed", "this tenant"):
        assert shown in text, shown


def test_credentials_are_shown_by_name_and_taken_back(console: Console) -> None:
    assert any(link["href"] == "/credentials" for link in console.page("/agents").all("a"))
    value = "never-on-a-page-8c1f"
    common = {"value": value, "audiences": ["api.example.com"]}
    said(console, "PUT", "/host/v1/credentials/page-old", {**common, "expiresAt": "2020-01-01T00:00:00Z"})
    said(console, "PUT", "/host/v1/credentials/page-new", {**common, "approval": True, "workflows": ["pay-*"]})
    text = console.page("/credentials").text
    for shown in ("page-old", "expired", "2020-01-01", "page-new", "api.example.com", "when a person agrees", "pay-*"):
        assert shown in text, shown
    assert value not in text
    for name in ("page-old", "page-new"):
        assert console.send(f"/credentials/{name}/revoke").headers["location"] == "/credentials"
    console.send("/credentials/page-old/revoke", 404)
    assert "page-new" not in console.page("/credentials").text
