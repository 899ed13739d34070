"""ExtensionConfig ask the host's model: with the capability, with usage on record, within their budget."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.model import ModelConnector
from forestay.host import Host
from forestay.host.extension_model import ExtensionModel
from forestay.host.models import HostModels
from forestay.kernel import Config, ExtensionConfig, ExtensionPolicy, Models, Problem, SystemClock
from forestay.models import Script, Scripted, ScriptedCall, Turn
from tests.extensions.dispatcher_world import OpenPolicy, World

ASKS = """
import { complete, stream, getModels } from "@mariozechner/pi-ai";
const text = (value) => ({ content: [{ type: "text", text: JSON.stringify(value) }] });
export default function (pi) {
  pi.registerTool({ name: "ask", label: "a", description: "d", parameters: { type: "object", properties: {} },
    async execute(_id, _params, _signal, _update, ctx) {
      const context = { systemPrompt: "Be brief.", messages: [{ role: "user", content: "hi" }] };
      const said = await complete(ctx.model, context, { maxTokens: 50 });
      const unknown = await complete({ provider: "no", id: "where" }, context);
      const kinds = [];
      for await (const event of stream(ctx.model, context)) kinds.push(event.type);
      return text({ said: said.content, stop: said.stopReason, tokens: said.usage.totalTokens, kinds,
        unknown: unknown.errorMessage, models: getModels().map((model) => model.id) });
    } });
}
"""


def scripted(*turns: Turn) -> Scripted:
    return Scripted(Script(turns, position="calls"))


def test_an_extension_completes_and_streams_through_the_hosts_model(tmp_path: Path) -> None:
    (tmp_path / ".pi" / "extensions").mkdir(parents=True)
    (tmp_path / ".pi" / "extensions" / "asks.ts").write_text(ASKS)

    async def main() -> None:
        config = Config(
            models=Models(default="script"),
            extensions=ExtensionConfig(policy=ExtensionPolicy(mode="strict", default_caps=["model", "session"])),
        )
        model = scripted(Turn("Aye."), Turn("Again.", (ScriptedCall("tide", {"at": "noon"}),)))
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models={"script": model}) as host:
            await host.extensions.trust.give(host.root)
            suite = await host.extensions.suite()
            outcome = await suite.call_tool("ask", {})
            await suite.recorded()
            found = outcome.content[0]["text"]
            assert '"said":[{"type":"text","text":"Aye."}]' in found and '"stop":"stop"' in found
            assert '"unknown":"There is no model no/where here."' in found and '"models":["scripted"]' in found
            assert '"text_end","toolcall_start","toolcall_end","done"' in found
            ends = [item.payload for item in await host.ledger.read("ext/asks") if item.type == "host_call.end"]
            counted = [item for item in ends if "output_tokens" in item]
            assert [item["model"] for item in counted] == ["scripted/scripted"] * 2
            assert all(item["input_tokens"] > 0 and item["output_tokens"] > 0 for item in counted)

    asyncio.run(main())


CODEX = """
import * as ai from "@mariozechner/pi-ai";
import * as codex from "@mariozechner/pi-ai/openai-codex-responses";
import { getOAuthProvider, loginOpenAICodex } from "@mariozechner/pi-ai/oauth";
export default function (pi) {
  pi.registerTool({ name: "ask", label: "a", description: "d", parameters: { type: "object", properties: {} },
    async execute(_id, _params, _signal, _update, ctx) {
      const context = { messages: [{ role: "user", content: "hi" }] };
      const one = await ai.streamSimpleOpenAICodexResponses(ctx.model, context).result();
      const two = await codex.streamOpenAICodexResponses(ctx.model, context, { reasoningEffort: "low" }).result();
      codex.closeOpenAICodexWebSocketSessions();
      const refused = await loginOpenAICodex({}).catch((error) => error.message);
      const said = [one, two].map((message) => message.content[0].text);
      const text = JSON.stringify([...said, getOAuthProvider("openai-codex").id, refused]);
      return { content: [{ type: "text", text }] };
    } });
}
"""


def test_the_codex_provider_is_reached_through_the_host(tmp_path: Path) -> None:
    (tmp_path / ".pi" / "extensions").mkdir(parents=True)
    (tmp_path / ".pi" / "extensions" / "codex.ts").write_text(CODEX)

    async def main() -> None:
        policy = ExtensionPolicy(mode="strict", default_caps=["model", "session"])
        config = Config(models=Models(default="script"), extensions=ExtensionConfig(policy=policy))
        model = scripted(Turn("Aye."), Turn("Nay."))
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models={"script": model}) as host:
            await host.extensions.trust.give(host.root)
            outcome = await (await host.extensions.suite()).call_tool("ask", {})
            first, second, provider, refused = json.loads(outcome.content[0]["text"])
            assert (first, second, provider) == ("Aye.", "Nay.", "openai-codex")
            assert "made by the host" in refused

    asyncio.run(main())


def asked(connector: ModelConnector, **params: Any) -> dict[str, Any]:
    call = Call("ext.a", "c", roots=None, policy=OpenPolicy())  # type: ignore[arg-type]
    context = {"messages": [{"role": "user", "content": "hi"}]}
    return asyncio.run(connector.wait(call, {"op": "complete", "context": context, **params}))


def test_an_extension_that_has_used_its_tokens_is_refused(tmp_path: Path) -> None:
    models = HostModels(
        Models(default="script"), clock=SystemClock(), folder=tmp_path, own={"script": scripted(Turn("word " * 40))}
    )
    connector = ModelConnector(ExtensionModel(models), tokens=10)
    answer = asked(connector, options={"maxTokens": 5000})
    assert answer["message"]["usage"]["totalTokens"] >= 10
    with pytest.raises(Problem) as refused:
        asked(connector)
    assert refused.value.key == "budget_exhausted" and "max_model_tokens" in refused.value.details["fix"]


def test_without_the_capability_no_model_is_asked(tmp_path: Path) -> None:
    models = HostModels(Models(default="local"), clock=SystemClock(), folder=tmp_path)
    world = World(tmp_path, mode="strict", model=ExtensionModel(models))
    assert world.refused("model", op="complete", context={"messages": []}).code == "denied"
    world.close()


def test_parts_of_an_answer_wait_for_their_reader(tmp_path: Path) -> None:
    """Backpressure of a connector that runs on the event loop: never more parts wait than there are credits."""

    class Chatty:
        produced = 0

        async def stream(self, request: Any) -> Any:
            for _ in range(100):
                self.produced += 1
                yield {"delta": "x"}
            yield {"message": {"content": []}}

        async def models(self) -> list[Any]:
            return []

    model = Chatty()
    world = World(tmp_path, mode="permissive", model=model)

    async def main() -> tuple[int, int]:
        from forestay.extensions import HostCall

        seen = most = 0
        request = HostCall("c1", "", "model", {"op": "complete", "stream": True})
        async for result in world.dispatcher.call(request, "ext.test"):
            await asyncio.sleep(0)
            most = max(most, model.produced - seen)
            seen += not result.chunk.is_last if result.chunk else 0
        return seen, most

    seen, most = asyncio.run(main())
    assert seen == 100 and most <= 18
    world.close()
