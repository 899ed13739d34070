"""Every page that links lead to, on a host that is full of markup: whoever wrote it, it is text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

import pytest

from forestay.console import PAGES
from tests.console.conftest import Console
from tests.console.page import Node
from tests.console.served import harbour, served, workflow
from tests.console.test_extensions import HOSTILE, XSS

SCRIPT = "<script>alert(1)</script>"
QUOTED = '"><svg onload=alert(1)>'


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Markup from authors, extensions, notes, callers, a model that repeats what it is told, and a person."""
    folder = harbour(tmp_path_factory.mktemp("crawl"))
    (folder / "extensions" / "loud").mkdir()
    (folder / "extensions" / "loud" / "index.ts").write_text(HOSTILE)
    (folder / "notes" / "loud.md").write_text(f"# {SCRIPT}\n\nThe {XSS} lies at berth 9. {QUOTED} sails.\n")
    entry = {"command": "python3", "args": [XSS, SCRIPT]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"loud": entry}}))
    gate = {"title": XSS, "description": SCRIPT, "artifactData": {QUOTED: XSS, "tool": SCRIPT}}
    questions = {"questions": [{"id": QUOTED, "question": XSS, "schema": {"type": "string", "enum": [SCRIPT]}}]}
    for document in (
        workflow("loud", ("draft", "core.identity", {}), ("gate", "core.approvalGate", gate)),
        workflow("asks", ("ask", "core.clarificationGate", questions)),
        workflow("fails", ("bad", "core.fail", {"message": XSS})),
    ):
        document["name"] = XSS
        (folder / "workflows" / f"{document['id']}.json").write_text(json.dumps(document))
    with served(folder, "--trust") as running:
        visitor = Console(running)
        _fill(visitor)
        yield visitor
        visitor.http.close()


def _fill(visitor: Console) -> None:
    running = visitor.running
    question = f'Where does the {XSS} lie? {SCRIPT} Use tally, then write "{QUOTED}" to report.md'
    run = running.start("harbour", question=question)
    running.until(run, "interrupt.requested")
    running.resolve(run, "master", action="reject", comment=XSS, remember="once")
    running.until(run, "interrupt.requested", count=2)
    running.resolve(run, "master", action="accept", comment=SCRIPT)
    running.until(run, "run.completed", "run.failed")
    waiting = running.start("harbour", question=question)
    running.until(waiting, "interrupt.requested")
    running.until(running.start("fails"), "run.failed")
    for name in ("loud", "asks"):
        waiting = running.start(name, note=XSS)
        running.until(waiting, "interrupt.requested")
    for path, body in (
        (f"/v1/runs/{run}:fork", {"mode": "replay"}),
        ("/v1/schedules", {"workflowId": "loud", "cron": "0 3 * * *", "tags": [XSS], "inputs": {QUOTED: SCRIPT}}),
        ("/v1/webhooks", {"url": "https://example.com/?a=%3Cimg%3E", "events": ["run.completed"], "tags": [XSS]}),
    ):
        made = running.api.post(path, json=body)
        assert made.status_code == 201, made.text
    made = running.api.post("/crp/sessions", json={"app_id": f"{XSS}{SCRIPT}"})
    assert made.status_code == 201, made.text
    session = made.json()["session_id"]
    taken = running.api.post(
        f"/crp/sessions/{session}/ingest", json={"text": f"{XSS} {QUOTED}", "source_label": SCRIPT}
    )
    assert taken.status_code < 300, taken.text
    _talk(visitor)
    _staff(visitor)
    visitor.send("/extensions/loud/decide", capability="read", scope=f"a/{XSS.replace(' ', '')}", effect="allow")


def _staff(visitor: Console) -> None:
    """An agent, a member, a department and two evaluations, with markup wherever a name goes."""
    api, agent, owner = visitor.running.api, "vendor.loud.desk", {"tenantId": "default"}
    manifest = {"agentId": agent, "persona": XSS, "modelClass": "general", "systemPrompt": SCRIPT, "description": XSS}
    task = {
        "taskId": "loud",
        "input": SCRIPT,
        "expected": {"kind": "golden", "match": {"strategy": "exact", "value": 1}},
    }
    suite = {"suiteId": "loud.evals.one", "version": "1.0.0", "modes": ["golden"], "tasks": [task]}
    role = {"roleId": "loud", "name": SCRIPT}
    chart = {
        "departments": [{"departmentId": "loud", "name": XSS, "roles": [role]}],
        "members": [{"rosterId": "host:loud", "departmentId": "loud", "roleId": "loud", "reportsTo": None}],
    }
    for method, path, body in (
        ("POST", "/host/v1/agent-packs", {"name": "vendor.loud", "version": "1.0.0", "agents": [manifest]}),
        ("PUT", "/host/v1/roster/host:loud",
         {"rosterId": "host:loud", "persona": SCRIPT, "agentRef": {"agentId": agent}, "owner": owner}),
        ("PUT", "/host/v1/org-chart", {"owner": owner, **chart}),
        ("POST", "/host/v1/eval-suites", suite),
    ):  # fmt: skip
        done = api.request(method, path, json=body)
        assert done.status_code < 300, done.text
    for _ in range(2):
        made = api.post("/v1/runs", json={"mode": "eval", "evalSuiteRef": "loud.evals.one@1.0.0", "agentId": agent})
        visitor.running.until(made.json()["runId"], "run.completed")


