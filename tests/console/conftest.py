"""Hosts to look at: one with a single workflow, and the harbour with its agent, its extension and its notes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.console.page import Node, parse
from tests.console.served import KEY, Served, harbour, review, served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a host that serves the console."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "workflows").mkdir()
    document = review("Publish <img src=x onerror=alert(1)> the draft?")
    (folder / "workflows" / "review.json").write_text(json.dumps(document))
    with served(folder, "--data", "data", "--workflows", "workflows") as running:
        yield running.url


class Console:
    """Somebody at the console, without a browser: pages come as trees, forms are filled in and sent."""

    def __init__(self, running: Served, key: str = KEY) -> None:
        self.running = running
        self.http = httpx.Client(base_url=running.url, timeout=30, trust_env=False)
        assert self.http.post("/login", data={"key": key}).status_code == 303
        found = re.search(r'name="csrf" value="([^"]+)"', self.http.get("/").text)
        assert found
        self.token = found[1]

    def page(self, path: str, status: int = 200) -> Node:
        answer = self.http.get(path)
        assert answer.status_code == status, (path, answer.status_code, parse(answer.text).one("main").text)
        return parse(answer.text)

    def send(self, path: str, status: int = 303, **fields: Any) -> httpx.Response:
        answer = self.http.post(path, data={"csrf": self.token, **fields})
        assert answer.status_code == status, (path, answer.status_code, parse(answer.text).one("main").text)
        return answer

    def session_of(self, run_id: str) -> str:
        """The relay session of the run's agent."""
        events = self.running.api.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": -1}).json()["events"]
        return next(str(e["payload"]["sessionId"]) for e in events if e["type"] == "forestay.relay.answered")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """The console of the harbour."""
    with served(harbour(tmp_path_factory.mktemp("harbour")), "--trust") as running:
        visitor = Console(running)
        yield visitor
        visitor.http.close()


@pytest.fixture(scope="module")
def finished(console: Console) -> str:
    """A run of the harbour that ended."""
    return console.running.finished()
