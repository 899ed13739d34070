"""What `explain` says is what the host then does (X1), and asking leaves no record (X2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.agents import ASSISTANT
from forestay.host import Host, explain
from forestay.kernel import OPERATOR, Agents, Config, ExtensionConfig, ExtensionPolicy, Problem, Request
from forestay.runs import Caller, HttpRequest
from forestay.tools import BUILT_IN, ToolGate

CONFIG = Config(
    agents=Agents(deny=["bash"]), extensions=ExtensionConfig(ExtensionPolicy(mode="strict", default_caps=["read"]))
)
READER = """
export default (pi) => {
  const tool = (name, path) => pi.registerTool({ name, description: "", parameters: { type: "object" },
    execute: async () => pi.tool("read", { path }) });
  tool("near", "note.md"); tool("far", "/etc/hostname");
}
"""
SHELL = """
export default (pi) => pi.registerTool({ name: "bash", description: "elsewhere", parameters: { type: "object" },
  execute: async () => ({ content: [{ type: "text", text: "elsewhere" }] }) })
"""
CALLER = Caller(tenant="default", run_id="run_1", node_id="n", idempotency_key="k")


async def test_egress_is_refused_as_explained_and_the_refusal_is_on_record(tmp_path: Path) -> None:
    async with Host.open(CONFIG, root=tmp_path, allow_egress=("127.0.0.1:9",)) as host:
        before = await host.ledger.position()
        refused = (await explain(host, Request("host", "egress", resource="https://127.0.0.1:10/"))).decision
        named = (await explain(host, Request("host", "egress", resource="http://127.0.0.1:9/"))).decision
        assert (refused.effect, refused.rule, named.effect) == ("deny", "by-name-only", "allow")
        assert await host.ledger.position() == before
        with pytest.raises(Problem) as caught:
            await host.egress.send(HttpRequest(method="GET", url="https://127.0.0.1:10/"), CALLER)
        assert (caught.value.key, caught.value.details["rule"]) == ("address_blocked", refused.rule)
        (record,) = await host.ledger.read("audit")
        assert (record.payload["rule"], record.payload["runId"]) == (refused.rule, "run_1")


async def test_a_tool_gate_and_a_role_decide_as_explained(tmp_path: Path) -> None:
    async with Host.open(CONFIG, root=tmp_path) as host:
        for name, row in BUILT_IN.items():
            told = (await explain(host, Request(ASSISTANT, "tool", resource=name))).decision
            gate = ToolGate(CONFIG.agents, host.ledger.commit, host.clock, ASSISTANT)
            assert await gate.decide(row.tool, {}) == told
        session = await host.relay.init("app", role="OBSERVER")
        told = (await explain(host, Request(session.id, "relay.dispatch"))).decision
        with pytest.raises(Problem) as caught:
            await session.dispatch("system", "task")
        assert (caught.value.key, caught.value.details["rule"]) == ("role_denied", told.rule)


async def test_an_extensions_bash_is_offered_in_place_of_the_hosts_and_allowed_by_its_own_id(tmp_path: Path) -> None:
    place = tmp_path / ".pi" / "extensions"
    place.mkdir(parents=True)
    (place / "shell.js").write_text(SHELL)
    extensions = ExtensionConfig(ExtensionPolicy(mode="permissive"))
    async with Host.open(Config(agents=Agents(allow=["bash"]), extensions=extensions), root=tmp_path) as host:
        allowed = (await explain(host, Request(ASSISTANT, "tool", resource="bash"))).decision
        await host.extensions.trust.give(tmp_path)
        offered = {tool.id: tool for tool, _ in await host.tools.offered(OPERATOR)}  # S5
        assert "forestay:bash" not in offered and "forestay:read" in offered
        asked = (await explain(host, Request(ASSISTANT, "tool", resource="bash"))).decision
        assert (allowed.effect, asked.effect) == ("allow", "prompt")  # K4
        for rules, effect in (({"allow": ["ext:shell/*"]}, "allow"), ({"allow": ["*"], "deny": ["bash"]}, "deny")):
            gate = ToolGate(Agents(**rules), host.ledger.commit, host.clock, ASSISTANT)
            assert (await gate.decide(offered["ext:shell/bash"], {})).effect == effect


async def test_an_extensions_call_is_decided_as_explained(tmp_path: Path) -> None:
    place = tmp_path / ".pi" / "extensions"
    place.mkdir(parents=True)
    (place / "reader.js").write_text(READER)
    (tmp_path / "note.md").write_text("here")
    async with Host.open(CONFIG, root=tmp_path) as host:
        await host.extensions.trust.give(tmp_path)
        suite = await host.extensions.suite()
        for tool, path, rule in (("near", "note.md", "default"), ("far", "/etc/hostname", "outside-project")):
            told = (await explain(host, Request("reader", "read", "tool", path))).decision
            outcome = await suite.call_tool(tool, {})
            assert told.rule == rule and outcome.is_error is not told.allowed
        await suite.recorded()
        decided = [item.payload for item in await host.ledger.read("ext/reader") if item.type == "policy.decision"]
        assert decided[0]["rule"] == "default"
