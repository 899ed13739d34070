"""The compliance pipeline: schema, then conformance, then flags, then format. A broken schema ends it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Literal, ParamSpec

import msgspec

from forestay.envelope.build import encode
from forestay.envelope.conformance import Check, Tier, conform, conform_flags
from forestay.envelope.flags import OutputChoice
from forestay.envelope.types import Envelope
from forestay.kernel import Problem

P = ParamSpec("P")
Stage = Literal["schema", "envelope", "flags", "format"]


class Issue(msgspec.Struct, frozen=True):
    """One defect, and the stage that found it."""

    stage: Stage
    message: str
    detail: str | None = None


class Compliance(msgspec.Struct, frozen=True):
    """The pipeline's answer: compliant when no stage found anything."""

    ok: bool
    issues: list[Issue]


def comply(
    data: bytes | str,
    *,
    tier: Tier = "complete",
    flags: bool = False,
    output: OutputChoice | None = None,
    require_json: bool = False,
) -> Compliance:
    """Run the pipeline on one envelope; `output` is the format in which it will be written."""
    report = conform(data, tier)
    if not report.checks[0].passed:
        return Compliance(False, [_issue("schema", report.checks[0])])
    issues = [_issue("envelope", check) for check in report.failed]
    if flags:
        issues += [_issue("flags", check) for check in conform_flags().failed]
    if require_json and output is not None and output.format != "json":
        issues.append(Issue("format", "JSON is required here.", f"The {output.source} setting chose {output.format}."))
    return Compliance(not issues, issues)


def assert_compliant(data: bytes | str, **options: object) -> None:
    """Raise a Problem that lists every issue."""
    found = comply(data, **options)  # type: ignore[arg-type]
    if not found.ok:
        raise Problem(
            "schema_mismatch",
            f"The envelope is not compliant: {found.issues[0].message}",
            issues=[msgspec.to_builtins(issue) for issue in found.issues],
            fix="Correct each of `issues`.",
        )


def with_compliance(
    function: Callable[P, Awaitable[Envelope]], *, tier: Tier = "complete"
) -> Callable[P, Awaitable[Envelope]]:
    """Wrap a producer of envelopes so that it raises a Problem instead of returning one that is not compliant."""

    @functools.wraps(function)
    async def checked(*args: P.args, **kwargs: P.kwargs) -> Envelope:
        envelope = await function(*args, **kwargs)
        assert_compliant(encode(envelope), tier=tier)
        return envelope

    return checked


def _issue(stage: Stage, check: Check) -> Issue:
    return Issue(stage, f"{check.name} failed.", check.detail)
