"""A real host as a child process, and a real Chromium to look at it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

KEY = "console-test-key-123456"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

REVIEW: dict[str, Any] = {
    "id": "review",
    "name": "Review",
    "version": "1.0.0",
    "nodes": [
        {"id": name, "typeId": kind, "name": name.title(), "position": {"x": 0, "y": 0}, "config": config, "inputs": {}}
        for name, kind, config in (
            ("draft", "core.identity", {}),
            ("approve", "core.approvalGate", {"title": "Publish <img src=x onerror=alert(1)> the draft?"}),
            ("publish", "core.noop", {}),
        )
    ],
    "edges": [
        {"id": "e1", "sourceNodeId": "draft", "targetNodeId": "approve"},
        {"id": "e2", "sourceNodeId": "approve", "targetNodeId": "publish"},
    ],
    "triggers": [],
    "variables": [],
    "metadata": {},
    "settings": {},
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a host that serves the console."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "workflows").mkdir()
    (folder / "workflows" / "review.json").write_text(json.dumps(REVIEW))
    words = ["up", "--port", "0", "--data", "data", "--workflows", "workflows", "--json"]
    child = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", *words],
        cwd=folder,
        env={**os.environ, "HOLDFAST_API_KEY": KEY},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    yield json.loads(child.stdout.readline())["result"]["url"]
    child.send_signal(signal.SIGTERM)
    child.stdout.close()
    assert child.wait(30) == 0
