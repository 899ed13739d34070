"""Each hostile extension ends in the right Problem, leaves evidence, and its neighbour answers all the while."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.hostile.cases import BUILDS, CASES, LOOPS, Case

from forestay.extensions.engine.limits import Limits
from forestay.extensions.extensions import Extensions
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionQuotas, Ledger, Problem, canonical

NEIGHBOUR = """
export default function (pi) {
  pi.registerTool({ name: 'ping', label: 'p', description: 'p', parameters: { type: 'object', properties: {} },
    async execute() { return { content: [{ type: 'text', text: 'pong' }] }; } });
}
"""
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "MY_API_TOKEN": "s3cr3t-value", "LANG": "C.UTF-8"}


def project(folder: Path) -> Path:
    root = folder / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("mine")
    (folder / "outside").mkdir()
    (folder / "outside" / "secret.txt").write_text("TOPSECRET")
    (root / "leave").symlink_to(folder / "outside")
    return root


class Attack:
    """A hostile extension beside its neighbour, on a real ledger."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.said = ""
        self.problem: Problem | None = None
        self.hostcall: str | None = None

    async def run(self) -> list[Any]:
        root = project(self.folder)
        for name, code in (("neighbour", NEIGHBOUR), ("hostile", self.case.code)):
            (self.folder / name).mkdir()
            (self.folder / name / "index.ts").write_text(code)
        async with Ledger.open(self.folder / "l.db") as ledger:
            async with Extensions(
                ledger,
                root=root,
                mode=self.case.mode,  # type: ignore[arg-type]
                grants=self.case.grants,
                settings=Settings(
                    environ=ENVIRON,
                    config=ExtensionConfig(quotas=ExtensionQuotas(**self.case.quotas)),
                    deadline=self.case.seconds,
                    limits=Limits(memory_mb=64, slice_ms=int(700 * self.case.seconds)),
                ),
            ) as suite:
                await suite.load(self.folder / "neighbour")
                attack = asyncio.ensure_future(self._attack(suite))
                for _ in range(10):
                    await self._ping(suite)
                if self.case in (*LOOPS, *BUILDS):
                    assert not attack.done(), "the neighbour answered while the attack was going on"
                await attack
                await self._ping(suite)
            return [record for _, record in await ledger.read_all("ext/", limit=10_000)]

    async def _ping(self, suite: Extensions) -> None:
        outcome = await suite.call_tool("ping", {})
        assert outcome.content == [{"type": "text", "text": "pong"}]

    async def _attack(self, suite: Extensions) -> None:
        try:
            await suite.load(self.folder / "hostile")
            if self.case.do == "tool":
                outcome = await suite.call_tool("attack", self.case.arguments)
                self.hostcall = outcome.hostcall
                self.said = json.dumps(outcome.content) + json.dumps(outcome.details)[:1000]
            elif self.case.do == "event":
                event = {"type": "tool_call", "toolName": "bash", "toolCallId": "1", "input": {"command": "ls"}}
                self.said = canonical.encode(await suite.emit(event)).decode()
        except Problem as problem:
            self.problem = problem


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_extension_ends_well(case: Case, tmp_path: Path) -> None:
    attack = Attack(case, tmp_path)
    records = asyncio.run(attack.run())
    got = f"said {attack.said[:300]!r}, host call {attack.hostcall}, problem {attack.problem and attack.problem.key}"
    ends = [
        attack.problem is not None and attack.problem.key in case.problem,
        case.hostcall is not None and attack.hostcall == case.hostcall,
        case.text is not None and attack.problem is None and case.text in attack.said,
    ]
    assert any(ends), got
    if case.evidence:
        assert case.evidence in [record.type for record in records if "hostile" in record.stream], got
    assert len(records) <= case.most_records
    recorded = canonical.encode([record.payload for record in records]).decode()
    everything = attack.said + recorded
    if attack.problem is not None:
        everything += canonical.encode(attack.problem.as_lafs()).decode()
    for word in case.never:
        assert word not in everything
    for word in case.unrecorded:
        assert word not in recorded
    assert not Path("/tmp/forestay-hostile-was-here").exists()
    assert (tmp_path / "project" / "src" / "a.txt").read_text() == "mine"


def test_there_are_at_least_sixty() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("name", ["disk-flood", "copy-flood"])
def test_a_quota_holds_before_the_loop_has_a_turn(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JavaScriptGuest, "stop", lambda guest, problem: None)
    attack = Attack(next(case for case in CASES if case.name == name), tmp_path)
    asyncio.run(attack.run())
    assert attack.problem is not None and attack.problem.key == "quota_exceeded", attack.said
