"""The kit: tries a host with every scenario, or with the scenarios of a profile.

- N1  A scenario passes, fails or is not applicable, with a reason; none ends the trial.
- N2  What a host does not claim is not applicable. Under a profile, and under `strict`, it fails instead.
- N3  What a host claims and does not do fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import httpx

from forestay.conformance import (
    agent_scenarios,
    audit_scenarios,
    core_scenarios,
    governance_scenarios,
    outward_scenarios,
    platform_scenarios,
    prompt_scenarios,
)
from forestay.conformance.profile import PROFILES, agent_platform, profiles
from forestay.conformance.report import Report, Result, coverage
from forestay.conformance.scenario import Scenario, declared, named
from forestay.conformance.target import Target
from forestay.conformance.trial import tried
from forestay.kernel import Clock, Problem, SystemClock

__all__ = [
    "agent_scenarios",
    "audit_scenarios",
    "conform",
    "core_scenarios",
    "governance_scenarios",
    "outward_scenarios",
    "platform_scenarios",
    "prompt_scenarios",
    "scenarios",
]


# Families in the order in which they are tried: those that others depend on come first.
_ORDER = (
    "discovery", "auth", "errors", "runs", "streams", "interrupts", "replay", "agents", "prompts", "usage", "feedback",
    "tools", "memory", "evaluations", "deployments", "budgets", "triggers", "roster", "egress", "oauth", "packs",
    "audit", "profile",
)  # fmt: skip


def scenarios(profile: str | None = None, names: Collection[str] = ()) -> list[Scenario]:
    """Return the scenarios of a profile, or with these names; all when neither is given."""
    if profile is not None and profile not in PROFILES:
        raise Problem("invalid_usage", f"There is no profile {profile[:80]!r}.", at="--profile", known=list(PROFILES))
    return [
        item
        for item in sorted(named(names, declared), key=lambda item: _ORDER.index(item.family))
        if profile is None or profile in item.profiles
    ]


def conform(
    url: str,
    key: str,
    *,
    other_key: str | None = None,
    profile: str | None = None,
    names: Collection[str] = (),
    strict: bool = False,
    told: Callable[[Result], None] = lambda result: None,
    transport: httpx.BaseTransport | None = None,
    clock: Clock | None = None,
) -> Report:
    """Try the host at `url`. With `strict`, what it does not claim fails too. `told` gets each result."""
    clock = clock or SystemClock()
    chosen = scenarios(profile, names)
    with Target(url, key, other_key=other_key, transport=transport, clock=clock) as target:
        results: list[Result] = []
        if profile is not None:
            results.append(_claimed(target, profile))
        for item in chosen:
            results.append(tried(target, item, clock, strict=strict or profile is not None))
            told(results[-1])
        document = target.document
    return Report(
        contract="openwop",
        url=url,
        ok=all(item.outcome != "fail" for item in results),
        protocol_version=str(document.get("protocolVersion", "")),
        implementation=document.get("implementation") or {},
        profiles=profiles(document),
        agent_platform=agent_platform(document),
        results=results,
        coverage=coverage(results),
        profile=profile,
    )


def _claimed(target: Target, profile: str) -> Result:
    """Report whether the profile follows from the discovery document."""
    held = PROFILES[profile](target.document)
    reason = None if held else f"openwop-{profile} does not follow from the discovery document"
    if not held and profile.startswith("agent-platform"):
        reason = f"{reason}: it lacks {', '.join(agent_platform(target.document).missing_terms)}"
    summary = "The profile follows from the discovery document."
    return Result(f"profile-{profile}", "profile", "pass" if held else "fail", 0.0, summary, reason)
