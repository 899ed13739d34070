"""A host in which everything is said by somebody hostile: each field that a model, an extension, a caller or a webhook
can fill holds a payload. A page that shows one of them as anything but text is found by `page.py`."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from forestay.console import mounts
from forestay.host import Options
from forestay.kernel import Agents, Config, ExtensionConfig, Http, HttpLimits, Models
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.surface import Serving, serve

MARK = "zqx"
PAYLOADS = (
    f"<script>{MARK}()</script>",
    f'"><img src=x onerror={MARK}()>',
    f"'><svg/onload={MARK}()>",
    f"javascript:{MARK}()//",
    f"</textarea></pre></title></style></script><{MARK}-element>",
    f'" {MARK}-attribute="1" onfocus="{MARK}()" autofocus="',
    f"' {MARK}-attribute='1' onmouseover='{MARK}()",
    f"--><{MARK}-comment>]]><{MARK}-cdata><!--",
    f"{{{{ {MARK} }}}}{{% raw %}}<{MARK}-template>",
    f"\u202e<{MARK}-reversed>\u2028<{MARK}-separated>\uff1c{MARK}-wide\uff1e&lt;{MARK}-entity&gt;&#60;{MARK}-number>",
)
ALL = " ".join(PAYLOADS)


def field(name: str) -> str:
    """Every payload, with a word in front that tells where it was put."""
    return f"{MARK}at{name} {ALL}"


EXTENSION = """
export default function (pi) {
  pi.registerTool({ name: "shout", label: %(label)s, description: %(description)s,
    parameters: { type: "object", properties: { words: { type: "string", description: %(parameter)s } } },
    async execute(id, input) { console.log(%(log)s); return { content: [{ type: "text", text: %(result)s }] }; } });
  pi.registerTool({ name: "fail", label: "Fail", description: "Fails",
    parameters: { type: "object", properties: {} },
    async execute() { throw new Error(%(error)s); } });
  pi.registerCommand("speak", { description: %(command)s, handler: async () => {} });
}
"""
SAID = ("label", "description", "parameter", "log", "result", "error", "command")

TURNS = (
    Turn(field("reasoning"), tool_calls=(ScriptedCall("shout", {"words": field("argument")}),)),
    Turn(field("second"), tool_calls=(ScriptedCall("fail", {}),)),
    Turn(field("answer")),
)


def workflow(name: str, *nodes: dict[str, Any]) -> dict[str, Any]:
    edges = [
        {"id": f"e{place}", "sourceNodeId": before["id"], "targetNodeId": after["id"]}
        for place, (before, after) in enumerate(itertools.pairwise(nodes))
    ]
    return {
        "id": name,
        "name": field("workflow")[:256],
        "description": field("about"),
        "version": "1.0.0",
        "nodes": list(nodes),
        "edges": edges,
        "triggers": [{"id": "manual", "type": "manual"}],
        "variables": [{"name": "note", "type": "string", "description": field("variable")}],
        "metadata": {"author": field("author")},
        "settings": {},
    }


def node(name: str, kind: str, **config: Any) -> dict[str, Any]:
    return {
        "id": name,
        "typeId": kind,
        "name": field(f"node{name}")[:200],
        "position": {"x": 0, "y": 0},
        "config": config,
        "inputs": {"value": {"type": "static", "value": field(f"literal{name}")}} if kind == "core.identity" else {},
    }


async def fill(serving: Serving, http: httpx.AsyncClient) -> None:
    """Say everything, once, as the operator."""

    async def made(method: str, path: str, body: Any) -> Any:
        answer = await http.request(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text[:500])
        return answer.json()

    ask = node(
        "gate", "core.approvalGate", title=field("title"), message=field("message"), actions=["accept", "reject"]
    )
    clarify = node("clarify", "core.clarificationGate", questions=[{"id": "q", "question": field("question")}])
    await made("PUT", "/v1/workflows/hostile-ask", workflow("hostile-ask", node("draft", "core.identity"), ask))
    await made("PUT", "/v1/workflows/hostile-clarify", workflow("hostile-clarify", clarify))
    await made(
        "PUT",
        "/v1/workflows/hostile-fail",
        workflow("hostile-fail", node("broken", "core.fail", message=field("failure"), code="zqx_code")),
    )
    common = {
        "inputs": {"note": field("input"), ALL[:60]: field("inputkey")},
        "tags": [field("tag")[:120]],
        "metadata": {"why": field("metadata"), field("metakey")[:100]: 1},
        "scopeId": field("scope")[:100],
    }
    names = ("hostile-ask", "hostile-clarify", "hostile-fail")
    runs = [(await made("POST", "/v1/runs", {"workflowId": name, **common}))["runId"] for name in names]
    asked = {"workflowId": "forestay-ask", "inputs": {"question": field("prompt")}}
    agent = (await made("POST", "/v1/runs", asked))["runId"]
    await _settled(http, *runs, agent)
    await _settled(http, (await made("POST", f"/v1/runs/{agent}:fork", {"mode": "replay"}))["runId"])
    await http.post(f"/v1/runs/{runs[0]}/signals/{MARK}", json={"payload": field("signal")})
    hook = {
        "url": f"https://example.com/{MARK}?a=%3Cscript%3E",
        "events": ["run.completed"],
        "tags": [field("hook")[:50]],
    }
    await http.post("/v1/webhooks", json=hook)
    await http.post(
        "/v1/schedules",
        json={
            "workflowId": "hostile-fail",
            "cron": "0 3 * * *",
            "tags": [field("schedule")[:50]],
            "inputs": {"note": ALL},
        },
    )
    session = (await made("POST", "/crp/sessions", {"app_id": f"{MARK}<img src=x onerror={MARK}()>"}))["session_id"]
    for text in (field("fact"), f"The harbour master is {ALL}. The tide is {field('tide')}."):
        await http.post(f"/crp/sessions/{session}/ingest", json={"text": text, "source_label": field("source")[:100]})
    body = {"system_prompt": field("system"), "task_input": field("task")}
    await http.post(f"/crp/sessions/{session}/dispatch", json=body)
    await made("POST", "/host/v1/contexts", {"objective": field("objective"), "constraints": [field("constraint")]})
    grant = {"extension": field("subject")[:200], "effect": "deny", "capability": "read", "scope": f"{MARK}/<b>/**"}
    await made("POST", "/host/v1/grants", grant)


async def _settled(http: httpx.AsyncClient, *runs: str) -> None:
    """Until each run has ended or waits; an agent's question is accepted."""
    for run_id in runs:
        after = -1
        while True:
            run = (await http.get(f"/v1/runs/{run_id}")).json()
            if run["status"] in ("completed", "failed", "cancelled"):
                break
            if run["status"].startswith("waiting") and run["workflowId"] != "forestay-ask":
                break
            if run["status"].startswith("waiting"):
                answer = {"resumeValue": {"action": "accept", "comment": field("comment")}}
                await http.post(f"/v1/runs/{run_id}/interrupts/agent", json=answer)
            page = await http.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": after, "timeout": 5})
            after = max([after, *(event["sequence"] for event in page.json()["events"])])


Story = Callable[[Serving, httpx.AsyncClient], Awaitable[None]]


def run(folder: Path, story: Story, *, filled: bool = True, **limits: Any) -> None:
    """`story` with a host and the operator's client; `filled` has everything said before."""

    async def whole() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hostile.ts").write_text(EXTENSION % {name: json.dumps(field(name)) for name in SAID})
        config = Config(
            models=Models(default="script"),
            agents=Agents(mode="permissive"),
            extensions=ExtensionConfig(paths=["hostile.ts"]),
            http=Http(limits=HttpLimits(**limits)),
        )
        models = {"script": Scripted(Script(TURNS, position="conversation"))}
        options = Options(config=config, root=folder, data=folder / ".forestay", models=models)
        async with asyncio.timeout(240), serve(options, mounts=mounts) as serving:
            await serving.host.extensions.trust.give(serving.host.root)
            _, key = await serving.services.keys.create("operator")
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=60) as http:
                if filled:
                    await fill(serving, http)
                assert (await http.post("/login", data={"key": key})).status_code == 303
                await story(serving, http)

    asyncio.run(whole())
