"""The hosts that the fixtures are driven against: each a `forestay up` of its own, with what some of them need."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.contracts.openwop.conftest import Api, LocalHost, refused
from tests.contracts.openwop.documents import CONTRACT_NAMES, DOCUMENTS
from tests.contracts.openwop.peers import Agent, mcp_app
from tests.envelope.serving import served
from tests.extensions.node_packs.packs import BOMB, GREET, HELLO, module, written
from tests.forked import forestay

REFERENCE = os.environ.get("FORESTAY_REFERENCE") or Path(__file__).parents[4] / "shared" / "reference"
FOLDER = Path(REFERENCE) / "openwop" / "fixtures"
OURS = [{**DOCUMENTS[name], "id": CONTRACT_NAMES[name]} for name in sorted(CONTRACT_NAMES)]
OWN = set(
    "agent-memory-cross-tenant agent-memory-roundtrip agent-memory-ttl approval cancellable clarification "
    "configurable-schema delay failure idempotent identity multi-node noop prompt-all-four-kinds "
    "prompt-end-to-end".split()
)
NODE = "structured-call"
BOMBS = "vendor.openwop.misbehaving"
SECRETS = {
    "openwop-conformance-canary-secret": "canary-plaintext-openwop-7c41",
    "conformance-test-secret": "violet-harbour-1794",
}


def documents() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))] or OURS


class Seeded:
    """A host with every fixture that it can load."""

    def __init__(self, api: Api, peers: Peers | None = None) -> None:
        self.api = api.caller("test")
        self.peers = peers or Peers(Agent(), [])
        self.collector = Collector()
        self.started: list[str] = []
        self.capabilities: dict[str, Any] = api.get("/.well-known/openwop").json()

    def start(self, name: str, inputs: dict[str, Any] | None = None, **body: Any) -> str:
        answer = self.api.post("/v1/runs", {"workflowId": name, "inputs": inputs or {}, **body})
        assert answer.status_code == 201, answer.text
        self.started.append(str(answer.json()["runId"]))
        return self.started[-1]

    def ended(self, name: str, status: str = "completed", **options: Any) -> dict[str, Any]:
        run = self.api.wait(self.start(name, **options))
        assert run["status"] == status, run
        return run

    def of(self, run_id: str, type: str) -> list[dict[str, Any]]:
        return [event["payload"] for event in self.api.events(run_id) if event["type"] == type]

    def kinds(self, run_id: str, prefix: str = "") -> list[str]:
        return [event["type"] for event in self.api.events(run_id) if event["type"].startswith(prefix)]

    def children(self, run_id: str) -> list[dict[str, Any]]:
        ids = dict.fromkeys(item["childRunId"] for item in self.of(run_id, "node.dispatched"))
        return [self.api.run(child) for child in ids]

    def question(self, run_id: str) -> dict[str, Any]:
        (asked,) = self.api.get(f"/v1/runs/{run_id}/interrupts").json()["interrupts"]
        found: dict[str, Any] = asked
        return found

    def answer(self, run_id: str, value: Any) -> Any:
        return self.api.post(f"/v1/interrupts/{self.question(run_id)['token']}", {"resumeValue": value})

    def key(self, **options: Any) -> Api:
        made = self.api.post("/host/v1/keys", {"name": f"voter-{uuid.uuid4().hex}", **options})
        assert made.status_code == 201, made.text
        name = str(made.json()["result"]["description"]["keyId"])
        self.api.keys[name] = str(made.json()["result"]["apiKey"])
        return self.api.caller(name)

    def program(self, *entries: dict[str, Any], node: str = NODE) -> None:
        body = {"nodeId": node, "program": list(entries)}
        assert self.api.post("/v1/host/sample/test/mock-ai/program", body).status_code == 200


def _up(folder: Path, fixtures: Path, *options: str, project: Path | None = None) -> Iterator[Seeded]:
    host = LocalHost(folder, project)
    api = Api(host.start("--workflows", str(fixtures), *options), host.keys)
    try:
        yield Seeded(api)
    finally:
        api.close()
        assert host.stop() == 0


def _loadable(folder: Path, *options: str) -> Path:
    """A folder of the fixtures that such a host says it can load."""
    host = LocalHost(folder / "asked")
    api = Api(host.start(*options), host.keys)
    kept = folder / "fixtures"
    kept.mkdir()
    try:
        for document in documents():
            if api.post("/v1/workflows:check", document).json()["valid"]:
                (kept / f"{document['id']}.json").write_text(json.dumps(document))
    finally:
        api.close()
        host.stop()
    return kept


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up`, as anybody starts it."""
    folder = tmp_path_factory.mktemp("plain")
    yield from _up(folder / "data", _loadable(folder))


