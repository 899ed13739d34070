"""The report of a trial: each scenario's outcome with its reason, and the counts per family."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec

from forestay.conformance.profile import AgentPlatform

Outcome = Literal["pass", "fail", "not-applicable"]


class Result(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One scenario's outcome; `reason` says why it failed or was not applicable."""

    name: str
    family: str
    outcome: Outcome
    seconds: float
    summary: str
    reason: str | None = None


class Covered(msgspec.Struct, frozen=True, rename="camel"):
    """The counts of a family of scenarios."""

    family: str
    passed: int
    failed: int
    not_applicable: int


class Trial(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The results of a contract's scenarios at an address."""

    contract: str
    url: str
    ok: bool
    results: list[Result]
    coverage: list[Covered]

    @property
    def failed(self) -> list[Result]:
        return [item for item in self.results if item.outcome == "fail"]


class Report(Trial, frozen=True, rename="camel", omit_defaults=True):
    """The trial of a host."""

    protocol_version: str
    implementation: dict[str, Any]
    profiles: list[str]
    agent_platform: AgentPlatform
    profile: str | None = None


def coverage(results: list[Result]) -> list[Covered]:
    counts = Counter((item.family, item.outcome) for item in results)
    families = dict.fromkeys(item.family for item in results)
    return [
        Covered(family, counts[family, "pass"], counts[family, "fail"], counts[family, "not-applicable"])
        for family in families
    ]
