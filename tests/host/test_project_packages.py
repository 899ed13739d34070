"""What a project's settings name and what stands in its folders: loaded, told to the agent, and only when trusted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from forestay.extensions import named
from forestay.extensions.packs import filled
from forestay.host import Host
from tests.host.prompting import heard, options
from tests.host.test_agent_node import settled, start


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def extension(tool: str) -> str:
    return f"""export default (pi) => pi.registerTool({{ name: "{tool}", label: "t", description: "d",
      parameters: {{ type: "object", properties: {{}} }}, async execute() {{ return {{ content: [] }}; }} }});"""


def project(folder: Path) -> Path:
    settings = {
        "packages": [
            "npm:@sea/tides@1.2.3",
            "git:github.com/sea/charts@v2",
            {"source": "./local", "extensions": ["!extensions/old.ts"], "themes": []},
            "npm:not-here",
            "../../outside",
        ],
        "skills": ["../more-skills"],
    }
    write(folder / ".pi/settings.json", json.dumps(settings))
    tides = folder / ".pi/npm/node_modules/@sea/tides"
    write(tides / "package.json", json.dumps({"name": "@sea/tides", "pi": {"extensions": ["./src"]}}))
    write(tides / "src/high.ts", extension("high"))
    write(tides / "src/low.ts", extension("low"))
    write(folder / ".pi/git/github.com/sea/charts/extensions/chart.ts", extension("chart"))
    write(folder / ".pi/git/github.com/sea/charts/prompts/plot.md", "---\ndescription: Plot\n---\nPlot $1 to $2: $@")
    write(folder / ".pi/local/extensions/new.ts", extension("new"))
    write(folder / ".pi/local/extensions/old.ts", extension("old"))
    write(folder / ".pi/local/themes/night.json", '{"colors": {}}')
    write(folder / ".pi/local/skills/knots/SKILL.md", "---\nname: knots\ndescription: Tie knots.\n---\nTie them.")
    write(folder / "more-skills/anchor/SKILL.md", "---\nname: anchor\ndescription: Drop anchor.\n---\nDrop it.")
    write(folder.parent / "outside/index.ts", extension("outside"))
    return folder


def play(folder: Path, story: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        opened = options(folder, mode="strict")
        async with Host.open(opened.config, root=folder, data=opened.data, models=opened.models) as host:
            await story(host)

    asyncio.run(whole())


def test_packages_on_disk_are_loaded_and_the_others_say_why_not(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.extensions.trust.give(host.root)
        suite = await host.extensions.suite()
        assert sorted(tool.name for tool in suite.tools()) == ["chart", "high", "low", "new"]
        failures = {item.path: item.problem.message for item in suite.failures}
        assert "npm install --prefix .pi/npm not-here" in failures["npm:not-here"]
        assert "outside the project" in failures["../../outside"] and len(failures) == 2
        found = {(item.kind, item.name) for item in suite.resources}
        assert found >= {("prompt", "plot"), ("skill", "knots"), ("skill", "anchor")}
        assert ("theme", "night") not in found  # the filter lists no theme
        names = {item["name"] for item in await suite.session.request("getCommands", {})}
        assert {"plot", "skill:knots", "skill:anchor"} <= names
        assert await suite.run_command("plot", "'Kap Horn' Ostend") == {
            "prompt": "Plot Kap Horn to Ostend: Kap Horn Ostend"
        }

    play(project(tmp_path / "p"), story)


def test_nothing_of_it_runs_or_is_told_before_a_person_trusts_it(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")

    async def story(host: Host) -> None:
        standing = await host.extensions.standing()
        assert standing.state == "untrusted"
        assert {item.path for item in standing.brings if item.kind == "package"} == {
            ".pi/npm/node_modules/@sea/tides",
            ".pi/git/github.com/sea/charts",
            ".pi/local",
        }
        suite = await host.extensions.suite()
        assert suite.tools() == [] and [item for item in suite.resources if item.scope != "user"] == []
        await host.extensions.trust.give(host.root)
        for path in (".pi/npm/node_modules/@sea/other/index.js", "more-skills/anchor/SKILL.md", ".pi/local/x.ts"):
            write(folder / path, "changed")
            assert (await host.extensions.standing()).state == "changed"
            await host.extensions.trust.give(host.root)

    play(folder, story)


def test_skills_stand_in_the_system_prompt(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.extensions.trust.give(host.root)
        assert (await settled(host, await start(host))).status == "completed"
        model = heard(host)
        system = next(message.content for message in model.messages if message.role == "system")
        assert "- knots: Tie knots. (read " in system and "- anchor: Drop anchor." in system

    play(project(tmp_path / "p"), story)


def test_settings_that_cannot_be_read_name_nothing_and_are_told(tmp_path: Path) -> None:
    for text in ("{", '{"packages": {}}', '{"packages": [{"extensions": []}]}', '{"skills": "x"}'):
        write(tmp_path / ".pi/settings.json", text)
        found = named(tmp_path)
        assert found.packages == () and [file for file, _ in found.problems] == [".pi/settings.json"]


def test_arguments_of_a_prompt_are_filled_in_once() -> None:
    assert filled("$1 and $2 and $3: $@ | $ARGUMENTS", "'$2 x' b") == "$2 x and b and : $2 x b | $2 x b"
