"""A project whose extension talks to people, and whose model says what a file holds: for the pages of sessions."""

from __future__ import annotations

import json
from pathlib import Path

from tests.host.test_session_front import HARBOUR

TURNS = [
    {"text": "I look. ", "tool_calls": [{"name": "read", "arguments": {"path": "notes.md"}}]},
    {"text": "The Aurora lies at **berth 7**."},
    {"text": "The Borealis lies at berth 9."},
]


def talking(folder: Path) -> Path:
    (folder / "harbour.ts").write_text(HARBOUR)
    (folder / "notes.md").write_text("The Aurora lies at berth 7.\n")
    (folder / "model.json").write_text(json.dumps({"position": "conversation", "turns": TURNS}))
    (folder / "forestay.toml").write_text(
        '[models]\ndefault = "scripted:model.json"\n\n[models.classes]\nclassification = "local"\n\n'
        '[agents]\nallow = ["*"]\n\n'
        '[extensions]\npaths = ["harbour.ts"]\n\n[extensions.policy]\nmode = "permissive"\n'
    )
    return folder
