"""Scenarios of agents: the inventory, the live runtime, tools, memory, evaluations (RFC 0070 to 0081)."""

from __future__ import annotations

from typing import Any

from forestay.conformance.scenario import NotApplicable, expect, has, same, scenario
from forestay.conformance.target import Target, refused

_PLATFORM = "agent-platform"
_LIVE = "agents.liveRuntime.supported"
_CONTENT = {"prompt", "result", "body", "input", "output", "secret", "arguments"}
_OUTCOMES = {"completed", "handed-off", "escalated", "refused", "failed"}
_DIMENSIONS = {
    "read", "write", "search", "long-term-durability", "compaction", "attribution", "replay-snapshot", "retention",
}  # fmt: skip
_TIERS = {"pure", "read", "write", "exec"}
_SOURCES = {"node-pack", "workflow", "mcp", "connector", "host-extension"}
_MEMORY = "/v1/host/sample/memory"
_FOREIGN = "conformance/another-tenant/agent-memory"  # the reference that the contract's fixture reads


@scenario("agent-manifest-runtime", "agents", _PLATFORM, needs="agents.manifestRuntime.supported")
def inventory(target: Target) -> None:
    """The inventory lists agents without their prompts; an agent that is not there is 404."""
    found = target.read("/v1/agents")
    same(found["total"], len(found["agents"]), "total")
    for entry in found["agents"]:
        has(entry, {"agentId", "persona", "modelClass"}, "an agent")
        expect(not {"systemPrompt", "instructions"} & entry.keys(), "the inventory shows a prompt")
    refused(target.get("/v1/agents/vendor.kit.nobody"), 404)
    refused(target.get("/v1/agents", key=""), 401)


@scenario("agent-live-runtime-shape", "agents", _PLATFORM, needs=_LIVE)
def live_shape(target: Target) -> None:
    """What discovery says of the live runtime is what the contract lets it say."""
    block = target.flag("agents.liveRuntime")
    sources = set(block.get("sources") or ())
    expect(sources and sources <= {"workflow-node", "run-api", "chat-mention"}, f"the sources are {sources}")
    expect(target.flag("agents.manifestRuntime.supported"), "a live runtime without agents.manifestRuntime")


