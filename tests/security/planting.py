"""A host whose every feature is used once, with a canary at each place where somebody gives content or a secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import imaplib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from forestay.conformance import from_variable, node, variable, workflow
from tests.extensions.mcp.oauth_server import Authority, consent, standing
from tests.forked import Forked
from tests.host import test_mail_intake as mail
from tests.runs.events import REQUIRED
from tests.security.canaries import canary
from tests.security.outside import BREAKS, Outside, standing_outside

KEY = "hk_test_0123456789abcdef0123456789abcdef"
AGENT, STRICT = "vendor.heron.tide", "vendor.heron.strict"
ENDED = ("completed", "failed", "cancelled")
SEAMS = "/v1/host/sample"
_TRIGGERS = "/host/v1/trigger-subscriptions"

SETTINGS = """
[http]
access_log = true
[telemetry]
traces = "otlp"
[models]
default = "heron"
[models.entries.heron]
model = "m"
base_url = "{url}/v1"
api_key_env = "HERON_MODEL_KEY"
context_window = 65536
[agents]
mode = "permissive"
fetch = ["127.0.0.1"]
[budgets]
[budgets.prices."*"]
input = 1.0
output = 2.0
[[budgets.ceilings]]
scope = "project"
per = "day"
max_tokens = 1000000
[evaluations]
judge = "default"
[mailboxes.orders]
host = "127.0.0.1"
user = "orders"
password_env = "HERON_MAIL_PASSWORD"
port = {mail}
tls = "starttls"
poll_seconds = 1.0
[oauth.providers.ports]
auth_url = "{issuer}/authorize"
token_url = "{issuer}/token"
client_id = "forestay"
client_secret_env = "HERON_OAUTH_SECRET"
scopes = ["use"]
audiences = ["{place}"]
"""
PACK = {
    "name": "vendor.heron",
    "version": "1.0.0",
    "agents": [
        {
            "agentId": AGENT,
            "persona": "Tide",
            "modelClass": "general",
            "systemPrompt": f"Tell the tide. {canary('systemprompt')}",
            "toolAllowlist": ["fetch", "read"],
            "memoryShape": {"longTerm": True},
        },
        {
            "agentId": STRICT,
            "persona": "Strict",
            "modelClass": "general",
            "systemPrompt": f"Answer in JSON. {canary('systemprompt')}",
            "handoff": {"returnSchemaRef": "tide.json"},
        },
    ],
    "files": {"tide.json": '{"type": "object", "required": ["tide"]}'},
}
SUITE = {
    "suiteId": "heron.evals.tide",
    "version": "1.0.0",
    "modes": ["golden", "rubric"],
    "tasks": [
        {
            "taskId": "golden",
            "input": f"How is the tide? {canary('taskinput')}",
            "expected": {"kind": "golden", "match": {"strategy": "contains", "value": canary("expectedanswer")}},
            "fixtures": {
                "toolResponses": [{"tool": "read", "response": canary("toolfixture")}],
                "memorySeed": [{"content": f"The tide was high yesterday. {canary('memoryseed')}"}],
            },
        },
        {
            "taskId": "rubric",
            "input": canary("taskinput"),
            "expected": {"kind": "rubric", "rubric": [{"criterion": canary("criterion"), "weight": 1.0}]},
        },
    ],
}


class Planted:
    """The host over HTTP, the outside, and every refusal that anybody was answered with."""

    def __init__(self, process: Forked, folder: Path, outside: Outside, authority: Authority) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "stderr").read_text()
        self.process, self.folder, self.outside, self.authority = process, folder, outside, authority
        said = json.loads(line)
        assert said["result"], said
        self.url = str(said["result"]["url"])
        self.refusals: list[tuple[str, str]] = []
        self.secrets: dict[str, str] = {}
        """What the host or a provider made up itself, and shows at most to the one who asked for it."""
        self.http = self.client(KEY)

    def client(self, key: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        hooks = {"response": [self._heard]}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, event_hooks=hooks)

    def _heard(self, answer: httpx.Response) -> None:
        if answer.status_code >= 400:
            answer.read()
            self.refusals.append((f"{answer.request.method} {answer.url.path}", f"{answer.headers}{answer.text}"))

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = self.http.request(method, path, json=body, **options)
        assert answer.status_code < 300, (path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def put(self, document: dict[str, Any]) -> str:
        self.ask("PUT", f"/v1/workflows/{document['id']}", document)
        return str(document["id"])

    def run(self, expect: str = "completed", **body: Any) -> str:
        """A run to its end; questions of a gate are agreed to."""
        run_id = str(self.ask("POST", "/v1/runs", body)["runId"])
        found = self.until(lambda: self._ended(run_id))
        assert found["status"] == expect, found
        return run_id

    def _ended(self, run_id: str) -> Any:
        found = self.ask("GET", f"/v1/runs/{run_id}")
        if found["status"].startswith("waiting"):
            answer = {"resumeValue": {"action": "accept", "comment": canary("approvalcomment")}}
            self.http.post(f"/v1/runs/{run_id}/interrupts/{found['currentNodeId']}", json=answer)
        return found if found["status"] in ENDED else None

    def until(self, look: Callable[[], Any]) -> Any:
        patience = time.monotonic() + 40
        while (found := look()) is None:
            assert time.monotonic() < patience, "it did not happen in time"
            time.sleep(0.02)
        return found


@contextmanager
def planted(folder: Path) -> Iterator[Planted]:
    """A host in a process of its own, with the outside that its settings name."""
    home, project = folder / "home", folder / "project"
    (home / ".config" / "forestay").mkdir(parents=True)
    project.mkdir()
    (project / "notes.md").write_text(f"The tide: {canary('toolresult')}\n")
    with ExitStack() as stack:
        outside = stack.enter_context(standing_outside())
        issuer, authority = stack.enter_context(standing("http://127.0.0.1/not-yet"))
        server = mail.Server(folder, canary("mailboxpassword"))
        stack.callback(server.end)
        settings = SETTINGS.format(url=outside.url, place=outside.place, issuer=issuer, mail=server.port)
        (home / ".config" / "forestay" / "config.toml").write_text(settings)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "HOME": str(home),
            "FORESTAY_API_KEY": KEY,
            "HERON_MODEL_KEY": canary("modelkey"),
            "HERON_MAIL_PASSWORD": canary("mailboxpassword"),
            "HERON_OAUTH_SECRET": canary("oauthclientsecret"),
            "SSL_CERT_FILE": str(server.certificate),
            "OTEL_EXPORTER_OTLP_ENDPOINT": outside.url,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "PI_EXTENSION_LOG_DIR": str(folder / "logs"),
        }
        reachable = (outside.place, issuer.removeprefix("http://"))
        command = ["up", "--port", "0", "--json", "--sample-seams", "--data", str(folder / "data")]
        command += [word for place in reachable for word in ("--allow-egress", place)]
        with (folder / "stderr").open("wb") as log:
            process = Forked(
                project, *command, environ=environ, stderr=log.fileno(), module="tests.security.planted_host"
            )
        stack.callback(process.close)
        stack.callback(process.kill)
        there = Planted(process, folder, outside, authority)
        stack.callback(there.http.close)
        there.secrets["host key"] = KEY
        use_everything(there, server)
        yield there


def use_everything(there: Planted, server: mail.Server) -> None:
    """Each feature of the agent platform once, and each of its refusals."""
    hook = there.ask("POST", "/v1/webhooks", {"url": f"{there.outside.url}/hook", "events": sorted(REQUIRED)})
    there.secrets["webhook secret"] = hook["secret"]
    for step in (credentials, oauth, prompts, agents, requests, memory, evaluation, deployment, organisation, seams):
        step(there)
    triggers(there)
    mail_trigger(there, server)
    failures(there)
    refusals(there)
    there.ask("GET", "/v1/audit/verify")


def credentials(there: Planted) -> None:
    body = {"value": canary("credentialvalue"), "audiences": [there.outside.place]}
    there.ask("PUT", "/host/v1/credentials/harbour", body)


def oauth(there: Planted) -> None:
    begun = there.ask("POST", "/host/v1/oauth/authorizations", {"provider": "ports", "credentialId": "ports"})
    question = begun["result"]["open"]
    back = parse_qs(urlsplit(question).query)["redirect_uri"][0]
    there.authority.clients["forestay"] = OAuthClientInformationFull(
        client_id="forestay",
        client_secret=canary("oauthclientsecret"),
        redirect_uris=[AnyUrl(back)],
        token_endpoint_auth_method="client_secret_post",
        scope="use",
    )
    came = urlsplit(consent(question)).query
    with there.client() as browser:
        answer = browser.get(f"{urlsplit(back).path}?{came}")
        assert answer.status_code == 200, answer.text
        again = browser.get(f"{urlsplit(back).path}?{came}")
        assert again.status_code == 404, "a state is good once"
    fields = parse_qs(came)
    access, refresh = there.authority.access, there.authority.refresh
    there.secrets |= {"oauth code": fields["code"][0], "oauth state": fields["state"][0]}
    there.secrets |= {"oauth access token": next(iter(access)), "oauth refresh token": next(iter(refresh))}


def prompts(there: Planted) -> None:
    text = f"Be brief. {canary('templatetext')} {{{{about}}}}"
    slot = {"name": "about", "type": "string", "required": True}
    body = {"templateId": "t.heron", "version": "1.0.0", "kind": "user", "text": text, "variables": [slot]}
    there.ask("POST", "/v1/prompts", body)
    about = {"about": canary("templateinput")}
    there.ask("POST", "/v1/prompts:render", {"ref": "prompt:t.heron@1.0.0", "variables": about})
    asks = node(
        "ask", "core.ai.callPrompt", {"userPromptRef": "prompt:t.heron@1.0.0"}, inputs={"about": from_variable("about")}
    )
    there.put(workflow("heron-prompt", asks, variables=[variable("about", "string")]))
    run_id = there.run(workflowId="heron-prompt", inputs=about)
    correction = {"signal": {"kind": "correction", "correction": canary("correction")}}
    there.ask("POST", f"/v1/runs/{run_id}/annotations", correction)


def agents(there: Planted) -> None:
    there.ask("POST", "/host/v1/agent-packs", PACK)
    budget = {"budget": {"maxTokens": 100_000, "maxToolCalls": 10, "maxCostUsd": 5, "thresholdPercent": 0.001}}
    there.run(agentId=AGENT, inputs={"task": canary("question")}, configurable=budget)
    tight = {"budget": {"maxToolCalls": 1}}
    there.run("failed", agentId=AGENT, inputs={"task": canary("question")}, configurable=tight)


def requests(there: Planted) -> None:
    """A node's own request with a token, and a gate before it."""
    config = {
        "url": f"{there.outside.url}/api",
        "method": "POST",
        "credential": "ports",
        "headers": {"x-note": canary("requestheader")},
        "body": {"said": canary("requestbody")},
    }
    gate = node("gate", "core.approvalGate", {"title": "Go on?", "actions": ["accept", "reject"]})
    there.put(workflow("heron-request", gate, node("send", "core.http", config)))
    there.run(workflowId="heron-request")


