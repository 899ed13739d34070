"""The note that a running host leaves in its data folder, so that commands find it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit


def announce(data: Path, url: str) -> Path:
    """Say where the host that has this folder open can be reached."""
    path = data / "host.json"
    path.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    return path


def announced(data: Path) -> str | None:
    """The address of the host that has this folder open, if one has.

    A process that was killed leaves its note behind, and its number may be somebody else's by now (in a container often
    our own): what counts is that something listens there.
    """
    try:
        note = json.loads((data / "host.json").read_text())
        pid, url = int(note["pid"]), str(note["url"])
        if pid == os.getpid():
            return None
        os.kill(pid, 0)
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2):
            return url
    except (OSError, ValueError, KeyError, TypeError):
        return None
