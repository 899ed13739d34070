"""Themes: read from packs, checked, listed, chosen by an extension and seen by all of them (M1 to M3)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.connectors.ui import NoUi, ScriptedUi, TerminalUi, styled
from forestay.extensions.extensions import Extensions
from forestay.extensions.guest.build import SOURCES
from forestay.extensions.packs import discover
from forestay.extensions.themes import BUILT_IN, TOKENS, Themes, read_theme, theme_of
from forestay.kernel import Ledger, Problem

EXTENSION = """
import { Theme, getMarkdownTheme } from "@mariozechner/pi-coding-agent";
export default function (pi) {
  pi.registerCommand("ask", { handler: async (args, ctx) => {
    const held = ctx.ui.theme;  // kept from before: sees the next one all the same
    const answers = [];
    for (const name of args.split(" ")) answers.push(ctx.ui.setTheme(name));
    return { answers, name: held.name, accent: held.getFgAnsi("accent"), text: held.fg("text", "t"),
      behind: held.bg("selectedBg", "b"), heading: getMarkdownTheme().heading("h"), mode: held.getColorMode(),
      all: ctx.ui.getAllThemes().map((theme) => theme.name), none: ctx.ui.getTheme("nowhere") === undefined,
      path: typeof ctx.ui.getTheme("sea")?.sourcePath, high: held.getThinkingBorderColor("high")("x") };
  } });
  pi.registerCommand("own", { handler: async (args, ctx) => {
    const colors = JSON.parse(args);
    const { selectedBg, userMessageBg, customMessageBg, toolPendingBg, toolSuccessBg, toolErrorBg, ...front } = colors;
    const back = { selectedBg, userMessageBg, customMessageBg, toolPendingBg, toolSuccessBg, toolErrorBg };
    return [ctx.ui.setTheme(new Theme(front, back, "256color", { name: "mine" })), ctx.ui.theme.getFgAnsi("accent")];
  } });
  pi.registerCommand("look", { handler: async (_args, ctx) => [ctx.ui.theme.name, ctx.ui.theme.fg("accent", "x")] });
  pi.registerCommand("unknown", { handler: async (_args, ctx) => ctx.ui.theme.fg("nocolour", "x") });
}
"""


class Coloured(ScriptedUi):
    colour = True


def document(name: str, **changes: Any) -> dict[str, Any]:
    colours = dict.fromkeys(TOKENS, "") | {"accent": "sea", "selectedBg": 17} | changes
    return {"name": name, "vars": {"sea": "water", "water": "#0a64ff"}, "colors": colours}


def project(folder: Path) -> Path:
    themes = folder / ".forestay/themes"
    themes.mkdir(parents=True)
    (themes / "sea.json").write_text(json.dumps(document("sea")))
    (themes / "half.json").write_text(json.dumps({"name": "half", "colors": {"accent": 1}}))
    for name in ("one", "two"):
        (folder / f"{name}.ts").write_text(EXTENSION)
    return folder


async def opened(suite: Extensions, folder: Path) -> None:
    for name in ("one", "two"):
        await suite.load(folder / f"{name}.ts")
    suite.take_resources(discover(folder, folder / "nobody"))


async def test_m3_a_theme_that_one_extension_chooses_is_everybodys(tmp_path: Path) -> None:
    folder = project(tmp_path)
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=folder, mode="permissive", ui=Coloured([])) as suite,
    ):
        await opened(suite, folder)
        assert (await suite.run_command("look:2")) == ["dark", "\x1b[38;5;6mx\x1b[39m"]
        said = await suite.run_command("ask:1", "sea")
        assert said["answers"] == [{"success": True}] and said["name"] == "sea" and said["none"]
        assert said["accent"] == "\x1b[38;2;10;100;255m" and said["behind"] == "\x1b[48;5;17mb\x1b[49m"
        assert said["text"] == "\x1b[39mt\x1b[39m" and said["heading"] == "\x1b[39mh\x1b[39m"
        assert said["all"] == ["dark", "light", "sea"] and said["mode"] == "truecolor" and said["path"] == "string"
        assert (await suite.run_command("look:2")) == ["sea", "\x1b[38;2;10;100;255mx\x1b[39m"]
        shown = [call for call in suite.ui.calls if call["op"] == "setTheme"]  # type: ignore[attr-defined]
        assert shown == [{"extension": "one", "op": "setTheme", "name": "sea", "success": True}]


async def test_m2_a_theme_that_cannot_be_had_leaves_dark_and_says_why(tmp_path: Path) -> None:
    folder = project(tmp_path)
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=folder, mode="permissive", ui=Coloured([])) as suite,
    ):
        await opened(suite, folder)
        said = await suite.run_command("ask:1", "sea half nowhere")
        assert [answer["success"] for answer in said["answers"]] == [True, False, False]
        assert "50 of 51 colours are missing" in said["answers"][1]["error"]
        assert said["answers"][2]["error"] == "Theme not found: nowhere"
        assert said["name"] == "dark" and suite.themes.active.name == "dark"
        with pytest.raises(Problem, match="Unknown theme color: nocolour"):
            await suite.run_command("unknown:1")


async def test_an_extensions_own_theme_and_the_one_after_a_trap(tmp_path: Path) -> None:
    folder = project(tmp_path)
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=folder, mode="permissive", ui=Coloured([])) as suite,
    ):
        await opened(suite, folder)
        colours = theme_of(document("x", accent="#ff8700"), "x").colors
        made = await suite.run_command("own:1", json.dumps(colours))
        assert made == [{"success": True}, "\x1b[38;5;208m"]  # the nearest of the palette
        assert (await suite.run_command("look:2"))[0] == "mine"
        two = suite.members[1].extension
        await two._reload()  # as after a trap: a new VM, and the theme in use
        assert (await suite.run_command("look:2"))[0] == "mine"


async def test_nobody_there_means_no_themes(tmp_path: Path) -> None:
    folder = project(tmp_path)
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=folder, mode="permissive", ui=NoUi()) as suite,
    ):
        await opened(suite, folder)
        said = await suite.run_command("ask:1", "sea")
        assert said["answers"] == [{"success": False, "error": "UI not available"}]
        assert said["all"] == [] and said["text"] == "t" and said["accent"] == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"accent": "nothing"}, "not in its `vars`"),
        ({"accent": 256}, "not a colour"),
        ({"accent": "#12"}, "not a colour"),
        ({"accent": True}, "not a colour"),
        ({"accent": None}, "not a colour"),
        ({"accent": "loop"}, "in a circle"),
    ],
)
def test_m1_a_file_that_is_no_whole_theme_says_what_it_lacks(tmp_path: Path, change: Any, why: str) -> None:
    broken = document("broken", **change)
    broken["vars"]["loop"] = "pool"
    broken["vars"]["pool"] = "loop"
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    with pytest.raises(Problem, match=re.escape(why)) as caught:
        read_theme(tmp_path / "broken.json")
    assert caught.value.details["at"] == "$.colors.accent" and caught.value.details["fix"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"colors": {}}', '{"name": "", "colors": {}}'])
def test_m1_what_is_no_theme_at_all(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(Problem):
        read_theme(tmp_path / "x.json")


def test_the_guests_first_theme_is_the_hosts() -> None:
    text = (SOURCES / "theme.ts").read_text("utf-8")
    body = text[text.index("const DARK") : text.index("};", text.index("const DARK"))]
    told = {name: json.loads(value) for name, value in re.findall(r"(\w+): (\d+|\"\")", body)}
    assert told == BUILT_IN["dark"].colors and len(TOKENS) == 51


def test_a_project_may_have_a_dark_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".pi/themes").mkdir(parents=True)
    (tmp_path / ".pi/themes/mine.json").write_text(json.dumps(document("dark", accent=9)))
    themes = Themes()
    themes.adopt(discover(tmp_path, tmp_path / "nobody"))
    assert themes.choose("dark").colors["accent"] == 9


def test_a_terminal_shows_colours_and_nothing_that_moves_it() -> None:
    assert styled("\x1b[31mred\x1b[2Jgone\x07") == "\x1b[31mred\ufffd[2Jgone\ufffd\x1b[0m"
    assert styled("plain") == "plain"


class Screen:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("environ", "colour", "mode"),
    [
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True, "truecolor"),
        ({"TERM": "xterm"}, True, "256color"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, "256color"),
        ({"TERM": "dumb"}, False, "256color"),
    ],
)
def test_when_a_terminal_is_coloured(environ: dict[str, str], colour: bool, mode: str) -> None:
    screen: Any = Screen()
    ui = TerminalUi(screen, screen, environ)
    assert (ui.colour, ui.color_mode) == (colour, mode)


async def test_a_terminal_shows_widgets_and_passes_keys_on() -> None:
    import io

    screen: Any = Screen()
    ui = TerminalUi(io.StringIO("down up abc\n\n"), screen, {"TERM": "xterm"})
    await ui.request("e", "setWidget", {"op": "setWidget", "key": "k", "lines": ["\x1b[31ma", "b"]})
    await ui.request("e", "setStatus", {"op": "setStatus", "key": "k", "text": "busy"})
    assert screen.text == "[e] \x1b[31ma\x1b[0m\n[e] b\n[e] k: busy\n"
    custom = {"op": "custom", "lines": ["pick"]}
    assert await ui.request("e", "custom", custom) == {"keys": ["\x1b[B", "\x1b[A", "a", "b", "c"]}
    assert await ui.request("e", "custom", custom) == {"keys": ["\r"]}
    assert await ui.request("e", "custom", custom) is None
