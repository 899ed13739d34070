"""An extension that passes a quota, as a person sees it over HTTP; counted repeats as well."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.console import mounts
from forestay.host import Options
from forestay.kernel import Config, ExtensionConfig, ExtensionPolicy, ExtensionQuotas, Problem
from forestay.surface.hosting import serve
from tests.surface.test_hostapi import EXTENSION

FLOOD = """
import fs from "node:fs";
const rest = () => new Promise((done) => setTimeout(done, 0));
const nothing = { type: "object", properties: {} };
export default function (pi) {
  pi.registerTool({ name: "same", label: "s", description: "s", parameters: nothing, async execute() {
    for (let i = 0; i < 1500; i++) { fs.existsSync("a"); if (i % 100 === 0) await rest(); }
    return { content: [{ type: "text", text: "done" }] }; } });
  pi.registerTool({ name: "many", label: "m", description: "m", parameters: nothing, async execute() {
    for (let i = 0; ; i++) { fs.existsSync("a" + i); if (i % 100 === 0) await rest(); } } });
}
"""


def test_an_extension_beyond_its_quota_is_shown_as_stopped_and_stays_off(tmp_path: Path) -> None:
    (tmp_path / "harbour.ts").write_text(EXTENSION)
    (tmp_path / "flood.ts").write_text(FLOOD)
    (tmp_path / "tide.txt").write_text("high at noon")
    extensions = ExtensionConfig(
        paths=["harbour.ts", "flood.ts"],
        policy=ExtensionPolicy(mode="permissive"),
        quotas=ExtensionQuotas(evidence_mb=3),
    )
    options = Options(config=Config(extensions=extensions), root=tmp_path, data=tmp_path / ".forestay")

    async def story() -> None:
        async with asyncio.timeout(120), serve(options, mounts=mounts) as serving:
            await serving.host.extensions.trust.give(serving.host.root)
            suite = await serving.host.extensions.suite()
            headers = {"Authorization": f"Bearer {serving.services.keys.lend(principal='ann')}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=60) as http:

                async def get(path: str) -> Any:
                    return (await http.get(f"/host/v1/extensions{path}")).json()["result"]

                await suite.call_tool("same", {})
                evidence = await get("/flood/evidence?limit=1000")
                assert max(call["count"] for call in evidence["calls"]) > 100
                with pytest.raises(Problem) as caught:
                    await suite.call_tool("many", {})
                assert caught.value.key == "quota_exceeded"
                cards = {card["name"]: card for card in (await get(""))["extensions"]}
                assert (cards["flood"]["state"], cards["harbour"]["state"]) == ("stopped", "loaded")
                assert "extensions.quotas.evidence_mb" in cards["flood"]["problem"]
                assert (await get("/flood/evidence"))["troubles"][0]["kind"] == "stopped"
                await suite.reload()
                with pytest.raises(Problem, match="its quota is 3"):
                    await suite.call_tool("same", {})
                assert (await suite.call_tool("tide", {})).content[0]["text"] == "high at noon"

    asyncio.run(story())