def memory(there: Planted) -> None:
    kept = {"memoryRef": "harbour", "content": canary("memorycontent")}
    there.ask("POST", "/host/v1/memory", kept)
    gone = there.ask("POST", "/host/v1/memory", {**kept, "content": canary("forgottenmemory")})["result"]["memoryId"]
    there.ask("DELETE", f"/host/v1/memory/{gone}")


def evaluation(there: Planted) -> None:
    ref = there.ask("POST", "/host/v1/eval-suites", SUITE)["result"]["ref"]
    run_id = there.run(mode="eval", evalSuiteRef=ref, agentId=AGENT, configurable={"evalModes": ["golden", "rubric"]})
    there.ask("GET", f"/v1/runs/{run_id}/eval-summary")


def deployment(there: Planted) -> None:
    def move(version: str, transition: str = "promote", **more: Any) -> None:
        body = {"version": version, "transition": transition, **more}
        there.ask("POST", f"/v1/agents/{AGENT}/deployments", body)

    there.ask("POST", "/host/v1/agent-packs", {**PACK, "version": "2.0.0"})
    for version, canary_share in (("1.0.0", {}), ("2.0.0", {"canaryPercent": 10})):
        for _ in range(3):
            move(version)
        move(version, channel="stable", **canary_share)
    move("2.0.0", "adjust-canary", canaryPercent=20)
    move("2.0.0", "rollback", reason="slow")
    move("1.0.0", "pause")


