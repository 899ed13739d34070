"""The user's own folder: its extensions load when the user trusts them as they are, after the project's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions import overview
from forestay.extensions.themes import TOKENS
from forestay.host import Host
from tests.host.test_project_packages import extension, play, write


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    write(folder / ".forestay/extensions/mine.ts", extension("mine"))
    write(folder / ".pi/agent/extensions/two/index.ts", extension("shared"))
    write(folder / ".forestay/themes/sea.json", json.dumps({"name": "sea", "colors": dict.fromkeys(TOKENS, 4)}))
    return folder


def tools(suite: Any) -> list[str]:
    return sorted(tool.name for tool in suite.tools())


def test_n1_the_users_extensions_are_listed_until_the_user_trusts_them(tmp_path: Path, home: Path) -> None:
    project = tmp_path / "project"
    write(project / ".forestay/extensions/theirs.ts", extension("theirs"))

    async def unseen(host: Host) -> None:
        assert await host.extensions.untrusted() == [".forestay/extensions/theirs.ts"]
        assert await host.extensions.untrusted_of_user() == [
            "~/.forestay/extensions/mine.ts",
            "~/.pi/agent/extensions/two",
        ]
        suite = await host.extensions.suite()
        assert tools(suite) == [] and [theme.name for theme in suite.themes.all()] == ["dark", "light", "sea"]
        await host.extensions.own.give(home)

    async def trusted(host: Host) -> None:
        assert await host.extensions.untrusted_of_user() == []
        assert tools(await host.extensions.suite()) == ["mine", "shared"]  # the project's own is another decision
        seen = {card.source: card.trust for card in (await overview(host.extensions)).cards}
        assert seen == {"~/.forestay/extensions/mine.ts": "trusted", "~/.pi/agent/extensions/two": "trusted"}
        write(home / ".pi/agent/extensions/two/index.ts", extension("changed"))

    async def changed(host: Host) -> None:
        assert (await host.extensions.users()).state == "changed"
        await host.extensions.trust.give(host.root)
        assert tools(await host.extensions.suite()) == ["theirs"]

    for story in (unseen, trusted, changed):
        play(project, story)


def test_the_projects_tool_comes_before_the_users(tmp_path: Path, home: Path) -> None:
    project = tmp_path / "project"
    write(project / ".forestay/extensions/first.ts", extension("shared"))

    async def story(host: Host) -> None:
        await host.extensions.own.give(home)
        await host.extensions.trust.give(host.root)
        suite = await host.extensions.suite()
        assert suite.owner("shared").path.endswith("first.ts") and tools(suite) == ["mine", "shared"]

    play(project, story)


def test_a_home_that_is_the_project_is_one_folder_with_two_decisions(tmp_path: Path, home: Path) -> None:
    async def story(host: Host) -> None:
        await host.extensions.own.give(home)
        assert (await host.extensions.standing()).state == "untrusted"
        suite = await host.extensions.suite()
        assert tools(suite) == [] and suite.failures == []

    play(home, story)


def test_trust_of_the_users_folder_on_the_command_line(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from forestay.cli.main import run

    def said(*arguments: str) -> Any:
        run(["ext", *arguments, "--data", str(tmp_path / "data"), "--json"])
        return json.loads(capsys.readouterr().out)["result"]

    assert said("trust", "--user", "--show")["state"] == "untrusted"
    given = said("trust", "--user")
    assert given["state"] == "trusted" and given["folder"] == f"user:{home.resolve()}"
    assert [item["path"] for item in given["brings"]] == [".forestay/extensions/mine.ts", ".pi/agent/extensions/two"]
    assert said("resources", str(tmp_path))["userTrust"] == "trusted"
    assert said("trust", "--user", "--withdraw")["state"] == "untrusted"
