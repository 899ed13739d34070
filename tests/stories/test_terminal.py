"""The twelve stories through `forestay chat`, in a real pseudo-terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forestay.extensions import Extensions
from forestay.kernel import Ledger
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.stories.stories import EXTENSIONS, STORIES, check_left, project, search_path, serving

DOCS = Path(__file__).parents[2] / "docs"
QUICK, SWEPT = "plan_mode", [pytest.mark.sweep]  # a command, a dialog, a status, and a turn that it asks for
PROMPT = "\n> "
PROMPTS = {"say": PROMPT, "choose": "empty to cancel: ", "confirm": "yes or no: "}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == QUICK else SWEPT) for name in STORIES])
def test_a_story_at_the_terminal(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    with serving(folder) as address:
        _play(name, project(folder, name, address))
    check_left(folder, name)


def _play(name: str, folder: Path) -> None:
    home = folder.parent / "home"
    home.mkdir()
    chat = PseudoTerminal(folder, "chat", "--trust", PATH=search_path(folder, name), HOME=str(home))
    try:
        for word, what in STORIES[name].steps:
            if word == "see":
                chat.shows(what)
            elif word in ("stand", "stood"):
                chat.stands(what, PROMPT, ever=word == "stood")
            elif word in PROMPTS:
                chat.expect(PROMPTS[word])
                chat.type(what)
        chat.expect(PROMPTS["say"])
        chat.type("/quit")
        assert chat.end() == 0
    finally:
        chat.close()


async def test_every_story_loads(tmp_path: Path) -> None:
    assert sorted(path.stem for path in EXTENSIONS.glob("*.ts")) == sorted(STORIES)
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=tmp_path, mode="permissive") as suite,
    ):
        for name in STORIES:
            await suite.load(EXTENSIONS / f"{name}.ts")
        assert [member.extension.name for member in suite.members] == list(STORIES)
        assert {"todo", "delegate", "web_fetch", "remember", "bash"} <= {tool.name for tool in suite.tools()}


def test_the_page_names_every_extension_and_shows_its_picture() -> None:
    page = (DOCS / "how-to" / "extensions-in-use.md").read_text("utf-8")
    named = re.findall(r"^`examples/extensions/(\w+)\.ts` ·", page, re.MULTILINE)
    pictures = re.findall(r"\(\.\./images/story-([\w-]+)\.png\)", page)
    assert named == list(STORIES) and [name.replace("-", "_") for name in pictures] == list(STORIES)
    assert all((DOCS / "images" / f"story-{name}.png").is_file() for name in pictures)
