"""A real host as a child process, in a project that has something to show, and a client that speaks to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import httpx

from tests.forked import Forked

KEY = "console-test-key-123456"
HARBOUR = Path(__file__).parents[2] / "examples" / "harbour"
QUESTION = 'At which berth does the Aurora lie? Use tally, then write "The Aurora lies at berth 7." to report.md'


def workflow(name: str, *nodes: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A workflow of nodes one after the other: id, type, configuration."""
    return {
        "id": name,
        "name": name.title(),
        "version": "1.0.0",
        "nodes": [
            {
                "id": id,
                "typeId": kind,
                "name": id.title(),
                "position": {"x": 0, "y": 0},
                "config": config,
                "inputs": {},
            }
            for id, kind, config in nodes
        ],
        "edges": [
            {"id": f"e{place}", "sourceNodeId": before[0], "targetNodeId": after[0]}
            for place, (before, after) in enumerate(pairwise(nodes))
        ],
        "triggers": [],
        "variables": [],
        "metadata": {},
        "settings": {},
    }


def review(title: str) -> dict[str, Any]:
    return workflow(
        "review",
        ("draft", "core.identity", {}),
        ("approve", "core.approvalGate", {"title": title}),
        ("publish", "core.noop", {}),
    )


CLARIFY = workflow(
    "clarify",
    (
        "ask",
        "core.clarificationGate",
        {
            "questions": [
                {"id": "colour", "question": "Which colour?", "schema": {"type": "string", "enum": ["red", "green"]}},
                {"id": "count", "question": "How many?", "schema": {"type": "integer"}},
            ]
        },
    ),
)


def harbour(folder: Path) -> Path:
    """The example project, where a person is asked about what nobody granted, with two workflows more."""
    shutil.copytree(HARBOUR, folder, dirs_exist_ok=True)
    config = folder / "forestay.toml"
    text = config.read_text().replace('mode = "strict"', 'mode = "prompt"')
    assert 'mode = "prompt"' in text
    config.write_text(text.replace("[agents]\n", '[agents]\nallow = ["ext:ext.tally/*"]\n'))
    (folder / "workflows" / "review.json").write_text(json.dumps(review("Publish the draft?")))
    (folder / "workflows" / "clarify.json").write_text(json.dumps(CLARIFY))
    return folder


class Served:
    """A running host: its address, and what a program may ask of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.api = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30, trust_env=False)

    def start(self, workflow_id: str, **inputs: Any) -> str:
        made = self.api.post("/v1/runs", json={"workflowId": workflow_id, "inputs": inputs})
        assert made.status_code == 201, made.text
        return str(made.json()["runId"])

    def until(self, run_id: str, *types: str, count: int = 1) -> None:
        """Follow the run until it has told one of `types` so many times, or has ended."""
        with self.api.stream("GET", f"/v1/runs/{run_id}/events", params={"streamMode": "debug"}) as lines:
            for line in lines.iter_lines():
                if line.startswith("event: ") and line.removeprefix("event: ") in types:
                    count -= 1
                    if not count:
                        return

    def resolve(self, run_id: str, node: str, **value: Any) -> None:
        answer = self.api.post(f"/v1/runs/{run_id}/interrupts/{node}", json={"resumeValue": value})
        assert answer.status_code == 200, answer.text

    def asked_to_write(self) -> str:
        """A harbour run whose capability prompt was denied, and which now waits for the approval to write."""
        run = self.start("harbour", question=QUESTION)
        self.until(run, "interrupt.requested")
        self.resolve(run, "master", action="reject", comment="not there", remember="once")
        self.until(run, "interrupt.requested", count=2)
        return run

    def finished(self) -> str:
        """A harbour run that went to its end."""
        run = self.asked_to_write()
        self.resolve(run, "master", action="accept", comment="fine")
        self.until(run, "run.completed")
        return run


@contextmanager
def served(folder: Path, *words: str, errors: IO[str] | None = None) -> Iterator[Served]:
    """`forestay up` in `folder`; it must end well."""
    said = None if errors is None else errors.fileno()
    environ = {**os.environ, "FORESTAY_API_KEY": KEY}
    child = Forked(folder, "up", "--port", "0", "--json", *words, environ=environ, stderr=said)
    assert child.stdout is not None
    host = Served(json.loads(child.stdout.readline())["result"]["url"])
    try:
        yield host
    finally:
        host.api.close()
        child.send_signal(signal.SIGTERM)
        child.stdout.close()
        code = child.wait(30)
    assert code == 0
