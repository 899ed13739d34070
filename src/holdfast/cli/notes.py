"""The note that a running host leaves in its data folder, so that commands find it."""

from __future__ import annotations

import json
import os
from pathlib import Path


def announce(data: Path, url: str) -> Path:
    """Say where the host that has this folder open can be reached."""
    path = data / "host.json"
    path.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    return path


def announced(data: Path) -> str | None:
    """The address of the host that has this folder open, if one has."""
    try:
        note = json.loads((data / "host.json").read_text())
        os.kill(int(note["pid"]), 0)
        return str(note["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
