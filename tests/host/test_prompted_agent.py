"""What a model is really sent: the project's prompts, an agent's own and the host's defaults, through the real host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forestay.conformance import node, workflow
from forestay.host import Host
from forestay.kernel import Config, Models, PromptSettings
from forestay.models import DEFAULT_PARAMS, Deltas, Message, Params, Script, Scripted, ToolSpec, Turn
from forestay.runs import CreateRun

TEXTS = {
    "greet": ("user", "Greet, then: {{task}}"),
    "shots": ("few-shot", "Q: 1+1? A: 2"),
    "hint": ("schema-hint", "Answer in one word."),
    "stern": ("system", "Be stern."),
}


class Listening(Scripted):
    """A model that remembers what it was sent."""

    heard: list[list[tuple[str, str]]]

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        self.heard.append([(message.role, message.content) for message in messages])
        async for delta in super().stream(messages, tools=tools, params=params):
            yield delta


def project(folder: Path) -> Config:
    prompts = folder / "prompts"
    prompts.mkdir()
    for name, (kind, text) in TEXTS.items():
        document = {"templateId": name, "version": "1.0.0", "kind": kind, "text": text}
        (prompts / f"{name}.json").write_text(json.dumps(document))
    defaults: dict[Any, str] = {"schema-hint": "prompt:hint"}
    return Config(models=Models(default="script"), prompts=PromptSettings(paths=["prompts"], defaults=defaults))


def test_the_model_is_sent_the_prompts_that_apply(tmp_path: Path) -> None:
    model = Listening(Script((Turn("Aye."),), position="conversation"))
    model.heard = []

    async def story() -> None:
        config = project(tmp_path)
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models={"script": model}) as host:
            manifest = {"agentId": "local.crew.mate", "persona": "Mate", "modelClass": "general"}
            manifest |= {
                "systemPrompt": "Be kind.",
                "promptOverrides": {"user": "prompt:greet", "few-shot": "prompt:shots"},
            }
            await host.directory.install("default", {"name": "local.crew", "version": "1.0.0", "agents": [manifest]})
            named = node("stern", "core.agent", {"task": "Sail.", "systemPromptRef": "prompt:stern"})
            named["agent"] = {"agentId": "local.crew.mate"}
            await host.runs.put_workflow(workflow("crew", named), tenant="default")
            for request in (
                CreateRun(workflow_id="crew"),
                (
                    await host.roots.of(CreateRun(agent_id="local.crew.mate", inputs={"task": "Row."}), "default")
                ).request,
            ):
                made = await host.runs.create_run(request, "default")
                ended = await host.runs.wait(made.run_id, "default")
                assert ended.status == "completed", ended
            assert host.capabilities()["prompts"]["defaults"] == {"schema-hint": "prompt:hint"}

    asyncio.run(story())
    stern, kind = model.heard
    assert "Be stern." in stern[0][1] and "Be kind." not in stern[0][1]
    assert "Be kind." in kind[0][1] and "Be stern." not in kind[0][1]
    for said, task in ((stern, "Sail."), (kind, "Row.")):
        assert "Answer in one word." in said[0][1]
        assert f"Q: 1+1? A: 2\n\nGreet, then: {task}" in said[-1][1]