def _invoked(target: Target, **scenario: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the seam's answer, and the agent's events from the durable log."""
    found = target.seam("agents/live-invoke", scenario)
    return found, target.told(found["runId"], "agent.")


@scenario("agent-live-invocation-bracket", "agents", _PLATFORM, needs=_LIVE)
def bracket(target: Target) -> None:
    """An invocation's events are in order inside their bracket, and without content, whatever its source."""
    for source in target.flag("agents.liveRuntime.sources"):
        _, events = _invoked(target, source=source)
        same(events[0]["payload"]["source"], source, "the source of the invocation")
        kinds = [event["type"] for event in events]
        same((kinds[0], kinds[-1]), ("agent.invocation.started", "agent.invocation.completed"), "the bracket")
        order = [kinds.index(kind) for kind in ("agent.promptResolved", "agent.reasoned", "agent.decided")]
        same(order, sorted(order), "the order inside the bracket")
        first, last = events[0]["payload"], events[-1]["payload"]
        has(first, {"invocationId", "agentId", "source"}, "agent.invocation.started")
        same(first["source"], source, "the source")
        same(first["invocationId"], last["invocationId"], "the invocation's id")
        expect(last["outcome"] in _OUTCOMES, f"the outcome is {last['outcome']}")
        for event in events:
            expect(not _CONTENT & event["payload"].keys(), f"{event['type']} carries content")


@scenario("agent-live-structured-output", "agents", _PLATFORM, needs="agents.liveRuntime.structuredOutput")
def structured(target: Target) -> None:
    """A result that does not fit its schema is not shipped."""
    found, events = _invoked(target, returnSchemaRef="schemas/answer.json", forceInvalidResult=True)
    same(events[-1]["payload"]["outcome"], "failed", "the outcome")
    expect(events[-1]["payload"].get("schemaValidated") is not True, "an invalid result is said to be validated")
    expect(target.run(found["runId"])["status"] != "completed", "the run ships an invalid result")


@scenario("agent-live-allowlist-enforced", "agents", _PLATFORM, needs=_LIVE)
def allowlist(target: Target) -> None:
    """A tool that is not on the agent's list is not called, whatever its model asks for."""
    _, events = _invoked(target, attemptTool="conformance-disallowed-tool")
    called = [event["payload"].get("toolName") for event in events if event["type"] == "agent.toolCalled"]
    expect("conformance-disallowed-tool" not in called, "the tool was called")


@scenario("tool-descriptor-shape", "tools", _PLATFORM, needs="toolCatalog.supported")
def descriptors(target: Target) -> None:
    """The catalogue is a bare array of descriptors with a source and a safety tier."""
    found = target.read("/v1/tools")
    expect(isinstance(found, list), "GET /v1/tools is no bare array")
    for tool in found:
        has(tool, {"toolId", "source", "safetyTier"}, "a tool")
        expect(tool["source"] in _SOURCES, f"{tool['toolId']} has the source {tool['source']}")
        expect(tool["safetyTier"] in _TIERS, f"{tool['toolId']} has the tier {tool['safetyTier']}")
        expect(tool["safetyTier"] != "exec" or tool["source"] == "host-extension", "exec of another source")
    same(len({tool["toolId"] for tool in found}), len(found), "the number of tool ids")


@scenario("tool-catalog-projection", "tools", _PLATFORM, needs="toolCatalog.supported")
def catalogue(target: Target) -> None:
    """A tool is read by its id and found by its source; nobody without a key sees one."""
    found = target.read("/v1/tools")
    refused(target.get("/v1/tools", key=""), 401)
    refused(target.get("/v1/tools/no-such-tool"), 404)
    for source in target.flag("toolCatalog.sources") or ():
        wanted = [tool for tool in found if tool["source"] == source]
        same(target.read("/v1/tools", params={"source": source}), wanted, f"the tools of {source}")
    for tool in found[:3]:
        same(target.read(f"/v1/tools/{tool['toolId']}"), tool, f"the tool {tool['toolId']}")


@scenario("tool-session-lifecycle", "tools", needs="toolCatalog.sessionLifecycle")
def sessions(target: Target) -> None:
    """A session with a tool is opened before its first call and closed after its last."""
    run_id = target.seam("tools/session-run", {})["runId"]
    kinds = [event["type"] for event in target.told(run_id, "tool.session.", "agent.tool")]
    expect(kinds and kinds[0] == "tool.session.opened", "no session is opened before the first call")
    same(kinds[-1], "tool.session.closed", "the last event of the session")
    (closed,) = target.told(run_id, "tool.session.closed")
    expect(closed["payload"]["outcome"] in ("completed", "failed", "cancelled"), "the outcome is none")


@scenario("memory-capability-model-shape", "memory", _PLATFORM, "memory", needs="memory.supported")
def memory_shape(target: Target) -> None:
    """What discovery says of the memory is what the contract lets it say."""
    block = target.flag("memory")
    if "search" in block:
        has(block["search"], {"supported"}, "memory.search")
        expect(set(block["search"].get("modes") or ()) <= {"semantic", "filter"}, "a mode of search is none")
    if "retention" in block:
        expect(set(block["retention"]) <= {"ttl", "forget"}, "memory.retention says more than the contract knows")
    if "attribution" in block:
        same(block["attribution"].get("supported"), True, "memory.attribution.supported")
    if "compaction" in block:
        expect(not block["compaction"]["supported"] or block["compaction"].get("trigger"), "compaction has no trigger")
    expect(set(target.flag("agents.memoryBackends") or ()) <= {"long-term"}, "a backend is none")


@scenario("memory-degraded-projection", "memory", _PLATFORM, needs="agents.manifestRuntime.supported")
def degraded(target: Target) -> None:
    """An agent whose memory exceeds the host's says in which dimensions, and no other agent does."""
    for entry in target.read("/v1/agents")["agents"]:
        dimensions = entry.get("degradedMemoryDimensions") or []
        same(bool(entry.get("memoryDegraded")), bool(dimensions), f"memoryDegraded of {entry['agentId']}")
        expect(set(dimensions) <= _DIMENSIONS, f"a dimension of {entry['agentId']} is none")
        expect(not dimensions or entry.get("memoryShape"), f"{entry['agentId']} has no memory to be degraded")


def _probed(target: Target, fixture: str, name: str) -> Any:
    if fixture not in (target.flag("fixtures") or ()):
        raise NotApplicable(f"the host does not list {fixture}")
    return target.wait(target.start(fixture), "completed")["variables"][name]


@scenario("agentMemoryRoundTrip", "memory", "memory", needs="memory.supported")
def memory_roundtrip(target: Target) -> None:
    """What is written is read back in the contract's shape."""
    found = _probed(target, "conformance-agent-memory-roundtrip", "memoryReadback")
    entry = found[0] if isinstance(found, list) else found
    has(entry, {"id", "content", "tags", "createdAt"}, "the entry")
    expect(set(entry) <= {"id", "content", "tags", "createdAt", "expiresAt"}, "the entry says more than it may")


@scenario("agentMemoryTtlExpiry", "memory", "memory", needs="memory.ttlSupported")
def memory_expiry(target: Target) -> None:
    """Of an entry whose time has passed and one whose time has not, the list has the second."""
    found = _probed(target, "conformance-agent-memory-ttl", "memoryList")
    same(len(found), 1, "the number of entries")
    expect(found[0]["expiresAt"] > found[0]["createdAt"], "the entry that is left has expired")


@scenario("agentMemoryCrossTenantIsolation", "memory", "memory", needs="memory.supported")
def memory_isolation(target: Target) -> None:
    """What another tenant wrote under a name is not there for the caller who asks for that name."""
    fixture, other = "conformance-agent-memory-cross-tenant", target.other()
    query = {"memoryRef": _FOREIGN}
    target.seam_open(_MEMORY)
    written = target.post(_MEMORY, {**query, "content": "Of another tenant."}, key=other)
    expect(written.status_code in (200, 201), f"a write of another tenant answers {written.status_code}")
    expect(target.read(_MEMORY, params=query, key=other)["entries"], "the other tenant does not have what it wrote")
    expect(not _probed(target, fixture, "crossTenantProbe"), "another tenant is read")


@scenario("memory-forget", "memory", needs="memory.retention.forget")
def memory_forget(target: Target) -> None:
    """What is forgotten is neither listed nor read, and nobody else can forget it."""
    target.seam_open(_MEMORY)
    query = {"memoryRef": "conformance/forget"}
    made = target.post(_MEMORY, {**query, "content": "Forget this."})
    expect(made.status_code in (200, 201), f"a write answers {made.status_code}")
    path = f"{_MEMORY}/{made.json()['memoryId']}"
    has(target.read(path, params=query)["entry"], {"id", "content", "tags", "createdAt"}, "the entry")
    refused(target.ask("DELETE", path, params=query, key=target.other()), 404)
    expect(target.ask("DELETE", path, params=query).status_code in (200, 204), "it cannot be forgotten")
    refused(target.get(path, params=query), 404)
    ids = [entry["id"] for entry in target.read(_MEMORY, params=query)["entries"]]
    expect(made.json()["memoryId"] not in ids, "a forgotten entry is listed")


@scenario("agent-eval-suite-shape", "evaluations", needs="agents.evalSuite.supported")
def eval_shape(target: Target) -> None:
    """What discovery says of evaluations is what the contract lets it say."""
    modes = set(target.flag("agents.evalSuite.modes") or ())
    expect(modes <= {"golden", "rubric", "adversarial", "regression", "live-shadow"}, f"the modes are {modes}")
    expect(modes, "there is no mode")


@scenario("agent-eval-run", "evaluations", needs="agents.evalSuite.supported")
def eval_run(target: Target) -> None:
    """An evaluation scores each task once, tells the suite's score, and has a summary without content."""
    run_id = target.seam("agents/eval-run", {"taskCount": 2})["runId"]
    target.wait(run_id, "completed")
    kinds = [event["type"] for event in target.told(run_id, "eval.")]
    same(kinds, ["eval.started", "eval.scored", "eval.scored", "eval.completed"], "the evaluation's events")
    for event in target.told(run_id, "eval.scored"):
        expect(0 <= event["payload"]["score"] <= 1, "a score is not between 0 and 1")
    summary = target.read(f"/v1/runs/{run_id}/eval-summary")
    same(summary["taskCount"], 2, "taskCount of the summary")
    expect(not _CONTENT & summary.keys(), "the summary carries content")
    plain = target.start("conformance-noop")
    target.wait(plain)
    refused(target.get(f"/v1/runs/{plain}/eval-summary"), 404)
