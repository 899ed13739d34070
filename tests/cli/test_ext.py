"""`forestay ext` as somebody uses it who writes their first extension: in one process, each command as typed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forestay.cli.main import run
from forestay.extensions import Sandbox

SOURCE = """
import { Type } from "typebox";
export default function (pi) {
  const tool = (name, execute, parameters = Type.Object({})) =>
    pi.registerTool({ name, label: name, description: name, parameters, execute });
  const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
  tool("hang", () => new Promise(() => {}));
  tool("spin", () => { for (;;); });
  tool("boom", () => { throw new Error("bang"); });
  tool("updates", async (_id, _params, _signal, update) => { update(text(1)); update(text(2)); return text("done"); });
  tool("coerce", async (_id, params) => text(JSON.stringify(params)), Type.Object({ n: Type.Number() }));
  tool("run", async () => text((await pi.exec("sh", ["-c", "echo loud"])).stdout));
  pi.registerCommand("dialogs", { description: "asks", handler: async (_args, ctx) =>
    [await ctx.ui.select("Pick", ["a", "b"]), await ctx.ui.confirm("Sure?", "really"), await ctx.ui.input("Name")] });
  pi.registerFlag("loud", { type: "boolean", default: true, description: "be loud" });
  pi.registerShortcut("ctrl+k", { description: "k", handler: () => {} });
  pi.on("input", (event) => ({ action: "transform", text: event.text + "!" }));
}
"""
Ext = Callable[..., dict[str, Any]]


@pytest.fixture
def ext(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ext:
    """Run `forestay ext …` in a new folder; its envelope, with the exit code beside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PI_EXTENSION_LOG_DIR", str(tmp_path / "logs"))
    (tmp_path / "t.ts").write_text(SOURCE)

    def typed(*words: str) -> dict[str, Any]:
        code = run(["ext", *words])
        envelope: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return {**envelope, "code": code}

    return typed