def _talk(visitor: Console) -> None:
    """A conversation in which everything that somebody else chose is markup."""
    text = [{"type": "text", "text": f"{XSS} {SCRIPT}"}]
    call = {"type": "toolCall", "id": "1", "name": XSS, "arguments": {QUOTED: SCRIPT}}
    answer = {"role": "assistant", "content": [call, *text], "model": SCRIPT, "stopReason": "stop"}
    result = {"role": "toolResult", "toolName": QUOTED, "toolCallId": "1", "content": text}
    told = ({"role": "user", "content": text}, answer, result)
    entries: list[dict[str, object]] = [{"type": "message", "message": message} for message in told]
    entries += [{"type": "custom_message", "customType": XSS, "content": SCRIPT, "display": True}]
    entries += [{"type": "session_info", "name": QUOTED}, {"type": "label", "targetId": "e0", "label": XSS}]
    at = "2026-01-01T00:00:00.000Z"
    lines: list[dict[str, object]] = [{"type": "session", "version": 3, "id": "loud", "timestamp": at, "cwd": XSS}]
    for number, entry in enumerate(entries):
        place = {"id": f"e{number}", "parentId": f"e{number - 1}" if number else None, "timestamp": at}
        lines.append({**entry, **place})
    file = "".join(json.dumps(line) + "\n" for line in lines)
    taken = visitor.running.api.post("/host/v1/sessions/import", json={"file": file})
    assert taken.status_code == 201, taken.text


def _links(page: Node, base: str) -> Iterator[str]:
    for node in page.all("a"):
        target = urlsplit(urljoin(base, node["href"]))
        assert not target.netloc, node["href"]
        if not target.path.endswith("/openapi.json"):  # documents, which other tests read
            yield target.path + (f"?{target.query}" if target.query else "")


def test_whoever_wrote_it_it_is_text(hostile: Console) -> None:
    seen: dict[str, Node] = {}
    waiting = ["/", "/signed-in?state=<img src=x>"]  # a sign-in elsewhere leads to the second
    while waiting and len(seen) < 300:
        path = waiting.pop(0)
        page = seen[path] = hostile.page(path)  # `parse` checks what holds for every page
        assert page.all("img") == [], path
        assert all("onload" not in node.attributes for node in page.all("svg")), path
        waiting += [link for link in _links(page, path) if link not in seen and link not in waiting]
    assert not waiting, "the crawl did not come to its end"
    _everything_was_seen(list(seen))
    said = " ".join(page.text for page in seen.values())
    assert said.count(XSS) > 30
    assert said.count(SCRIPT) > 10


def _everything_was_seen(paths: list[str]) -> None:
    """Each page of the console was among what links led to."""
    for method, route, page in PAGES:
        if method == "GET" and not route.endswith(("/live", "/preview")):
            pattern = re.sub(r"\{\w+\}", "[^/]+", route.replace("{stream}", ".+"))
            assert any(re.fullmatch(pattern, path.partition("?")[0]) for path in paths), (route, page)


def test_previews_and_searches_take_markup_too(hostile: Console) -> None:
    session = next(
        node["href"] for node in hostile.page("/relay").all("a") if re.fullmatch(r"/relay/[0-9a-f-]{36}", node["href"])
    )
    for path, query in (
        (f"{session}/preview", {"task": XSS, "system": SCRIPT}),
        (session, {"q": XSS}),
        ("/runs", {"workflow": QUOTED, "tag": XSS, "status": SCRIPT}),
        ("/ledger", {"prefix": QUOTED}),
        ("/extensions/loud", {"only": QUOTED, "done": XSS}),
    ):
        answer = hostile.http.get(path, params=query)
        assert answer.status_code == 200, (path, answer.text)
        assert XSS not in answer.text and QUOTED not in answer.text, path


def test_a_key_sees_only_the_pages_of_its_scopes(hostile: Console) -> None:
    wanted = {"name": "phone", "scopes": ["approvals:respond", "runs:read"]}
    made = hostile.running.api.post("/host/v1/keys", json=wanted, headers={"Accept": "application/json"}).json()
    visitor = Console(hostile.running, made.get("result", made)["apiKey"])
    nav = [node.text.split(" ")[0] for node in visitor.page("/").one("nav[aria-label=Pages]").all("a")]
    assert nav == ["Overview", "Sessions", "Runs", "Inbox", "Charts"]
    for path in ("/extensions", "/extensions/loud", "/servers", "/relay", "/ledger", "/ledger/audit"):
        visitor.page(path, 403)
    for path in ("/agents", "/agents/core.forestay.assistant", "/triggers"):
        visitor.page(path, 403)
    visitor.send("/extensions/loud/decide", 403, capability="exec", effect="allow")
    visitor.send("/extensions", 403)
    visitor.http.close()
