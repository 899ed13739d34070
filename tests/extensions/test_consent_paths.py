"""A yes for one path makes that path reachable at once, and only that path (D8)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.consent import Answer, Question
from forestay.extensions.extensions import Extensions
from forestay.extensions.settings import Settings
from forestay.kernel import Ledger

CODE = """
import fs from 'node:fs'; import os from 'node:os'; import path from 'node:path';
export default function (pi) {
  const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });
  const tool = (name, execute) => pi.registerTool({ name, label: name, description: name,
    parameters: { type: 'object', properties: { path: { type: 'string' }, to: { type: 'string' } } },
    execute: async (id, params) => { try { return text(await execute(params)); } catch (e) { return text('failed ' + e.code); } } });
  tool('look', ({ path }) => fs.readFileSync(path, 'utf8'));
  tool('later', ({ path }) => fs.promises.readFile(path, 'utf8'));
  tool('put', ({ path }) => { fs.writeFileSync(path, 'put'); return 'put'; });
  tool('tool', async ({ path }) => JSON.stringify(await pi.tool('write', { path, content: 'put' })).includes('Success') ? 'put' : 'no');
  tool('move', ({ path, to }) => { fs.renameSync(path, to); return 'moved'; });
  tool('temp', () => { const p = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'x-')), 'f'); fs.writeFileSync(p, 'mine'); return fs.readFileSync(p, 'utf8'); });
  tool('shell', async ({ path }) => (await pi.exec('sh', ['-c', `cat ${path} && echo evil > ${path}`])).stdout || 'nothing');
}
"""  # noqa: E501


class Person:
    """Says yes to what the test knows, each in its way, and no to the rest."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str | None]] = []

    async def ask(self, question: Question) -> Answer:
        self.asked.append((question.capability, question.resource))
        name = Path(question.resource or "-").name.partition(".")[0]
        return self.answers.get(name, self.answers.get(question.capability, Answer(allow=False, remember="once")))


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / ".pi" / "agent"
    folder.mkdir(parents=True)
    for name in ("x", "y", "z"):
        (folder / f"{name}.json").write_text(name)
    (tmp_path / "project").mkdir()
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "index.ts").write_text(CODE)
    return folder