def organisation(there: Planted) -> None:
    entry = {
        "rosterId": "host:heron",
        "persona": "Sally",
        "agentRef": {"agentId": AGENT},
        "owner": {"tenantId": "default"},
        "workflows": ["heron-prompt"],
    }
    there.ask("PUT", "/host/v1/roster/host:heron", entry)
    department = {"departmentId": "growth", "name": "Growth", "members": [{"rosterId": "host:heron"}]}
    there.http.put("/host/v1/org-chart", json={"departments": [department]})


def seams(there: Planted) -> None:
    said = canary("hookargument")
    for path, body in {
        "toolhooks/invoke": {"principal": "kit", "toolName": "web.search", "args": {"q": said}},
        "tools/session-run": {},
        "http/safe-fetch": {"url": f"http://169.254.169.254/?q={said}"},
        "http/safe-fetch-run": {"url": f"http://169.254.169.254/?q={said}"},
        "egress/decide": {"scenario": "canary"},
        "budget/run": {"scenario": "model-denied"},
        "roster/fire": {},
        "agents/live-invoke": {},
        "trigger-bridge/deliver": {"scenario": "exhaust", "source": "queue"},
    }.items():
        there.ask("POST", f"{SEAMS}/{path}", body)


def _order(there: Planted) -> str:
    variables = [variable(name, "string", defaultValue="") for name in ("order", "subject", "text")]
    return there.put(workflow("heron-order", node("take", "core.noop"), variables=variables))


