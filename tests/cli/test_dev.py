"""`forestay dev` at a real terminal: asked once; then every edit is taken over, and mistakes are told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from forestay.cli.watch import Seen, differences, look, of_others
from forestay.kernel import Agents, Config, ExtensionConfig, Workflows
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.runs.documents import node, workflow

KEY = "a-key-for-dev-12345"
NODES = """
from forestay.runs.nodes import NodeContext, node


@node("mine.say")
async def say(ctx: NodeContext) -> dict:
    return {{"word": "{word}"}}
"""


def said(url: str) -> str:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60, trust_env=False) as api:
        run = api.post("/v1/runs", json={"workflowId": "say"}).json()["runId"]
        with api.stream("GET", f"/v1/runs/{run}/events") as events:
            for _ in events.iter_lines():
                pass
        return str(api.get(f"/v1/runs/{run}").json()["outputs"]["word"])


def test_an_edit_is_taken_over_and_a_mistake_leaves_what_runs(tmp_path: Path) -> None:
    settings = '[workflows]\npaths = ["flows"]\nnodes = ["nodes.py"]\n[http]\nport = 0\n'
    (tmp_path / "forestay.toml").write_text(settings)
    (tmp_path / "nodes.py").write_text(NODES.format(word="one"))
    (tmp_path / "flows").mkdir()
    document = workflow("say", [node("say", "mine.say") | {"outputRole": "primary"}], [])
    (tmp_path / "flows" / "say.json").write_text(json.dumps(document))
    terminal = PseudoTerminal(tmp_path, "dev", FORESTAY_API_KEY=KEY)
    try:
        terminal.expect(re.escape("Trust what you edit in this folder"))
        terminal.type("y")
        url = terminal.expect(r"ready  (http://\S+?)/\n")[1]
        assert said(url) == "one"
        (tmp_path / "nodes.py").write_text(NODES.format(word="two and more"))
        terminal.expect("change nodes.py")
        assert terminal.expect(r"ready  (http://\S+?)/\n")[1] == url
        assert said(url) == "two and more"
        (tmp_path / "nodes.py").write_text("def broken(:\n")
        terminal.expect(r"broken The node file nodes.py is not Python: .*\(line 1\)")
        assert said(url) == "two and more"
        (tmp_path / "nodes.py").write_text(NODES.format(word="three"))
        (tmp_path / "flows" / "other.json").write_text("{")
        terminal.expect("broken other.json: ")
        terminal.expect(r"ready  http")
        assert said(url) == "three"
        terminal.press("\x03")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_what_is_watched_is_what_the_project_is_made_of(tmp_path: Path) -> None:
    made = ("forestay.toml", "nodes.py", "flows/a.json", "agents/a.toml", "agents/prompt.md", "ext/a/index.ts")
    for name in (*made, "notes.md", "ext/a/node_modules/b.js", ".pi/extensions/x.ts"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    config = Config(
        workflows=Workflows(paths=["flows"], nodes=["nodes.py"]),
        agents=Agents(paths=["agents"]),
        extensions=ExtensionConfig(paths=["ext"]),
    )
    before = look(tmp_path, config)
    assert sorted(before) == sorted((*made, ".pi/extensions/x.ts"))
    (tmp_path / "notes.md").write_text("another text")
    (tmp_path / "flows" / "a.json").unlink()
    (tmp_path / "agents" / "prompt.md").write_text("longer than before")
    assert differences(before, look(tmp_path, config)) == ["agents/prompt.md", "flows/a.json"]


def test_what_another_person_wrote_is_named() -> None:
    assert of_others({"a.py": Seen(1, 1, 0), "b.py": Seen(1, 1, 1000), "c.py": Seen(1, 1, 7)}, 1000) == ["a.py", "c.py"]
