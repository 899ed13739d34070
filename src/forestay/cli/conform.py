"""The checks of every contract in one group: a host (OpenWOP), a sidecar (CRP), envelopes (LAFS), extensions (Pi)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.cli import envelope, ext_compile
from forestay.cli.command import Group
from forestay.cli.files import write_file
from forestay.cli.output import Answer
from forestay.kernel import Problem

if TYPE_CHECKING:
    from forestay.conformance import Report, Result, Trial

app = Group("conform")
app.command("lafs")(envelope.conform)
app.command("pi")(ext_compile.conform)
_SIGNS = {"pass": "pass", "fail": "FAIL", "not-applicable": "n/a "}


@app.command("openwop")
def openwop(
    url: Annotated[str, typer.Option(envvar="FORESTAY_URL", help="The host's address.")],
    key: Annotated[str, typer.Option(envvar="FORESTAY_API_KEY", help="A key of it that may do everything.")],
    other_key: Annotated[str | None, typer.Option(help="A key of another tenant; a forestay makes one itself.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Only what this profile asks for, and all of it: core, memory, agent-platform …")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this scenario; may be repeated.")] = None,
    strict: Annotated[bool, typer.Option(help="What the host does not claim fails too.")] = False,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the results as JUnit XML too.")] = None,
) -> Answer:
    """Try any OpenWOP host from outside; the exit code is 0 only when nothing failed."""
    from forestay.conformance import conform, junit

    report = conform(url, key, other_key=other_key, profile=profile, names=only or (), strict=strict)
    if junit_file is not None:
        write_file(junit_file, junit(report))
    return Answer(report, human=_lines(report), problem=_not_conformant(report))


@app.command("crp")
def crp(
    url: Annotated[str, typer.Option(help="Where its /sessions are: at a forestay, its address with /crp.")],
    key: Annotated[str | None, typer.Option(envvar="FORESTAY_API_KEY", help="A key of it, where it wants one.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this scenario; may be repeated.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the results as JUnit XML too.")] = None,
) -> Answer:
    """Try any CRP sidecar from outside; the exit code is 0 only when nothing failed."""
    from forestay.conformance import conform_sidecar, junit

    trial = conform_sidecar(url, key, names=only or ())
    if junit_file is not None:
        write_file(junit_file, junit(trial))
    return Answer(trial, human=_table(trial), problem=_not_conformant(trial))


def _not_conformant(report: Trial) -> Problem | None:
    fix = "Read `result.results`; each failed scenario says why."
    return None if report.ok else envelope.not_conformant([item.name for item in report.failed], fix)


def _lines(report: Report) -> Iterator[str]:
    yield from _covered(report)
    yield f"profiles: {', '.join(report.profiles) or 'none'}"
    platform = report.agent_platform
    missing = f" (lacks {', '.join(platform.missing_terms)})" if platform.missing_terms else ""
    yield f"agent platform: {platform.level}{missing}"
    yield "conformant" if report.ok else "not conformant"


def _table(trial: Trial) -> Iterator[str]:
    yield from _covered(trial)
    yield "conformant" if trial.ok else "not conformant"


def _covered(trial: Trial) -> Iterator[str]:
    yield from map(_line, trial.results)
    yield ""
    yield f"{'family':<14} {'passed':>7} {'failed':>7} {'n/a':>7}"
    for item in trial.coverage:
        yield f"{item.family:<14} {item.passed:>7} {item.failed:>7} {item.not_applicable:>7}"
    yield ""


def _line(item: Result) -> str:
    return f"{_SIGNS[item.outcome]}  {item.name}" + (f": {item.reason}" if item.reason else "")
