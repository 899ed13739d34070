"""The project that the soaked host serves: two scripted models, one extension, one agent, two workflows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.http import NOOP, workflow

AGENT = "local.soak.reader"
ANSWER = "Berth 7."
WORDS = 6
_NOTE = "The Aurora lies at berth 7.\n"

_CONFIG = """\
[models]
default = "scripted:plain.json"

[models.classes]
coding = "scripted:reading.json"

[agents]
paths = ["agents"]
context = []
allow = ["*"]

[workflows]
paths = ["workflows"]

[extensions]
paths = ["extensions"]

[extensions.policy]
mode = "strict"

[extensions.overrides."ext.words"]
allow = ["read:notes/**"]
"""

_EXTENSION = """\
import { Type } from "typebox";
import { readFileSync } from "node:fs";

export default function (pi: any) {
  pi.registerTool({
    name: "words",
    label: "Words",
    description: "Count the words of a note",
    parameters: Type.Object({ path: Type.String() }),
    async execute(_id: string, given: any) {
      const count = readFileSync(given.path, "utf8").trim().split(/\\s+/).length;
      return { content: [{ type: "text", text: String(count) }] };
    },
  });
}
"""

_CALL = {"path": "notes/berths.md"}


def write(folder: Path) -> None:
    """Write the project to `folder`."""
    files: dict[str, str | dict[str, Any]] = {
        "forestay.toml": _CONFIG,
        "notes/berths.md": _NOTE,
        "plain.json": {"turns": [{"text": ANSWER, "repeat": True}], "name": "plain"},
        "reading.json": {
            "turns": [{"tool_calls": [{"name": "words", "arguments": _CALL}]}, {"text": ANSWER}],
            "name": "reading",
            "position": "conversation",
        },
        "agents/reader.json": {
            "agentId": AGENT,
            "persona": "Reader",
            "modelClass": "coding",
            "systemPrompt": "Count the words of the notes.",
            "toolAllowlist": ["ext:ext.words/*"],
        },
        "workflows/five.json": workflow("five", *({**NOOP, "id": f"n{number}"} for number in range(5))),
        "workflows/tool.json": workflow(
            "tool",
            {
                **NOOP,
                "typeId": "core.tool",
                "config": {"tool": "words", "arguments": _CALL},
                "outputRole": "primary",
            },
        ),
        "extensions/words/index.ts": _EXTENSION,
        "extensions/words/extension.json": {
            "schema": "pi.ext.manifest.v1",
            "extension_id": "ext.words",
            "name": "words",
            "version": "0.1.0",
            "api_version": "1.0",
            "runtime": "js",
            "entrypoint": "index.ts",
            "capabilities": ["read"],
        },
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