def _subscribe(there: Planted, source: str, **more: Any) -> tuple[str, dict[str, Any]]:
    body = {"source": source, "workflowId": _order(there), "retryPolicy": {"maxAttempts": 1, "backoff": "none"}, **more}
    made = there.ask("POST", _TRIGGERS, body)["result"]
    return made["subscription"]["subscriptionId"], made["binding"]


def _delivered(there: Planted, subscription: str) -> None:
    """Wait until an event of the subscription has started a run that has ended."""

    def look() -> Any:
        found = there.ask("GET", "/host/v1/trigger-deliveries", params={"limit": 200})["result"]["deliveries"]
        runs = [item["runId"] for item in found if item["subscriptionId"] == subscription and item.get("runId")]
        return there._ended(runs[0]) if runs else None

    there.until(look)


def triggers(there: Planted) -> None:
    queue, binding = _subscribe(there, "queue")
    there.ask("POST", binding["path"], {"eventId": "e1", "inputs": {"order": canary("queueinput")}})
    _delivered(there, queue)
    there.ask("POST", binding["path"], {"eventId": "e2", "inputs": {"order": [canary("queueinput")]}})  # never a run
    form, binding = _subscribe(there, "form")
    with there.client() as stranger:
        token = re.search(r'name="forestay.page" value="([^"]+)"', stranger.get(binding["path"]).text)
        assert token is not None
        fields = {"forestay.page": token[1], "order": canary("formanswer")}
        assert stranger.post(binding["path"], data=fields).status_code == 202
    _delivered(there, form)
    hook, binding = _subscribe(there, "webhook")
    there.secrets["inbound secret"] = binding["secret"]
    body = json.dumps({"order": canary("webhookinput")}).encode()
    with there.client() as sender:
        assert sender.post(binding["path"], content=body, headers=_signed(binding["secret"], body)).status_code == 202
        forged = json.dumps({"order": canary("forgedbody")}).encode()
        assert sender.post(binding["path"], content=forged, headers=_signed(binding["secret"], body)).status_code == 403
    _delivered(there, hook)
    clock, _ = _subscribe(there, "schedule", cron="* * * * * *", inputs={"order": canary("scheduleinput")})
    _delivered(there, clock)
    there.ask("POST", f"{_TRIGGERS}/{clock}:pause")


def _signed(secret: str, body: bytes) -> dict[str, str]:
    name, stamp = f"evt_{uuid.uuid4()}", str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(mac).decode()
    signed = {"webhook-id": name, "webhook-timestamp": stamp, "webhook-signature": signature}
    return {"Content-Type": "application/json", **signed}