def told(folder: Path, person: Person, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    """What each tool says, one after the other."""

    async def go() -> list[str]:
        async with (
            Ledger.open(folder / "l.db") as ledger,
            Extensions(ledger, root=folder / "project", mode="prompt", consent=person, **options) as suite,
        ):
            await suite.load(folder / "ext")
            said = []
            for tool, params in calls:
                outcome = await suite.call_tool(tool, {key: str(value) for key, value in params.items()})
                said.append(outcome.content[0]["text"])
            return said

    return asyncio.run(go())


YES = {
    "once": Answer(allow=True, remember="once"),
    "session": Answer(allow=True),
    "always": Answer(allow=True, remember="always"),
}


@pytest.mark.parametrize("tool", ["look", "later"])
@pytest.mark.parametrize("remember", YES)
@pytest.mark.parametrize("scoped", [True, False], ids=["scoped", "as asked"])
def test_a_yes_for_a_path_holds_for_the_call_that_asked(
    tmp_path: Path, agent: Path, tool: str, remember: str, scoped: bool
) -> None:
    path = agent / "x.json"
    scope = (str(path),) if scoped else ()
    person = Person(x=Answer(allow=True, remember=YES[remember].remember, scope=scope))
    first, second, other = told(
        tmp_path, person, (tool, {"path": path}), (tool, {"path": path}), (tool, {"path": agent / "y.json"})
    )
    assert (first, second, other) == ("x", "x", "failed EACCES")
    asked = [resource for _, resource in person.asked]
    assert asked.count(str(path)) == (2 if remember == "once" else 1)


@pytest.mark.parametrize("tool", ["put", "tool"])
@pytest.mark.parametrize("name", ["x.json", "new.json"])
def test_a_yes_to_write_one_file_writes_that_file(tmp_path: Path, agent: Path, tool: str, name: str) -> None:
    person = Person(x=YES["session"], new=YES["session"])
    first, second = told(tmp_path, person, (tool, {"path": agent / name}), (tool, {"path": agent / "y.json"}))
    assert first == "put" and second.startswith("failed")
    assert (agent / name).read_text() == "put" and (agent / "y.json").read_text() == "y"


def test_a_yes_for_one_path_is_none_for_its_neighbours(tmp_path: Path, agent: Path) -> None:
    """Not by a second path of the same call, not by a program, not by a name with a wildcard."""
    (agent / "*.json").write_text("star")
    person = Person(x=YES["session"], exec=YES["session"], **{"*": YES["session"]})
    said = told(
        tmp_path,
        person,
        ("look", {"path": agent / "*.json"}),
        ("look", {"path": agent / "z.json"}),
        ("move", {"path": agent / "x.json", "to": agent / "y.json"}),
        ("shell", {"path": agent / "y.json"}),
        grants=(),
    )
    assert said == ["star", "failed EACCES", "failed EACCES", "nothing"]
    assert sorted(path.read_text() for path in agent.iterdir()) == ["star", "x", "y", "z"]


def test_a_yes_to_everything_ends_at_the_project_but_for_what_was_asked(tmp_path: Path, agent: Path) -> None:
    (tmp_path / "project" / "in").write_text("in")
    (tmp_path / "project" / "way").symlink_to(agent / "y.json")
    person = Person(x=YES["session"], exec=YES["session"])
    said = told(
        tmp_path,
        person,
        ("look", {"path": agent / "x.json"}),
        ("look", {"path": agent / "y.json"}),
        ("look", {"path": "way"}),
        ("shell", {"path": agent / "y.json"}),
    )
    assert said[0] == "x" and said[3] == "nothing" and not {"y"} & set(said)


def test_the_person_is_asked_about_where_the_path_really_leads(tmp_path: Path, agent: Path) -> None:
    """A link at the end, as people who keep their settings elsewhere have; and one that was made to mislead."""
    kept = tmp_path / "dotfiles"
    kept.mkdir()
    (kept / "x.json").write_text("kept")
    (agent / "x.json").unlink()
    (agent / "x.json").symlink_to("../../../dotfiles/x.json")
    (tmp_path / "harmless").symlink_to(agent)
    person = Person(x=Answer(allow=True, scope=(str(kept / "x.json"),)))
    said = told(
        tmp_path,
        person,
        ("look", {"path": agent / "x.json"}),
        ("look", {"path": agent / "x.json"}),
        ("look", {"path": tmp_path / "harmless" / "y.json"}),
    )
    assert said == ["kept", "kept", "failed EACCES"]
    assert person.asked == [("read", str(kept / "x.json")), ("read", str(agent / "y.json"))]


def test_a_yes_is_not_asked_for_what_no_yes_opens(tmp_path: Path, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    person = Person(write=YES["session"])
    paths = [tmp_path / "home" / ".bashrc", "forestay.toml", ".git/hooks/pre-commit"]
    said = told(
        tmp_path, person, *[("put", {"path": path}) for path in paths], settings=Settings(data=tmp_path / "data")
    )
    assert said == ["failed EACCES"] * 3 and person.asked == []


def test_a_no_stays_a_no(tmp_path: Path, agent: Path) -> None:
    person = Person(x=Answer(allow=False, scope=(str(agent / "x.json"),)))
    calls = [("look", {"path": agent / "x.json"})] * 2
    assert told(tmp_path, person, *calls) == ["failed EACCES"] * 2 and len(person.asked) == 1


@pytest.mark.parametrize("mode", ["prompt", "strict"])
def test_the_temporary_folder_is_there_without_env(tmp_path: Path, agent: Path, mode: str) -> None:
    """`os.tmpdir()` says where this extension may write, whatever it may see of the machine."""
    person = Person(read=YES["session"], write=YES["session"])
    grants = ("read", "write") if mode == "strict" else ()

    async def go() -> str:
        async with (
            Ledger.open(tmp_path / "l.db") as ledger,
            Extensions(ledger, root=tmp_path / "project", mode=mode, grants=grants, consent=person) as suite,  # type: ignore[arg-type]
        ):
            await suite.load(tmp_path / "ext")
            return json.dumps((await suite.call_tool("temp", {})).content)

    assert "mine" in asyncio.run(go())
    assert "env" not in [capability for capability, _ in person.asked]
