"""`forestay session` and `ask --session`: through the command line, against a data folder that none has open."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_runs import Shell


def test_a_conversation_from_the_command_line(tmp_path: Path) -> None:
    script = {"position": "conversation", "turns": [{"text": "At berth 7."}, {"text": "At berth 9."}]}
    (tmp_path / "model.json").write_text(json.dumps(script))
    (tmp_path / "forestay.toml").write_text('[models]\ndefault = "scripted:model.json"\n')
    shell = Shell(tmp_path)
    first = shell("ask", "Where does the Aurora lie?").result
    assert first["answer"] == "At berth 7."
    assert shell("ask", "--session", first["sessionId"][:6], "And the Borealis?").result["answer"] == "At berth 9."
    (line,) = shell("session", "list").result["sessions"]
    assert (line["sessionId"], line["entries"], line["first"]) == (first["sessionId"], 4, "Where does the Aurora lie?")
    shown = shell("session", "show", "last").result
    assert [entry["message"]["role"] for entry in shown["entries"]] == ["user", "assistant", "user", "assistant"]
    assert shown["runId"] is None and shown["leaf"] == shown["entries"][3]["id"]
    out = tmp_path / "s.jsonl"
    assert shell("session", "export", "last", "--to", str(out)).result["lines"] == 5
    taken = shell("session", "import", str(out)).result["sessionId"]
    assert taken != first["sessionId"]
    moved = shell("session", "move", taken, shown["entries"][2]["id"]).result
    assert (moved["leaf"], moved["draft"]) == (shown["entries"][1]["id"], "And the Borealis?")
    assert shell("ask", "--session", taken, "Again?").result["answer"] == "At berth 9.", "the answer after the first"
    branch = shell("session", "show", taken).result["entries"]
    assert len(branch) == 4 and branch[2]["message"]["content"][0]["text"] == "Again?"
    assert len(shell("session", "show", taken, "--all").result["entries"]) == 6
    refused = shell("session", "show", "nowhere")
    assert refused.error["code"] == "E_NOT_FOUND_RESOURCE" and "session list" in str(refused.error)