def mail_trigger(there: Planted, server: mail.Server) -> None:
    inbox: imaplib.IMAP4 = server.mailbox()
    message = EmailMessage()
    message["From"], message["Subject"] = "ann@example.com", canary("mailsubject")
    message["Message-ID"] = "<heron@example.com>"
    message.set_content(canary("mailbody"))
    assert inbox.append("INBOX", "", "", message.as_bytes())[0] == "OK"
    inbox.logout()
    name, _ = _subscribe(there, "email", mailbox="orders")
    _delivered(there, name)


def failures(there: Planted) -> None:
    """Runs that fail: a model that refuses and says everything that it heard, a place that is forbidden."""
    there.run("failed", workflowId="heron-prompt", inputs={"about": f"{BREAKS} {canary('failedinput')}"})
    shaped = {"prompt": "What is it?", "outputSchema": {"type": "object", "required": ["tide"]}}
    there.put(workflow("heron-shaped", node("ask", "core.ai.structuredOutput", shaped)))
    there.run("failed", workflowId="heron-shaped")
    again = workflow("heron-again", node("again", "core.noop"), settings={"maxLoopbackIterations": 2})
    condition = {"type": "expression", "expression": "true"}
    loop = {"id": "back", "sourceNodeId": "again", "targetNodeId": "again", "label": "loopback", "condition": condition}
    there.put({**again, "edges": [loop]})
    there.run("failed", workflowId="heron-again")
    there.run("failed", agentId=STRICT, inputs={"task": canary("question")})
    for name, config in {
        "heron-denied": {"url": "https://example.com/", "credential": "harbour"},
        "heron-blocked": {"url": "http://10.0.0.1/", "credential": "harbour"},
        "heron-failing": {"url": f"{there.outside.url}/api/fails", "credential": "harbour"},
    }.items():
        there.put(workflow(name, node("send", "core.http", config)))
        there.run("failed", workflowId=name)


def refusals(there: Planted) -> None:
    """Requests that are refused, each with a canary in what it says."""
    wrong = canary("refusedvalue")
    value = {"value": wrong, "audiences": ["*.com"]}
    template = {
        "templateId": "t.bad",
        "version": "1.0.0",
        "kind": "user",
        "text": wrong,
        "variables": [{"name": "a b"}],
    }
    about = {"ref": "prompt:t.heron@1.0.0", "variables": {"other": wrong}}
    for method, path, body in (
        ("PUT", "/host/v1/credentials/harbour", value),
        ("PUT", "/host/v1/credentials/harbour", {"value": [wrong]}),
        ("PUT", "/host/v1/credentials/harbour", {"value": f"{wrong}\r\nx: y", "audiences": ["a.example.com"]}),
        ("POST", "/v1/prompts", template),
        ("POST", "/v1/prompts:render", about),
        ("POST", "/host/v1/memory", {"memoryRef": "harbour", "content": {"not": wrong}}),
        ("POST", "/host/v1/memory", {"memoryRef": "harbour", "content": wrong, "ttlSeconds": "soon"}),
        ("POST", "/host/v1/eval-suites", {**SUITE, "tasks": [{"taskId": "x", "input": wrong, "expected": wrong}]}),
        ("POST", "/host/v1/agent-packs", {**PACK, "agents": [{"agentId": "x", "systemPrompt": wrong}]}),
        ("POST", "/v1/runs", {"agentId": AGENT, "inputs": wrong}),
        ("POST", "/v1/runs", {"workflowId": "heron-order", "inputs": {"order": [wrong]}}),
        ("POST", "/host/v1/oauth/authorizations:finish", {"address": f"https://a.example/?state=x&code={wrong}"}),
        ("POST", f"{SEAMS}/oauth/authorize-code-roundtrip", {"provider": "x", "accessTokenCanary": wrong}),
    ):
        answer = there.http.request(method, path, json=body)
        assert answer.status_code in (400, 404, 422), (path, answer.status_code, answer.text)
    with there.client(canary("wrongkey")) as stranger:
        assert stranger.get("/v1/runs").status_code == 401
        assert stranger.post("/login", data={"key": canary("wrongkey")}).status_code in (401, 403)
    with there.client() as stranger:
        query = {"state": "x", "code": canary("forgedcode"), "error": canary("forgedcode")}
        assert stranger.get("/host/v1/oauth/callback", params=query).status_code == 404
