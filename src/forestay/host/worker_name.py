"""The name of this process among those that share a ledger.

The data folder keeps the name: a restarted host takes back its own runs at once. The machine's name is part of it, so
that a copy of the folder on another machine gets another name.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

from forestay.kernel import Randomness, kept_in, write_file

FILE = "worker"


def worker_name(folder: Path, randomness: Randomness) -> str:
    """Return the name of the host that has `folder` open."""
    file = folder / FILE
    with kept_in(folder):
        if not file.exists():
            write_file(file, randomness.bytes(4).hex().encode())
        mark = file.read_text("ascii").strip()
    machine = re.sub(r"[^a-z0-9-]", "-", socket.gethostname().lower())[:40] or "host"
    return f"{machine}-{mark[:16]}"
