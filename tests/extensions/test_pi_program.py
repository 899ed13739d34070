"""The `pi` program of extensions: its command line, its three modes, and whose grants and tokens it uses (I1 to I3)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.extensions import Extensions
from forestay.extensions.pi_agent import MOST_TURNS
from forestay.extensions.pi_program import parsed
from forestay.extensions.sandbox import Sandbox
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionPolicy, Ledger, Mode

FLEET = """
import { spawn, execSync } from "node:child_process";
export default function (pi) {
  const run = (args, input) => new Promise((resolve) => {
    const child = spawn("pi", args, { stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"] });
    let out = "", err = "";
    child.stdout.on("data", (data) => (out += data));
    child.stderr.on("data", (data) => (err += data));
    child.on("close", (code) => resolve({ out, err, code }));
    if (input !== undefined) { child.stdin.write(input); child.stdin.end(); }
  });
  pi.registerCommand("run", { handler: async (args) => run(...JSON.parse(args)) });
  pi.registerCommand("exec", { handler: async (args) => pi.exec("pi", JSON.parse(args)) });
  pi.registerCommand("shell", { handler: async () => "" + execSync("pi -p 'How deep?'") });
  pi.registerCommand("script", { handler: async (args) => {
    const done = await pi.exec("sh", ["-c", args]);
    return { out: done.stdout, err: done.stderr, code: done.code };
  } });
  pi.registerCommand("stop", { handler: async () => {
    const child = spawn("pi", ["-p", "Wait."], { stdio: ["ignore", "pipe", "pipe"] });
    child.on("spawn", () => child.kill());
    return new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
  } });
}
"""


class Sea:
    """A model that answers by what it is asked; it keeps each question."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.waits, self.left = asyncio.Event(), asyncio.Event()
        self.listed = asyncio.Event()

    async def models(self) -> list[Mapping[str, Any]]:
        self.listed.set()
        return [{"provider": "sea", "id": "ebb"}, {"provider": "sea", "id": "flow"}]

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        self.asked.append(request)
        last = request["context"]["messages"][-1]
        text = last["content"][0]["text"]
        usage = {"input": 10, "output": 5}
        if text == "Wait.":
            self.waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        if text == "Look when asked.":
            await self.listed.wait()
        if text in ("Look.", "Look when asked.", "For ever.", "again"):
            path = "notes.md" if text.startswith("Look") else "again.md"
            call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": path}}
            yield {"message": {"content": [call], "stopReason": "toolUse", "usage": usage}}
            return
        yield {"delta": "So: "}
        yield {"message": {"content": [{"type": "text", "text": f"So: {text}"}], "stopReason": "stop", "usage": usage}}


async def started(
    folder: Path, story: Any, mode: Mode = "permissive", tokens: int | None = None, *, unconfined: bool = False
) -> None:
    (folder / "fleet.ts").write_text(FLEET)
    (folder / "notes.md").write_text("four fathoms")
    (folder / "again.md").write_text("again")
    sea = Sea()
    policy = ExtensionPolicy(max_model_tokens=tokens, unconfined_programs=unconfined)
    settings = Settings(model=sea, config=ExtensionConfig(policy=policy))
    async with (
        Ledger.open(folder / "l.db") as ledger,
        Extensions(ledger, root=folder, mode=mode, grants=["exec"], settings=settings) as suite,
    ):
        await suite.load(folder / "fleet.ts")
        await story(suite, sea)


def real_time(folder: Path, story: Any, **terms: Any) -> None:
    """A program of the machine takes its time, whatever a test's clock says."""
    asyncio.run(asyncio.wait_for(started(folder, story, **terms), 120))


async def script(suite: Extensions, text: str) -> dict[str, Any]:
    found: dict[str, Any] = await suite.run_command("script", text)
    return found


async def run(suite: Extensions, *arguments: str, stdin: str | None = None) -> dict[str, Any]:
    given = json.dumps([list(arguments), *([stdin] if stdin is not None else [])])
    found: dict[str, Any] = await suite.run_command("run", given)
    return found


@pytest.mark.api("program.-p")
def test_print_mode_answers_with_the_last_text(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        done = await run(suite, "-p", "--no-session", "How deep?")
        assert (done["out"], done["err"], done["code"]) == ("So: How deep?\n", "", 0)
        done = await suite.run_command("exec", json.dumps(["-p", "@notes.md", "Read it."]))
        assert done["code"] == 0 and done["stdout"] == 'So: <file name="notes.md">\nfour fathoms\n</file>\nRead it.\n'
        assert await suite.run_command("shell") == "So: How deep?\n"
        done = await run(suite, "-p", stdin="From the input.\n")
        assert done["out"] == "So: From the input.\n"
        done = await run(
            suite, "-p", "--model", "flow", "--append-system-prompt", "notes.md", "--tools", "read,ls", "Go."
        )
        request = sea.asked[-1]
        assert request["model"] == {"provider": "sea", "id": "flow"}
        assert [tool["name"] for tool in request["context"]["tools"]] == ["read", "ls"]
        assert request["context"]["systemPrompt"].endswith("four fathoms")
        done = await run(suite, "-p", "--model", "storm", "Go.")
        assert done["code"] == 1 and "sea/ebb" in done["err"]
        assert (await suite.run_command("stop")) == {"code": None, "signal": "SIGTERM"}

    real_time(tmp_path, story)


@pytest.mark.api("program.--mode-json")
def test_json_mode_tells_every_step(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        done = await run(suite, "--mode", "json", "-p", "Look.")
        events = [json.loads(line) for line in done["out"].splitlines()]
        assert [event["type"] for event in events] == [
            "session", "agent_start", "message_start", "message_end",
            "turn_start", "message_start", "message_end", "tool_execution_start", "tool_execution_end",
            "message_start", "message_end", "turn_end",
            "turn_start", "message_update", "message_start", "message_end", "turn_end", "agent_end",
        ]  # fmt: skip
        ended = [event["message"] for event in events if event["type"] == "message_end"]
        assert [message["role"] for message in ended] == ["user", "assistant", "toolResult", "assistant"]
        assert ended[2]["content"][0]["text"] == "four fathoms" and ended[3]["usage"] == {"input": 10, "output": 5}
        done = await run(suite, "--mode", "json", "-p", "For ever.")
        assert done["out"].count('"turn_start"') == MOST_TURNS

    real_time(tmp_path, story)


@pytest.mark.api("program.--mode-rpc")
def test_rpc_mode_takes_commands_in_turn(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        commands = [
            {"id": "1", "type": "prompt", "message": "One."},
            {"id": "2", "type": "follow_up", "message": "Two."},
            {"id": "3", "type": "get_available_models"},
            {"id": "4", "type": "cycle_model"},
        ]
        done = await run(
            suite, "--mode", "rpc", stdin="".join(json.dumps(item) + "\n" for item in commands) + "nonsense\n"
        )
        told = [json.loads(line) for line in done["out"].splitlines()]
        answers = {item.get("id"): item for item in told if item["type"] == "response"}
        assert [answers[id]["success"] for id in ("1", "2", "3", "4", None)] == [True, True, True, False, False]
        assert [model["id"] for model in answers["3"]["data"]["models"]] == ["ebb", "flow"]
        said = [item["message"]["content"][0]["text"] for item in told if item["type"] == "message_end"]
        assert said == ["One.", "So: One.", "Two.", "So: Two."] and done["code"] == 0

    real_time(tmp_path, story)


@pytest.mark.api("program.--mode-rpc")
def test_rpc_mode_steers_an_agent_between_its_tool_calls_and_forgets_what_waits(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        sea.listed.clear()
        commands = [
            {"type": "prompt", "message": "Look when asked."},
            {"type": "follow_up", "message": "Later."},
            {"type": "steer", "message": "Never."},
            {"id": "c", "type": "clear_queue"},
            {"type": "follow_up", "message": "Two."},
            {"type": "steer", "message": "Make haste."},
            {"type": "get_available_models"},  # now the model answers
        ]
        done = await run(suite, "--mode", "rpc", stdin="".join(json.dumps(item) + "\n" for item in commands))
        told = [json.loads(line) for line in done["out"].splitlines()]
        cleared = next(item for item in told if item.get("id") == "c")
        assert cleared["data"] == {"steering": ["Never."], "followUp": ["Later."]}
        ends = [item["message"] for item in told if item["type"] == "message_end"]
        said = [message["content"][0].get("text", "calls") for message in ends]
        assert said == [
            "Look when asked.",
            "calls",
            "four fathoms",
            "Make haste.",
            "So: Make haste.",
            "Two.",
            "So: Two.",
        ], done

    real_time(tmp_path, story)


def test_it_may_do_what_its_extension_may_and_no_more(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        done = await run(suite, "-p", "How deep?")  # the extension was granted `exec` alone
        assert done["code"] == 1 and "model" in done["err"] and sea.asked == []

    real_time(tmp_path, story, mode="strict")


def test_it_spends_the_tokens_of_its_extension(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        assert (await run(suite, "-p", "How deep?"))["code"] == 0
        done = await run(suite, "-p", "And now?")
        assert done["code"] == 1 and "15 model tokens" in done["err"] and len(sea.asked) == 1

    real_time(tmp_path, story, tokens=15)


@pytest.mark.api("program.-p|program.--mode-json|program.--mode-rpc")
@pytest.mark.parametrize("sandbox", Sandbox.offered(), ids=lambda sandbox: sandbox.kind)
def test_a_script_finds_it_on_its_path(tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sandbox, "detect", lambda: sandbox)

    async def story(suite: Extensions, sea: Sea) -> None:
        done = await script(suite, "printf 'From the input.' | pi -p | tr a-z A-Z; cd / && pi -p 'a b' \"c'\nd\"")
        assert done == {"out": "SO: FROM THE INPUT.\nSo: a b\nc'\nd\n", "err": "", "code": 0}
        assert await script(suite, "pi --wings") == {"out": "", "err": "pi: unknown option --wings\n", "code": 1}
        done = await script(suite, "for at in 1 2 3 4 5 6 7 8 9 10; do pi -p $at & done; wait")
        assert sorted(done["out"].splitlines()) == sorted(f"So: {at}" for at in range(1, 11))
        done = await script(suite, "pi --mode json -p Look.")
        assert [json.loads(line)["type"] for line in done["out"].splitlines()][-1] == "agent_end"
        done = await script(suite, """echo '{"type": "prompt", "message": "One."}' | pi --mode rpc""")
        assert '"So: One."' in done["out"] and done["code"] == 0
        temp = suite.roots("fleet").temp
        assert temp is not None and list(Path(temp).iterdir()) == []

    real_time(tmp_path, story, unconfined=sandbox.kind == "none")


def test_a_script_that_ends_ends_it(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        work = asyncio.ensure_future(script(suite, "pi -p Wait. & read -r word < stop; kill $!; wait $!; echo $?"))
        await asyncio.wait_for(sea.waits.wait(), 30)
        await asyncio.to_thread((tmp_path / "stop").write_text, "now\n")
        await asyncio.wait_for(sea.left.wait(), 30)
        assert (await asyncio.wait_for(work, 30))["out"] == "143\n"

    os.mkfifo(tmp_path / "stop")
    real_time(tmp_path, story)


LIES = """
door=$(dirname "$(command -v pi)")
lie() { mkdir "$door/$1"; cd "$door/$1"; printf 'x\\0' > args; pwd > cwd; }
lie links; for name in in out err code life; do ln -s "$OLDPWD/notes.md" $name; done; echo links > ../door; cd "$OLDPWD"
lie files; for name in in out err code life; do echo > $name; done; echo files > ../door; cd "$OLDPWD"
lie pipes; rm args; mkfifo args; echo pipes > ../door; cd "$OLDPWD"
ln -s "$PWD" "$door/away"; echo away > "$door/door"; echo ../.. > "$door/door"; echo nowhere > "$door/door"
pi -p 'Still here.'
cat "$door/files/out"
"""


def test_what_lies_behind_the_door_is_not_believed(tmp_path: Path) -> None:
    """P2: no link is followed, no file is written to, and nothing waits for what does not come."""

    async def story(suite: Extensions, sea: Sea) -> None:
        done = await script(suite, LIES)
        assert done == {"out": "So: Still here.\n\n", "err": "", "code": 0}
        assert (tmp_path / "notes.md").read_text() == "four fathoms" and len(sea.asked) == 1

    real_time(tmp_path, story)


def test_in_a_script_it_may_do_no_more_than_its_extension(tmp_path: Path) -> None:
    async def story(suite: Extensions, sea: Sea) -> None:
        done = await script(suite, "pi -p 'How deep?'")
        assert done["code"] == 1 and "model" in done["err"] and sea.asked == []

    real_time(tmp_path, story, mode="strict")


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--session", "x"], "keeps no sessions"),
        (["-c", "Go."], "keeps no sessions"),
        (["--wings"], "unknown option"),
        (["--mode", "tui"], "unknown mode"),
    ],
)
def test_a_command_line_that_cannot_be_served_says_why(argv: list[str], why: str) -> None:
    assert why in parsed(argv).refused


def test_a_command_line_is_read_as_pi_reads_it() -> None:
    found = parsed(["-p", "--mode=json", "--tools", "read", "--no-session", "Do", "it", "--", "--really"])
    assert (found.mode, found.options["--tools"], found.words) == ("json", "read", ("Do", "it", "--really"))
