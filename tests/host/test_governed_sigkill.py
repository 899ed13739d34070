"""Evaluation, promotion, budget, trigger delivery, memory, OAuth renewal in a real host: SIGKILL at every boundary.

Each ends as it does without the crash, nothing that was recorded is done twice, and no reservation stays behind.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from forestay.kernel import Ledger, Record
from tests.extensions.mcp.oauth_server import Authority, standing
from tests.forked import python
from tests.host.agent_child import is_killed
from tests.host.governed_child import STORIES, Outside

# A boundary of these in every suite, all of them in the sweep: the first task scored, the tool call charged and nothing
# of it told, the token renewed and not yet sent.
ALWAYS = {"evaluation": "eval.scored:1", "budget": "budget.settled:2", "renewal": "credential.renewed:1"}


def live(story: str, folder: Path, deadline: int | str) -> int:
    done = python("tests.host.governed_child", story, str(folder), str(deadline))
    assert done.returncode in (0, -9), f"boundary {deadline} ended with {done.returncode}: {done.stderr}"
    return done.returncode


def records(folder: Path) -> list[Record]:
    async def read() -> list[Record]:
        async with Ledger.open(folder / "data" / "ledger.db") as ledger:
            verified = await ledger.verify()
            assert verified.ok, verified.faults
            return [record for _, record in await ledger.read_all(limit=100_000)]

    return asyncio.run(read())


class Others:
    """An authorization server that lets a refresh token be used again, as after an answer that was lost, and an API."""

    def __init__(self, issuer: str, authority: Authority, api: str, bearers: list[str]) -> None:
        self.issuer, self.authority, self.api, self.bearers = issuer, authority, api, bearers

    def give(self, folder: Path) -> None:
        """A token for the story in `folder`, and nothing that was seen before."""
        given = self.authority._token("code", "forestay", ["use"], None)
        outside = Outside(self.issuer, self.api, given.access_token, str(given.refresh_token))
        (folder / "outside").write_bytes(msgspec.json.encode(outside))
        self.authority.given.clear()
        self.bearers.clear()

    def check(self, folder: Path) -> None:
        """What the API saw was renewed and on disk first; a renewal that is on record is not asked for again."""
        kept = (folder / "kept").read_text()
        old = msgspec.json.decode((folder / "outside").read_bytes(), type=Outside).access
        assert self.bearers and set(self.bearers) == {kept} <= self.authority.access.keys() - {old}
        renewals = self.authority.given.count("refresh")
        assert renewals in (1, 2) and len(self.bearers) in (1, 2)
        assert renewals + len(self.bearers) <= 3, "one crash repeats one of the two"
        assert [item.type for item in records(folder) if item.type.startswith("credential.")] == [
            "credential.kept",
            "credential.renewed",
        ]


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    bearers: list[str] = []

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            bearers.append(self.headers["Authorization"].removeprefix("Bearer "))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with standing("http://127.0.0.1:1/") as (issuer, authority), ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        authority.grace = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Others(issuer, authority, f"127.0.0.1:{server.server_port}", bearers)
        server.shutdown()
        thread.join(10)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, others: Others) -> dict[str, Path]:
    """Each story without a crash, told when it is asked for."""

    class Told(dict[str, Path]):
        def __missing__(self, story: str) -> Path:
            folder = self[story] = tmp_path_factory.mktemp(story)
            others.give(folder)
            assert live(story, folder, 0) == 0
            return folder

    return Told()


def check(story: str, calm: Path, folder: Path, deadline: int | str, others: Others) -> None:
    folder.mkdir(exist_ok=True)
    others.give(folder)
    assert is_killed(live(story, folder, deadline), folder)
    assert live(story, folder, 0) == 0
    assert (folder / "end").read_text() == (calm / "end").read_text(), f"killed at boundary {deadline}"
    found = records(folder)
    answers = Counter(item.payload["dispatch_id"] for item in found if item.type == "crp.dispatch.complete")
    assert set(answers.values()) <= {1}, "an answer of the model is recorded once"
    calls = Counter((item.stream, item.payload.get("callId")) for item in found if item.type == "agent.toolReturned")
    assert set(calls.values()) <= {1}, "a tool's result is recorded once"

    if story == "budget":
        check_spending(folder)
    if story == "renewal":
        others.check(folder)


def check_spending(folder: Path) -> None:
    """What is on record is paid for. A call whose answer was not yet on record is made again, and is paid for again
    when its end was known: the model was really asked."""
    told = json.loads((folder / "spent").read_text())
    again = len((folder / "model").read_text().split()) - len(told["used"])
    assert sum(told["used"]) <= told["spent"] <= sum(told["used"]) + again * max(told["used"])
    assert told["calls"] == 1, "a call that was charged and not yet decided is charged once"


@pytest.mark.parametrize("story", ALWAYS)
def test_killed_at_a_boundary(tmp_path: Path, calm: dict[str, Path], others: Others, story: str) -> None:
    check(story, calm[story], tmp_path / "cut", ALWAYS[story], others)


@pytest.mark.sweep
@pytest.mark.parametrize("story", STORIES)
def test_killed_at_every_boundary(tmp_path: Path, calm: dict[str, Path], others: Others, story: str) -> None:
    total = int((calm[story] / "boundaries").read_text())
    assert total > 20
    for deadline in range(1, total):
        check(story, calm[story], tmp_path / str(deadline), deadline, others)
