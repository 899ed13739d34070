"""What each story has in its project, what its model says, and what a person does and sees; who plays it decides where.

A step is a word and what belongs to it: `say` something, `see` a text, have a text `stand` beside the conversation from
now on, find that it `stood` there, `choose` an option by its number, `confirm`, or take the story's `picture`, which is
otherwise taken at the end. A text that is seen was nowhere before. A story ends with files that hold what was done.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"
Step = tuple[str, str]


class Story(NamedTuple):
    """`turns` are found by the words of the last message; `git` makes the project a repository."""

    turns: Sequence[Mapping[str, Any]]
    steps: Sequence[Step]
    files: Mapping[str, str] = {}
    left: Mapping[str, str] = {}
    settings: str = ""
    git: bool = False


def calls(when: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"when": when, "tool_calls": [{"name": name, "arguments": arguments}]}


def says(when: str, text: str) -> dict[str, Any]:
    return {"when": when, "text": text}


SERVER = """import json, sys
TOOL = {"name": "depth", "description": "The depth at a berth", "inputSchema": {"type": "object", "properties": {"berth": {"type": "string"}}}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "sea", "version": "1"}}
    if message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    if message["method"] == "tools/call":
        berth = message["params"]["arguments"]["berth"]
        result = {"content": [{"type": "text", "text": f"4 fathoms at {berth}"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""  # noqa: E501
SSH = '#!/bin/sh\nexport MACHINE=$1\nshift\nexec sh -c "$*"\n'

STORIES: dict[str, Story] = {
    "todo": Story(
        [
            calls("plan the day", "todo", add="paint the hull"),
            says("[ ] paint the hull", "One thing to do."),
            calls("is painted", "todo", done=1),
            says("[x] paint the hull", "All done."),
        ],
        [
            ("say", "Please plan the day"),
            ("see", "todo: paint the hull"),
            ("see", "One thing to do."),
            ("stand", "1 to do"),
            ("say", "It is painted"),
            ("see", "All done."),
            ("stand", "0 to do"),
            ("say", "/todos"),
            ("see", "1 on the list"),
        ],
    ),
    "plan_mode": Story(
        [
            says("Moor the Aurora", "The plan: write berth 7 into log.md."),
            calls("Carry out", "write", path="log.md", content="berth 7\n"),
            says("log.md", "Moored."),
        ],
        [
            ("say", "/plan"),
            ("see", "Plan mode is on"),
            ("stand", "plan mode: looking only"),
            ("say", "Moor the Aurora"),
            ("see", "The plan: write berth 7"),
            ("see", "What now?"),
            ("picture", ""),
            ("choose", "1"),
            ("see", "Moored."),
        ],
        left={"log.md": "berth 7\n"},
    ),
    "permission_gate": Story(
        [
            calls("Clean up", "bash", command="rm -rf old"),
            says("blocked", "Left as it is."),
            calls("Really", "bash", command="rm -rf old; echo all clean"),
            says("all clean", "Cleaned."),
        ],
        [
            ("say", "Clean up"),
            ("see", "Dangerous: rm -rf old"),
            ("choose", "2"),
            ("see", "Left as it is."),
            ("say", "Really clean"),
            ("see", "Dangerous: rm -rf old; echo"),
            ("picture", ""),
            ("choose", "1"),
            ("see", "Cleaned."),
        ],
        files={"old/log.md": "an old log"},
    ),
    "git_checkpoint": Story(
        [
            calls("Change the log", "write", path="log.md", content="changed\n"),
            says("log.md", "Changed."),
        ],
        [
            ("say", "Change the log"),
            ("see", "Changed."),
            ("say", "/restore"),
            ("see", "Which one?"),
            ("choose", "1"),
            ("see", "What was changed since is lost."),
            ("picture", ""),
            ("confirm", "yes"),
            ("see", "The files are as at"),
        ],
        files={"log.md": "as it was\n"},
        left={"log.md": "as it was\n"},
        settings='[extensions.overrides.git_checkpoint]\nallow = ["write"]\n',
        git=True,
    ),
    "subagent": Story(
        [
            calls("Ask somebody", "delegate", task="Where does the Aurora lie?"),
            calls("Task: Where", "read", path="notes.md"),
            says("The Aurora lies", "At berth 7, says the log."),
            says("says the log", "Somebody looked: berth 7."),
        ],
        [("say", "Ask somebody else"), ("see", "Somebody looked: berth 7.")],
        files={"notes.md": "The Aurora lies at berth 7.\n"},
    ),
    "web_fetch": Story(
        [calls("the tide page", "web_fetch", url="{served}/tide.html"), says("high at nine", "High water is at nine.")],
        [("say", "Read the tide page"), ("see", "High water is at nine.")],
        files={"tide.html": "<html><style>x</style><body><h1>Tide</h1> high at nine</body></html>"},
        settings='[extensions.overrides.web_fetch]\nallow = ["http:127.0.0.1"]\n',
    ),
    "footer": Story(
        [says("Hello", "Ahoy.")],
        [
            ("say", "Hello"),
            ("see", "Ahoy."),
            ("stand", "scripted · 1 answers"),
        ],
    ),
    "ssh": Story(
        [calls("Look there", "bash", command="echo at $MACHINE"), says("at harbour", "I looked over there.")],
        [
            ("say", "Look there"),
            ("see", "I looked over there."),
            ("stood", "commands run on harbour"),
            ("say", "!echo I am at $MACHINE myself"),
            ("see", "I am at harbour myself"),
        ],
        files={"../machine/ssh": SSH},
        settings='[extensions.flags]\nssh = "harbour"\n',
    ),
    "sandbox": Story(
        [
            calls("Show it", "bash", command="echo sandboxed=$SANDBOXED"),
            says("sandboxed=1", "It is sandboxed."),
            calls("Go out", "bash", command="curl example.org"),
            says("denies", "It may not."),
        ],
        [
            ("say", "Show it"),
            ("see", "It is sandboxed."),
            ("say", "Go out"),
            ("see", "It may not."),
            ("say", "!wget example.org"),
            ("see", 'The sandbox of this project denies "wget"'),
            ("say", "/sandbox"),
            ("see", "denied: curl, wget"),
        ],
        files={".pi/sandbox.json": '{"deny": ["curl", "wget"]}'},
    ),
    "mcp_adapter": Story(
        [calls("How deep", "sea_depth", berth="berth 7"), says("4 fathoms", "Four fathoms, says the server.")],
        [("say", "How deep is it?"), ("see", "Four fathoms, says the server."), ("stood", "sea: 1 tools")],
        files={
            "server.py": SERVER,
            ".pi/mcp.json": json.dumps({"mcpServers": {"sea": {"command": "python3", "args": ["server.py"]}}}),
        },
    ),
    "memory": Story(
        [
            calls("Keep in mind", "remember", fact="The Aurora lies at berth 7."),
            says("Kept:", "I know it now."),
        ],
        [
            ("say", "Keep in mind where the Aurora lies: at berth 7"),
            ("see", "I know it now."),
            ("say", "/memory"),
            ("see", "- The Aurora lies at berth 7."),
        ],
        left={".pi/memory.md": "- The Aurora lies at berth 7.\n"},
    ),
    "notify": Story(
        [calls("Look", "ls"), says("harbour.log", "I see it.")],
        [("say", "Look around"), ("see", "I see it."), ("see", "s and 1 tool calls")],
        files={"harbour.log": "x"},
    ),
}


def project(folder: Path, name: str, served: str = "") -> Path:
    """The project of a story: its extension, its files, its model and its settings."""
    story = STORIES[name]
    folder.mkdir()
    (folder / f"{name}.ts").write_text((EXTENSIONS / f"{name}.ts").read_text("utf-8"))
    for path, text in story.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        if path.startswith("../"):
            (folder / path).chmod(0o755)
    turns = json.loads(json.dumps(list(story.turns)).replace("{served}", served))
    (folder / "model.json").write_text(json.dumps({"turns": [{**turn, "repeat": True} for turn in turns]}))
    (folder / "forestay.toml").write_text(
        '[models]\ndefault = "scripted:model.json"\n\n[agents]\nallow = ["*"]\n\n'
        f'[extensions]\npaths = ["{name}.ts"]\n\n'
        f'[extensions.policy]\nmode = "permissive"\n\n{story.settings}'
    )
    if story.git:
        who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main"]
        for arguments in (["init", "-q"], ["add", "log.md"], ["commit", "-qm", "log"]):
            subprocess.run(["git", *who, *arguments], cwd=folder, check=True)
    return folder


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The files of a folder on a port of this machine, for the story that fetches one."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def search_path(folder: Path, name: str) -> str:
    """Where programs are found: a story that brings one has it found first."""
    brought = [str(folder.parent / "machine")] if "../machine/ssh" in STORIES[name].files else []
    return ":".join([*brought, os.environ["PATH"]])


def check_left(folder: Path, name: str) -> None:
    """The files hold what the story did."""
    assert {path: (folder / path).read_text() for path in STORIES[name].left} == dict(STORIES[name].left)