def test_a_denial_is_one_message(ext: Ext, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ext", "call", "t.ts", "run", "--policy", "strict", "--human"]) != 0
    told = capsys.readouterr()
    message = "t has no grant for exec, and the mode is strict."
    assert (told.out + told.err).count(message) == 1
    lines = told.err.splitlines()
    assert lines[0] == f"Problem: {message}"
    assert lines[-2:] == [
        "  What to do: Call it with --grant exec.",
        "  (capability_denied; `forestay problems capability_denied` explains)",
    ]
    assert len(lines) <= 4, lines


def test_a_new_extension_is_written_inspected_and_called(ext: Ext, tmp_path: Path) -> None:
    made = ext("init", "words")
    assert made["result"]["files"] == ["extension.json", "index.ts"]
    (found,) = ext("inspect", "words")["result"]["extensions"]
    assert set(found) == {
        "path",
        "tools",
        "commands",
        "handlers",
        "shortcuts",
        "flags",
        "renderers",
        "providers",
    }
    assert set(found["tools"][0]) == {"name", "label", "description", "parameters"}
    (tmp_path / "f.txt").write_text("a b c")
    refused = ext("call", "words", "count_words", '{"path": "f.txt"}')
    assert not refused["success"] and refused["code"] != 0 and refused["result"]["isError"]
    details = refused["error"]["details"]
    assert (details["hostcall"], details["capability"], details["at"]) == ("denied", "read", "index.ts:11:21")
    assert details["fix"] == "Call it with --grant read:f.txt, or --grant read."
    called = ext("call", "words", "count_words", '{"path": "f.txt"}', "--grant", "read:f.txt")
    assert called["result"] == {
        "content": [{"type": "text", "text": "3 words"}],
        "details": {"words": 3},
        "isError": False,
        "updates": [],
    }
    assert ext("init", "words")["error"]["details"]["problem"] == "already_exists"
    assert list((tmp_path / "logs").glob("*.jsonl"))


def test_inspect_names_everything_that_is_registered(ext: Ext) -> None:
    (found,) = ext("inspect", "t.ts")["result"]["extensions"]
    assert found["path"] == "t.ts" and found["handlers"] == {"input": 1}
    assert found["commands"] == [{"name": "dialogs", "description": "asks"}]
    assert found["shortcuts"] == [{"shortcut": "ctrl+k", "description": "k"}]
    assert found["flags"] == [{"name": "loud", "type": "boolean", "default": True, "description": "be loud"}]


def test_a_call_coerces_streams_and_tells_an_error_from_a_failure(ext: Ext) -> None:
    assert ext("call", "t.ts", "coerce", '{"n": "4"}')["result"]["content"][0]["text"] == '{"n":4}'
    assert [item["content"][0]["text"] for item in ext("call", "t.ts", "updates")["result"]["updates"]] == ["1", "2"]
    boom = ext("call", "t.ts", "boom")
    assert boom["success"] and boom["result"]["isError"] and boom["result"]["content"][0]["text"] == "bang"
    assert "errors" in ext("call", "t.ts", "coerce", "{}")["error"]["details"]
    assert ext("call", "t.ts", "coerce", "{")["error"]["details"]["at"] == "arguments"
    assert "hang" in ext("call", "t.ts", "nope")["error"]["details"]["tools"]


@pytest.mark.parametrize("tool", ["hang", "spin"])
def test_the_deadline_ends_a_call_that_waits_and_one_that_does_not_let_go(ext: Ext, tool: str) -> None:
    ended = ext("call", "t.ts", tool, "--deadline", "0.4")
    assert ended["error"]["details"]["problem"] == "extension_timeout"
    assert ended["error"]["details"]["hostcall"] == "timeout"


def test_policy_decides_and_a_word_that_is_none_is_told(ext: Ext) -> None:
    assert "mode is strict" in ext("call", "t.ts", "run", "--policy", "strict")["error"]["message"]
    assert ext("call", "t.ts", "run", "--policy", "permissive")["result"]["content"][0]["text"] == "loud\n"
    assert ext("call", "t.ts", "run", "--policy", "wild")["error"]["details"]["problem"] == "invalid_usage"
    assert "no capability" in ext("call", "t.ts", "run", "--grant", "fly")["error"]["message"]
    assert ext("call", "t.ts", "run", "--root", "missing")["error"]["details"]["at"] == "--root"


def test_dialogs_are_answered_from_a_script(ext: Ext, tmp_path: Path) -> None:
    (tmp_path / "ui.json").write_text('["b", true, {"op": "input", "answer": "Ann"}]')
    answered = ext("command", "t.ts", "dialogs", "--ui-script", "ui.json")["result"]
    assert answered["returned"] == ["b", True, "Ann"] and [call["op"] for call in answered["ui"]] == [
        "select",
        "confirm",
        "input",
    ]
    assert ext("command", "t.ts", "dialogs")["result"]["returned"] == [None, False, None]
    (tmp_path / "ui.json").write_text('["c"]')
    assert ext("command", "t.ts", "dialogs", "--ui-script", "ui.json")["error"]["details"]["hostcall"]


def test_an_event_gives_the_merged_answer_and_one_that_nobody_hears_is_said(ext: Ext) -> None:
    heard = ext("emit", "t.ts", "input", '{"text": "hi", "source": "interactive"}')
    assert heard["result"]["returned"]["text"] == "hi!" and "warnings" not in heard["_meta"]
    (warning,) = ext("emit", "t.ts", "no_such")["_meta"]["warnings"]
    assert warning["code"] == "W_NO_HANDLER" and "no event of pi" in warning["message"]


def test_what_handlers_throw_is_reported(ext: Ext, tmp_path: Path) -> None:
    source = """export default (pi) => {
      for (const tide of ["low", "high"]) pi.on("turn_end", async () => { throw new TypeError(tide); });
    };"""
    (tmp_path / "bad.js").write_text(source)
    told = ext("emit", "bad.js", "turn_end")
    assert [item["problem"]["message"] for item in told["result"]["errors"]] == ["TypeError: low", "TypeError: high"]
    assert [item["code"] for item in told["_meta"]["warnings"]] == ["W_HANDLER_FAILED", "W_HANDLER_FAILED"]
    assert ext("emit", "t.ts", "input", '{"text": "hi"}')["result"]["errors"] == []


def test_decisions_are_kept_listed_and_taken_back(ext: Ext) -> None:
    assert ext("grants", "allow", "t", "exec", "--hours", "1")["result"]["effect"] == "allow"
    assert ext("call", "t.ts", "run")["result"]["content"][0]["text"] == "loud\n"
    assert ext("grants", "deny", "t", "exec")["success"]
    (kept,) = ext("grants", "list")["result"]["grants"]
    assert (kept["subject"], kept["effect"], kept["capability"]) == ("t", "deny", "exec")
    assert "denied exec" in ext("call", "t.ts", "run", "--grant", "exec")["error"]["message"]
    assert ext("grants", "revoke", "t")["result"] == {"revoked": 1}
    assert ext("grants", "revoke", "t")["error"]["details"]["problem"] == "not_found"


def test_a_trace_is_replayed_from_the_file_alone(ext: Ext, tmp_path: Path) -> None:
    recorded = ext("trace", "t.ts", "-o", "trace", "--tool", "coerce", "--args", '{"n": 1}')["result"]
    assert ext("replay", "trace")["result"] == {"identical": True, "lines": recorded["lines"]}
    assert ext("replay", "trace", "t.ts")["result"]["identical"]
    (tmp_path / "t.ts").write_text(SOURCE.replace("loud", "silent"))
    assert ext("replay", "trace", "t.ts")["error"]["details"]["problem"] == "replay_diverged"
    assert not ext("replay", "t.ts")["success"]


def test_run_takes_lines_and_gives_lines(
    ext: Ext, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = 'tool coerce {"n": 2}\nevent input {"text": "x"}\n/dialogs\ncomplete a\ntype k\nnonsense\nlist\nquit\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert run(["ext", "run", "t.ts"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [next(iter(line)) for line in lines] == [
        "content",
        "errors",
        "returned",
        "suggestions",
        "typed",
        "error",
        "extensions",
    ]


def test_resources_are_listed_and_nothing_is_executed(ext: Ext, tmp_path: Path) -> None:
    (tmp_path / ".pi" / "prompts").mkdir(parents=True)
    (tmp_path / ".pi" / "prompts" / "fix.md").write_text("---\ndescription: Fix\n---\nFix $1")
    (tmp_path / ".pi" / "settings.json").write_text('{"packages": ["npm:gone"]}')
    found = ext("resources")["result"]
    assert found["trust"] == "untrusted" and "npm install" in found["packages"][0]["problem"]
    assert ("prompt", "fix") in [(item["kind"], item["name"]) for item in found["resources"]]


def test_a_registration_that_does_not_hold_is_told_with_its_place_in_the_source(ext: Ext, tmp_path: Path) -> None:
    (tmp_path / "lib.ts").write_text(
        "type T = string;\nexport const add = (pi: any, name: T) =>\n  pi.registerCommand(name, {});"
    )
    (tmp_path / "bad.ts").write_text('import { add } from "./lib";\nexport default (pi: any) => { add(pi, "x"); };')
    error = ext("inspect", "bad.ts")["error"]
    assert error["details"]["problem"] == "registration_invalid" and error["details"]["at"].startswith("lib.ts:3:")
    assert "handler" in error["message"]


def test_doctor_names_the_sandbox_that_prompts_and_evidence_name(ext: Ext, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor"])
    findings = json.loads(capsys.readouterr().out)["result"]["findings"]
    told = next(item for item in findings if item["name"] == "process sandbox")
    assert told["detail"] == Sandbox.detect().describes
