"""Check, project and explain LAFS envelopes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, get_args

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.files import first_bytes
from forestay.cli.output import Answer
from forestay.kernel import Problem

if TYPE_CHECKING:
    from forestay.envelope import Report, Tier

app = Group("envelope")

Files = Annotated[list[str] | None, typer.Argument(help="Files with one envelope each; - or nothing reads stdin.")]
File = Annotated[str, typer.Argument(help="A file with one envelope; - reads stdin.")]


@app.command("validate")
def validate(
    files: Files = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Allow unknown members in any envelope.")] = False,
) -> Answer:
    """Whether each file holds a valid envelope, and if not, why."""
    from forestay.envelope import decode

    checked: list[dict[str, Any]] = []
    first: Problem | None = None
    for name in files or ["-"]:
        try:
            decode(_read(name), strict=False if lenient else None)
            checked.append({"file": name, "valid": True})
        except Problem as problem:
            first = first or problem
            checked.append({"file": name, "valid": False, "problem": problem.as_lafs()})
    result = {"valid": first is None, "files": checked}
    return Answer(result, human=map(_validity, checked), problem=first)


@app.command("conform")
def conform(
    files: Files = None,
    tier: Annotated[str, typer.Option(help="core, standard or complete.")] = "complete",
    flags: Annotated[bool, typer.Option("--flags", help="Check this program's output flags too, or alone.")] = False,
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="Read one envelope per line from stdin; print one result per line.")
    ] = False,
) -> Answer | None:
    """Run the conformance checks of a tier; the exit code is 0 only when all of them pass."""
    from forestay.envelope import conformance

    chosen: Tier = _one_of("--tier", tier, tuple(conformance.TIERS))
    if ndjson:
        if files:
            raise Problem("invalid_usage", "--ndjson reads stdin and takes no files.", at="--ndjson")
        if not _conform_lines(sys.stdin.buffer, sys.stdout.buffer, chosen):
            raise typer.Exit(2)
        return None
    names = files or ([] if flags else ["-"])
    reports = [(name, conformance.conform(_read(name), chosen)) for name in names]
    if flags:
        reports.append(("flags", msgspec.structs.replace(conformance.conform_flags(), tier=chosen)))
    report = reports[0][1] if len(reports) == 1 else _together(reports, chosen)
    return Answer(report, human=_report_lines(report), problem=_not_conformant(report))


@app.command("project")
def project(
    file: File = "-",
    level: Annotated[str, typer.Option(help="minimal, standard or full.")] = "standard",
    pick: Annotated[str, typer.Option(help="Only these fields of each entity, with commas between.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Fit into so many tokens.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="Fit into so many bytes.")] = None,
    max_items: Annotated[int | None, typer.Option(min=1, help="Fit into so many items.")] = None,
    strategy: Annotated[str, typer.Option(help="depth_first, field_priority or hybrid.")] = "hybrid",
) -> dict[str, Any]:
    """The envelope as it is shown at a level, with picked fields, within a budget."""
    import asyncio

    from forestay.envelope import REQUESTABLE_LEVELS, Ask, Budget, Strategy, decode, give

    budget = Budget(max_tokens, max_bytes, max_items)
    ask = Ask(
        mvi=_one_of("--level", level, REQUESTABLE_LEVELS),
        fields=tuple(name for name in pick.split(",") if name),
        budget=budget if budget.as_json() else None,
        strategy=_one_of("--strategy", strategy, get_args(Strategy)),
    )
    return asyncio.run(give(decode(_read(file)), ask))


@app.command("explain")
def explain(file: File = "-") -> Answer:
    """What an envelope says, in plain words, and what an agent should do next."""
    from forestay.envelope import decode, explain

    told = explain(decode(_read(file)))
    return Answer(told, human=[*told.sentences, f"Next: {told.next}"])


@app.command("schema")
def schema(
    name: Annotated[
        str, typer.Argument(help="envelope, envelope-minimal, envelope-standard, context-ledger, …")
    ] = "envelope",
) -> Answer:
    """A JSON Schema of the contract, generated from the types."""
    from forestay.envelope import schemas

    known = schemas()
    if name not in known:
        raise Problem("not_found", f"There is no schema {name[:80]!r}.", at=name[:80], known=sorted(known))
    pretty = msgspec.json.format(msgspec.json.encode(known[name]), indent=2).decode()
    return Answer(known[name], human=[pretty])


def _conform_lines(source: BinaryIO, target: BinaryIO, tier: Tier) -> bool:
    """Write one result per line, in order, as soon as it is known; whether all are ok."""
    from forestay.envelope import conform

    encode = msgspec.json.Encoder().encode
    ok = True
    for line in _lines(source):
        report = conform(line, tier)
        ok = ok and report.ok
        target.write(encode(report) + b"\n")
        target.flush()
    return ok


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Yield the non-empty lines; cut a line that is too long, so that it cannot fill the memory."""
    from forestay.envelope import MAX_ENVELOPE_BYTES

    while line := source.readline(MAX_ENVELOPE_BYTES + 2):
        if len(line) > MAX_ENVELOPE_BYTES + 1 and not line.endswith(b"\n"):
            while (rest := source.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
        if line.strip():
            yield line.rstrip(b"\r\n")


def _read(name: str) -> bytes:
    """Read a file or stdin, at most one byte more than an envelope may have."""
    from forestay.envelope import MAX_ENVELOPE_BYTES

    return first_bytes(Path(name), MAX_ENVELOPE_BYTES + 1)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise Problem("invalid_usage", f"{value[:40]!r} is not a value of {option}.", at=option, allowed=list(allowed))
    return value


def _together(reports: list[tuple[str, Report]], tier: Tier) -> Report:
    """Join the reports of several files; each check names its file."""
    from forestay.envelope import Check, Report

    checks = [
        Check(check.name, check.passed, f"{name}: {check.detail or ('passed' if check.passed else 'failed')}")
        for name, report in reports
        for check in report.checks
    ]
    return Report(all(report.ok for _, report in reports), tier, checks)


def _not_conformant(report: Report) -> Problem | None:
    fix = "Read `result.checks`; each failed check says why."
    return None if report.ok else not_conformant([check.name for check in report.failed], fix)


def not_conformant(failed: list[str], fix: str) -> Problem:
    """Return the problem of a report in which these checks failed."""
    told = f"Not conformant: {', '.join(dict.fromkeys(failed))}."
    return Problem("schema_mismatch", told, failed=failed[:50], fix=fix)


def _validity(checked: dict[str, Any]) -> str:
    if checked["valid"]:
        return f"{checked['file']}: a valid envelope"
    problem = checked["problem"]
    return f"{checked['file']}: not valid at {problem['details'].get('at', '$')}: {problem['message']}"


def _report_lines(report: Report) -> Iterator[str]:
    for check in report.checks:
        yield f"{'pass' if check.passed else 'FAIL'}  {check.name}" + (f": {check.detail}" if check.detail else "")
    yield f"{'conformant' if report.ok else 'not conformant'} ({report.tier})"
