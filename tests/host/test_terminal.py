"""`forestay ask` with a person at the terminal: extensions and writes are asked about where the command was started."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
from pathlib import Path

import pytest

from tests.forked import Forked

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from forestay.cli.main import main; sys.exit(main())"


def played(folder: Path, *arguments: str, answer: bytes) -> str:
    """What the terminal showed; every question gets `answer`."""
    terminal, side = pty.openpty()
    keep = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    env = {**keep, "NO_COLOR": "1", "XDG_CONFIG_HOME": str(folder / ".none")}
    child = Forked(folder, *arguments, environ=env, terminal=side)
    os.close(side)
    shown, answered = b"", 0
    while select.select([terminal], [], [], 120)[0]:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the child has closed its side
            break
        shown += part
        while shown.count(b"[y/N] ") > answered:
            answered += 1
            os.write(terminal, answer + b"\n")
    os.close(terminal)
    assert child.wait(60) == 0, shown.decode()
    return shown.decode()


def test_a_person_says_yes(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "harbour", tmp_path / "h")
    shown = played(tmp_path / "h", "ask", 'Use tally, then write "x7" to board.md', answer=b"y")
    assert "This folder brings extensions: extensions/tally." in shown
    assert "May the agent call write?" in shown and "returned: 3 berths" in shown
    assert (tmp_path / "h" / "board.md").read_text() == "x7"


def test_a_person_says_no(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "harbour", tmp_path / "h")
    shown = played(tmp_path / "h", "ask", 'Use tally, then write "x7" to board.md', answer=b"n")
    assert "nobody trusts it yet" in shown and "returned: 3 berths" not in shown
    assert not (tmp_path / "h" / "board.md").exists()


def test_what_a_model_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    script = {"turns": [{"text": "Berth \x1b]52;c;cHduZWQ=\x07 7\u202e.\n\tDone."}]}
    (tmp_path / "model.json").write_text(json.dumps(script))
    (tmp_path / "forestay.toml").write_text('[models]\ndefault = "scripted:model.json"\n')
    shown = played(tmp_path, "ask", "Where?", answer=b"n")
    assert "Done." in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


async def test_a_call_of_unknown_outcome_asks_what_the_person_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forestay.cli import ask, terminal

    known = {"tool": "bash", "arguments": {"command": "make"}, "effect_key": "k", "begun_at": "2026-01-01T00:00:00Z"}
    question = {"title": "Was bash done?", "artifactType": "uncertain-effect", "artifactData": known}
    replies = iter(["n", "It ran to its end.", "y"])

    async def told(_question: str) -> str:
        return next(replies)

    monkeypatch.setattr(terminal, "told", told)
    monkeypatch.setattr(ask, "told", told)
    assert await ask.answer_to(question) == {"action": "reject", "comment": "It ran to its end."}
    assert await ask.answer_to(question) == {"action": "accept"}
    shown = capsys.readouterr().err
    assert '{"command":"make"}' in shown and "begun at" in shown and "effect_key" not in shown


async def test_a_capability_prompt_of_a_run_is_asked_with_its_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forestay.cli import terminal
    from forestay.extensions import Question
    from forestay.host.prompt_form import shown
    from forestay.kernel import weigh

    question = Question(
        "ext.a", "exec", "run programs", None, weighed=weigh({"uses_exec": 1}), note="Commands run here."
    )
    for reply, answer in (
        ("o", {"action": "accept", "remember": "once"}),
        ("y", {"action": "accept", "remember": "session"}),
        ("a", {"action": "accept", "remember": "always"}),
        ("e", {"action": "reject", "remember": "session"}),  # not offered: exec cannot be narrower
        ("v", {"action": "reject", "remember": "always"}),
        ("", {"action": "reject", "remember": "session"}),
    ):

        async def said(_question: str, reply: str = reply) -> str:
            return reply

        monkeypatch.setattr(terminal, "asked", said)
        assert await terminal.permission(shown(question, "key", {})) == answer
    told = capsys.readouterr().err
    assert "May ext.a run programs?" in told and "Commands run here." in told
    assert "Some risk: denying is the better answer (against it: it starts programs)." in told
    assert "loss(grant)" not in told
    replies = iter("?n")

    async def curious(_question: str) -> str:
        return next(replies)

    monkeypatch.setattr(terminal, "asked", curious)
    assert (await terminal.permission(shown(question, "key", {})))["action"] == "reject"
    assert "loss(grant) = " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("replies", "answer"),
    [
        (["a", ""], {"action": "accept", "remember": "always"}),
        (["a", "d"], {"action": "accept", "remember": "always", "expiresInSeconds": 86_400}),
        (["e", "y"], {"action": "accept", "remember": "session", "everything": True}),
        (["e", "a", "h"], {"action": "accept", "remember": "always", "everything": True, "expiresInSeconds": 3600}),
        (["e", ""], {"action": "reject", "remember": "once"}),
        (["y"], {"action": "accept", "remember": "session"}),
        (["n"], {"action": "reject", "remember": "session"}),
    ],
)
async def test_p16_always_asks_for_its_end_and_everything_is_said_apart(
    replies: list[str], answer: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forestay.cli import terminal
    from forestay.extensions import Question
    from forestay.host.prompt_form import shown

    question = Question("ext.a", "read", "read files and folders", "note.md", scope=("note.md",))
    given, prompts = iter(replies), []

    async def said(text: str) -> str:
        prompts.append(text)
        return next(given)

    monkeypatch.setattr(terminal, "asked", said)
    assert await terminal.permission(shown(question, "key", {})) == answer
    assert next(given, None) is None and len(prompts) == len(replies)
    told = capsys.readouterr().err
    assert "note.md only" in told
    assert ("every file and folder of the project" in told) is (replies[0] == "e")
    given = iter(replies)
    direct = await terminal.TerminalConsent().ask(question)
    assert (direct.allow, direct.everything) == (answer["action"] == "accept", "everything" in answer)
    assert (direct.expires_ms is not None) is ("expiresInSeconds" in answer)


async def test_the_numbers_for_one_extension_agree_wherever_they_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host and `forestay ext` weigh the same extension in the same way, and every place shows that."""
    from forestay.cli import ext
    from forestay.extensions import Answer, Question
    from forestay.host import Options, open_host
    from forestay.host.prompt_form import shown
    from forestay.kernel import config

    shutil.copytree(ROOT / "examples" / "harbour", tmp_path, dirs_exist_ok=True)
    settings = (tmp_path / "forestay.toml").read_text().replace('mode = "strict"', 'mode = "prompt"')
    (tmp_path / "forestay.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    asked: list[Question] = []

    class Consent:
        async def ask(self, question: Question) -> Answer:
            asked.append(question)
            return Answer(False, "once")

    async with open_host(Options(config=config.load().config, consent=Consent())) as host:
        await host.extensions.trust.give(host.root)
        suite = await host.extensions.suite()
        await suite.call_tool("tally", {}, call_id="c1", timeout=30)
    monkeypatch.setattr(ext, "TerminalConsent", Consent)
    monkeypatch.setattr(ext, "attended", lambda: True)
    monkeypatch.setattr(ext, "choice", lambda: type("Choice", (), {"format": "human"}))
    async with ext.opened_suite(ext.Chosen()) as suite:
        await suite.load(Path("extensions/tally"))
        await suite.call_tool("tally", {}, call_id="c2", timeout=30)
    there, here = asked
    assert (there.extension, there.capability) == (here.extension, here.capability) == ("ext.tally", "http")
    assert there.weighed == here.weighed and there.weighed is not None
    loss = shown(there, "key", {})["artifactData"]["loss"]
    assert (loss["words"], loss["arithmetic"]) == (there.weighed.words, there.weighed.arithmetic)
    assert f"P(malicious) = {loss['probability']:.6g}" in loss["arithmetic"]
    assert loss["words"].startswith(("Low risk", "Some risk", "High risk")) and "you trust its folder" in loss["words"]
