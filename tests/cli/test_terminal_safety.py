"""What an extension says is shown to a person as text: it moves no cursor, clears no screen and sets no title."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.cli.main import run

HOSTILE = """export default (pi) => {
  const bad = "\\u001b[2J\\u001b]0;owned\\u0007 \\u001b[31mred\\u001b[0m\\r\\u009b1A end";
  pi.registerCommand("show", { handler: async (_args, ctx) => { ctx.ui.notify(bad); return { [bad]: bad }; } });
  pi.registerTool({ name: "say", label: "s", description: "d", parameters: { type: "object", properties: {} },
    async execute() { return { content: [{ type: "text", text: bad }] }; } });
  pi.registerCommand("fail", { handler: () => { throw new Error(bad); } });
}"""


@pytest.mark.parametrize("command", [["command", "show"], ["call", "say"], ["command", "fail"]])
def test_no_control_character_of_an_extension_reaches_the_terminal(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.ts").write_text(HOSTILE)
    verb, name = command
    run(["ext", verb, "bad.ts", name, "--policy", "permissive", "--human", "--data", str(tmp_path / "data")])
    shown = "".join(capsys.readouterr())
    assert "owned" in shown and "red" in shown and "end" in shown
    assert [letter for letter in shown if not letter.isprintable() and letter not in "\n\t"] == []
