"""Node packs in a host: the contract's two fixtures as they are written, with packs of the tests' own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.host.node_packs import read_pack
from forestay.kernel import Config, Models, Problem, Workflows
from forestay.runs import CreateRun, RunSnapshot
from tests.extensions.node_packs.packs import BOMB, GREET, HELLO, module, written
from tests.host.test_agent_node import TENANT, settled
from tests.runs.documents import node, workflow
from tests.runs.events import CONTRACT

FIXTURES = CONTRACT / "fixtures"
needs_contract = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the contract's fixtures are not at hand")
Story = Callable[[Host], Awaitable[None]]


def hosted(folder: Path, name: str, node_id: str, data: bytes, story: Story, *, trusted: bool = True) -> None:
    written(folder / "packs/one", name, node_id, data=data)
    config = Config(models=Models(default="local"), workflows=Workflows(nodes=["packs/one"]))

    async def go() -> None:
        async with Host.open(config, root=folder, data=folder / "data", trust_nodes=trusted) as host:
            await story(host)

    asyncio.run(go())


async def ran(host: Host, workflow_id: str, **inputs: Any) -> RunSnapshot:
    made = await host.runs.create_run(CreateRun(workflow_id=workflow_id, inputs=inputs), TENANT)
    return await settled(host, made.run_id)


def fixture(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return document


@needs_contract
def test_the_fixture_of_the_round_trip(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.runs.put_workflow(fixture("conformance-wasm-pack-roundtrip"), tenant=None)
        for given, wanted in (({"name": "openwop"}, "Hello, openwop!"), ({}, "Hello, world!")):
            done = await ran(host, "conformance-wasm-pack-roundtrip", **given)
            assert done.status == "completed" and done.outputs["greeting"] == wanted, done
        wasm = host.capabilities()["nodePackRuntimes"]["wasm"]
        assert wasm["supported"] and wasm["abiVersions"] == [1] and wasm["loadedPacks"] == [HELLO]

    hosted(tmp_path, HELLO, f"{HELLO}.greet", module(HELLO, f"{HELLO}.greet", body=GREET), story)


@needs_contract
def test_the_fixture_of_the_memory_cap(tmp_path: Path) -> None:
    name, bomb = "vendor.openwop.misbehaving", "vendor.openwop.misbehaving.memory-bomb"

    async def story(host: Host) -> None:
        await host.runs.put_workflow(fixture("conformance-wasm-pack-memory-cap-breach"), tenant=None)
        done = await ran(host, "conformance-wasm-pack-memory-cap-breach")
        assert done.status == "failed"
        events = await host.runs.events(done.run_id, TENANT)
        (breach,) = [item.payload for item in events if item.type == "cap.breached"]
        assert breach["kind"] == "wasm-memory" and breach["observed"] > breach["limit"]

    hosted(tmp_path, name, bomb, module(name, bomb, body=BOMB), story)


QUESTION = '{"outcome":"suspended","interrupt":{"kind":"custom","data":{"title":"Go on?"}}}'
WENT_ON = '{"outcome":"completed","output":{"went":"on"}}'
RESUMED = "(if (call $find (local.get 1) (local.get 2)) (then (return (call $say1)))) (call $say0)"


def test_a_node_that_suspends_asks_and_is_invoked_again_with_the_answer(tmp_path: Path) -> None:
    name = "vendor.test.asks"

    async def story(host: Host) -> None:
        await host.runs.put_workflow(workflow("one", [node("t", f"{name}.ask")]), tenant=None)
        waits = await ran(host, "one")
        assert waits.status.startswith("waiting")
        await host.runs.resolve_by_node(waits.run_id, "t", TENANT, {"resumeValue": {"name": "Ada"}}, "me")
        done = await settled(host, waits.run_id)
        assert done.status == "completed" and done.outputs == {"went": "on"}

    data = module(name, f"{name}.ask", body=RESUMED, texts=(QUESTION, WENT_ON))
    hosted(tmp_path, name, f"{name}.ask", data, story)


def test_a_pack_runs_when_a_person_trusts_it_as_it_is(tmp_path: Path) -> None:
    async def story(_host: Host) -> None:
        raise AssertionError("it opened")

    with pytest.raises(Problem) as problem:
        hosted(tmp_path, HELLO, f"{HELLO}.greet", module(HELLO, f"{HELLO}.greet", body=GREET), story, trusted=False)
    assert problem.value.key == "folder_untrusted"


@pytest.mark.parametrize("change", ["name", "node", "abi", "entry"])
def test_a_pack_whose_module_is_another_is_refused(tmp_path: Path, change: str) -> None:
    async def story(_host: Host) -> None:
        raise AssertionError("it opened")

    name = "vendor.test.other" if change == "name" else HELLO
    data = module(name, "x.y" if change == "node" else f"{HELLO}.greet", body=GREET, abi=2 if change == "abi" else 1)
    with pytest.raises(Problem) as problem:
        hosted(tmp_path, HELLO, f"{HELLO}.greet", b"" if change == "entry" else data, story)
    assert problem.value.key in ("config_invalid", "extension_invalid")


def test_a_pack_of_the_project_passes_the_gate_before_it_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "module.wasm").write_bytes(b"nothing that could be compiled")
    runtime = {"language": "wasm", "entry": "module.wasm", "requires": ["clock"]}
    manifest = {"name": "vendor.a.b", "version": "1.0.0", "runtime": runtime, "nodes": [{"typeId": "a.b"}]}
    (tmp_path / "pack.json").write_text(json.dumps(manifest))
    assert read_pack(tmp_path).type_ids == ["a.b"]
    runtime["requires"] = ["clock", "net.outbound"]
    (tmp_path / "pack.json").write_text(json.dumps(manifest))
    with pytest.raises(Problem) as refused:
        read_pack(tmp_path)
    assert refused.value.details["unmet"] == ["net.outbound"]
