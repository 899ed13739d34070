# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""`pi.tool` and the tools of other extensions: policy of the caller, arguments as every caller's, evidence, no circle."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from forestay.extensions import Extensions, Settings, stream_of
from forestay.kernel import ExtensionConfig, Ledger, ManualClock
from forestay.kernel.config import ExtensionOverride, ExtensionPolicy

HEAD = "export default (pi) => { const say = (name, run) => pi.registerCommand(name, { handler: async (args) => { try { return await run(args); } catch (error) { return [error.code, error.message]; } } }); const call = async (name, input) => (await pi.tool(name, input)).content[0].text;"
ADDER = """
  pi.registerTool({ name: "add", description: "adds", parameters: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
    prepareArguments: (given) => "old" in given ? { n: given.old } : given,
    execute: async (id, params) => ({ content: [{ type: "text", text: typeof params.n + (params.n + 1) }], details: { n: params.n } }) });
  pi.registerTool({ name: "peek", description: "reads", parameters: { type: "object" }, execute: async () => call("read", { path: "note.md" }) });
  pi.registerTool({ name: "fail", description: "fails", parameters: { type: "object" }, execute: async () => { throw new Error("out of luck"); } });
"""
CALLER = """
  say("add", () => call("add", { old: "4" })); say("bad", () => call("add", { n: "four" })); say("peek", () => call("peek", {}));
  say("fail", () => call("fail", {})); say("none", () => call("no-such-tool", {}));
"""


@asynccontextmanager
async def suite_of(folder: Path, config: ExtensionConfig, **sources: str) -> Any:
    (folder / "note.md").write_text("the note\n")
    async with (
        Ledger.open(folder / "data") as ledger,
        Extensions(ledger, root=folder, settings=Settings(config=config, clock=ManualClock())) as suite,
    ):
        for name, source in sources.items():
            path = folder / f"{name}.js"
            path.write_text(HEAD + source + "}")
            await suite.load(path)
        yield suite, ledger


def _rules(mode: Any, **allow: list[str]) -> ExtensionConfig:
    return ExtensionConfig(
        ExtensionPolicy(mode=mode),
        overrides={name: ExtensionOverride(allow=tuple(grants)) for name, grants in allow.items()},
    )


async def test_an_extension_calls_anothers_tool_by_the_steps_of_every_caller(tmp_path: Path) -> None:
    async with suite_of(tmp_path, _rules("permissive"), adder=ADDER, caller=CALLER) as (suite, ledger):
        assert await suite.run_command("add") == "number5"  # prepared, converted, validated
        code, message = await suite.run_command("bad")
        assert code == "invalid_request" and "$.n" in message
        assert "the note" in await suite.run_command("peek")
        assert (await suite.run_command("fail"))[1].startswith("out of luck")
        assert "no-such-tool" in (await suite.run_command("none"))[1]
        await suite.recorded()
        own = await ledger.read(stream_of("caller"))
        ended = [item.payload for item in own if item.type == "host_call.end"]
        assert {(item["capability"], item.get("extension")) for item in ended[:-1]} == {("tool", "adder")}
        decided = [item.payload for item in own if item.type == "policy.decision"]
        assert [item["resource"] for item in decided] == ["add", "add", "peek", "fail", "no-such-tool"]
        theirs = [item.payload for item in await ledger.read(stream_of("adder")) if item.type == "host_call.end"]
        assert [item["capability"] for item in theirs] == ["read"]


async def test_only_the_tools_that_were_granted_are_called(tmp_path: Path) -> None:
    config = _rules("strict", caller=["tool:add"], adder=["read"])
    async with suite_of(tmp_path, config, adder=ADDER, caller=CALLER) as (suite, ledger):
        assert await suite.run_command("add") == "number5"
        assert (await suite.run_command("peek"))[0] == "denied"
        await suite.recorded()
        assert all(item.type != "host_call.start" for item in await ledger.read(stream_of("adder")))


async def test_a_tool_has_the_rights_of_its_own_extension_and_not_of_its_caller(tmp_path: Path) -> None:
    config = _rules("strict", caller=["tool", "read"])
    async with suite_of(tmp_path, config, adder=ADDER, caller=CALLER) as (suite, _):
        code, message = await suite.run_command("peek")
        assert code == "internal" and "adder has no grant for read" in message


async def test_an_extension_that_is_waited_for_cannot_call_back(tmp_path: Path) -> None:
    ping = 'pi.registerTool({ name: "ping", description: "", parameters: { type: "object" }, execute: async () => call("pong", {}) }); say("go", () => call("pong", {})); say("self", () => call("ping", {}));'
    pong = 'pi.registerTool({ name: "pong", description: "", parameters: { type: "object" }, execute: async () => call("ping", {}) });'
    async with suite_of(tmp_path, _rules("permissive"), ping=ping, pong=pong) as (suite, _):
        assert "ping waits for an answer of pong" in (await suite.run_command("go"))[1]
        assert "cannot call its tools now" in (await suite.run_command("self"))[1]