@pytest.fixture(scope="module")
def seams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up --sample-seams`."""
    folder = tmp_path_factory.mktemp("seams")
    yield from _up(folder / "data", _loadable(folder, "--sample-seams"), "--sample-seams")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up --sample-seams` in an empty folder: the workflows that the host brings itself."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "none").mkdir()
    yield from _up(folder / "data", folder / "none", "--sample-seams")


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up --sample-seams` in a project whose replays ask models again."""
    folder = tmp_path_factory.mktemp("asking")
    (folder / "forestay.toml").write_text("[workflows]\nreplay_asks_models = true\n")
    kept = folder / "fixtures"
    kept.mkdir()
    for document in documents():
        if "phase4" in document["id"]:
            (kept / f"{document['id']}.json").write_text(json.dumps(document))
    yield from _up(folder / "data", kept, "--sample-seams", project=folder)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up --trust` in a project with the two packs whose nodes the fixtures have, made by the tests."""
    folder = tmp_path_factory.mktemp("packs")
    wanted = {"hello": (HELLO, f"{HELLO}.greet", GREET), "bomb": (BOMBS, f"{BOMBS}.memory-bomb", BOMB)}
    for place, (name, node_id, body) in wanted.items():
        written(folder / "packs" / place, name, node_id, data=module(name, node_id, body=body))
    nodes = [f"packs/{place}" for place in wanted]
    (folder / "forestay.toml").write_text(f"[workflows]\nnodes = {json.dumps(nodes)}\n")
    kept = folder / "fixtures"
    kept.mkdir()
    for document in documents():
        if "wasm-pack" in document["id"]:
            (kept / f"{document['id']}.json").write_text(json.dumps(document))
    yield from _up(folder / "data", kept, "--trust", project=folder)


class Peers(NamedTuple):
    """What the host `peered` speaks to."""

    agent: Agent
    calls: list[str]


@pytest.fixture(scope="module")
def peers() -> Peers:
    return Peers(Agent(), [])


@pytest.fixture(scope="module")
def peered(tmp_path_factory: pytest.TempPathFactory, peers: Peers) -> Iterator[Seeded]:
    """`forestay up` in a project with an A2A peer and an MCP server, made with the protocols' own libraries."""
    folder = tmp_path_factory.mktemp("peered")
    with served(peers.agent.app) as agent, served(lambda _url: mcp_app(peers.calls)) as server:
        settings = [
            f'[a2a.peers.echo]\nurl = "{agent}"',
            f'[mcpServers.probe]\nurl = "{server}/mcp"',
            '[agents]\nallow = ["mcp:probe/echo"]',
            '[extensions.policy]\ndefault_caps = ["tool:probe/*"]',
        ]
        (folder / "forestay.toml").write_text("\n".join(settings))
        kept = folder / "fixtures"
        kept.mkdir()
        for document in documents():
            if "roundtrip" in document["id"] and "memory" not in document["id"]:
                (kept / f"{document['id']}.json").write_text(json.dumps(document))
        host = LocalHost(folder / "data", folder)
        trust = ["mcp", "trust", "probe", "--yes", "--data", str(folder / "data")]
        trusted = forestay(folder, *trust)
        assert trusted.returncode == 0 and "echo" in trusted.stdout, (trusted.stdout, trusted.stderr)
        api = Api(host.start("--workflows", str(kept), "--allow-egress", agent.removeprefix("http://")), host.keys)
        try:
            yield Seeded(api, peers)
        finally:
            api.close()
            assert host.stop() == 0


