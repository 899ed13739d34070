"""What extensions do in a chat at a real pseudo-terminal: speak to the agent at work, route models, know the branch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.pseudo_terminal import PseudoTerminal

TIDE = """
export default function (pi) {
  pi.on("tool_call", (event) => {
    if (event.input.path !== undefined) return;
    pi.sendUserMessage("And then rest.", { deliverAs: "followUp" });
    pi.sendUserMessage("Make haste.", { deliverAs: "steer" });
  });
  pi.registerVirtualModel({ provider: "tide", id: "auto", name: "Auto", route(request, ctx) {
    const asked = JSON.stringify(request.messages.at(-1).content), count = (request.state?.count ?? 0) + 1;
    const name = asked.includes("deep") ? "flood" : "ebb";
    pi.appendEntry("routed", { reason: request.reason, count, previous: request.previous?.model?.id ?? null });
    return { model: ctx.modelRegistry.find(name, name), thinkingLevel: "off", state: { count } };
  } });
  pi.registerCommand("which", { handler: async (args, ctx) => {
    const scope = ctx.scopedModels.map((one) => one.model.id + (one.thinkingLevel ?? ""));
    ctx.ui.notify(`${ctx.model.provider}/${ctx.model.id} of ${scope}`);
  } });
  pi.registerCommand("routed", { handler: async (args, ctx) => {
    const kept = ctx.sessionManager.getBranch().filter((entry) => entry.customType === "routed");
    for (const { data } of kept) ctx.ui.notify(`${data.reason} ${data.count} ${data.previous}`);
  } });
  pi.registerCommand("pick", { handler: async (args, ctx) => {
    ctx.ui.notify("" + await pi.setModel(ctx.modelRegistry.find(args.trim(), args.trim())));
  } });
  pi.registerCommand("spin", { handler: async (args, ctx) => {
    ctx.ui.setWorkingIndicator({ frames: ["~", "≈"], intervalMs: 60 });
    ctx.ui.setWorkingMessage("sounding");
  } });
  pi.registerCommand("foot", { handler: async (args, ctx) => ctx.ui.setFooter((tui, theme, data) => {
    const stop = data.onBranchChange(() => { ctx.ui.notify("another branch"); tui.requestRender(); });
    const shown = () => `on ${data.getGitBranch()}, ${data.getAvailableProviderCount()} providers`;
    return { render: () => [shown()], dispose: stop };
  }) });
}
"""
HASTE: list[dict[str, Any]] = [
    {"when": "Look", "tool_calls": [{"name": "ls", "arguments": {}}, {"name": "ls", "arguments": {"path": "."}}]},
    {"when": "haste", "text": "I hurry."},
    {"when": "rest", "text": "I rest."},
]
LOOKS: dict[str, Any] = {"tool_calls": [{"name": "ls", "arguments": {"path": "."}}]}
EBB: list[dict[str, Any]] = [{"text": "The ebb answers.", "repeat": True}]
FLOOD: list[dict[str, Any]] = [{"when": "deep", "text": "The flood answers.", "repeat": True}]
Open = Callable[..., PseudoTerminal]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    terminals: list[PseudoTerminal] = []

    def start(*arguments: str, turns: list[dict[str, Any]] = EBB, more: str = "", **environ: str) -> PseudoTerminal:
        for name, said in (("ebb", turns), ("flood", FLOOD)):
            (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "turns": said}))
        models = f'[models]\ndefault = "scripted:ebb.json"\n{more}[models.classes]\nwriting = "scripted:flood.json"\n'
        extensions = '[extensions]\npaths = ["tide.ts"]\n[extensions.policy]\nmode = "permissive"\n'
        (tmp_path / "forestay.toml").write_text(models + extensions)
        (tmp_path / "tide.ts").write_text(TIDE)
        terminals.append(PseudoTerminal(tmp_path, "chat", *arguments, **environ))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


@pytest.mark.api("pi.sendUserMessage")
def test_an_agent_at_work_is_steered_and_what_follows_comes_after_its_turn(opened: Open) -> None:
    chat = opened("--trust", turns=HASTE)
    chat.expect("> ")
    chat.type("Look around.")
    chat.expect(r"tool   ls · ok.*tool   ls · ok.*I hurry\.\n.*I rest\.\n.*> ")
    chat.type("/session")
    shown = chat.expect(r"session \S+  \n(.*?)> ")[1]
    order = [
        shown.index(text) for text in ("Look around.", "ls: ", "Make haste.", "I hurry.", "And then rest.", "I rest.")
    ]
    assert order == sorted(order) and shown.count("Make haste.") == 1 == shown.count("And then rest.")
    chat.type("/quit")
    assert chat.end() == 0


@pytest.mark.api("pi.registerVirtualModel|pi.setModel|ctx.scopedModels")
def test_a_person_chooses_a_model_that_an_extension_routes(opened: Open, tmp_path: Path) -> None:
    chat = opened("--trust", more='enabled = ["tide/*:high", "ebb"]\n')
    chat.expect("> ")
    chat.type("/model")
    chat.expect(r"  tide/auto\n\* ebb/ebb\n> ")
    chat.type("/model tide/auto")
    chat.expect(r"model  tide/auto\n> ")
    chat.type("How deep is it?")
    chat.expect(r"The flood answers\.\n.*> ")
    chat.type("And now?")
    chat.expect(r"The ebb answers\.\n.*> ")
    chat.kill()
    again = opened("--session", "last", more='enabled = ["tide/*:high", "ebb"]\n')
    again.expect("> ")
    again.type("/which")
    again.expect(r"\[tide\] tide/auto of autohigh,ebb\n.*> ")
    again.type("Is it deep still?")
    again.expect(r"The flood answers\.\n.*> ")
    again.type("/routed")
    again.expect(r"\[tide\] user 1 null\n\[tide\] user 2 flood\n\[tide\] user 3 ebb\n.*> ")
    again.type("/pick flood")
    again.expect(r"\[tide\] true\n.*> ")
    again.type("Still deep?")
    again.expect(r"The flood answers\.\n.*> ")
    again.type("/model nowhere")
    again.expect("model_unknown: No model, or more than one, is nowhere")
    again.type("/quit")
    assert again.end() == 0
    asked = [sys.executable, "-m", "forestay", "ask", "--model", "tide/auto", "How deep is it?"]
    told = subprocess.run(asked, cwd=tmp_path, env=_home(tmp_path), capture_output=True, text=True, timeout=90)
    assert "The flood answers." in told.stdout, told


def _home(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".none"), "PATH": "/usr/bin:/bin"}


@pytest.mark.api("ctx.ui.setFooter")
def test_a_footer_knows_the_branch_and_hears_of_another_one(opened: Open, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/spring/tide\n")
    chat = opened("--trust")
    chat.expect("> ")
    chat.type("/foot")
    chat.expect(r"\[tide\] on spring/tide, 3 providers\n> ")
    (tmp_path / ".git" / "HEAD").write_text("0123456789012345678901234567890123456789\n")
    chat.expect(r"\[tide\] another branch\n")
    chat.type("")
    chat.stands("[tide] on detached, 3 providers", "> ")
    chat.expect("> ")
    chat.type("/quit")
    assert chat.end() == 0


@pytest.mark.api("ctx.ui.setWorkingIndicator")
def test_what_is_under_way_moves_at_the_end_of_the_screen_and_gives_way(opened: Open) -> None:
    chat = opened("--trust", turns=[LOOKS, {"text": "Never said.", "delay": 600}], TERM="xterm")
    chat.expect("> ")
    chat.type("/spin")
    chat.expect("> ")
    chat.type("How deep?")
    for _ in range(3):
        chat.expect(r"\[tide\] ~ sounding\n\r?\x1b\[1A\x1b\[J\[tide\] ≈ sounding\n")
    assert "tool   ls · ok\n" in chat.seen
    chat.press("\x03")
    chat.expect(r"\r?\x1b\[1A\x1b\[J\nCancelled\.\n")
    chat.expect("> ")
    chat.type("/quit")
    assert chat.end() == 0
    assert "sounding" not in chat.seen.rpartition("Cancelled.")[2], "it is gone when the work ends"