class Collector:
    """A collector of OpenTelemetry spans, as an exporter sees one."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self._told = threading.Condition()

    def app(self, _url: str) -> Starlette:
        return Starlette(routes=[Route("/v1/traces", self._take, methods=["POST"])])

    async def _take(self, request: Request) -> Response:
        sent = ExportTraceServiceRequest.FromString(await request.body())
        scopes = [scope for resource in sent.resource_spans for scope in resource.scope_spans]
        spans = [MessageToDict(span) for scope in scopes for span in scope.spans]
        with self._told:
            self.spans += [
                {item["key"]: next(iter(item["value"].values())) for item in span.get("attributes", ())}
                for span in spans
            ]
            self._told.notify_all()
        return Response(b"")

    def of(self, run_id: str) -> list[dict[str, Any]]:
        """The attributes of a run's spans, when there are some."""

        def found() -> list[dict[str, Any]]:
            return [span for span in self.spans if span.get("openwop.run_id") == run_id]

        with self._told:
            assert self._told.wait_for(found, 30)
            return found()


@pytest.fixture(scope="module")
def kept_secrets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up --sample-seams` with the two secrets that the fixtures name, given over HTTP, and with traces."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "forestay.toml").write_text('[telemetry]\ntraces = "otlp"\n')
    kept = folder / "fixtures"
    kept.mkdir()
    for document in documents():
        if document["id"].startswith("openwop-smoke-") or "redaction" in document["id"]:
            (kept / f"{document['id']}.json").write_text(json.dumps(document))
    collector = Collector()
    with served(collector.app) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        for host in _up(folder / "data", kept, "--sample-seams", project=folder):
            unmet = {"conformance-agent-memory-redaction", "openwop-smoke-byok-roundtrip"}
            assert not unmet & set(host.capabilities["fixtures"]), "nobody has given it a secret yet"
            for name, value in SECRETS.items():
                body = {"value": value, "audiences": ["api.example.com"]}
                answer = host.api.http.put(f"/host/v1/credentials/{name}", json=body)
                assert answer.status_code == 200, answer.text
            host.capabilities = host.api.get("/.well-known/openwop").json()
            host.collector = collector
            yield host


def manifest(agent_id: str, **more: Any) -> dict[str, Any]:
    return {"agentId": agent_id, "persona": "Probe", "modelClass": "general", "systemPrompt": "Answer.", **more}


def schema(name: str) -> str:
    return json.dumps({"type": "object", "required": [name], "properties": {name: {"type": "string"}}})


AGENT_PACKS = [
    {
        "name": "core.conformance.agent-pack",
        "version": "1.0.0",
        "agents": [
            manifest("core.conformance.agent-pack.installed-agent"),
            manifest("core.conformance.exportable-agent", memoryShape={"scratchpad": True}),
        ],
    },
    {
        "name": "core.openwop.agent-examples",
        "version": "1.0.0",
        "agents": [
            manifest(
                "core.openwop.agent-examples.structured-fixture",
                handoff={"taskSchemaRef": "task.json", "returnSchemaRef": "return.json"},
                forestay={"repairs": 0},
            )
        ],
        "files": {"task.json": schema("question"), "return.json": schema("answer")},
    },
]


@pytest.fixture(scope="module")
def staffed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up`, with the two packs of agents that the fixtures want, installed over HTTP."""
    folder = tmp_path_factory.mktemp("staffed")
    kept = folder / "fixtures"
    kept.mkdir()
    for document in documents():
        if "agent-pack" in document["id"]:
            (kept / f"{document['id']}.json").write_text(json.dumps(document))
    for host in _up(folder / "data", kept):
        assert host.capabilities["fixtures"] == []
        wanted = {"workflowId": "conformance-agent-pack-provenance"}
        if documents() is not OURS:
            refused(host.api.post("/v1/runs", wanted), 400, "validation_error")
        for pack in AGENT_PACKS:
            assert host.api.post("/host/v1/agent-packs", pack).status_code == 201
        host.capabilities = host.api.get("/.well-known/openwop").json()
        yield host
